"""The history of a schema from its verified log: definitions, times, effects of each commit.

Commits contain the definition at each point of a log, because the API is not trusted. Before the
first commit there is no log, and the API's definition is used (docs/SPEC.md, section 7.4).

A commit's identifier contains the time of drafting by the drafting proxy's clock, and is
authenticated with the commit. The API cannot influence these times.

A ledger aggregates commits and discards them. A reader of changes needs each commit, so a ledger
keeps the effects of its newest commits: the rows that each commit added and ended. The effects of
earlier commits are recomputed from the commits, which are verified by the log's digests
(:class:`Replay`). Rows are identified by their positions (:mod:`.snapshot`), which no merge
changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate

from encrypted_records.crypto.keys import LogKeys, SchemaKey
from encrypted_records.errors import KeyMissing, LogBroken, Malformed, StaleDefinition
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model.ciphertext_lengths import BESIDE_CLASS, is_class
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_changes import DefinitionHistory, NotFollowing
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.ids import ID_BYTES, milliseconds
from encrypted_records.model.records import PAGE_BYTES, CommitBody, Group, KilledRows
from encrypted_records.rules.commit_judging import KeyName


def follow(
    before: DefinitionHistory | None, body: CommitBody, live: Collection[bytes], since: int
) -> DefinitionHistory:
    """The definitions that are valid from a commit on.

    Args:
        before: the definitions before the commit; None at the beginning of a log.
        live: the groups before it, by uid.
        since: the log version that introduced the previous definition.

    Raises:
        LogBroken: the commit is under a definition that may not follow, or adds something under a
            definition that may not be used.
    """
    history = _follow(before, body, live, since)
    if not body.definitions_of_added <= history.usable:
        raise LogBroken("a commit adds a group or segment of another definition")
    return history


def _follow(
    before: DefinitionHistory | None, body: CommitBody, live: Collection[bytes], since: int
) -> DefinitionHistory:
    if before is not None and body.definition == before.present.digest:
        return before
    if not body.definition_text:
        raise LogBroken("a commit is under a definition that the log does not contain")
    try:
        new = parse_canonical(body.definition_text)
    except Malformed as error:
        raise LogBroken(error.message) from None
    if new.digest != body.definition:
        raise LogBroken("a commit brings another definition than it names")
    if before is None:
        return DefinitionHistory.first(new)
    if body.seen < since:
        # The same id may name different fields in the two definitions; no other check detects this.
        raise LogBroken("a definition does not follow from the one before it")
    if body.ended and set(body.ended) == set(live):
        if not new.follows(before.present):
            raise LogBroken("a definition gives a field another id")
        return DefinitionHistory.first(new)  # nothing sealed under another definition is left
    if body.changes_data:
        raise LogBroken("a commit changes the definition and something else")
    try:
        return before.then(new, proven=bool(body.exact))
    except NotFollowing as error:
        raise LogBroken(str(error)) from None


def check_groups(body: CommitBody, history: DefinitionHistory, live: Collection[bytes]) -> None:
    """Check that no added group is live already, and check the groups' fields and classes.

    Args:
        history: as :func:`follow` gives it.
        live: as for :func:`follow`.

    Raises:
        LogBroken: a group is live already, has other fields than its definition, or lacks the class
            of a field.
    """
    uids = {group.uid for group in body.groups}
    if len(uids) != len(body.groups) or any(uid in live for uid in uids):
        raise LogBroken("a commit adds a group that exists")
    if any(group.fields != history.every[group.definition].ids for group in body.groups):
        raise LogBroken("a commit adds a group whose fields are not those of its definition")
    if any(len(group.classes) != len(group.fields) for group in body.groups):
        raise LogBroken("a group does not state a length class for each of its fields")
    if not all(is_class(stated) for group in body.groups for stated in group.classes):
        raise LogBroken("a group states a length class that no field has")


def brings_definition(
    history: DefinitionHistory | None,
    definition: SchemaDefinition,
    made: Collection[bytes],
    *,
    new: bool,
) -> bool:
    """Whether a commit that is drafted under ``definition`` must contain its text.

    Args:
        made: the definitions named by the added groups and segments.
        new: whether the definition replaces the log's.

    Raises:
        StaleDefinition: the log now has another definition, or an added group or segment has a
            definition that can no longer be used.
    """
    brings = history is None or history.present.digest != definition.digest
    stale = history is not None and brings and not new
    usable = {definition.digest, *(history.usable if history else ())}
    if stale or not usable.issuperset(made):
        raise StaleDefinition("the schema's definition changed while records were encrypted")
    return brings


#: Days that are reported, and days that are kept: a clock may have been wrong.
DAYS = 30
_KEPT_DAYS = 400
_DAY = 86_400_000


@dataclass(slots=True)
class Past:
    """``stored`` counts the stored rows by UTC day since 1970; a changed record counts as one row.
    ``last`` is the last time that rows were stored or ended, in milliseconds since 1970; 0 before
    that."""

    stored: dict[int, int] = field(default_factory=dict)
    last: int = 0

    def add(self, body: CommitBody) -> None:
        """Count an accepted commit. Groups that replace others store nothing new."""
        if body.ended or not (body.groups or body.killed):
            return
        moment = milliseconds(body.id)
        self.last = max(self.last, moment)
        rows = sum(group.count for group in body.groups)
        if rows:
            day = moment // _DAY
            self.stored[day] = self.stored.get(day, 0) + rows
            if len(self.stored) > _KEPT_DAYS:
                del self.stored[min(self.stored)]

    def days(self, now: int) -> list[int]:
        """Rows stored on each of the last days, up to the day of ``now`` (in milliseconds)."""
        today = now // _DAY
        return [self.stored.get(day, 0) for day in range(today - DAYS + 1, today + 1)]


def least_bytes(snapshot: Snapshot) -> int:
    """The minimum size of the stored data in bytes: each value at its minimum length, and the index
    if its pages have a fixed length.
    """
    groups: Sequence[int] = [
        state.group.count
        * (ID_BYTES + sum(BESIDE_CLASS + class_.length for class_ in state.group.classes))
        for state in snapshot.groups.values()
    ]
    paged = (PAGE_BYTES * segment.pages for segment in snapshot.segments if segment.form == "paged")
    return sum(groups) + sum(paged)


@dataclass(frozen=True, slots=True)
class Resealed:
    """The newest re-encryption of all data.

    Attributes:
        version: the log version of it; 0 if there was none.
        moment: when the key of tails and requests last changed, in milliseconds since 1970; 0 if it
            never did.
        former: the earlier keys, as (version, id), the oldest first.
    """

    version: int = 0
    moment: int = 0
    former: tuple[KeyName, ...] = ()

    def then(self, body: CommitBody, version: int, before: KeyName | None) -> Resealed:
        """The state after a commit that became ``version``; ``before`` names the previous key."""
        if before is None or before == (body.key_version, body.key_id):
            return Resealed(version, self.moment, self.former)
        return Resealed(version, milliseconds(body.id), (*self.former, before))

    def available(self, keys: LogKeys) -> list[SchemaKey]:
        """The former keys that are available, the newest first."""
        available: list[SchemaKey] = []
        for version, key_id in reversed(self.former):
            with suppress(KeyMissing):
                available.append(keys.find(version, key_id))
        return available


def seals_everything_again(body: CommitBody, live: Collection[bytes]) -> bool:
    """Whether a commit ends all live groups, and no group can have been added in between.

    Args:
        live: the groups before it, by uid.
    """
    return bool(body.ended and body.exact) and set(body.ended) == set(live)


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """A group, the position of its first row, and the definition under which it was made."""

    group: Group
    start: int
    made: SchemaDefinition


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects of the commit that made ``version``.

    Attributes:
        added: positions of the rows that it added.
        ended: the rows that it ended, group by group in storage order, at their positions then.
        rewrites: whether earlier records read differently from it on: a field was renamed, or its
            values were converted or left out.
    """

    version: int
    added: range
    ended: tuple[tuple[PlacedGroup, KilledRows], ...] = ()
    rewrites: bool = False

    @property
    def ended_count(self) -> int:
        return sum(killed.count for _, killed in self.ended)


def effects_of(
    body: CommitBody,
    version: int,
    stored: int,
    find: Callable[[bytes], PlacedGroup],
    *,
    rewrites: bool,
) -> Effects:
    """The effects of a commit that the log has.

    Args:
        stored: the number of rows before it.
        find: finds a group that lived before it.
    """
    if body.ended:  # the added groups contain the same records, at the same positions
        return Effects(version, range(stored, stored), rewrites=rewrites)
    ended = [(find(killed.group), killed) for killed in body.killed]
    ended.sort(key=lambda pair: pair[0].start)
    added = sum(group.count for group in body.groups)
    return Effects(version, range(stored, stored + added), tuple(ended), rewrites)


def rewrites_records(before: SchemaDefinition | None, after: SchemaDefinition) -> bool:
    """Whether records stored under ``before`` read differently under ``after``."""
    if before is None or before is after:
        return False
    for number, was in before.by_id.items():
        now = after.by_id.get(number)
        if now is None or (was.name, was.type, was.format) != (now.name, now.type, now.format):
            return True
        if was.number and now.number and now.number.precision < was.number.precision:
            return True
    return False


class GroupUnknown(Exception):
    """A commit ended rows of a group that was added before the replayed commits and has ended
    since: only an earlier commit describes the group."""


class Replay:
    """Computes the effects of commits that lead to a snapshot."""

    def __init__(self, snapshot: Snapshot, stored: int) -> None:
        """
        Args:
            stored: the number of rows before the first of the commits.
        """
        self._snapshot = snapshot
        self._stored = stored
        self._placed: dict[bytes, tuple[Group, int]] = {}
        self._definitions: dict[bytes, SchemaDefinition] = {}
        if snapshot.history is not None:
            self._definitions.update(snapshot.history.every)
        self._present: SchemaDefinition | None = None

    def follow(self, body: CommitBody, version: int) -> Effects:
        """The effects of the next commit.

        Raises:
            GroupUnknown: it ended rows of an unknown group.
        """
        rewrites = self._define(body, first=version == 1)
        effects = effects_of(body, version, self._stored, self._find, rewrites=rewrites)
        if body.ended:
            self._place_standing(body)
        else:
            starts = accumulate((group.count for group in body.groups), initial=self._stored)
            pairs = zip(body.groups, starts, strict=False)
            self._placed.update((group.uid, (group, start)) for group, start in pairs)
        self._stored = effects.added.stop
        return effects

    def _define(self, body: CommitBody, *, first: bool) -> bool:
        """Record the definition that a commit introduces; whether records read differently under
        it."""
        before = self._present
        if body.definition_text:
            brought = parse_canonical(body.definition_text)
            self._definitions.setdefault(brought.digest, brought)
        self._present = self._definitions.get(body.definition)
        if not body.definition_text or first:
            return False
        before = before or self._find_before(body.definition)
        # The effect of a missing definition is unknown, so it counts as a rewrite.
        return before is None or self._present is None or rewrites_records(before, self._present)

    def _find_before(self, digest: bytes) -> SchemaDefinition | None:
        """The log's definition before a given definition of its history."""
        history = self._snapshot.history
        digests = [] if history is None else list(history.every)
        at = digests.index(digest) if digest in digests else 0
        return self._definitions[digests[at - 1]] if at else None

    def _place_standing(self, body: CommitBody) -> None:
        """Place the groups that replace ended groups whose positions are known."""
        bases: list[int] = []
        starts: list[int] = []
        base = 0
        for uid in body.ended:
            try:
                placed = self._find(uid)
            except GroupUnknown:
                return
            bases.append(base)
            starts.append(placed.start)
            base += placed.group.count
        base = 0
        for group in body.groups:
            piece = bisect_right(bases, base) - 1
            self._placed[group.uid] = (group, starts[piece] + base - bases[piece])
            base += group.count

    def _find(self, uid: bytes) -> PlacedGroup:
        if uid in self._placed:
            group, start = self._placed[uid]
        elif uid in self._snapshot.groups:
            state = self._snapshot.groups[uid]
            group, start = state.group, self._snapshot.starts[state.sequence]
        else:
            raise GroupUnknown
        made = self._definitions.get(group.definition)
        if made is None:
            raise GroupUnknown
        return PlacedGroup(group, start, made)


def stored_before(snapshot: Snapshot, bodies: Iterable[CommitBody]) -> int:
    """The number of rows before these commits, the last of which made the snapshot."""
    added = (group.count for body in bodies if not body.ended for group in body.groups)
    return snapshot.stored - sum(added)

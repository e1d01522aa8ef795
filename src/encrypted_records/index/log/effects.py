"""The effects of each commit of a log on its records: which rows it added, and which it ended.

A ledger aggregates commits and discards them. A reader of changes needs each commit, so a ledger
keeps the effects of its newest commits; the effects of earlier commits are recomputed from the
commits, which are verified by the log's digests (:class:`Replay`).

Rows are named by their positions (:mod:`.snapshot`), which no merge, compaction or reseal changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate

from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_parser import parse_canonical
from encrypted_records.model.records import CommitBody, Group, KilledRows


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
        ended: the rows that it ended, group by group in the order of storing, as they lay then.
        rewrites: whether records that were stored before read otherwise from it on: a field has
            another name, or its values were converted or left out.
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
    if body.ended:  # what it adds stands for the same records, at the same positions
        return Effects(version, range(stored, stored), rewrites=rewrites)
    ended = [(find(killed.group), killed) for killed in body.killed]
    ended.sort(key=lambda pair: pair[0].start)
    added = sum(group.count for group in body.groups)
    return Effects(version, range(stored, stored + added), tuple(ended), rewrites)


def rewrites_records(before: SchemaDefinition | None, after: SchemaDefinition) -> bool:
    """Whether records that were stored under ``before`` read otherwise under ``after``."""
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
    """A commit ended rows of a group that was added before the commits that are replayed, and that
    has ended since: only an earlier commit says what it was."""


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
            GroupUnknown: it ended rows of a group that nothing here describes.
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
        """Enter the definition that a commit brings; whether records read otherwise under it."""
        before = self._present
        if body.definition_text:
            brought = parse_canonical(body.definition_text)
            self._definitions.setdefault(brought.digest, brought)
        self._present = self._definitions.get(body.definition)
        if not body.definition_text or first:
            return False
        before = before or self._find_before(body.definition)
        # One that is not here may have said anything.
        return before is None or self._present is None or rewrites_records(before, self._present)

    def _find_before(self, digest: bytes) -> SchemaDefinition | None:
        """The definition that the log had before one that its history holds."""
        history = self._snapshot.history
        every = [] if history is None else list(history.every)
        at = every.index(digest) if digest in every else 0
        return self._definitions[every[at - 1]] if at else None

    def _place_standing(self, body: CommitBody) -> None:
        """Place the groups that stand for ended ones, as far as it is known where those lay."""
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

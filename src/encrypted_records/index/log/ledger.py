"""The ledger: the verified state of a schema's data at each version of its commit log
(docs/SPEC.md, section 7).

The API is not trusted. The state is computed from the log's commits, each authenticated under
K_log; a commit that does not fit the state before it is a broken log. Commits contain the running
digest of the log that their writer had seen, so that dropping, reordering or replacing any earlier
commit breaks every later commit that knew of it.

A keyring may be rotated: each commit names its key, whose version never decreases (section 7.5).

A ledger also keeps the sealed headers of live segments, which the API returns with the log. It
lists the rows that died or moved to other groups, and the replaced segments, until the caches that
contain them were informed.
"""

from __future__ import annotations

import threading
from collections import ChainMap, deque
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice

from msgspec.structs import replace
from pyroaring import BitMap

from encrypted_records.crypto.keys import LogKeys, SchemaKey
from encrypted_records.errors import ErsError, LogBroken, SchemaUnsigned
from encrypted_records.index.log.history import (
    Effects,
    Past,
    PlacedGroup,
    Resealed,
    brings_definition,
    check_groups,
    effects_of,
    follow,
    rewrites_records,
    seals_everything_again,
)
from encrypted_records.index.log.ledger_state import (
    Deaths,
    GroupEndings,
    LedgerState,
    LiveGroups,
    RestoredState,
    bitmap_of,
    check_standing,
    without,
)
from encrypted_records.index.log.order import LogMembership, Order, Writer, require
from encrypted_records.index.log.snapshot import GroupMap, GroupState, Laid, Snapshot, lay_anew
from encrypted_records.model import ids, records, wire
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_changes import DefinitionHistory
from encrypted_records.rules import commit_judging
from encrypted_records.rules.commit_judging import KeyName, Log, Size


@dataclass(frozen=True, slots=True)
class Ended:
    """Rows and segments that ended or moved. ``rows`` died in live groups; the rows with these
    ``numbers``, ranges that do not touch, moved to other groups; ``segments`` were replaced.
    """

    rows: list[records.RowRef]
    numbers: list[range]
    segments: list[bytes]


@dataclass(slots=True)
class Endings:
    """Rows that commits killed or moved, and segments that they replaced, with the versions."""

    _killed: list[tuple[int, Sequence[records.KilledRows]]] = field(default_factory=list)
    _moved: list[tuple[int, Sequence[range]]] = field(default_factory=list)
    _replaced: list[tuple[int, Sequence[bytes]]] = field(default_factory=list)

    def note_killed(self, version: int, rows: Sequence[records.KilledRows]) -> None:
        self._killed.append((version, rows))

    def note_moved(self, version: int, numbers: Sequence[range]) -> None:
        self._moved.append((version, numbers))

    def note_replaced(self, version: int, uids: Sequence[bytes]) -> None:
        if uids:
            self._replaced.append((version, uids))

    def take(self, since: int, live: Container[bytes]) -> Ended:
        """Clear the list, and return the entries that ended after version ``since``.

        Args:
            live: the live groups, by uid.
        """
        killed, self._killed = self._killed, []
        moved, self._moved = self._moved, []
        replaced, self._replaced = self._replaced, []
        ended = (kill for version, kills in killed if version > since for kill in kills)
        rows = [row for kill in ended if kill.group in live for row in kill.rows()]
        return Ended(
            rows,
            _joined(span for version, spans in moved if version > since for span in spans),
            [uid for version, uids in replaced if version > since for uid in uids],
        )


def _joined(numbers: Iterable[range]) -> list[range]:
    """The same numbers in ascending order, in as few ranges as possible: a crowd has many adjacent
    groups."""
    joined: list[range] = []
    for number in sorted(numbers, key=lambda span: span.start):
        if joined and number.start <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, number.stop))
        else:
            joined.append(number)
    return joined


#: Number of commits whose effects stay in memory, for readers of changes.
RECENT = 2048


@dataclass
class Ledger(Order):
    """The verified part of one schema's log.

    ``writer`` is the 16-byte writer id of this process and user: a fresh id per process, so that a
    commit that an earlier process sent in its last moments can never collide with a counter used
    here.
    """

    #: the keys of the first commit, or of the newest that sealed everything again, and of the
    #: newest; and the log version at which the latter came in. Those that were forgotten are names
    _first: KeyName | None = None
    _present: KeyName | None = None
    _since: int = 0
    #: the log version that introduced the current definition
    defined_at: int = 0
    #: the newest re-encryption of all data
    resealed: Resealed = field(default_factory=Resealed)
    #: the current and earlier definitions, from the commits that contain them
    history: DefinitionHistory | None = None
    #: append-only, because snapshots share them; replaced when groups end
    _groups: dict[bytes, GroupState] = field(default_factory=dict)
    _in_order: list[records.Group] = field(default_factory=list)
    _starts: list[int] = field(default_factory=lambda: [0])
    _segments: dict[bytes, records.Segment] = field(default_factory=dict)
    #: of live segments, as far as the API has returned them; replaced, never changed
    _headers: Mapping[bytes, records.SegmentHeader] = field(default_factory=dict)
    _dead: dict[bytes, BitMap] = field(default_factory=dict)
    _deaths: dict[bytes, Deaths] = field(default_factory=dict)
    #: the live segment of each group, and the current groups of compacted segments
    _home: dict[bytes, bytes] = field(default_factory=dict)
    _laid: Mapping[bytes, Laid] = field(default_factory=dict)
    past: Past = field(default_factory=Past)
    #: since :meth:`take_ended`
    _ended: Endings = field(default_factory=Endings)
    #: of the newest commits
    _recent: deque[Effects] = field(
        default_factory=lambda: deque(maxlen=RECENT), compare=False, repr=False
    )
    #: of the version of its last request
    _snapshot: Snapshot | None = None
    #: uids of segments with rows that have died since
    _changed: set[bytes] = field(default_factory=set)
    #: whether a snapshot shares the current dicts of dead rows, which then must not be changed
    _lent: bool = False
    #: held while commits are applied, and while a snapshot is made: other threads request snapshots
    _turn: threading.Lock = field(default_factory=threading.Lock, compare=False, repr=False)

    @property
    def key(self) -> SchemaKey:
        """Encrypts and authenticates new data."""
        return self.keys.newest

    @property
    def tails(self) -> SchemaKey:
        """The key that makes *tails*, in segments of any version.

        A tail is the keyed hash at the end of a long string's index key (docs/SPEC.md, section 5).
        It is the key of the first commit, or of the newest commit that re-encrypted all data: with
        different keys, equal strings would have different index keys.
        """
        if self._first is not None:
            return self.keys.find(*self._first)
        try:
            return self.key
        except SchemaUnsigned:
            # Nothing is stored, so there is nothing to compare with.
            return SchemaKey(
                bytes(32), organization=self.keys.organization, schema=self.keys.schema, version=1
            )

    @property
    def former(self) -> list[SchemaKey]:
        """Available earlier values of :attr:`tails`, the newest first. The ids of requests before
        the re-encryption of all data were made under them."""
        return self.resealed.available(self.keys)

    @property
    def definition(self) -> SchemaDefinition | None:
        """The definition of the records, from the newest commit that contains a definition; None
        before the first commit.
        """
        return None if self.history is None else self.history.present

    def snapshot(self) -> Snapshot:
        """The whole state between two calls of :meth:`extend`; safe in threads while the log
        continues.

        A caller that needs several facts of the same version reads them all from one snapshot.
        """
        with self._turn:
            return self._take_snapshot()

    def _take_snapshot(self) -> Snapshot:
        before = self._snapshot
        if before is None or before.version != self.version:
            snapshot = self._snapshot = Snapshot(
                self.version,
                tuple(self._segments.values()),
                GroupMap(self._groups, len(self._groups)),
                self._dead,
                self._deaths,
                self._in_order,
                self._starts,
                self._headers,
                self.history,
                None if self._first is None else self._find_key(self._first),
                self._laid,
            )
            if before is not None:
                snapshot.inherit(before, self._changed)
            self._changed = set()
            self._lent = True
            return snapshot
        return before

    def state(self) -> LedgerState:
        """The ledger's current contents, encoded later."""
        return LedgerState(
            snapshot=self.snapshot(),
            first=self._first,
            present=self._present,
            since=self._since,
            history=self.history,
            order=self.order_state(),
            past=Past(dict(self.past.stored), self.past.last),
            resealed=self.resealed,
            defined_at=self.defined_at,
        )

    @classmethod
    def restore(
        cls,
        keys: LogKeys,
        writer: bytes,
        kept: RestoredState,
        membership: LogMembership | None = None,
    ) -> Ledger:
        """The ledger with the state ``kept``.

        Raises:
            KeyMissing: a key of the log is not available.
            LogBroken: the roster now states another head of the log.
        """
        ledger = cls(
            keys,
            writer,
            membership,
            _first=kept.first,
            _present=kept.present,
            _since=kept.since,
            history=kept.history,
            _groups={group.uid: GroupState(group, at) for at, group in enumerate(kept.groups)},
            _in_order=kept.groups,
            _starts=[0, *accumulate(group.count for group in kept.groups)],
            _segments={segment.uid: segment for segment in kept.segments},
            _headers={header.segment: header for header in kept.headers},
            _dead=kept.dead,
            _deaths=kept.deaths,
            _home=kept.home,
            _laid=kept.laid,
            past=kept.past,
            resealed=kept.resealed,
            defined_at=kept.defined_at,
        )
        ledger.resume(kept.order)
        for name in filter(None, (kept.first, kept.present)):
            ledger._find_key(name)
        ledger.check_ends()
        return ledger

    def _find_key(self, name: KeyName) -> SchemaKey | None:
        """A key of the log; None if the roster states that it was forgotten.

        Raises:
            KeyMissing: the key is not available here.
        """
        return None if self._signing.forgets(name[0]) else self.keys.find(*name)

    def has_segment(self, uid: bytes) -> bool:
        """Whether a segment is live; safe in threads while the log continues."""
        return uid in self._segments

    def take_ended(self, since: int) -> Ended:
        """Clear the list of endings, and return those after version ``since``."""
        return self._ended.take(since, self._groups)

    def effects_since(self, version: int) -> list[Effects] | None:
        """The effects of each commit after a version; None if they are no longer in memory."""
        count = self.version - version
        if not 0 <= count <= len(self._recent):
            return None
        return list(islice(self._recent, len(self._recent) - count, None))

    def extend(self, delta: records.ManifestDelta) -> None:
        """Apply the log after :attr:`version`.

        Raises:
            LogBroken: the delta has gaps, or commits that are not authentic or cannot follow. The
                ledger is then at the last good commit.
            KeyMissing: a commit is under a key that the keyring lacks. As above.
        """
        if delta.schema != self.keys.schema:
            raise LogBroken("the log is of another schema")
        with self._turn:
            for entry in delta.entries:
                self._apply(entry)
            headers = keep_live(self._headers, delta.headers, self._segments)
            if headers is not self._headers and not delta.entries:
                self._snapshot = None  # it is of this version, without the new commits
            self._headers = headers
        if self.version != delta.version:
            raise LogBroken("the log does not reach the version it claims")

    def _apply(self, entry: records.LogEntry) -> None:
        if entry.version != self.version + 1:
            raise LogBroken("the log has a gap")
        commit = entry.commit
        try:
            body = wire.decode_commit_body(commit)
        except ErsError:
            raise LogBroken("a commit in the log is of an unknown format") from None
        if body.schema != self.keys.schema:
            raise LogBroken("a commit in the log is of another schema")
        digest = wire.next_log_digest(self._digests[-1], commit)
        self._signing.check(commit, body, entry.version, digest)
        # The body is decoded before it is authenticated, because it names the key. If the key was
        # forgotten, the commit cannot be authenticated: its signature has to suffice, and later
        # commits that name its digest.
        key = self._find_key(name := (body.key_version, body.key_id))
        if key is not None and not key.log.verify(commit.mac, commit.body):
            raise LogBroken("a commit in the log is not authentic")
        require(commit_judging.judge_form(body))
        before = Log(
            self.version,
            self.added_at,
            self.resealed.version,
            None if self._first is None else self._first[0],
            None if self._present is None else self._present[0],
            self._since,
        )
        self.check_order(body, before)
        require(commit_judging.judge_keys(body, before))
        history = follow(self.history, body, self._groups, self.defined_at)
        check_groups(body, history, self._groups)
        if history.present.unique and body.adds_records and not body.exact:
            raise LogBroken(
                "a commit adds records and does not state that it checked for equal ones"
            )
        live = LiveGroups(self._groups, self._in_order, self._starts, self._dead, self._deaths)
        standing = check_standing(body, live)
        if not body.ended:
            check_killed(body.killed, self._groups, self._dead)
        laid = self._check_segments(body, standing)

        self._note_effects(body, entry.version, history)
        if self._present is None or name[0] > self._present[0]:
            self._present, self._since = name, entry.version
            self._first = self._first or name
        if seals_everything_again(body, self._groups):
            self.resealed = self.resealed.then(body, entry.version, self._first)
            self._first = name
        self.defined_at = self.defined_at if history is self.history else entry.version
        self.history = history
        self._requests.update(body.requests)
        self.added_at = entry.version if body.adds_records else self.added_at
        self._writers[body.writer] = Writer(body.counter, wire.commit_digest(commit))
        if body.ended:
            self._move(body, standing, entry.version)
        else:
            for group in body.groups:
                # This order matters to threads that read a snapshot meanwhile.
                self._in_order.append(group)
                self._starts.append(self._starts[-1] + group.count)
                self._groups[group.uid] = GroupState(group, len(self._groups))
            self._end(body, entry.version)
        self.past.add(body)
        self._index(body, entry.version, laid)
        self._digests.append(digest)
        self._signing.add(body, entry.version)

    def _note_effects(
        self, body: records.CommitBody, version: int, history: DefinitionHistory
    ) -> None:
        rewrites = rewrites_records(self.definition, history.present)
        effects = effects_of(body, version, self._starts[-1], self._place, rewrites=rewrites)
        self._recent.append(effects)

    def _place(self, uid: bytes) -> PlacedGroup:
        """A live group, and its place."""
        state = self._groups[uid]
        assert self.history is not None, "what is stored has a definition"
        made = self.history.of(state.group.definition)
        return PlacedGroup(state.group, self._starts[state.sequence], made)

    def _check_segments(
        self, body: records.CommitBody, standing: GroupEndings
    ) -> dict[bytes, Laid]:
        """The layout of the groups after a compaction, by segment; empty for any other commit."""
        if body.compacts:
            return lay_anew(body, self._groups, self._home, self._segments, self._laid)
        dead = ChainMap(standing.dead, self._dead)
        check_cover(body, self._groups, self._segments, dead, self._laid)
        return {}

    def _index(self, body: records.CommitBody, version: int, laid: dict[bytes, Laid]) -> None:
        """Record the segments that a commit adds and replaces, and the groups of a compacted
        segment."""
        self._ended.note_replaced(version, body.replaced)
        for uid in body.replaced:
            del self._segments[uid]
        self._segments.update((segment.uid, segment) for segment in body.segments)
        if laid or not self._laid.keys().isdisjoint(body.replaced):
            self._laid = without(self._laid, body.replaced) | laid
        brought = {segment.uid: segment.groups for segment in body.segments}
        for uid, groups in (brought | laid).items():
            self._home.update((group, uid) for group, _ in groups)

    def _move(self, body: records.CommitBody, standing: GroupEndings, version: int) -> None:
        """Put the groups that a commit adds in the places of the groups that it ends."""
        self._in_order = standing.in_order
        self._starts = [0, *accumulate(group.count for group in self._in_order)]
        self._groups = {group.uid: GroupState(group, at) for at, group in enumerate(self._in_order)}
        ended = set(body.ended)
        self._dead = without(self._dead, ended) | standing.dead
        self._deaths = without(self._deaths, ended) | standing.deaths
        self._lent = False
        for uid in body.ended:
            del self._home[uid]
        self._ended.note_moved(version, standing.numbers)

    def _end(self, body: records.CommitBody, version: int) -> None:
        """Record the rows that a commit ends."""
        if not body.killed:
            return
        self._ended.note_killed(version, body.killed)
        if self._lent:
            self._dead, self._deaths, self._lent = dict(self._dead), dict(self._deaths), False
        for killed in body.killed:
            uid = killed.group
            # A snapshot may hold the old set, so it is replaced and never changed.
            self._dead[uid] = self._dead.get(uid, BitMap()) | bitmap_of(killed)
            death = (ids.milliseconds(body.id), killed.count)
            self._deaths[uid] = (*self._deaths.get(uid, ()), death)
            self._changed.add(self._home[uid])

    def draft(
        self,
        definition: SchemaDefinition,
        *,
        groups: Sequence[records.Group] = (),
        segments: Sequence[records.Segment] = (),
        killed: Sequence[records.RowRef] = (),
        replaced: Sequence[bytes] = (),
        rows: Sequence[records.PackedRowBatch] = (),
        pages: Sequence[records.Page] = (),
        salts: Sequence[records.GroupSalt] = (),
        headers: Sequence[records.SegmentHeader] = (),
        requests: Sequence[bytes] = (),
        exact: bool = False,
        new_definition: bool = False,
        ended: Sequence[bytes] = (),
        holes: Sequence[records.RowRef] = (),
    ) -> records.CommitUpload:
        """The next commit of this writer, authenticated; the ledger itself does not change.

        Until the outcome is known, no other commit may be drafted: it would carry the same
        counter, and the API takes only one of the two.

        Args:
            definition: valid from this commit on; rows may be sealed under earlier definitions.
            requests: ids of the requests that it stores, by which repeats are recognized.
            exact: whether no other commit may have added records after this log.
            new_definition: whether ``definition`` replaces the log's.
            ended: groups that ``groups`` replace, in log order.
            holes: rows of ``groups`` that have no bytes.

        Raises:
            StaleDefinition: the log now has another definition.
        """
        made = {group.definition for group in groups} | {segment.definition for segment in segments}
        brings = brings_definition(self.history, definition, made, new=new_definition)
        body = replace(
            self.next_body(self.key, definition, brings=brings),
            groups=list(groups),
            segments=list(segments),
            killed=records.KilledRows.gather(killed),
            replaced=list(replaced),
            requests=list(requests),
            exact=1 if exact else 0,
            ended=list(ended),
            holes=records.KilledRows.gather(holes),
        )
        commit = self._signing.sign(body, self.key)
        return records.CommitUpload(commit, tuple(rows), tuple(pages), tuple(salts), tuple(headers))


def check_killed(
    kills: Sequence[records.KilledRows],
    groups: Mapping[bytes, GroupState],
    dead: Mapping[bytes, BitMap],
) -> None:
    """Check that the rows that a commit ends exist and are live.

    Raises:
        LogBroken: they are not.
    """
    for killed in kills:
        state = groups.get(killed.group)
        if state is None or killed.end > state.group.count:
            raise LogBroken("a commit removes a row that does not exist")
        ended = dead.get(killed.group)
        if ended is not None and not ended.isdisjoint(bitmap_of(killed)):
            raise LogBroken("a commit removes a row that was already removed")


def check_cover(
    body: records.CommitBody,
    groups: Mapping[bytes, GroupState],
    segments: Mapping[bytes, records.Segment],
    dead: Mapping[bytes, BitMap],
    laid: Mapping[bytes, Laid],
) -> None:
    """Check that each group belongs to exactly one live segment, before and after, and that counts
    add up. Compactions, whose segment stays, are checked in :mod:`.snapshot`.

    Args:
        groups, segments, laid: the live state before the commit.
        dead: rows of these groups, and of the groups that it adds.

    Raises:
        LogBroken: they do not.
    """
    uids = [segment.uid for segment in body.segments]
    if len(set(uids)) != len(uids) or any(uid in segments for uid in uids):
        raise LogBroken("a commit adds a segment that exists")
    added = {group.uid: group for group in body.groups}
    freed: list[bytes] = []
    for uid in body.replaced:
        if uid not in segments or body.replaced.count(uid) > 1:
            raise LogBroken("a commit replaces a segment that is not live")
        freed += [group for group, _ in laid.get(uid, segments[uid].groups)]
    ended = set(body.ended)
    if not ended.issubset(freed):
        raise LogBroken("a commit ends a group whose segment it does not replace")
    freed = [uid for uid in freed if uid not in ended]
    sizes = {uid: Size(groups[uid].group.count, len(dead.get(uid, ()))) for uid in freed}
    sizes |= {uid: Size(group.count, len(dead.get(uid, ()))) for uid, group in added.items()}
    require(commit_judging.judge_cover(body.segments, sizes))


def keep_live(
    known: Mapping[bytes, records.SegmentHeader],
    new: Sequence[records.SegmentHeader],
    live: Collection[bytes],
) -> Mapping[bytes, records.SegmentHeader]:
    """The headers of live segments; each header is checked when its segment is opened.

    ``known`` is not changed, because a snapshot may refer to it.
    """
    if not new and all(uid in live for uid in known):
        return known
    headers = {**known, **{header.segment: header for header in new}}
    return {uid: group for uid, group in headers.items() if uid in live}

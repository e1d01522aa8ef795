"""A schema's data at one version: its groups in storage order, and the segments over them.

A row's *position* is its number among all rows in storage order, including dead rows. It survives
merges, which change local ordinals, and commits that end groups, whose rows keep their positions.

Local ordinals of a segment never change. So its commit and its header continue to name its original
groups. After a compaction, the ledger also keeps the groups that replace them (:func:`lay_anew`;
docs/SPEC.md, section 7.7.2).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.errors import LogBroken, NotFound
from encrypted_records.index.ordinals import Ordinals, ordinals
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.definition_changes import DefinitionHistory
from encrypted_records.model.records import CommitBody, Group, RowRef, Segment, SegmentHeader

Positions = NDArray[np.int64]

#: Maximum number of rows that are sorted at once; more are sorted group by group as they are used.
FEW_ROWS = 1 << 14
#: Caches with more entries than this and twice the live segments drop replaced segments.
_FEW_KEPT = 256
#: Number of sorted rows that are converted to Python objects at once.
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class GroupState:
    group: Group
    #: its number among the live groups, in log order
    sequence: int


class GroupMap(Mapping[bytes, GroupState]):
    """The groups of one version, by uid.

    They are the first ``count`` of a dict to which later versions add groups: copying it for each
    version would take longer with every commit.
    """

    def __init__(self, states: Mapping[bytes, GroupState], count: int) -> None:
        self._states = states
        self._count = count

    def __getitem__(self, uid: bytes) -> GroupState:
        state = self._states[uid]
        if state.sequence >= self._count:
            raise KeyError(uid)
        return state

    def __iter__(self) -> Iterator[bytes]:
        return iter(list(islice(self._states, self._count)))

    def __len__(self) -> int:
        return self._count


@dataclass(frozen=True, eq=False)
class GroupPlaces:
    """The groups of a segment: the first local ordinal of each, its number of rows, and the
    position of its first row."""

    bases: NDArray[np.int64]
    counts: NDArray[np.int64]
    starts: NDArray[np.int64]

    @cached_property
    def lowest(self) -> int:
        """The lowest position."""
        return int(self.starts.min())

    @cached_property
    def highest(self) -> int:
        """The highest position."""
        return int((self.starts + self.counts).max()) - 1

    @cached_property
    def is_in_order(self) -> bool:
        """Whether rows of lower ordinals were stored earlier."""
        return bool(np.all(np.diff(self.bases) > 0) and np.all(np.diff(self.starts) > 0))

    def positions(self, rows: Ordinals) -> Positions:
        at = np.searchsorted(self.bases, rows, "right") - 1
        return self.starts[at] + (rows - self.bases[at])

    def position(self, row: int) -> int:
        """The position of one row."""
        return int(self.positions(np.array([row], np.uint32))[0])

    def first(self, rows: BitMap, want: int, *, after: int | None) -> BitMap:
        """The rows with the lowest positions after ``after``: ``want`` rows or slightly more."""
        first = BitMap()
        for _, of_group in self._by_group(rows, -1 if after is None else after):
            first |= of_group
            if len(first) >= want:
                break
        return first

    def in_order(
        self, rows: BitMap, *, after: int, few: int = FEW_ROWS
    ) -> Iterator[tuple[int, int]]:
        """Position and local ordinal of each of ``rows`` after position ``after``, by position.

        Args:
            few: maximum number of rows that are sorted at once.
        """
        if len(rows) <= few:
            numbers = ordinals(rows)
            positions = self.positions(numbers)
            order = np.argsort(positions)[np.count_nonzero(positions <= after) :]
            # Most callers use only the first ten: creating all objects takes a millisecond.
            for first in range(0, len(order), _AT_ONCE):
                batch = order[first : first + _AT_ONCE]
                yield from zip(positions[batch].tolist(), numbers[batch].tolist(), strict=True)
            return
        for begin, of_group in self._by_group(rows, after):
            for row in of_group:
                yield begin + row, row

    def later(self, position: int) -> BitMap:
        """The rows from ``position`` on."""
        later = BitMap()
        for at in np.flatnonzero(self.starts + self.counts > position):
            base, before = int(self.bases[at]), max(0, position - int(self.starts[at]))
            later.add_range(base + before, base + int(self.counts[at]))
        return later

    @cached_property
    def _order(self) -> list[int]:
        order: list[int] = np.argsort(self.starts).tolist()
        return order

    def _by_group(self, rows: BitMap, after: int) -> Iterator[tuple[int, BitMap]]:
        """The rows after ``after`` by group, with the offset from ordinal to position."""
        for at in self._order:
            base, count = int(self.bases[at]), int(self.counts[at])
            begin = int(self.starts[at])
            first = after + 1 - begin
            if first < count:
                yield begin - base, rows & BitMap(range(base + max(0, first), base + count))


@dataclass(frozen=True)
class Snapshot:
    """A schema's data at one version. Immutable: one query works on one snapshot."""

    version: int
    segments: tuple[Segment, ...]
    groups: Mapping[bytes, GroupState]
    dead: Mapping[bytes, BitMap]
    #: per group, for each commit in turn: when rows died (milliseconds since 1970) and how many
    deaths: Mapping[bytes, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    #: the groups by sequence, possibly followed by groups of later versions
    in_order: Sequence[Group] = ()
    #: the number of rows stored before each of these groups, and in all of them
    starts: Sequence[int] = (0,)
    #: of the segments, by uid
    headers: Mapping[bytes, SegmentHeader] = field(default_factory=dict)
    #: the definitions of its groups and segments; None without a commit
    history: DefinitionHistory | None = None
    #: makes the tails of its segments' index keys (``Ledger.tails``); None without a commit
    tails: SchemaKey | None = None
    #: the current groups of segments that a compaction changed (:func:`lay_anew`)
    laid: Mapping[bytes, Sequence[tuple[bytes, int]]] = field(default_factory=dict)

    # The following is computed on first use and cached: a schema may have ten thousand groups, and
    # hundreds of queries use one snapshot. Most of it is also valid for the next snapshot.

    @cached_property
    def _dead_rows(self) -> dict[bytes, BitMap]:
        return {}

    @cached_property
    def _places(self) -> dict[bytes, GroupPlaces]:
        return {}

    @cached_property
    def _dying(self) -> dict[bytes, int | None]:
        return {}

    def inherit(self, before: Snapshot, changed: Collection[bytes]) -> None:
        """Reuse the cached results of an earlier snapshot that are still valid.

        Args:
            changed: uids of segments with rows that have died since.
        """
        # Values that are not copied are shared: they stay valid for both snapshots where no row
        # died.
        many = 2 * len(self.segments) + _FEW_KEPT
        for name in ("_places", "_dead_rows", "_dying"):
            kept: dict[bytes, object] = getattr(before, name)
            gone = () if name == "_places" else changed
            if gone or len(kept) > many:
                live = (segment.uid for segment in self.segments if segment.uid not in gone)
                kept = {uid: kept[uid] for uid in live if uid in kept}
            self.__dict__[name] = kept

    @cached_property
    def counts(self) -> list[int]:
        """The numbers of rows of the segments, in ascending order."""
        return sorted(segment.count for segment in self.segments)

    @cached_property
    def dying(self) -> tuple[Segment, ...]:
        """The segments that contain keys of dead rows."""
        if not self.dead:
            return ()
        return tuple(
            segment for segment in self.segments if len(self.dead_rows(segment)) > segment.purged
        )

    @property
    def has_headers(self) -> bool:
        """Whether the API has returned the header of every segment."""
        return all(segment.uid in self.headers for segment in self.segments)

    def header(self, segment: Segment) -> SegmentHeader:
        """The sealed header of one of the segments.

        Raises:
            NotFound: ``segment_gone``; the API returned no header.
        """
        header = self.headers.get(segment.uid)
        if header is None:
            raise NotFound("the API has no header for a segment", code="segment_gone")
        return header

    @property
    def definition(self) -> SchemaDefinition:
        """The definition of the records. Use it only if anything is stored."""
        assert self.history is not None, "what is stored has a definition"
        return self.history.present

    @property
    def definitions(self) -> list[bytes]:
        """All definitions of the log as canonical texts, in its order."""
        every = self.history.every if self.history else {}
        return [definition.canonical for definition in every.values()]

    def made_under(self, group: Group | Segment) -> SchemaDefinition:
        """The definition under which a group or a segment was made.

        Raises:
            DoesNotOpen: the log does not contain it.
        """
        assert self.history is not None, "what is stored has a definition"
        return self.history.of(group.definition)

    def groups_of(self, segment: Segment) -> Sequence[tuple[bytes, int]]:
        """The current groups of a live segment, each with its base. After a compaction they differ
        from those that its commit and header name."""
        return self.laid.get(segment.uid, segment.groups)

    def dead_rows(self, segment: Segment) -> BitMap:
        """Local ordinals of the segment's dead rows; callers must not change the set."""
        rows = self._dead_rows.get(segment.uid)
        if rows is None:
            groups = self.groups_of(segment)
            dead = (self.dead[uid].shift(base) for uid, base in groups if uid in self.dead)
            rows = self._dead_rows[segment.uid] = BitMap.union(BitMap(), *dead)
        return rows

    def places(self, segment: Segment) -> GroupPlaces:
        places = self._places.get(segment.uid)
        if places is None:
            groups = self.groups_of(segment)
            states = [self.groups[uid] for uid, _ in groups]
            places = self._places[segment.uid] = GroupPlaces(
                np.array([base for _, base in groups], np.int64),
                np.array([state.group.count for state in states], np.int64),
                np.array([self.starts[state.sequence] for state in states], np.int64),
            )
        return places

    def dying_since(self, segment: Segment) -> int | None:
        """The time of the first death among dead rows that are still in the segment, in
        milliseconds since 1970; None if there are none.
        """
        if segment.uid not in self._dying:
            self._dying[segment.uid] = self._first_death(segment)
        return self._dying[segment.uid]

    def _first_death(self, segment: Segment) -> int | None:
        left = len(self.dead_rows(segment)) - segment.purged
        if left <= 0:
            return None
        since: int | None = None
        # A merge drops all rows that are already dead, so the remaining dead rows died last.
        groups = self.groups_of(segment)
        deaths = (death for uid, _ in groups for death in self.deaths.get(uid, ()))
        for moment, rows in sorted(deaths, reverse=True):
            if left <= 0:
                break
            since = moment
            left -= rows
        return since

    def is_live(self, group: bytes, ordinal: int) -> bool:
        state = self.groups.get(group)
        if state is None or ordinal >= state.group.count:
            return False
        return ordinal not in self.dead.get(group, ())

    def ref(self, position: int) -> RowRef:
        """The row at a position; there must be a row (:meth:`has`)."""
        sequence = bisect_right(self.starts, position, hi=len(self.groups)) - 1
        return RowRef(self.in_order[sequence].uid, position - self.starts[sequence])

    def number(self, ref: RowRef) -> int:
        """The row's position: how many rows were stored before it."""
        return self.starts[self.groups[ref.group].sequence] + ref.ordinal

    @property
    def stored(self) -> int:
        """The number of rows ever stored."""
        return self.starts[len(self.groups)]

    @property
    def newest(self) -> Group:
        """The group that was stored last; there must be a group."""
        return self.in_order[len(self.groups) - 1]

    def live_between(self, first: int, end: int) -> Iterator[RowRef]:
        """The live rows among those with numbers from ``first`` to below ``end``."""
        sequence = bisect_right(self.starts, first, hi=len(self.groups) + 1) - 1
        end = min(end, self.stored)
        while first < end:
            group, start = self.in_order[sequence], self.starts[sequence]
            dead: BitMap | tuple[()] = self.dead.get(group.uid, ())
            until = min(end, start + group.count)
            for ordinal in range(first - start, until - start):
                if ordinal not in dead:
                    yield RowRef(group.uid, ordinal)
            first, sequence = until, sequence + 1

    def find_live(self, first: int, end: int) -> list[RowRef]:
        """The live rows first..end-1 in storage order, or fewer if the schema has fewer rows."""
        found: list[RowRef] = []
        before = 0
        for group in islice(self.in_order, len(self.groups)):
            if before >= end:
                break
            dead = self.dead.get(group.uid, BitMap())
            live = group.count - len(dead)
            if before + live > first:
                rows = BitMap(range(group.count)) - dead
                wanted = rows[max(0, first - before) : min(live, end - before)]
                found += [RowRef(group.uid, ordinal) for ordinal in wanted]
            before += live
        return found

    def live_of(self, groups: Iterable[bytes]) -> Iterator[RowRef]:
        """The live rows of these groups; unknown groups have no rows."""
        for uid in groups:
            state = self.groups.get(uid)
            if state is not None:
                dead: BitMap | tuple[()] = self.dead.get(uid, ())
                rows = range(state.group.count)
                yield from (RowRef(uid, ordinal) for ordinal in rows if ordinal not in dead)

    def count_live(self, groups: Iterable[bytes]) -> int:
        """The number of rows that :meth:`live_of` returns."""
        states = [self.groups[uid] for uid in groups if uid in self.groups]
        return sum(state.group.count - len(self.dead.get(state.group.uid, ())) for state in states)

    def has(self, position: int) -> bool:
        return 0 <= position < self.stored

    def by_age(self, *, after: int, rows: int) -> Iterator[list[Segment]]:
        """Live segments with rows from position ``after`` on, in parts: all rows of a part were
        stored later than those of the parts before it.

        The first part has ``rows`` rows or more, the second as many again, and each further part
        twice as many, so that a caller that needs all rows gets few parts.
        """
        placed = [(self.places(segment), segment) for segment in self.segments]
        remaining = [
            (places.lowest, places.highest, group)
            for places, group in placed
            if places.highest >= after
        ]
        remaining.sort(key=lambda entry: entry[:2])
        part: list[Segment] = []
        before, count, newest = 0, 0, -1
        for lowest, highest, segment in remaining:
            if count >= max(rows, before) and lowest > newest:
                yield part
                part, before, count = [], before + count, 0
            part.append(segment)
            count, newest = count + segment.count, max(newest, highest)
        if part:
            yield part

    @property
    def count(self) -> int:
        """The number of live records."""
        indexed = sum(segment.count + segment.purged for segment in self.segments)
        return indexed - sum(len(rows) for rows in self.dead.values())


#: Groups with their first local ordinals, by ordinal.
Laid = Sequence[tuple[bytes, int]]


def lay_anew(
    body: CommitBody,
    groups: Mapping[bytes, GroupState],
    home: Mapping[bytes, bytes],
    segments: Mapping[bytes, Segment],
    laid: Mapping[bytes, Laid],
) -> dict[bytes, Laid]:
    """The groups of a segment after a compaction, by the segment's uid.

    Args:
        body: of a compaction; it satisfies all other rules on a group that replaces ended groups.
        groups, home, segments, laid: the state before the compaction: the groups, the segment of
            each, the live segments, and their layout.

    Raises:
        LogBroken: the commit is not a valid compaction.
    """
    homes = {home[uid] for uid in body.ended}
    if len(homes) != 1:
        raise LogBroken("a commit ends groups of several segments that stay")
    (segment,) = homes
    before = laid.get(segment, segments[segment].groups)
    bases = dict(before)
    at = base = bases[body.ended[0]]
    for uid in body.ended:
        if bases[uid] != at:
            raise LogBroken("a group would replace groups that are not neighbours in a segment")
        at += groups[uid].group.count
    ended = set(body.ended)
    kept = [(uid, begin) for uid, begin in before if uid not in ended]
    return {segment: sorted([*kept, (body.groups[0].uid, base)], key=itemgetter(1))}


def count_live(snapshot: Snapshot, first: int, end: int) -> int:
    """The number of live rows with numbers from ``first`` to below ``end``."""
    count = 0
    for sequence, begin, until in spans(snapshot, first, end):
        dead = snapshot.dead.get(snapshot.in_order[sequence].uid, BitMap())
        count += until - begin - dead.range_cardinality(begin, until)
    return count


def spans(snapshot: Snapshot, first: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The groups of these rows: the place of each in log order, and the half-open range of its
    ordinals."""
    while first < end:
        ref = snapshot.ref(first)
        state = snapshot.groups[ref.group]
        until = min(state.group.count, ref.ordinal + end - first)
        yield state.sequence, ref.ordinal, until
        first += until - ref.ordinal

"""A schema's data at one version: its groups in the order of storing, and the segments over them.

A row's *place* is one number that orders rows as they were stored: its group's sequence, then its
ordinal there. It survives merges, in which local ordinals change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.index.bitmaps import ordinals
from encrypted_records.index.columns import Ordinals
from encrypted_records.model.records import MAX_GROUP_RECORDS, Group, RowRef, Segment

Places = NDArray[np.int64]

#: So many rows are sorted at once; more are taken group by group, as far as they are asked for.
_FEW = 1 << 14


def place_of(sequence: int, ordinal: int) -> int:
    return sequence * MAX_GROUP_RECORDS + ordinal


def place_parts(place: int) -> tuple[int, int]:
    """Sequence of the group, and ordinal there."""
    return divmod(place, MAX_GROUP_RECORDS)


@dataclass(frozen=True, slots=True)
class GroupState:
    group: Group
    #: place among all groups of the schema, in the order in which they arrived
    sequence: int


@dataclass(frozen=True, eq=False)
class Sequences:
    """The groups of a segment: where each one's local ordinals begin, how many rows it has, and
    its sequence."""

    bases: NDArray[np.int64]
    counts: NDArray[np.int64]
    sequences: NDArray[np.int64]

    @cached_property
    def lowest(self) -> int:
        return int(self.sequences.min())

    @cached_property
    def highest(self) -> int:
        return int(self.sequences.max())

    def places(self, rows: Ordinals) -> Places:
        at = np.searchsorted(self.bases, rows, "right") - 1
        return self.sequences[at] * MAX_GROUP_RECORDS + (rows - self.bases[at])

    def first(self, rows: BitMap, want: int, *, behind: int | None) -> BitMap:
        """The rows with the lowest places behind ``behind``, ``want`` of them or few more."""
        found = BitMap()
        for _, own in self._by_group(rows, -1 if behind is None else behind):
            found |= own
            if len(found) >= want:
                break
        return found

    def in_order(self, rows: BitMap, *, behind: int) -> Iterator[tuple[int, int]]:
        """Place and local ordinal of each of the rows behind ``behind``, by place."""
        if len(rows) <= _FEW:
            every = ordinals(rows)
            places = self.places(every)
            order = np.argsort(places)[np.count_nonzero(places <= behind) :]
            yield from zip(places[order].tolist(), every[order].tolist(), strict=True)
            return
        for begin, own in self._by_group(rows, behind):
            for row in own:
                yield begin + row, row

    def later(self, sequence: int) -> BitMap:
        """The rows of groups from ``sequence`` on."""
        found = BitMap()
        for at in np.flatnonzero(self.sequences >= sequence):
            base = int(self.bases[at])
            found.add_range(base, base + int(self.counts[at]))
        return found

    @cached_property
    def _order(self) -> list[int]:
        order: list[int] = np.argsort(self.sequences).tolist()
        return order

    def _by_group(self, rows: BitMap, behind: int) -> Iterator[tuple[int, BitMap]]:
        """Group by group, the rows behind ``behind``, and what added to one gives its place."""
        for at in self._order:
            base, count = int(self.bases[at]), int(self.counts[at])
            begin = place_of(int(self.sequences[at]), 0)
            first = behind + 1 - begin
            if first < count:
                yield begin - base, rows & BitMap(range(base + max(0, first), base + count))


@dataclass(frozen=True)
class View:
    """A schema's data at one version. Immutable: one query works on one view."""

    version: int
    segments: tuple[Segment, ...]
    groups: Mapping[bytes, GroupState]
    dead: Mapping[bytes, BitMap]
    #: per group, when rows died: milliseconds since 1970 and how many, of each commit in turn
    deaths: Mapping[bytes, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    # What follows from these is worked out when it is first asked for, and kept: a schema may have
    # ten thousand groups, and hundreds of questions are asked of one view.

    @cached_property
    def _dead_rows(self) -> dict[bytes, BitMap]:
        return {}

    @cached_property
    def _sequences(self) -> dict[bytes, Sequences]:
        return {}

    @cached_property
    def _by_sequence(self) -> dict[int, Group]:
        return {state.sequence: state.group for state in self.groups.values()}

    def dead_rows(self, segment: Segment) -> BitMap:
        """Local ordinals of the segment's rows that are no longer live; not to be changed."""
        found = self._dead_rows.get(segment.uid)
        if found is None:
            dead = (self.dead[uid].shift(base) for uid, base in segment.groups if uid in self.dead)
            found = self._dead_rows[segment.uid] = BitMap.union(BitMap(), *dead)
        return found

    def sequences(self, segment: Segment) -> Sequences:
        found = self._sequences.get(segment.uid)
        if found is None:
            states = [self.groups[uid] for uid, _ in segment.groups]
            found = self._sequences[segment.uid] = Sequences(
                np.array([base for _, base in segment.groups], np.int64),
                np.array([state.group.count for state in states], np.int64),
                np.array([state.sequence for state in states], np.int64),
            )
        return found

    def dying_since(self, segment: Segment) -> int | None:
        """When the first of those rows died that are dead and still in the segment; in
        milliseconds since 1970. None where there is none."""
        left = len(self.dead_rows(segment)) - segment.purged
        since: int | None = None
        # A merge leaves out all that is dead by then, so what is left died last.
        deaths = (death for uid, _ in segment.groups for death in self.deaths.get(uid, ()))
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

    def ref(self, place: int) -> RowRef:
        """The row at a place that :meth:`has` one."""
        sequence, ordinal = place_parts(place)
        return RowRef(self._by_sequence[sequence].uid, ordinal)

    def has(self, place: int) -> bool:
        sequence, ordinal = place_parts(place)
        group = self._by_sequence.get(sequence)
        return group is not None and ordinal < group.count

    def by_age(self, *, behind: int, rows: int) -> Iterator[list[Segment]]:
        """Live segments with groups from sequence ``behind`` on, in parts: all rows of a part
        were stored later than those of the parts before it.

        The first has ``rows`` rows or more, the second as many again, each one after that twice as
        many: so few parts are too many for whoever needs them all.
        """
        every = [(self.sequences(segment), segment) for segment in self.segments]
        some = [(own.lowest, own.highest, one) for own, one in every if own.highest >= behind]
        some.sort(key=lambda span: span[:2])
        part: list[Segment] = []
        before, held, newest = 0, 0, -1
        for lowest, highest, segment in some:
            if held >= max(rows, before) and lowest > newest:
                yield part
                part, before, held = [], before + held, 0
            part.append(segment)
            held, newest = held + segment.count, max(newest, highest)
        if part:
            yield part

    @property
    def count(self) -> int:
        """Live records."""
        indexed = sum(segment.count + segment.purged for segment in self.segments)
        return indexed - sum(len(rows) for rows in self.dead.values())

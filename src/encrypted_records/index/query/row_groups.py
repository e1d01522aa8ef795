"""Groups of rows by the values of one or more fields, over all segments.

Groups are numbered in order of arrival. Rows are processed some at a time, so that memory grows
only with the number of groups. A field is read from a segment in whatever form its column is
loaded. Dates and instants are cut into periods of UTC, and weeks begin on Mondays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.errors import InvalidQuery
from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.dictionary import Codes, ColumnDictionary, Dictionary, has_long
from encrypted_records.index.log.snapshot import Positions
from encrypted_records.index.ordinals import Ordinals, mask_of
from encrypted_records.index.query.asking import Asking, ask_for, bring_by_row, bring_directories
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.tallies import DIRECTORY, FieldTally, GroupValues
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment
from encrypted_records.index.segments.reading import (
    ReadingLimits,
    Window,
    WindowEntries,
    read_column,
)
from encrypted_records.model.aggregations import ListOrder
from encrypted_records.model.definition import FieldSpec, SchemaDefinition
from encrypted_records.model.field_types.calendar import DATE, Period

#: Up to this many entries per row, and a constant, a table is faster than sorting.
_ENTRIES_PER_ROW, _MORE_ENTRIES = 4, 1 << 16


class Numbering:
    """Numbers distinct keys from 0 on, in order of arrival."""

    def __init__(self) -> None:
        self._sorted: NDArray[Any] | None = None
        self._numbers: Codes = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, keys: Keys) -> Codes:
        """The numbers of sorted, distinct keys."""
        if self._sorted is None or not len(self._sorted):
            if not len(keys):
                return np.zeros(0, np.int64)
            self._sorted, self._numbers = keys, np.arange(len(keys))
            return self._numbers
        at = np.searchsorted(self._sorted, keys)
        within = np.minimum(at, len(self._sorted) - 1)
        new = self._sorted[within] != keys
        numbers: Codes = self._numbers[within]
        count = int(np.count_nonzero(new))
        if count:
            numbers[new] = np.arange(len(self), len(self) + count)
            self._sorted = np.insert(self._sorted, at[new], keys[new])
            self._numbers = np.insert(self._numbers, at[new], numbers[new])
        return numbers

    @property
    def keys(self) -> NDArray[Any]:
        """The keys by their numbers."""
        if self._sorted is None:
            return np.zeros(0, np.uint64)
        keys = np.empty_like(self._sorted)
        keys[self._numbers] = self._sorted
        return keys


def renumber(numbers: Codes, space: int) -> tuple[Codes, Codes]:
    """The distinct values of numbers below ``space``, and each number's index among them."""
    if space > _ENTRIES_PER_ROW * len(numbers) + _MORE_ENTRIES:
        return np.unique(numbers, return_inverse=True)
    is_used = np.zeros(space, np.bool_)
    is_used[numbers] = True
    distinct = np.flatnonzero(is_used)
    index: Codes = np.zeros(space, np.int64)
    index[distinct] = np.arange(len(distinct))
    return distinct, index[numbers]


def choose_first(ranks: Codes, counts: Codes, order: ListOrder, limit: int) -> NDArray[np.intp]:
    """The first ``limit`` of a list of values with their counts; equal counts are ordered by value.

    Args:
        ranks: of the values; distinct.
    """
    # Both are below 2**32, and comparing a combined number is faster than comparing two.
    sorting = {
        "value": ranks,
        "-value": -ranks,
        "count": (counts << 32) + ranks,
        "-count": ranks - (counts << 32),
    }[order]
    if limit >= len(sorting):
        return np.argsort(sorting)
    chosen = np.argpartition(sorting, limit)[:limit]
    return chosen[np.argsort(sorting[chosen])]


def count_below(points: NDArray[Any], edge: int) -> int:
    """The number of sorted offsets below ``edge``; the edge may be far outside their range."""
    return int(np.searchsorted(points, np.uint64(max(0, edge)))) if edge < 2**64 else len(points)


def cut_bins(points: NDArray[Any], bins: int) -> list[int]:
    """The beginnings of bins of equal width; fewer than ``bins`` if there are fewer points."""
    if not len(points):
        return []
    first, last = int(points[0]), int(points[-1])
    return list(range(first, last + 1, -(-(last - first + 1) // bins)))


#: Days from 1 January of the year 1 to numpy's first day.
_TO_EPOCH = 719_162
_UNITS = {"year": "Y", "month": "M", "day": "D"}
#: Number of characters of a date that name its period.
_LABELS = {"year": 4, "month": 7, "week": 10, "day": 10}
_DAYS_OF_WEEK = 7

Points = NDArray[Any]


def _point_step(spec: FieldSpec) -> int:
    """Number of points per day."""
    step = spec.field_type.day_points
    assert step is not None, "values without days have no periods"
    return step


def begin_periods(spec: FieldSpec, points: Points, period: Period) -> Points:
    """For each point, the first point of its period."""
    step = _point_step(spec)
    days = (points // np.uint64(step)).astype(np.int64)
    if period == "week":
        # 1 January of the year 1 was a Monday.
        begins = days - days % _DAYS_OF_WEEK
    else:
        dates = (days - _TO_EPOCH).astype("M8[D]")
        begins = dates.astype(f"M8[{_UNITS[period]}]").astype("M8[D]").astype(np.int64) + _TO_EPOCH
    return begins.astype(np.uint64) * np.uint64(step)


def cut_periods(spec: FieldSpec, points: Points, period: Period, most: int) -> list[int]:
    """The bounds of the periods that contain these sorted points: the beginning of each period, and
    the end of the last.

    Raises:
        InvalidQuery: there are more than ``most`` periods.
    """
    if not len(points):
        return []
    step = _point_step(spec)
    first, last = (
        int(begin_period) // step for begin_period in begin_periods(spec, points[[0, -1]], period)
    )
    if period == "week":
        days = np.arange(first, last + 2 * _DAYS_OF_WEEK, _DAYS_OF_WEEK)
    else:
        unit = f"M8[{_UNITS[period]}]"
        ends = (np.array([first, last]) - _TO_EPOCH).astype("M8[D]").astype(unit).astype(np.int64)
        # At most one period too many, which is refused below, however far apart the values are.
        numbers = np.arange(ends[0], min(ends[1] + 2, ends[0] + most + 2))
        days = numbers.astype(unit).astype("M8[D]").astype(np.int64) + _TO_EPOCH
    if len(days) - 1 > most:
        raise InvalidQuery(
            f"the histogram would have more than {most} bins",
            code="too_many_values",
            hint="narrow the condition, or ask for longer periods",
        )
    # No value is beyond the field's last point.
    return [min(day * step, spec.numbers.highest + 1) for day in days.tolist()]


def show_period(spec: FieldSpec, begin: int, period: Period) -> str:
    """``2026``, ``2026-01``, or the first day of a week, or a day."""
    day = begin // _point_step(spec)
    return DATE.show(day)[: _LABELS[period]]


def dictionary_of(part: Candidates, field: str) -> Dictionary | None:
    """The row-major column; None for a large segment in which it is not loaded with its keys."""
    segment = part.segment
    if isinstance(segment, LoadedSegment) and not segment.has_keys(field):
        return None
    return part.dictionary(field)


def known_counts(part: Candidates, field: str, tally: FieldTally) -> GroupValues | None:
    """The values of all rows of a segment from its loaded directory; None if the directory is not
    sufficient.
    """
    segment = part.segment
    if not isinstance(segment, LoadedSegment) or not part.is_whole:
        return None
    if not segment.has_column(field):
        return None
    directory = segment.directories[field]
    present = directory.present
    if directory.listed:
        counts = np.diff(np.append(directory.starts.astype(np.int64), present))
        keys = directory.runs
    elif tally.needs in DIRECTORY and present > 1:
        keys = directory.outermost
        counts = np.array([1, present - 1])
    else:
        return None
    if has_long(keys):
        return None
    return ungrouped_values(keys, counts.astype(np.int64))


def ungrouped_values(keys: Keys, counts: Codes) -> GroupValues:
    return GroupValues(np.zeros(len(keys), np.int64), keys, counts, np.full(len(keys), -1))


def count_values(part: Candidates, field: str, dictionary: Dictionary) -> GroupValues:
    """The values of all candidates as a single group, from a row-major column."""
    if isinstance(dictionary, ColumnDictionary):
        counts = part.counts(field)[1:]
    else:
        codes = dictionary.codes_of(part.rows)
        counts = np.bincount(codes, minlength=len(dictionary.keys) + 1)[1:]
    used = np.flatnonzero(counts)
    values = ungrouped_values(dictionary.keys[used], counts[used].astype(np.int64))
    if dictionary.long:
        row_of = np.zeros(len(dictionary.keys) + 1, np.int64)
        for rows in part.in_pieces():
            row_of[dictionary.codes_of(rows)] = rows
        values.positions = part.places.positions(row_of[1:][used].astype(np.uint32))
    return values


def group_values(
    part: Candidates,
    dictionary: Dictionary,
    rows: Ordinals,
    groups: Codes,
    count: int,
    tally: FieldTally,
) -> GroupValues:
    """The values of some candidates in their groups.

    Args:
        groups: each row's group number; there are ``count`` groups.
    """
    codes = dictionary.codes_of(rows).astype(np.int64)
    present = codes > 0
    codes, rows, groups = codes[present] - 1, rows[present], groups[present]
    if not tally.of_values:
        ones = np.ones(len(codes), np.int64)
        return GroupValues(groups, dictionary.keys[codes], ones, ones)
    width = len(dictionary.keys)
    together, at = renumber(groups * width + codes, count * width)
    counts = np.bincount(at, minlength=len(together))
    positions = np.full(len(together), -1)
    if dictionary.long:
        row_of = np.zeros(len(together), np.uint32)
        row_of[at] = rows
        positions = part.places.positions(row_of)
    keys = dictionary.keys[together % width] if width else dictionary.keys
    return GroupValues(together // max(1, width), keys, counts, positions)


def read_values(
    part: Candidates,
    field: str,
    tally: FieldTally,
    limits: ReadingLimits,
    groups: NDArray[np.unsignedinteger] | None = None,
) -> Asking[None]:
    """Accumulate the values of a column that is loaded without keys, from its pages.

    Args:
        groups: for each row of the segment, 1 + its group number, or 0 if it is not a candidate;
            None if all candidates are a single group.
    """
    segment = part.segment
    assert isinstance(segment, LoadedSegment)
    is_single = groups is None
    if groups is None:
        groups = mask_of(part.matches.possible, segment.covered).view(np.uint8)

    def take(window: Window) -> None:
        entries = WindowEntries(segment, field, window)
        numbers_of_rows = groups.take(entries.ordinals)
        if is_single and len(entries.keys) and not has_long(entries.keys):
            # Faster, without arrays of all entries.
            starts = np.cumsum(entries.lengths) - entries.lengths
            counts = np.add.reduceat(numbers_of_rows, starts, dtype=np.int64)
            used = np.flatnonzero(counts)
            tally.add(ungrouped_values(entries.keys[used], counts[used]))
            return
        at = np.flatnonzero(numbers_of_rows)
        if not len(at):
            return
        key_of = np.repeat(np.arange(len(entries.keys)), entries.lengths)[at]
        numbers = numbers_of_rows[at].astype(np.int64) - 1
        first = np.ones(len(at), np.bool_)
        first[1:] = (key_of[1:] != key_of[:-1]) | (numbers[1:] != numbers[:-1])
        starts = np.flatnonzero(first)
        counts = np.diff(np.append(starts, len(at)))
        keys = entries.keys[key_of[starts]]
        positions = np.full(len(starts), -1)
        if has_long(keys):
            positions = part.places.positions(entries.ordinals[at[starts]])
        tally.add(GroupValues(numbers[starts], keys, counts, positions))

    yield from ask_for(segment, read_column(segment, field, take, limits))


class PartGroups:
    """The groups of one segment's candidates."""

    def __init__(self, combined: RowGroups, codes: list[tuple[NDArray[Any], Codes | None]]) -> None:
        self._combined = combined
        #: for each field the codes by row, and the global code of each
        self._codes = codes

    def of_rows(self, rows: Ordinals) -> Codes:
        """The group of each of these candidates."""
        columns: list[Codes] = []
        for by_row, table in self._codes:
            codes = by_row.take(rows)
            columns.append(codes.astype(np.int64) if table is None else table.take(codes))
        return self._combined.combine(columns)


class RowGroups:
    """The groups of all rows that match."""

    def __init__(
        self, definition: SchemaDefinition, fields: Mapping[str, Period | None], most: int
    ) -> None:
        """
        Args:
            fields: the fields by which rows are grouped, and their periods.
            most: maximum number of groups.
        """
        self._definition = definition
        self._fields = fields
        self._most = most
        self._keys = {name: Numbering() for name in fields}
        self._positions: dict[str, list[Positions]] = {name: [] for name in fields}
        #: numbers for the first two fields, for these and the third, and so on
        self._pairs = [Numbering() for _ in fields]
        self.counts: Codes = np.zeros(0, np.int64)

    def count(self, part: Candidates, limits: ReadingLimits) -> Asking[None]:
        """Count a segment's candidates into their groups.

        Raises:
            DoesNotOpen: a column that is needed does not open.
            InvalidQuery: ``too_many_groups``.
        """
        if len(self._fields) == 1:
            (name,) = self._fields
            counted = yield from self._count_codes(part, name, limits)
            if counted is not None:
                codes, counts = counted
                self._add(self.combine([codes]), counts)
                return
        part_groups = yield from self.number(part, limits)
        for rows in part.in_pieces():
            counts = np.bincount(part_groups.of_rows(rows))
            groups = np.flatnonzero(counts)
            self._add(groups, counts[groups])

    def number(self, part: Candidates, limits: ReadingLimits) -> Asking[PartGroups]:
        """The groups of a segment's candidates.

        Raises:
            DoesNotOpen, InvalidQuery: as :meth:`count`.
        """
        segment: OpenedSegment = part.segment  # type: ignore[assignment] # of either form
        codes: list[tuple[NDArray[Any], Codes | None]] = []
        for name in self._fields:
            yield from bring_by_row(segment, name, limits)
            dictionary = dictionary_of(part, name)
            if isinstance(dictionary, ColumnDictionary):
                counts = part.counts(name)
                table = self._table(part, name, dictionary, counts)
                codes.append((dictionary.codes, table))
            else:
                assert isinstance(segment, LoadedSegment)
                codes.append(((yield from self._read_codes(part, segment, name, limits)), None))
        return PartGroups(self, codes)

    def combine(self, codes: list[Codes]) -> Codes:
        """The group of each row, from its codes of all fields."""
        groups = codes[0]
        for level, pairs in enumerate(self._pairs):
            # A table distinguishes numbers in a small range; kept numbers must not change when more
            # codes come.
            width = int(codes[level].max(initial=0)) + 1 if level else 1
            joined = groups * width + codes[level] if level else groups
            distinct, at = renumber(joined, int(joined.max(initial=-1)) + 1)
            if level:
                distinct = distinct // width * (self._most + 2) + distinct % width
            groups = pairs.number(distinct)[at]
            self._refuse_many(len(pairs))
        return groups

    @property
    def members(self) -> NDArray[np.int64]:
        """The codes of all fields of each group: an array of shape (groups, fields)."""
        columns: list[Codes] = []
        *others, last = [pairs.keys.astype(np.int64) for pairs in self._pairs]
        groups = last
        for pairs in reversed(others):
            width = self._most + 2
            columns.append(groups % width)
            groups = pairs[groups // width]
        columns.append(groups)
        return np.stack(columns[::-1], axis=1)

    def keys(self, name: str) -> tuple[Keys, Positions]:
        """The keys of a field by code - 1, and for each key of a long string a row that has it."""
        return self._keys[name].keys, np.concatenate(
            [np.zeros(0, np.int64), *self._positions[name]]
        )

    def _count_codes(
        self, part: Candidates, name: str, limits: ReadingLimits
    ) -> Asking[tuple[Codes, Codes] | None]:
        """The codes of one field and the number of rows of each, if that does not require reading
        rows.
        """
        segment: OpenedSegment = part.segment  # type: ignore[assignment] # of either form
        if isinstance(segment, LoadedSegment) and part.is_whole and segment.has_column(name):
            yield from bring_directories(segment, [name])
            known = known_counts(part, name, FieldTally(1, []))
            if known is not None and segment.directories[name].listed:
                codes = self._number(name, known.keys, None)
                absent = segment.directories[name].absent
                return _with_absent(codes, known.counts, absent)
        yield from bring_by_row(segment, name, limits)
        dictionary = dictionary_of(part, name)
        if not isinstance(dictionary, ColumnDictionary):
            return None
        counts = part.counts(name)
        table = self._table(part, name, dictionary, counts)
        used = np.flatnonzero(counts)
        return table[used], counts[used]

    def _table(self, part: Candidates, name: str, dictionary: Dictionary, counts: Codes) -> Codes:
        """The global code of each code of a segment's column that a candidate has."""
        table: Codes = np.zeros(len(counts), np.int64)
        used = np.flatnonzero(counts[1:])
        positions: Positions | None = None
        if dictionary.long:
            row_of = np.zeros(len(counts), np.uint32)
            for rows in part.in_pieces():
                row_of[dictionary.codes_of(rows)] = rows
            positions = part.places.positions(row_of[1:][used])
        table[1:][used] = self._number(name, dictionary.keys[used], positions)
        return table

    def _number(self, name: str, keys: Keys, positions: Positions | None) -> Codes:
        """The codes of sorted, distinct keys."""
        period = self._fields[name]
        if period is not None and len(keys):
            keys = begin_periods(self._definition.fields[name], keys, period).astype(np.uint64)
        distinct, first, at = np.unique(keys, return_index=True, return_inverse=True)
        before = len(self._keys[name])
        numbers = self._keys[name].number(distinct)
        self._refuse_many(len(self._keys[name]))
        new = numbers >= before
        added = np.full(int(np.count_nonzero(new)), -1)
        if positions is not None:
            added[numbers[new] - before] = positions[first[new]]
        self._positions[name].append(added)
        return numbers[at] + 1

    def _read_codes(
        self, part: Candidates, segment: LoadedSegment, name: str, limits: ReadingLimits
    ) -> Asking[NDArray[np.uint32]]:
        """The codes by row of a column that is loaded without keys."""
        codes = np.zeros(segment.covered, np.uint32)
        wanted = mask_of(part.matches.possible, segment.covered)

        def take(window: Window) -> None:
            entries = WindowEntries(segment, name, window)
            at = np.flatnonzero(wanted[entries.ordinals])
            if not len(at):
                return
            rows, key_of = entries.ordinals[at], entries.key_of_entries()[at]
            used, first, which = np.unique(key_of, return_index=True, return_inverse=True)
            keys = entries.keys[used]
            order = np.argsort(keys, kind="stable")
            positions = None
            if has_long(keys):
                positions = part.places.positions(rows[first[order]])
            numbers = np.empty(len(used), np.int64)
            numbers[order] = self._number(name, keys[order], positions)
            codes[rows] = numbers[which]

        yield from ask_for(segment, read_column(segment, name, take, limits))
        return codes

    def _add(self, groups: Codes, counts: Codes) -> None:
        many = len(self._pairs[-1])
        if many > len(self.counts):
            self.counts = np.concatenate((self.counts, np.zeros(many - len(self.counts), np.int64)))
        np.add.at(self.counts, groups, counts)

    def _refuse_many(self, count: int) -> None:
        if count > self._most + 1:
            raise too_many_groups(self._most)


def too_many_groups(most: int) -> InvalidQuery:
    """The error for more than the maximum number of groups."""
    return InvalidQuery(
        f"the records fall into more than {most} groups",
        code="too_many_groups",
        hint="narrow the condition, or group by fields with fewer values",
    )


def _with_absent(codes: Codes, counts: Codes, absent: int) -> tuple[Codes, Codes]:
    if not absent:
        return codes, counts
    return np.append(codes, 0), np.append(counts, absent)

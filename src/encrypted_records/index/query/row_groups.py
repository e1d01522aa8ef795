"""Groups of rows by the values of one or more fields, over all segments.

Groups get numbers as they come. Rows are looked at some at a time, so that memory grows with the
number of groups alone.
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
from encrypted_records.index.query.asking import Asking
from encrypted_records.index.query.bringing import (
    ask_for,
    bring_by_row,
    bring_directories,
)
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.field_rows import dictionary_of, known_counts
from encrypted_records.index.query.grouping import Numbering, renumber
from encrypted_records.index.query.periods import begin_periods
from encrypted_records.index.query.tallies import FieldTally
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment
from encrypted_records.index.segments.reading import (
    ReadingLimits,
    Window,
    WindowEntries,
    read_column,
)
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.field_types.calendar import Period


class PartGroups:
    """The groups of one segment's candidates."""

    def __init__(self, combined: RowGroups, codes: list[tuple[NDArray[Any], Codes | None]]) -> None:
        self._combined = combined
        #: of each field the codes by row, and what each of them is among all segments' codes
        self._codes = codes

    def of_rows(self, rows: Ordinals) -> Codes:
        """The group of each of these candidates."""
        every: list[Codes] = []
        for by_row, table in self._codes:
            own = by_row.take(rows)
            every.append(own.astype(np.int64) if table is None else table.take(own))
        return self._combined.combine(every)


class RowGroups:
    """The groups of all rows that match."""

    def __init__(
        self, definition: SchemaDefinition, fields: Mapping[str, Period | None], most: int
    ) -> None:
        """
        Args:
            fields: by which rows are grouped, and by which periods of them.
            most: groups that there may be.
        """
        self._definition = definition
        self._fields = fields
        self._most = most
        self._keys = {name: Numbering() for name in fields}
        self._positions: dict[str, list[Positions]] = {name: [] for name in fields}
        #: of the first two fields, of these and the third, and so on
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
        own = yield from self.number(part, limits)
        for rows in part.in_pieces():
            counts = np.bincount(own.of_rows(rows))
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
        """The group of each row, of which the codes of all fields are given."""
        groups = codes[0]
        for level, pairs in enumerate(self._pairs):
            # Numbers close to one another are told apart by a table; those that are kept must not
            # change as more codes come.
            width = int(codes[level].max(initial=0)) + 1 if level else 1
            own = groups * width + codes[level] if level else groups
            distinct, at = renumber(own, int(own.max(initial=-1)) + 1)
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
        """The keys of a field by their codes less one, and of each a row that has it, if it is of
        a long string."""
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
        """The codes of sorted keys, all different."""
        period = self._fields[name]
        if period is not None and len(keys):
            keys = begin_periods(self._definition.fields[name], keys, period).astype(np.uint64)
        distinct, first, at = np.unique(keys, return_index=True, return_inverse=True)
        before = len(self._keys[name])
        numbers = self._keys[name].number(distinct)
        self._refuse_many(len(self._keys[name]))
        new = numbers >= before
        own = np.full(int(np.count_nonzero(new)), -1)
        if positions is not None:
            own[numbers[new] - before] = positions[first[new]]
        self._positions[name].append(own)
        return numbers[at] + 1

    def _read_codes(
        self, part: Candidates, segment: LoadedSegment, name: str, limits: ReadingLimits
    ) -> Asking[NDArray[np.uint32]]:
        """The codes by row of a column that is here without keys."""
        codes = np.zeros(segment.covered, np.uint32)
        wanted = mask_of(part.matches.possible, segment.covered)

        def take(window: Window) -> None:
            entries = WindowEntries(segment, name, window)
            at = np.flatnonzero(wanted[entries.ordinals])
            if not len(at):
                return
            rows, key_of = entries.ordinals[at], entries.key_of_entries()[at]
            used, first, own = np.unique(key_of, return_index=True, return_inverse=True)
            keys = entries.keys[used]
            order = np.argsort(keys, kind="stable")
            positions = None
            if has_long(keys):
                positions = part.places.positions(rows[first[order]])
            numbers = np.empty(len(used), np.int64)
            numbers[order] = self._number(name, keys[order], positions)
            codes[rows] = numbers[own]

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
    """There are more groups than there may be."""
    return InvalidQuery(
        f"the records fall into more than {most} groups",
        code="too_many_groups",
        hint="narrow the condition, or group by fields with fewer values",
    )


def _with_absent(codes: Codes, counts: Codes, absent: int) -> tuple[Codes, Codes]:
    if not absent:
        return codes, counts
    return np.append(codes, 0), np.append(counts, absent)

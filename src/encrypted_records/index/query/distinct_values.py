"""The distinct values of a field in rows of all segments, read from its columns.

A semi-join uses them as a list of values. A global dictionary has the distinct keys and the code of
each matching row: checks for a field that is to become required, unique or narrower use these small
codes; each key is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.index.columns.column import Keys, run_starts
from encrypted_records.index.columns.dictionary import Codes, ColumnDictionary
from encrypted_records.index.log.snapshot import Positions
from encrypted_records.index.ordinals import Ordinals, mask_of
from encrypted_records.index.query.asking import Asking, Work, Workspace, ask_for, bring_by_row
from encrypted_records.index.query.candidates import Candidates, keep_matching, learn_texts
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.key_sets import Texts, are_long, join_keys
from encrypted_records.index.query.matching import Matching
from encrypted_records.index.query.row_groups import dictionary_of
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment, scope
from encrypted_records.index.segments.reading import (
    STANDARD,
    ReadingLimits,
    Window,
    WindowEntries,
    read_column,
)
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.predicates import refuse_join


class GlobalDictionary:
    """``keys`` are sorted and distinct. ``codes`` has a number per row: 0 if the field is absent,
    else 1 + the index of its key. ``counts`` has the number of rows of each code, ``positions`` the
    position of each row.

    Arrays with a value per row are computed on first use: most proofs need only counts.
    """

    def __init__(
        self,
        field: str,
        keys: Keys,
        *,
        codes: Callable[[], Codes],
        positions: Callable[[], Positions],
        counts: Codes,
    ) -> None:
        self.field = field
        self.keys = keys
        self._codes = codes
        self._positions = positions
        self.counts = counts

    @cached_property
    def codes(self) -> Codes:
        return self._codes()

    @cached_property
    def positions(self) -> Positions:
        return self._positions()


def build_global_dictionary(field: str, parts: Sequence[Candidates]) -> GlobalDictionary:
    """The field of all candidates, in order, with only the keys of these rows.

    Raises:
        DoesNotOpen: a column that is needed does not open.
    """
    fields = [_SegmentField(field, part) for part in parts]
    keys, indexes = _unite([field.keys for field in fields])
    counts: Codes = np.zeros(len(keys) + 1, np.int64)
    for part, codes_of_part in zip(fields, indexes, strict=True):
        counts[0] += part.absent
        counts[1:][codes_of_part] += part.counts

    def codes() -> Codes:
        mapped = (
            part.map_codes(codes_of_part)
            for part, codes_of_part in zip(fields, indexes, strict=True)
        )
        return np.concatenate([np.zeros(0, np.int64), *mapped])

    def positions() -> Positions:
        return np.concatenate([np.zeros(0, np.int64), *(part.positions for part in parts)])

    return GlobalDictionary(field, keys, codes=codes, positions=positions, counts=counts)


class _SegmentField:
    """The field of one segment's candidates: the keys of their rows, and the number of rows of
    each."""

    def __init__(self, field: str, part: Candidates) -> None:
        self._part = part
        self._field = field
        counts = part.counts(field)
        self.absent = int(counts[0])
        self.keys: NDArray[Any] = part.dictionary(field).keys
        self.counts = counts[1:]
        #: the indexes of these keys in the segment; None if they are all
        self._used: NDArray[np.intp] | None = None
        if not self.counts.all():
            self._used = np.flatnonzero(self.counts)
            self.keys, self.counts = self.keys[self._used], self.counts[self._used]
        self._width = len(counts)

    def map_codes(self, indexes: Codes) -> Codes:
        """The global code of each row.

        Args:
            indexes: the index among all keys of each of its keys.
        """
        mapped: Codes = np.zeros(self._width, np.int64)
        mapped[1:][slice(None) if self._used is None else self._used] = indexes + 1
        codes: Codes = mapped[self._part.codes(self._field)]
        return codes


def _unite(columns: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], list[Codes]]:
    """All distinct keys of several columns, sorted, and the index there of each column's keys.

    Usually most keys are in one large segment, and sorting them again would take longest: the keys
    of the other segments are inserted between them.
    """
    largest = max(range(len(columns)), key=lambda at: len(columns[at]), default=-1)
    if largest < 0:
        return np.zeros(0, np.uint64), []
    keys = columns[largest]
    # A column with only absent rows does not determine the type of keys.
    others = [column for at, column in enumerate(columns) if at != largest and len(column)]
    if not others:
        codes: Codes = np.arange(len(keys))
        return keys, [codes[: len(column)] for column in columns]
    beside: NDArray[Any] = np.sort(np.concatenate(others), kind="stable")
    beside = beside[run_starts(beside)]
    before = np.searchsorted(keys, beside)
    new = np.ones(len(beside), np.bool_)
    within = before < len(keys)
    new[within] = keys[before[within]] != beside[within]
    united: NDArray[Any] = np.insert(keys, before[new], beside[new])
    shifted = np.cumsum(np.bincount(before[new], minlength=len(keys)))[: len(keys)]
    indexes: list[Codes] = []
    for at, column in enumerate(columns):
        if at == largest:
            indexes.append(np.arange(len(keys)) + shifted)
        else:
            indexes.append(np.searchsorted(united, column.astype(united.dtype)))
    return united, indexes


#: Maximum bytes of the values of a semi-join.
MOST_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class DistinctValues:
    """The distinct values of a field in ``rows`` rows: sorted keys, and long strings as texts."""

    keys: Keys
    long: frozenset[str]
    rows: int


def collect_values(
    space: Workspace, condition: Condition, spec: FieldSpec, pointer: str, *, stored: int
) -> Asking[DistinctValues]:
    """The values of a field in the matching records among the first ``stored`` rows.

    Args:
        pointer: JSON pointer to the semi-join in the query.

    Raises:
        InvalidQuery: ``too_many_long``; or the values take too much memory.
        DoesNotOpen: a page, a column or a row does not open.
    """
    texts = space.texts()
    parts: list[Keys] = []
    wanted: set[bytes] = set()
    rows = size = 0
    for matched in (yield from Matching(space, condition).find()):
        answer = matched.within(space.snapshot, stored)
        part = Candidates.of(answer.segment, answer.matches, space.snapshot)
        part = yield from keep_matching(space, condition.predicate, part)
        # At most one segment's column is in memory in addition to the cache.
        with scope(answer.segment):
            keys, long = yield from list_values(part, spec.name, texts, space.sizes.reading)
        rows += len(part)
        size += sum(array.nbytes for array in keys)
        if size > MOST_BYTES:
            detail = f"the values take more than {MOST_BYTES >> 20} MiB: narrow the condition"
            raise refuse_join("too_many_values", detail, pointer)
        parts += keys
        wanted |= long
    yield from learn_texts(space, texts)
    known = (texts.get(spec.name, key) for key in wanted)
    yield Work(None, long=True)
    return DistinctValues(join_keys(parts, spec), frozenset(text for text in known if text), rows)


def list_values(
    part: Candidates, field: str, texts: Texts, limits: ReadingLimits = STANDARD
) -> Asking[tuple[list[Keys], set[bytes]]]:
    """The keys that some rows have, sorted in each list, and separately the keys of long strings,
    whose texts are now wanted.

    Raises:
        InvalidQuery: ``too_many_long``.
        DoesNotOpen: the column does not open.
    """
    segment: OpenedSegment = part.segment  # type: ignore[assignment] # of either form
    yield Work("measure", segment.segment.count)
    yield from bring_by_row(segment, field, limits)
    dictionary = dictionary_of(part, field)
    found = _DistinctKeys(part, field, texts)
    if isinstance(dictionary, ColumnDictionary):
        counts = part.counts(field)[1:]
        row_of = np.zeros(len(counts), np.uint32)
        if dictionary.long:
            for rows in part.in_pieces():
                codes = dictionary.codes_of(rows)
                row_of[codes[codes > 0] - 1] = rows[codes > 0]
        found.take(dictionary.keys, counts > 0, row_of)
        return found.keys, found.long
    assert isinstance(segment, LoadedSegment)
    wanted = mask_of(part.matches.possible, segment.covered)

    def take(window: Window) -> None:
        entries = WindowEntries(segment, field, window)
        at = np.flatnonzero(wanted[entries.ordinals])
        key_of = entries.key_of_entries()[at]
        row_of = np.zeros(len(entries.keys), np.uint32)
        row_of[key_of] = entries.ordinals[at]
        used = np.zeros(len(entries.keys), np.bool_)
        used[key_of] = True
        order = np.argsort(entries.keys, kind="stable")
        found.take(entries.keys[order], used[order], row_of[order])

    yield from ask_for(segment, read_column(segment, field, take, limits))
    return found.keys, found.long


class _DistinctKeys:
    def __init__(self, part: Candidates, field: str, texts: Texts) -> None:
        self._part, self._field, self._texts = part, field, texts
        self.keys: list[Keys] = []
        self.long: set[bytes] = set()

    def take(self, keys: Keys, used: NDArray[np.bool_], row_of: Ordinals) -> None:
        """
        Args:
            held: a mask of the keys that some row has.
            row_of: such a row for each.
        """
        long: NDArray[np.bool_] = used & are_long(keys)
        places = self._part.places
        for at in np.flatnonzero(long).tolist():
            key = bytes(keys[at])
            self._texts.want(self._field, key, places.position(int(row_of[at])))
            self.long.add(key)
        self.keys.append(keys[used & ~long])

"""Fetch missing parts of a segment: pages, directories, row-major columns, sums.

Each is work on one segment or on several, put together of the steps in :mod:`.asking`. Columns by
row and sums are asked for where they are kept, and else made of their pages, a window at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from pyroaring import BitMap

from encrypted_records.index.columns.dictionary import ByRow, ColumnDictionary
from encrypted_records.index.columns.sums import ColumnSums
from encrypted_records.index.query.asking import (
    Asking,
    Keep,
    KeptColumn,
    KeptSums,
    Need,
    Open,
    Together,
    Work,
)
from encrypted_records.index.query.sizes import Sizes
from encrypted_records.index.segments.loaded import KeptSegment, LoadedSegment, OpenedSegment, load
from encrypted_records.index.segments.reading import (
    Reading,
    ReadingLimits,
    sum_column,
    turn_round,
)
from encrypted_records.model.records import Segment

T = TypeVar("T")
#: A column that is needed with its keys takes what it takes.
_ALL_KEYS = sys.maxsize


def ask_for(
    segment: LoadedSegment, reading: Reading[T], *, passing: bool = True, light: bool = False
) -> Asking[T]:
    """A reading of one segment, as work on several.

    Args:
        passing, light: as for :class:`Need`.
    """
    try:
        while True:
            yield Need(segment, pages=frozenset(next(reading)), passing=passing, light=light)
    except StopIteration as end:
        found: T = end.value
        return found


def bring_directories(segment: OpenedSegment, fields: Sequence[str]) -> Asking[None]:
    """Fetch the directories of some fields."""
    if isinstance(segment, LoadedSegment) and segment.missing_directories(fields):
        yield Need(segment, directories=tuple(fields))


def bring_all_directories(
    segments: Iterable[OpenedSegment], fields: Collection[str]
) -> Asking[None]:
    """The same of several segments, with one request."""
    yield from bring_together(segments, lambda segment: segment.missing_directories(fields))


def bring_pages(
    segment: OpenedSegment, missing: Callable[[OpenedSegment], set[int]]
) -> Asking[None]:
    """Fetch all data pages that ``missing`` names, until none is missing. The directories that
    ``missing`` needs must be loaded.
    """
    while numbers := missing(segment):
        assert isinstance(segment, LoadedSegment)
        yield Need(segment, pages=frozenset(numbers))


def bring_together(
    segments: Iterable[OpenedSegment], missing: Callable[[OpenedSegment], set[int]]
) -> Asking[None]:
    """Fetch all pages of several segments that ``missing`` names, directories first, until none is
    missing. All of them are in memory at once.
    """
    left = list(segments)
    while True:
        lacking = [(segment, numbers) for segment in left if (numbers := missing(segment))]
        if not lacking:
            return
        left = [segment for segment, _ in lacking]
        needs: list[Need] = []
        for segment, numbers in lacking:
            assert isinstance(segment, LoadedSegment)
            needs.append(Need(segment, pages=frozenset(numbers), light=True))
        yield Together(tuple(needs))


def bring_kept(segment: OpenedSegment, field: str) -> Asking[None]:
    """Fetch the directory of a field, and take its row-major column if it is kept."""
    yield from bring_directories(segment, [field])
    if not isinstance(segment, LoadedSegment) or not segment.has_column(field):
        return
    if field not in segment.columns:
        column: ByRow | None = yield KeptColumn(segment, field)
        if column is not None:
            segment.columns[field] = column


def bring_by_row(segment: OpenedSegment, field: str, limits: ReadingLimits) -> Asking[None]:
    """Fetch a whole row-major column, with its keys if they are not too many, and its directory.

    Raises:
        DoesNotOpen: the column does not open.
    """
    if not isinstance(segment, LoadedSegment) or not segment.has_column(field):
        return
    if field in segment.columns:
        return
    # After a turn at memory: another question may have made it meanwhile.
    yield Need(segment, directories=(field,))
    column: ByRow | None = yield KeptColumn(segment, field)
    if column is None:
        column = yield from _make(segment, turn_round(segment, field, limits))
        yield Keep(segment, field, column)
    segment.columns[field] = column


def bring_sums(
    segment: LoadedSegment, field: str, rows: BitMap, limits: ReadingLimits
) -> Asking[ColumnSums]:
    """The sums of a column of numbers, with the keys of some rows; its directory is here.

    Raises:
        DoesNotOpen: the column does not open.
    """
    held = segment.sums.get(field)
    if held is None or not held.has(rows):
        held = yield KeptSums(segment, field)  # which takes no memory more
    if held is None or not held.has(rows):
        # Another question may make it while this one waits for its turn.
        yield Need(segment)
        held = yield KeptSums(segment, field, again=True)
    if held is None or not held.has(rows):
        held = yield from _make(segment, sum_column(segment, field, rows, limits))
        yield Keep(segment, field, held)
    segment.sums[field] = held
    return held


def bring_columns(
    segments: Iterable[object], fields: Collection[str], sizes: Sizes
) -> Asking[None]:
    """Fetch whole columns with their keys, for sorting or measuring rows. A few missing values are
    fetched in one request; larger amounts column by column, a window of pages at a time.

    Args:
        segments: of either form; minis have all of their columns.

    Raises:
        DoesNotOpen: a column does not open.
    """
    lacking: list[tuple[LoadedSegment, list[str]]] = []
    for segment in segments:
        if not isinstance(segment, LoadedSegment):
            continue
        own: list[str] = []
        for field in fields:
            if segment.has_keys(field):
                continue
            column: ByRow | None = yield KeptColumn(segment, field)
            if isinstance(column, ColumnDictionary):
                segment.columns[field] = column
            else:
                own.append(field)
        if own:
            lacking.append((segment, own))
    if sum(segment.count * len(own) for segment, own in lacking) <= sizes.few_values:
        yield from _bring_few(lacking)
        return
    limits = replace(sizes.reading, by_row=_ALL_KEYS)
    for segment, own in lacking:
        for field in own:
            yield Need(segment, directories=(field,))
            made = yield from _make(segment, turn_round(segment, field, limits))
            segment.columns[field] = made
            yield Keep(segment, field, made)


def _bring_few(lacking: Sequence[tuple[LoadedSegment, Sequence[str]]]) -> Asking[None]:
    fields = {segment.segment.uid: own for segment, own in lacking}
    yield from bring_together(
        [segment for segment, _ in lacking],
        lambda segment: segment.missing_columns(fields[segment.segment.uid]),
    )
    entries = sum(segment.count * len(own) for segment, own in lacking)
    before: Work = yield Work("fetch_pages", entries)
    for segment, own in lacking:
        for field in own:
            yield Keep(segment, field, segment.dictionary(field))
    yield before


def open_columns(segment: Segment, fields: Collection[str], sizes: Sizes) -> Asking[OpenedSegment]:
    """A segment with whole columns, which ends with what the caller does with it."""
    kept: list[KeptSegment] = yield Open((segment,))
    opened = load(kept[0])
    yield from bring_columns([opened], fields, sizes)
    return opened


def _make(segment: LoadedSegment, reading: Reading[T]) -> Asking[T]:
    """Compute a result from a whole column in the executor for work of this size."""
    before: Work = yield Work("fetch_pages", segment.covered)
    found = yield from ask_for(segment, reading)
    yield before
    return found

"""Run work that says what it lacks (``index.query.asking``), with pages out of a world's memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from encrypted_records.index.columns.sums import ColumnSums
from encrypted_records.index.query.asking import Asking
from encrypted_records.index.segments.paged import PagedSegment
from encrypted_records.index.segments.reading import (
    STANDARD,
    Reading,
    ReadingLimits,
    sum_column,
    turn_round,
)

T = TypeVar("T")
#: A page or two at a time, and no column with its keys.
NARROW = ReadingLimits(window=2, by_row=0, few=0)
#: A page or two at a time, and all columns with their keys.
IN_WINDOWS = ReadingLimits(window=2, few=0)
#: The sealed page of a segment.
Sealed = Callable[[PagedSegment, int], bytes]


def read(segment: PagedSegment, reading: Reading[T], sealed: Sealed) -> T:
    """Run what reads one segment; nothing of what it lacked may stay."""
    before = set(segment.blocks)
    try:
        while True:
            for number in next(reading):
                segment.put(number, sealed(segment, number))
    except StopIteration as end:
        assert set(segment.blocks) == before
        found: T = end.value
        return found


#: What columns add up to, by segment and field, as a cache keeps it.
Kept = dict[tuple[bytes, str], ColumnSums]


def answer(
    asking: Asking[T], sealed: Sealed, limits: ReadingLimits = STANDARD, kept: Kept | None = None
) -> T:
    """Run what asks several segments."""
    kept = {} if kept is None else kept
    try:
        while True:
            need = next(asking)
            wanted = {*need.pages, *need.segment.missing_directories(need.directories)}
            for number in wanted:
                need.segment.put(number, sealed(need.segment, number))
            for other, pages in need.beside:
                for number in pages:
                    other.put(number, sealed(other, number))
            for name in need.by_row:
                turned = read(need.segment, turn_round(need.segment, name, limits), sealed)
                need.segment.columns[name] = turned
            if need.sums is not None:
                at = need.segment.segment.uid, need.sums
                if at not in kept or not kept[at].has(need.rows):
                    summing = sum_column(need.segment, need.sums, need.rows, limits)
                    kept[at] = read(need.segment, summing, sealed)
                need.segment.sums[need.sums] = kept[at]
    except StopIteration as end:
        found: T = end.value
        return found

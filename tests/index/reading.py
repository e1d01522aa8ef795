"""Run work that says what it lacks (``index.query.asking``), with pages out of a world's memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from encrypted_records.index.columns.sums import ColumnSums
from encrypted_records.index.query.asking import Asking, Need, Together, Work
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


def needs_of(step: Need | Together) -> tuple[Need, ...]:
    return step.needs if isinstance(step, Together) else (step,)


def answer(
    asking: Asking[T], sealed: Sealed, limits: ReadingLimits = STANDARD, kept: Kept | None = None
) -> T:
    """Run what asks several segments."""
    kept = {} if kept is None else kept
    try:
        while True:
            step = next(asking)
            if not isinstance(step, Work):
                for need in needs_of(step):
                    _bring(need, sealed, limits, kept)
    except StopIteration as end:
        found: T = end.value
        return found


def _bring(need: Need, sealed: Sealed, limits: ReadingLimits, kept: Kept) -> None:
    segment = need.segment
    for number in {*need.pages, *segment.missing_directories(need.directories)}:
        segment.put(number, sealed(segment, number))
    for name in need.by_row:
        segment.columns[name] = read(segment, turn_round(segment, name, limits), sealed)
    if need.sums is not None:
        at = segment.segment.uid, need.sums
        if at not in kept or not kept[at].has(need.rows):
            kept[at] = read(segment, sum_column(segment, need.sums, need.rows, limits), sealed)
        segment.sums[need.sums] = kept[at]

"""Run work that says what it lacks (``index.query.asking``), with pages out of a world's memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from encrypted_records.index.columns.column import EntryBlock
from encrypted_records.index.columns.dictionary import ByRow, ColumnSums
from encrypted_records.index.query.asking import (
    Asking,
    Keep,
    KeptColumn,
    KeptSums,
    Need,
    Open,
    Rows,
    Sizes,
    Step,
    Together,
    Work,
)
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.reading import Reading, ReadingLimits

T = TypeVar("T")
#: A page or two at a time, and no column with its keys.
NARROW = ReadingLimits(window=2, by_row=0, few=0)
#: A page or two at a time, and all columns with their keys.
IN_WINDOWS = ReadingLimits(window=2, few=0)
#: The sealed page of a segment.
Sealed = Callable[[LoadedSegment, int], bytes]


def read(
    segment: LoadedSegment, reading: Reading[T], sealed: Sealed, kept: Kept | None = None
) -> T:
    """Run what reads one segment; nothing of what it lacked may stay."""
    kept = kept or Kept(with_pages=False)
    before = set(segment.blocks)
    try:
        while True:
            for number in next(reading):
                kept.put(segment, number, sealed)
    except StopIteration as end:
        assert set(segment.blocks) == before
        found: T = end.value
        return found


#: As of very many rows: no way for small questions is taken.
MANY_ROWS = Sizes(
    few_rows=0, few_to_sort=0, many_pages=0, few_values=0, few_entries=1, batch_bytes=1
)


@dataclass
class Kept:
    """What a cache keeps of columns, by segment and field; none by row unless they ``stay``."""

    stay: bool = True
    sums: dict[tuple[bytes, str], ColumnSums] = field(default_factory=dict)
    columns: dict[tuple[bytes, str], ByRow] = field(default_factory=dict)
    #: whether opened pages stay: to open each time takes longer than all else
    with_pages: bool = True
    #: how many pages were brought into segments, whether they were kept or not
    brought: int = 0
    #: opened pages, by view and number
    blocks: dict[tuple[bytes, int], EntryBlock] = field(default_factory=dict)

    def put(self, segment: LoadedSegment, number: int, sealed: Sealed) -> None:
        at = segment.view, number
        self.brought += 1
        if at in self.blocks:
            segment.blocks[number] = self.blocks[at]
            return
        segment.put(number, sealed(segment, number))
        if self.with_pages and number in segment.blocks:
            self.blocks[at] = segment.blocks[number]

    def kept(self, step: Keep | KeptColumn | KeptSums) -> ByRow | ColumnSums | None:
        """A column by row, or its sums, where they are kept or were made just now."""
        at = step.segment.segment.uid, step.field
        if isinstance(step, KeptColumn):
            return self.columns.get(at)
        if isinstance(step, KeptSums):
            return self.sums.get(at)
        if isinstance(step.made, ColumnSums):
            self.sums[at] = step.made
        elif self.stay:
            self.columns[at] = step.made
        return None


def needs_of(step: Need | Together) -> tuple[Need, ...]:
    return step.needs if isinstance(step, Together) else (step,)


def answer(
    asking: Asking[T],
    sealed: Sealed,
    kept: Kept | None = None,
    steps: list[Step] | None = None,
    fetch: Callable[[Open | Rows], object] | None = None,
) -> T:
    """Run what asks several segments.

    Args:
        steps: takes in all that was asked for.
        fetch: what is sent back for what is not of one segment.
    """
    kept = kept or Kept(with_pages=False)
    found: object = None
    work = Work(None)
    try:
        while True:
            step = asking.send(found)
            found = None
            if steps is not None:
                steps.append(step)
            if isinstance(step, Open | Rows):
                assert fetch is not None
                found = fetch(step)
            elif isinstance(step, Work):
                found, work = work, step
            elif isinstance(step, Keep | KeptColumn | KeptSums):
                found = kept.kept(step)
            else:
                for need in needs_of(step):
                    _bring(need, sealed, kept)
    except StopIteration as end:
        value: T = end.value
        return value


def _bring(need: Need, sealed: Sealed, kept: Kept) -> None:
    segment = need.segment
    directories = segment.missing_directories(need.directories)
    # Directories first, as they say what pages hold.
    pages = segment.directories.without_own(need.pages - segment.blocks.keys())
    for number in [*directories, *(pages - directories)]:
        kept.put(segment, number, sealed)

"""The first rows of an answer in the order of a field, by walking its sorted column from one end.

Of a million rows the first ten are found in a page or two. The walk goes on until there are enough
rows of the answer, and then to the end of what the index takes for equal, since other fields, the
order of storing, or opened records decide there. Where that takes long, it is given up: the column
by row is quicker then.

Like :func:`.resolve.missing`, a walk names the pages that it lacks, and is begun again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from pyroaring import BitMap

from encrypted_records.index.bitmaps import bitmap, ordinals
from encrypted_records.index.coded import Few, few
from encrypted_records.index.columns import Block, Keys, Lookup, Ordinals
from encrypted_records.index.paged import Opened
from encrypted_records.index.spans import Span, alike
from encrypted_records.index.view import Sequences
from encrypted_records.model.questions import Order

#: Entries looked at first; twice as many follow each time.
_STEP = 2048
#: The part of a column that is walked at most.
_MOST = 0.25
#: A walk pays where it can be expected to end within the part above.
_SPARE = 2 * _STEP
#: Equal rows that are left to whoever sorts.
_FEW = 1024


@dataclass(frozen=True, slots=True)
class Start:
    """Behind the row at ``place``, whose index key is ``key``; None where the field is absent."""

    key: int | bytes | None
    place: int


@dataclass(frozen=True, slots=True)
class Walked:
    """All rows that can be among the first, and what the field is of each."""

    rows: BitMap
    coding: Few


#: Pages that are missing; or None where the whole column by row is the quicker way.
Outcome = Walked | set[int] | None


@dataclass(frozen=True, slots=True)
class Walk:
    """What is walked for: ``want`` rows of ``among``, by the field of ``order``.

    ``stretch`` holds all that match, where the condition says so. Rows with one key are cut down
    to the first ones as they were stored, where ``alone`` says that no other field follows.
    """

    order: Order
    among: BitMap
    want: int
    start: Start | None
    stretch: Span | None
    alone: bool
    sequences: Sequences

    def pays(self, present: int) -> bool:
        """Whether a walk is likely to be short."""
        expected = self.want * present / max(1, len(self.among))
        return expected + _SPARE < _MOST * present

    def through(self, segment: Opened) -> Outcome:
        """
        Raises:
            DoesNotOpen: a column that is needed does not open.
        """
        missing = segment.missing_directories([self.order.field])
        if missing:
            return missing
        column = segment.lookup(self.order.field)
        return _Way(self, column).walk() if self.pays(column.present) else None


class _Missing(Exception):
    def __init__(self, pages: set[int]) -> None:
        self.pages = pages


class _GivenUp(Exception):
    pass


@dataclass
class _Way:
    """One walk under way: what it came by."""

    asked: Walk
    column: Lookup
    blocks: list[Block] = field(default_factory=list)
    #: rows behind the start
    found: BitMap = field(default_factory=BitMap)
    #: rows that the index takes for equal to the start
    beside: BitMap = field(default_factory=BitMap)
    #: those of them all that lack the field
    absent: BitMap = field(default_factory=BitMap)

    def walk(self) -> Outcome:
        passes = [self._absent, self._present]
        try:
            for one in reversed(passes) if self._down else passes:
                if len(self.found) < self.asked.want:
                    one()
        except _Missing as error:
            return error.pages
        except _GivenUp:
            return None
        rows = self.found | self.beside
        return Walked(rows, self._coding(rows))

    @property
    def _down(self) -> bool:
        return self.asked.order.descending

    def _absent(self) -> None:
        start = self.asked.start
        if start is not None and start.key is not None and not self._down:
            return
        if self.asked.stretch is not None or not self.column.absent:
            return
        _need(self.column.missing_absent())
        rows = bitmap(self.column.absent_rows()) & self.asked.among
        here = start is not None and start.key is None
        self.absent = self._first(rows, here=here)
        if here:
            self.beside |= self.absent
        else:
            self.found |= self.absent

    def _present(self) -> None:
        start = self.asked.start
        if not self.column.present or (start is not None and start.key is None and self._down):
            return
        low, high = 0, self.column.present
        if self.asked.stretch is not None:
            low, high = self._places(self.asked.stretch)
        if start is not None and start.key is not None:
            first, last = self._places(alike(start.key))
            self.beside |= self._equal(max(low, first), min(high, last), here=True)
            low, high = (low, min(high, first)) if self._down else (max(low, last), high)
        self._onward(low, high)

    def _onward(self, low: int, high: int) -> None:
        """From one end of these entries on, until there are enough rows."""
        step, walked = _STEP, 0
        while low < high:
            if walked > _MOST * self.column.present:
                raise _GivenUp
            first, last = (
                (max(low, high - step), high) if self._down else (low, min(high, low + step))
            )
            blocks = self._entries(first, last)
            outermost = blocks[0].keys[0] if self._down else blocks[-1].keys[-1]
            begin, end = self._places(alike(outermost.item()))
            # What is equal to the outermost entry, all of it, comes apart from the others.
            begin, end = max(low, begin), min(high, end)
            if self._down:
                self.found |= self._among(self._entries(end, last)) | self._equal(begin, end)
                high = begin
            else:
                self.found |= self._among(self._entries(first, begin)) | self._equal(begin, end)
                low = end
            if len(self.found) >= self.asked.want:
                return
            walked += max(step, end - begin)
            step *= 2

    def _equal(self, first: int, last: int, *, here: bool = False) -> BitMap:
        """Of entries that are alike; ``here`` says that the start is among them."""
        blocks = self._entries(first, last)
        rows = self._among(blocks)
        keys = {key for block in blocks for key in block.keys.tolist()}
        # Of long strings that begin alike, only the opened records tell the order.
        return rows if len(keys) > 1 else self._first(rows, here=here)

    def _first(self, rows: BitMap, *, here: bool) -> BitMap:
        if not self.asked.alone or len(rows) <= max(_FEW, self.asked.want):
            return rows
        start = self.asked.start
        behind = start.place if here and start is not None else None
        return self.asked.sequences.first(rows, self.asked.want, behind=behind)

    def _places(self, span: Span) -> tuple[int, int]:
        """Where the entries of ``span`` begin and end."""
        _need(self.column.missing_to_count(span))
        return self.column.at(span.first), self.column.at(span.last)

    def _entries(self, first: int, last: int) -> list[Block]:
        if first >= last:
            return []
        _need(self.column.missing_entries(first, last))
        return self.column.entries(first, last)

    def _among(self, blocks: Sequence[Block]) -> BitMap:
        """The rows of the answer in ``blocks``, which are kept for their keys."""
        self.blocks += blocks
        return bitmap(*(block.ordinals for block in blocks)) & self.asked.among

    def _coding(self, found: BitMap) -> Few:
        wanted = ordinals(found)
        rows: list[Ordinals] = [np.zeros(0, np.uint32)]
        keys: list[Keys] = []
        # By a mask: to look each up among the others takes ten times as long.
        listed = [wanted, *(block.ordinals for block in self.blocks)]
        size = max((int(some.max()) + 1 for some in listed if len(some)), default=0)
        is_wanted = np.zeros(size, np.bool_)
        is_wanted[wanted] = True
        for block in self.blocks:
            at = np.flatnonzero(is_wanted.take(block.ordinals))
            rows.append(block.ordinals[at])
            keys.append(block.keys[np.searchsorted(block.starts, at, "right") - 1])
        held = np.concatenate(keys) if keys else np.zeros(0, np.uint64)
        return few(np.concatenate(rows), held, ordinals(self.absent))


def _need(pages: set[int]) -> None:
    if pages:
        raise _Missing(pages)

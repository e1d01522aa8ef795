"""The first rows of a segment that match, without the set of all rows that do.

Who asks for ten rows in the order of storing needs no set of half a million. Where a comparison
takes many entries of a column, those are looked through for the first row that can match, and only
the rows of a window that begins there are made into sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from encrypted_records.index.ordinals import Ordinals, bitmap
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.condition_tree import combine, find_first
from encrypted_records.index.query.leaves import RangeLeaf
from encrypted_records.index.query.matches import Matches
from encrypted_records.index.segments.loaded import OpenedSegment

#: Entries that are looked at together.
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class FirstRows:
    """Local ordinals that match: all of those before the end of a window. ``is_all`` if there are
    no others."""

    rows: BitMap
    is_all: bool


def match_first(condition: Condition, segment: OpenedSegment, window: int) -> FirstRows | None:
    """The rows that match in the first ``window`` rows among which any can, dead ones among them
    as for :meth:`Condition.match`; None of a condition that key ranges alone do not decide.

    Raises:
        DoesNotOpen: a column that is needed does not open.
    """
    if condition.excludes(segment):
        return FirstRows(BitMap(), is_all=True)
    leaves = [leaf for leaf in condition.leaves if isinstance(leaf, RangeLeaf) and leaf.is_exact]
    if len(leaves) < len(condition.leaves):
        return None
    memo = condition.memo(segment)
    every = {leaf.number: leaf.entries(segment, memo) for leaf in leaves}
    lowest = {
        number: None if pieces is None else [int(some.min()) for some in _join(pieces)]
        for number, pieces in every.items()
    }
    end = segment.segment.count + segment.segment.purged
    begin = find_first(condition.root, lowest, end)

    def in_window(number: int) -> Matches:
        pieces, lows = every[number], lowest[number]
        if pieces is None or lows is None:
            return Matches.exactly(rows)
        parts = zip(_join(pieces), lows, strict=True)
        near = (some for some, low in parts if low < begin + window)
        # Below zero, ordinals go on from the highest: so one comparison is enough for both ends.
        return Matches.exactly(bitmap(*(some[some - np.uint32(begin) < window] for some in near)))

    rows = BitMap(range(begin, min(end, begin + window))) & segment.everything
    return FirstRows(
        combine(condition.root, rows, {number: in_window(number) for number in every}).certain,
        begin + window >= end,
    )


def _join(pieces: Sequence[Ordinals]) -> Iterator[Ordinals]:
    """The same entries in fewer arrays: of pages each is so small that numpy's calls cost more than
    what they do, and of all of them memory would have to come from the system."""
    held: list[Ordinals] = []
    size = 0
    for some in pieces:
        held.append(some)
        size += len(some)
        if size >= _AT_ONCE:
            yield np.concatenate(held)
            held, size = [], 0
    if held:
        yield np.concatenate(held)

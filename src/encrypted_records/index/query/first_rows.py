"""The first rows of a segment that match, without the set of all rows that do.

Who asks for ten rows in the order of storing needs no set of half a million. Where a comparison
takes many entries of a column, those are looked through for the first row that can match, and only
the rows of a window that begins there are made into sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from encrypted_records.index.ordinals import Ordinals, bitmap
from encrypted_records.index.query.matches import Matches, combine
from encrypted_records.index.query.plan import Plan
from encrypted_records.index.segments.paged import OpenedSegment
from encrypted_records.model.predicates import And, Leaf, Or, Predicate, leaves_of

#: Rows of a window: as many as one part of a set has.
WINDOW = 1 << 16
#: Entries that are looked at together.
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class FirstRows:
    """Local ordinals that match: all of those before the end of a window. ``is_all`` if there are
    no others."""

    rows: BitMap
    is_all: bool


def match_first(plan: Plan, segment: OpenedSegment, window: int = WINDOW) -> FirstRows | None:
    """The rows that match in the first ``window`` rows among which any can, dead ones among them
    as for :meth:`Plan.match`; None of a plan that the index does not decide by key ranges alone.

    Raises:
        DoesNotOpen: a column that is needed does not open.
    """
    if plan.excludes(segment):
        return FirstRows(BitMap(), is_all=True)
    leaves = list(leaves_of(plan.predicate))
    if not all(map(plan.is_exact, leaves)):
        return None
    every = {id(leaf): plan.entries(segment, leaf) for leaf in leaves}
    lowest = {
        at: None if pieces is None else [int(some.min()) for some in _join(pieces)]
        for at, pieces in every.items()
    }
    end = segment.segment.count + segment.segment.purged
    begin = _find_first(plan.predicate, lowest, end)

    def leaf(part: Leaf) -> Matches:
        pieces, lows = every[id(part)], lowest[id(part)]
        if pieces is None or lows is None:
            return Matches.exactly(rows)
        parts = zip(_join(pieces), lows, strict=True)
        near = (some for some, low in parts if low < begin + window)
        # Below zero, ordinals go on from the highest: so one comparison is enough for both ends.
        return Matches.exactly(bitmap(*(some[some - np.uint32(begin) < window] for some in near)))

    rows = BitMap(range(begin, min(end, begin + window))) & segment.everything
    return FirstRows(combine(plan.predicate, rows, leaf).certain, begin + window >= end)


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


def _find_first(where: Predicate, lowest: Mapping[int, list[int] | None], end: int) -> int:
    """A row before which none matches; ``end`` where none does at all."""
    match where:
        case And(parts):
            return max(_find_first(part, lowest, end) for part in parts)
        case Or(parts):
            return min(_find_first(part, lowest, end) for part in parts)
    found = lowest.get(id(where))
    return 0 if found is None else min(found, default=end)

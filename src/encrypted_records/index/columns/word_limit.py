"""Leave out words beyond those that a segment may list, of a column that comes as a stream.

As :func:`.words.limit` does of a column in memory, to the same entries: the rows with the most
words become undecided, and of those with equally many the last ones. Which they are is known behind
all words, and said by the entries before them, so the stream is needed twice: once to count, and
once to leave out. Up to five bytes a row are in memory meanwhile, and sets of those undecided.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.crypto.format import UNDECIDED_FROM
from encrypted_records.index.columns import words
from encrypted_records.index.columns.column import EntryBlock
from encrypted_records.index.ordinals import ordinals

#: Rows that are looked at in one piece.
_PIECE = 1 << 16
_STATED = np.uint64(UNDECIDED_FROM)


class WordCounts:
    """The number of words that each row lists: :meth:`add` all blocks, in any order."""

    def __init__(self, rows: int) -> None:
        """
        Args:
            rows: above all local ordinals.
        """
        self._counts = np.zeros(rows, np.uint32)

    def add(self, block: EntryBlock) -> None:
        listed = block.ordinals[words.count_rows(block) :]
        np.add.at(self._counts, listed, np.uint32(1))

    def find_beyond(self, most: int) -> NDArray[np.bool_] | None:
        """A mask of the rows whose words are left out, so that at most ``most`` stay; None where
        they are no more.
        """
        sizes = np.zeros(1, np.int64)
        for own in self._pieces():
            longer, found = sorted((sizes, np.bincount(own)), key=len, reverse=True)
            longer[: len(found)] += found
            sizes = longer
        totals = np.cumsum(sizes * np.arange(len(sizes)))
        if totals[-1] <= most:
            return None
        # Rows with fewer words than this all fit; of those with as many, some.
        edge = int(np.searchsorted(totals, most, "right"))
        fit = (most - int(totals[edge - 1])) // edge
        beyond = np.zeros(len(self._counts), np.bool_)
        for at, own in enumerate(self._pieces()):
            here = beyond[at * _PIECE : at * _PIECE + len(own)]
            np.greater(own, edge, out=here)
            alike = np.flatnonzero(own == edge)
            here[alike[fit:]] = True
            fit = max(0, fit - len(alike))
        return beyond

    def _pieces(self) -> Iterator[NDArray[np.uint32]]:
        for at in range(0, len(self._counts), _PIECE):
            yield self._counts[at : at + _PIECE]


def leave_out(blocks: Iterable[EntryBlock], beyond: NDArray[np.bool_]) -> Iterator[EntryBlock]:
    """A column of words, in its order, without those of the rows ``beyond``, which become
    undecided."""
    undecided: dict[int, BitMap] = {}
    for block in blocks:
        rows = words.count_rows(block)
        if rows:
            heads = block.part(0, rows)
            gone = beyond[heads.ordinals]
            changed = heads.select(gone)
            if changed is not None:
                _note(undecided, replace(changed, keys=changed.keys | _STATED))
            kept = heads.select(~gone)
            if kept is not None:
                # Undecided ones may lie among those that become so.
                decided = int(kept.keys.searchsorted(_STATED, "left"))
                at = int(kept.starts[decided]) if decided < len(kept.starts) else len(kept.ordinals)
                if at:
                    yield kept.part(0, at)
                if at < len(kept.ordinals):
                    _note(undecided, kept.part(at, len(kept.ordinals)))
        if rows < len(block.ordinals):
            yield from _in_order(undecided)
            listed = block.part(rows, len(block.ordinals)) if rows else block
            left = listed.select(~beyond[listed.ordinals])
            if left is not None:
                yield left
    yield from _in_order(undecided)


def _note(undecided: dict[int, BitMap], heads: EntryBlock) -> None:
    runs = np.split(heads.ordinals, heads.starts[1:])
    for key, rows in zip(heads.keys.tolist(), runs, strict=True):
        undecided.setdefault(key, BitMap()).update(BitMap(array("I", rows.tobytes())))


def _in_order(undecided: dict[int, BitMap]) -> Iterator[EntryBlock]:
    """All that was noted, which is spent."""
    for key in sorted(undecided):
        rows = undecided.pop(key)
        for at in range(0, len(rows), _PIECE):
            some = ordinals(rows[at : at + _PIECE])
            yield EntryBlock(some, np.array([key], np.uint64), np.zeros(1, np.uint32))

"""Columns as streams of blocks: sorted entries that arrive and are merged piece by piece.

A stream yields the blocks of a column in order: first blocks of absent rows, which have no keys,
then blocks of present rows. No block is empty, and the entries of a key may continue in the next
block. So a column of any size is merged with a few blocks in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.index.columns.column import Column, EntryBlock, Keys, key_type, run_starts
from encrypted_records.model.field_types.base import KeyKind


def stream(column: Column, kind: KeyKind) -> Iterator[EntryBlock]:
    """The blocks of a column that is in memory."""
    keys: Keys = column.keys.astype(key_type(kind))
    if column.absent:
        yield absent_block(column.absent_rows(), kind)
    if column.present:
        starts = run_starts(keys)
        rows = column.rows(0, column.present)
        yield EntryBlock(rows, keys[starts], starts.astype(np.uint32))


def absent_block(rows: NDArray[np.uint32], kind: KeyKind) -> EntryBlock:
    none: Keys = np.zeros(0, key_type(kind))
    return EntryBlock(rows, none, np.zeros(0, np.uint32))


def gather(blocks: Iterable[EntryBlock], kind: KeyKind) -> Column:
    """The whole column of a stream, in memory."""
    all_blocks = list(blocks)
    none: Keys = np.zeros(0, key_type(kind))
    return Column(
        np.concatenate([np.zeros(0, np.uint32), *(block.ordinals for block in all_blocks)]),
        np.concatenate([none, *(block.expand() for block in all_blocks)]),
    )


def join(blocks: Sequence[EntryBlock]) -> EntryBlock:
    """Join adjacent blocks, either all of absent rows or all of present rows."""
    if len(blocks) == 1:
        return blocks[0]
    ordinals, keys, begins = _side_by_side(blocks)
    new = np.ones(len(keys), np.bool_)
    new[1:] = keys[1:] != keys[:-1]
    return EntryBlock(ordinals, keys[new], begins[new].astype(np.uint32))


def merge(streams: Sequence[Iterator[EntryBlock]]) -> Iterator[EntryBlock]:
    """Merge several streams of a field; the ordinals of each stream are above those of the
    previous."""
    heads: list[_StreamHead] = []
    for stream in streams:
        for block in stream:
            if len(block.keys):
                heads.append(_StreamHead(block, stream))
                break
            yield block
    while len(heads) > 1:
        # Above the least of these keys, an input may have further entries that sort before others'.
        bound = min(head.last for head in heads)
        below = [part for head in heads if (part := head.take_below(bound)) is not None]
        if below:
            yield _interleave(below)
        for head in heads:
            yield from head.take(bound)
        heads = [head for head in heads if not head.is_empty]
    for head in heads:
        yield from head.take_all()


class _StreamHead:
    """The rest of a stream: the remaining runs of a block, and further blocks."""

    def __init__(self, block: EntryBlock, later_blocks: Iterator[EntryBlock]) -> None:
        self._block = block
        self._later_blocks = later_blocks
        #: the number of consumed runs of the block
        self._taken = 0

    @property
    def last(self) -> Any:
        """The last key of the block."""
        return self._block.keys[-1]

    @property
    def is_empty(self) -> bool:
        return self._taken == len(self._block.keys)

    def take_below(self, key: object) -> EntryBlock | None:
        """The entries of the block below ``key``; None if there are no such entries."""
        keys = self._block.keys
        end = int(keys.searchsorted(np.array(key), "left"))  # as wide as it is
        return self._take_to(end) if end > self._taken else None

    def take(self, key: object) -> Iterator[EntryBlock]:
        """The entries of ``key``, if they are next; they may continue in further blocks."""
        while not self.is_empty and self._block.keys[self._taken] == key:
            yield self._take_to(self._taken + 1)
            if self.is_empty:
                following = next(self._later_blocks, None)
                if following is not None:
                    self._block, self._taken = following, 0

    def take_all(self) -> Iterator[EntryBlock]:
        yield self._take_to(len(self._block.keys))
        yield from self._later_blocks

    def _take_to(self, end: int) -> EntryBlock:
        """The runs up to ``end``, at least one."""
        block, begin = self._block, self._taken
        self._taken = end
        first = int(block.starts[begin])
        last = int(block.starts[end]) if end < len(block.starts) else len(block.ordinals)
        starts = block.starts[begin:end] - np.uint32(first)
        return EntryBlock(block.ordinals[first:last], block.keys[begin:end], starts)


def _side_by_side(
    blocks: Sequence[EntryBlock],
) -> tuple[NDArray[np.uint32], Keys, NDArray[np.int64]]:
    """All ordinals, all runs' keys, and the beginning of each run."""
    ordinals = np.concatenate([block.ordinals for block in blocks])
    keys: Keys = np.concatenate([block.keys for block in blocks])
    offsets = np.cumsum([0, *(len(block.ordinals) for block in blocks[:-1])])
    begins = [block.starts.astype(np.int64) + at for block, at in zip(blocks, offsets, strict=True)]
    return ordinals, keys, np.concatenate(begins)


def _interleave(blocks: Sequence[EntryBlock]) -> EntryBlock:
    """Merge blocks by key; equal keys stay in the order of the blocks."""
    if len(blocks) == 1:
        return blocks[0]
    ordinals, keys, begins = _side_by_side(blocks)
    # numpy's stable sort merges runs that are already sorted.
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    lengths = np.diff(np.append(begins, len(ordinals)))[order]
    ends = np.cumsum(lengths)
    firsts = ends - lengths
    if len(keys) == len(ordinals):
        ordinals = ordinals[order]
    else:
        ordinals = ordinals[np.arange(len(ordinals)) + np.repeat(begins[order] - firsts, lengths)]
    new = np.ones(len(keys), np.bool_)
    new[1:] = keys[1:] != keys[:-1]
    return EntryBlock(ordinals, keys[new], firsts[new].astype(np.uint32))

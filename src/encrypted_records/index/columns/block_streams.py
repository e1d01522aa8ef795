"""Columns as streams of blocks: sorted entries that come piece by piece, and are merged so.

A stream gives the blocks of a column in its order: those of absent rows first, which have no keys,
then the others. No block is empty, and the entries of one key may go on in the next block. So a
column of any size is merged while a few blocks of it are in memory.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from encrypted_records.index.columns.column import Column, EntryBlock, Keys, key_type, run_starts
from encrypted_records.model.definition import KeyKind


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
    """All of a stream in memory."""
    every = list(blocks)
    none: Keys = np.zeros(0, key_type(kind))
    return Column(
        np.concatenate([np.zeros(0, np.uint32), *(one.ordinals for one in every)]),
        np.concatenate([none, *(one.expand() for one in every)]),
    )


def join(blocks: Sequence[EntryBlock]) -> EntryBlock:
    """Blocks that follow one another as one, all of absent rows or all of present ones."""
    if len(blocks) == 1:
        return blocks[0]
    ordinals, keys, begins = _side_by_side(blocks)
    new = np.ones(len(keys), np.bool_)
    new[1:] = keys[1:] != keys[:-1]
    return EntryBlock(ordinals, keys[new], begins[new].astype(np.uint32))


def merge(streams: Sequence[Iterator[EntryBlock]]) -> Iterator[EntryBlock]:
    """Several streams of one field as one; each one's ordinals lie above those before it."""
    heads: list[tuple[EntryBlock, Iterator[EntryBlock]]] = []
    for one in streams:
        for block in one:
            if len(block.keys):
                heads.append((block, one))
                break
            yield block
    while len(heads) > 1:
        # Behind the least of these keys an input may lack entries that come before others'.
        bound = min(block.keys[-1] for block, _ in heads)
        below = [int(block.keys.searchsorted(_alone(bound, block), "left")) for block, _ in heads]
        if any(below):
            yield _interleave(
                [
                    block.part(0, _begin(block, at))
                    for (block, _), at in zip(heads, below, strict=True)
                    if at
                ]
            )
        left: list[tuple[EntryBlock, Iterator[EntryBlock]]] = []
        for (block, rest), at in zip(heads, below, strict=True):
            begin = _begin(block, at)
            tail = block.part(begin, len(block.ordinals)) if at else block
            after = yield from _of_key(bound, tail, rest)
            if after is not None:
                left.append((after, rest))
        heads = left
    for block, rest in heads:
        yield block
        yield from rest


def _of_key(
    key: object, block: EntryBlock, rest: Iterator[EntryBlock]
) -> Generator[EntryBlock, None, EntryBlock | None]:
    """The entries of ``key``, which may go on in further blocks; returns the block behind them."""
    while block.keys[0] == key:
        if len(block.keys) > 1:
            end = int(block.starts[1])
            yield block.part(0, end)
            return block.part(end, len(block.ordinals))
        yield block
        following = next(rest, None)
        if following is None:
            return None
        block = following
    return block


def _alone(key: object, block: EntryBlock) -> Keys:
    alone: Keys = np.array(key, block.keys.dtype)
    return alone


def _begin(block: EntryBlock, run: int) -> int:
    """Where the entries of a run begin, which may be the one after the last."""
    return int(block.starts[run]) if run < len(block.starts) else len(block.ordinals)


def _side_by_side(
    blocks: Sequence[EntryBlock],
) -> tuple[NDArray[np.uint32], Keys, NDArray[np.int64]]:
    """All ordinals, all runs' keys, and where each run begins."""
    ordinals = np.concatenate([one.ordinals for one in blocks])
    keys: Keys = np.concatenate([one.keys for one in blocks])
    offsets = np.cumsum([0, *(len(one.ordinals) for one in blocks[:-1])])
    begins = [one.starts.astype(np.int64) + at for one, at in zip(blocks, offsets, strict=True)]
    return ordinals, keys, np.concatenate(begins)


def _interleave(blocks: Sequence[EntryBlock]) -> EntryBlock:
    """Blocks in the order of their keys, and among equal ones in that of the blocks."""
    if len(blocks) == 1:
        return blocks[0]
    ordinals, keys, begins = _side_by_side(blocks)
    # numpy sorts by merging what it finds in order.
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

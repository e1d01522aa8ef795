"""Sealed rows that this proxy has fetched, so that none is requested twice.

They are kept in blocks that were stored one after another: a row's number among all that were
ever stored never changes (:meth:`.Snapshot.number`), and neither does the row. So a block is never
stale; it lacks the rows that were stored later, and those of records that were deleted or changed
later, which :meth:`RowCache.forget` removes. Where a group ended, other groups have its rows under
the same numbers, and :meth:`RowCache.forget_between` makes room for them. Only the verified log
says which rows are live.

The disk has only rows that have opened. A row that does not open any more was damaged there, and
is fetched again.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import msgspec

from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.model.records import RowRef
from encrypted_records.proxy.search.disk_cache import DiskCache
from encrypted_records.proxy.search.memory_cache import MemoryCache, RowBlock

#: Rows of a block.
BLOCK = 64
#: Larger rows are not kept: a few would push out all others.
MOST_BYTES = 16 << 10

#: A block on disk: group, ordinal and row of each.
_Stored = list[tuple[bytes, int, bytes]]
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Stored)
_NONE = RowBlock({}, frozenset(), False)


class RowCache:
    """Safe to use from several threads. All but :meth:`in_memory` and :meth:`keep` use the disk."""

    def __init__(self, memory: MemoryCache, disk: DiskCache) -> None:
        self._memory = memory
        self._disk = disk
        #: for a block in memory to be read and changed, and for one on disk; the latter is taken
        #: first, and only where the disk is used
        self._changing = threading.Lock()
        self._writing = threading.Lock()

    def in_memory(self, schema: bytes, numbers: Iterable[int]) -> dict[int, RowBlock]:
        """The parts of these blocks that are in memory."""
        blocks = {number: self._memory.rows(schema, number) for number in numbers}
        return {number: block for number, block in blocks.items() if block is not None}

    def blocks(self, schema: bytes, numbers: Collection[int]) -> dict[int, RowBlock]:
        """The parts of these blocks that are in memory or on disk."""
        blocks = self.in_memory(schema, numbers)
        left = [at for at in numbers if at not in blocks or not blocks[at].loaded]
        if left:
            with self._writing:
                stored = self._disk.get(schema, sorted(left))
                for number in left:
                    rows = _unpack(stored[number]) if number in stored else {}
                    blocks[number] = self._add(schema, number, rows, loaded=True)
        return blocks

    def keep(self, schema: bytes, snapshot: Snapshot, rows: Mapping[RowRef, bytes]) -> None:
        """Keep these rows in memory, not checked yet."""
        for number, some in _by_block(snapshot, rows).items():
            self._add(schema, number, some, loaded=False)

    def store(
        self, schema: bytes, answers: Iterable[tuple[Snapshot, Mapping[RowRef, bytes]]]
    ) -> None:
        """Keep the rows of these answers, which open, on disk.

        Args:
            answers: each with a snapshot that has its rows.
        """
        with self._writing:
            parts: dict[int, dict[RowRef, bytes]] = defaultdict(dict)
            for snapshot, rows in answers:
                for number, some in _by_block(snapshot, rows).items():
                    parts[number] |= some
            stored = self._disk.get(schema, sorted(parts))
            packed = {}
            for number, some in parts.items():
                before = _unpack(stored[number]) if number in stored else {}
                packed[number] = _pack({**before, **some})
                self._change(schema, number, checked=some)
            self._disk.put(schema, packed)

    def forget(self, schema: bytes, snapshot: Snapshot, rows: Iterable[RowRef]) -> None:
        """Drop these rows from memory and disk, and leave the others of their blocks."""
        with self._writing:
            parts = _by_block(snapshot, dict.fromkeys(rows, b""))
            changed = {}
            for number, data in self._disk.get(schema, sorted(parts)).items():
                held = _unpack(data)
                if not held.keys().isdisjoint(parts[number]):
                    changed[number] = {ref: held[ref] for ref in held.keys() - parts[number].keys()}
            self._disk.drop_some(schema, changed)
            self._disk.put(schema, {at: _pack(left) for at, left in changed.items() if left})
            for number, gone in parts.items():
                self._change(schema, number, gone=gone)

    def forget_between(self, schema: bytes, numbers: range) -> None:
        """Drop the whole blocks of the rows with these numbers, from memory and disk."""
        first, end = numbers.start // BLOCK, -(-numbers.stop // BLOCK)
        with self._writing:
            self._disk.drop_between(schema, first, end)
            self._memory.drop_rows_between(schema, first, end)

    def forget_segments(self, uids: Collection[bytes]) -> None:
        """Drop all pages of segments that no longer exist, from memory and disk."""
        self._memory.drop(uids)
        self._disk.drop(uids)

    def _add(
        self, schema: bytes, number: int, rows: Mapping[RowRef, bytes], *, loaded: bool
    ) -> RowBlock:
        """Add rows to a block in memory; returns the block. The rows come from disk if ``loaded``;
        otherwise they are unchecked.
        """
        with self._changing:
            held = self._memory.rows(schema, number) or _NONE
            new = {ref: row for ref, row in rows.items() if ref not in held.rows}
            unchecked = held.unchecked if loaded else held.unchecked | new.keys()
            block = RowBlock({**held.rows, **new}, unchecked, held.loaded or loaded)
            self._memory.put_rows(schema, number, block)
            return block

    def _change(
        self,
        schema: bytes,
        number: int,
        *,
        checked: Collection[RowRef] = (),
        gone: Collection[RowRef] = (),
    ) -> None:
        with self._changing:
            held = self._memory.rows(schema, number)
            if held is not None:
                rows = {ref: row for ref, row in held.rows.items() if ref not in gone}
                unchecked = held.unchecked.difference(checked, gone)
                self._memory.put_rows(schema, number, RowBlock(rows, unchecked, held.loaded))


def _by_block(snapshot: Snapshot, rows: Mapping[RowRef, bytes]) -> dict[int, dict[RowRef, bytes]]:
    """The rows that are small enough to keep, by block."""
    parts: dict[int, dict[RowRef, bytes]] = defaultdict(dict)
    for ref, row in rows.items():
        if len(row) <= MOST_BYTES:
            parts[snapshot.number(ref) // BLOCK][ref] = row
    return parts


def _pack(rows: Mapping[RowRef, bytes]) -> bytes:
    return _encoder.encode([(ref.group, ref.ordinal, row) for ref, row in rows.items()])


def _unpack(data: bytes) -> dict[RowRef, bytes]:
    """The rows of a block on disk; none of a damaged one."""
    try:
        return {RowRef(group, ordinal): row for group, ordinal, row in _decoder.decode(data)}
    except msgspec.DecodeError:
        return {}

"""The layout of an object. Pure.

An object begins with its owner: a mark, the uid of its group or segment, the number of its first
row or page, and their count. So objects can be identified if the database has lost them.

An object of rows then has *blocks* of 64 ordinals. A block begins with a line for each row: record
id, version, length, and the beginning of the row's digest; the packed rows follow. The database
keeps an *entry* per block: its position, the digest of its lines, and the least and the greatest id
of its new records. An object of pages has the pages one after the other, all of one length; the
database has their digests.

If rows were erased, an object of rows ends with their digests. Without these, the remaining rows
could not be proven to a database that never heard of the erasure (:mod:`..inventory.verifying`).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from encrypted_records.errors import ObjectAltered
from encrypted_records.model import digests

#: The most bytes of an object, unless a single block is longer.
MOST_BYTES = 64 << 20
#: Blocks up to this length are read whole; of longer blocks, only the requested rows are read.
WHOLE_BYTES = 256 << 10
#: (record id, version, packed fields)
Row = tuple[bytes, int, bytes]

_ROWS, _PAGES = b"ersrows1", b"erspage1"
_HEAD = struct.Struct(">8s16sII")
_LINE = struct.Struct(">16sII8s")
_ENTRY = struct.Struct(">QI32s16s16s")
#: Ordinal and digest of an erased row.
_GONE = struct.Struct(">I32s")
HEAD_BYTES, LINE_BYTES, ENTRY_BYTES = _HEAD.size, _LINE.size, _ENTRY.size
_DIGEST_BYTES = 8
_ID = np.dtype("V16")
_LINES = np.dtype(
    [("id", _ID), ("version", ">u4"), ("length", ">u4"), ("digest", f"V{_DIGEST_BYTES}")]
)
#: Digests of rows; a line has the beginning of one.
_DIGESTS = np.dtype(
    [("begin", f"V{_DIGEST_BYTES}"), ("rest", f"V{digests.DIGEST - _DIGEST_BYTES}")]
)
#: The span of a block without new records: no id is in it.
_NOWHERE = (b"\xff" * 16, bytes(16))


class RowEntry(NamedTuple):
    """A row's line in the head of a block; ``version`` 0 is a hole."""

    record_id: bytes
    version: int
    length: int
    digest: bytes


class BlockEntry(NamedTuple):
    """A block as listed in the database; ``lines`` is the SHA-256 of its lines."""

    start: int
    length: int
    lines: bytes
    least: bytes
    greatest: bytes


@dataclass(frozen=True)
class RowsObject:
    """Content of an object of rows: its head, its rows, and the digests of erased rows, by
    ordinal.
    """

    group: bytes
    first: int
    rows: list[Row | None]
    gone: dict[int, bytes]


@dataclass(frozen=True)
class RowObject:
    """Consecutive rows of a group as one object, and the database's columns about it.

    ``first_id`` and ``last_id`` span the ids of new records; both are None if there are none.
    """

    first: int
    count: int
    data: bytes
    entries: bytes
    first_id: bytes | None
    last_id: bytes | None


def row_objects(
    group: bytes,
    first: int,
    rows: Sequence[Row | None],
    row_digests: bytes,
    gone: Mapping[int, bytes] = MappingProxyType({}),
) -> Iterator[RowObject]:
    """Cut rows into objects.

    Args:
        first: the ordinal of the first row, which begins a run.
        row_digests: of these rows, concatenated.
        gone: the digests of erased rows, by ordinal.
    """
    pieces: list[bytes] = []
    entries: list[BlockEntry] = []
    size = HEAD_BYTES
    begun = first
    lines = _lines(rows, row_digests)
    for at in range(0, len(rows), digests.RUN):
        run_lines = lines[at * LINE_BYTES : (at + digests.RUN) * LINE_BYTES]
        block, entry = _block(rows[at : at + digests.RUN], run_lines)
        if entries and size + entry.length > MOST_BYTES:
            yield _row_object(group, begun, first + at - begun, pieces, entries, gone)
            pieces, entries, size, begun = [], [], HEAD_BYTES, first + at
        pieces += block
        entries.append(entry._replace(start=size))
        size += entry.length
    if entries:
        yield _row_object(group, begun, first + len(rows) - begun, pieces, entries, gone)


def row_head(group: bytes, first: int, count: int) -> bytes:
    """The first bytes of an object of rows."""
    return _HEAD.pack(_ROWS, group, first, count)


def page_head(segment: bytes, first: int, count: int) -> bytes:
    """The first bytes of an object of pages."""
    return _HEAD.pack(_PAGES, segment, first, count)


def _row_object(
    group: bytes,
    first: int,
    count: int,
    pieces: Sequence[bytes],
    entries: Sequence[BlockEntry],
    gone: Mapping[int, bytes],
) -> RowObject:
    gone_entries = [_GONE.pack(at, gone[at]) for at in sorted(gone) if first <= at < first + count]
    head = row_head(group, first, count)
    least = min(entry.least for entry in entries)
    greatest = max(entry.greatest for entry in entries)
    spanned = least <= greatest
    return RowObject(
        first,
        count,
        b"".join([head, *pieces, *gone_entries]),
        b"".join([_ENTRY.pack(*entry) for entry in entries]),
        least if spanned else None,
        greatest if spanned else None,
    )


def _lines(rows: Sequence[Row | None], row_digests: bytes) -> bytes:
    """The lines of these rows, concatenated; the line of a hole is zeros, like its digest."""
    live = [row for row in rows if row is not None]
    at: slice | NDArray[np.intp] = slice(None)
    if len(live) < len(rows):
        at = np.flatnonzero([row is not None for row in rows])
    lines = np.zeros(len(rows), _LINES)
    lines["id"][at] = np.frombuffer(b"".join([row[0] for row in live]), _ID)
    lines["version"][at] = [row[1] for row in live]
    lines["length"][at] = [len(row[2]) for row in live]
    lines["digest"] = np.frombuffer(row_digests, _DIGESTS)["begin"]
    return lines.tobytes()


def _block(rows: Sequence[Row | None], lines: bytes) -> tuple[list[bytes], BlockEntry]:
    """The pieces of a block, and its entry without its position. Pieces are joined only once, for
    the whole object: parts are large, and several arrive at a time.
    """
    new = [row[0] for row in rows if row is not None and row[1] == 1]
    span = (min(new), max(new)) if new else _NOWHERE
    pieces = [lines, *(row[2] for row in rows if row is not None)]
    length = sum(map(len, pieces))
    return pieces, BlockEntry(0, length, hashlib.sha256(lines).digest(), *span)


class ObjectHead(NamedTuple):
    """The owner of an object: whether it has ``rows`` or pages, the uid of the group or segment,
    the number of the first row or page, and their count.
    """

    rows: bool
    uid: bytes
    first: int
    length: int


def head_of(data: bytes) -> ObjectHead | None:
    """Parse the head of an object from its first bytes; None if it is not one of our objects."""
    if len(data) < HEAD_BYTES:
        return None
    mark, uid, first, count = _HEAD.unpack_from(data)
    return ObjectHead(mark == _ROWS, uid, first, count) if mark in (_ROWS, _PAGES) else None


def contents_of(data: bytes, name: str) -> RowsObject:
    """The content of an object of rows, according to its own lines; nothing is verified.

    Raises:
        ObjectAltered: the data is not a complete object of rows.
    """
    head = head_of(data)
    if head is None or not head.rows:
        raise altered(name)
    _, group, first, count = head
    rows: list[Row | None] = []
    at = HEAD_BYTES
    while len(rows) < count:
        lines = data[at : at + LINE_BYTES * min(digests.RUN, count - len(rows))]
        if len(lines) < LINE_BYTES * min(digests.RUN, count - len(rows)):
            raise altered(name)
        at += len(lines)
        for record_id, version, length, _ in _LINE.iter_unpack(lines):
            rows.append((record_id, version, data[at : at + length]) if version else None)
            at += length
    if at > len(data) or (len(data) - at) % _GONE.size:
        raise altered(name)
    return RowsObject(group, first, rows, dict(_GONE.iter_unpack(data[at:])))


def entry_of(data: bytes) -> BlockEntry:
    return BlockEntry(*_ENTRY.unpack(data))


def entries_of(data: bytes) -> list[BlockEntry]:
    """All entries of an object, in the order of its blocks."""
    return [BlockEntry(*fields) for fields in _ENTRY.iter_unpack(data)]


def lines_of(data: bytes, entry: BlockEntry, name: str) -> list[RowEntry]:
    """The lines of a block.

    Args:
        data: the block, or only its lines.
        name: the object's name, for errors.

    Raises:
        ObjectAltered: these are not the lines that were stored.
    """
    if hashlib.sha256(data).digest() != entry.lines:
        raise altered(name)
    return [RowEntry(*fields) for fields in _LINE.iter_unpack(data)]


def places_of(lines: Sequence[RowEntry]) -> list[int]:
    """The offset of each row, within its block."""
    lengths = (line.length for line in lines)
    return list(accumulate(lengths, initial=LINE_BYTES * len(lines)))


def blocks_around(entries: Sequence[BlockEntry], at: int, most: int) -> Sequence[BlockEntry]:
    """The block at a position and its neighbours: from a multiple of a power of two on, as many as
    have no more than ``most`` bytes together; none if the block itself is longer.
    """
    count = 1 << (len(entries) - 1).bit_length()
    while count:
        first = at - at % count
        block_entries = entries[first : first + count]
        if sum(block.length for block in block_entries) <= most:
            return block_entries
        count //= 2
    return ()


def pages_around(start: int, count: int, length: int, most: int) -> Iterator[int]:
    """Offsets, in an object of ``count`` pages, of the page that begins at ``start`` and its
    neighbours: from a multiple of a power of two on, as many as have no more than ``most`` bytes.
    """
    at_once = 1 << max(0, (most // length).bit_length() - 1)
    first = (start - HEAD_BYTES) // length // at_once * at_once
    for at in range(first, min(first + at_once, count)):
        yield HEAD_BYTES + at * length


def check_row(salt: bytes, line: RowEntry, packed: bytes, name: str) -> None:
    """
    Raises:
        ObjectAltered: the row is not the one that was stored.
    """
    computed = digests.row_digest(salt, line.record_id, line.version, packed)
    if computed[:_DIGEST_BYTES] != line.digest:
        raise altered(name)


def altered(name: str) -> ObjectAltered:
    return ObjectAltered(f"an object of the bulk store is not as it was stored: {name}")


def page_object(segment: bytes, first: int, pages: Sequence[bytes]) -> bytes:
    """Consecutive pages of a segment, all of one length, as one object."""
    return b"".join([page_head(segment, first, len(pages)), *pages])


def cut_pages(pages: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, list[bytes]]]:
    """Cut a segment's pages (number, bytes) into runs of consecutive pages, each up to the length
    of an object.
    """
    first, run, size = 0, list[bytes](), 0
    for number, data in pages:
        if run and (number != first + len(run) or size + len(data) > MOST_BYTES - HEAD_BYTES):
            yield first, run
            run, size = [], 0
        if not run:
            first = number
        run.append(data)
        size += len(data)
    if run:
        yield first, run

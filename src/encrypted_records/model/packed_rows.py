"""Rows whose fields stay in one piece: as they travel, are digested, and are stored.

A job sends tens of thousands of rows at once. To make an object of each field of each, and pieces
of them again, took the API most of its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat

import msgspec
import numpy as np
from numpy.typing import NDArray

from encrypted_records.model.ciphertext_lengths import BESIDE_CLASS, SEAL_VERSION, LeastClass
from encrypted_records.model.records import U32, RowBatch, SealedRow, Uid

_fields = msgspec.msgpack.Decoder(list[bytes])
#: How MessagePack heads a byte string: a mark, and the width of the length behind it; the least
#: length that has this mark.
_HEADS = ((0xC4, 1, 0), (0xC5, 2, 1 << 8), (0xC6, 4, 1 << 16))
_LONGEST_HEAD = 5
#: Up to so many values MessagePack counts them in the mark of their list.
_SHORT_LIST = 15
_VERSION = bytes((SEAL_VERSION,))
#: Rows of so many lengths are looked at by length.
_MOST_SIZES = 16


class PackedRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A :class:`~.records.SealedRow` on the wire, whose ``packed`` is the MessagePack of its
    fields."""

    record_id: Uid
    version: U32
    packed: msgspec.Raw

    @property
    def fields(self) -> list[bytes]:
        """
        Raises:
            msgspec.DecodeError: ``packed`` is no list of byte strings.
        """
        return _fields.decode(self.packed)


class PackedRowBatch(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A :class:`~.records.RowBatch` on the wire, of packed rows; None is a hole."""

    group: Uid
    first: U32
    rows: list[PackedRow | None]

    @property
    def present(self) -> list[SealedRow]:
        """The rows with their fields apart, without holes."""
        return [row for row in sealed_rows(self) if row is not None]


def sealed_rows(batch: RowBatch | PackedRowBatch) -> list[SealedRow | None]:
    """A batch's rows with their fields apart; None is a hole."""
    return [
        SealedRow(row.record_id, row.version, row.fields) if isinstance(row, PackedRow) else row
        for row in batch.rows
    ]


def pack_bodies(columns: Sequence[Sequence[bytes]]) -> list[bytes]:
    """The ``packed`` of some rows.

    Args:
        columns: one field after the other, each of all rows: ciphertexts without the version that
            begins them.
    """
    parts: list[Iterable[bytes]] = [repeat(_list_head(len(columns)))]
    for column in columns:
        heads = {size: _head(size + 1) + _VERSION for size in set(map(len, column))}
        alike = len(heads) == 1
        parts.append(repeat(*heads.values()) if alike else [heads[len(value)] for value in column])
        parts.append(column)
    return list(map(b"".join, zip(*parts, strict=False)))


def _head(size: int) -> bytes:
    """The head of a MessagePack byte string of this size."""
    mark, width = next((mark, width) for mark, width, least in _HEADS[::-1] if size >= least)
    return bytes((mark,)) + size.to_bytes(width, "big")


def are_packed_fields(packed: Sequence[msgspec.Raw], classes: Sequence[LeastClass]) -> bool:
    """Whether each item is the canonical MessagePack of one ciphertext for each class, with the
    version byte and a length that the class allows.

    Mostly all rows have the same few lengths, and rows of the same length have the same structure:
    then only the first row of a length is parsed, and the headers of the others are compared with
    its headers. If some differ, all rows of that length are parsed; if lengths are many, all rows.
    """
    sizes = set(map(len, packed))
    if len(sizes) > _MOST_SIZES:
        return _are_packed(packed, classes)
    for size in sizes:
        own = packed if len(sizes) == 1 else [raw for raw in packed if len(raw) == size]
        if not _are_packed(own[:1], classes):
            return False
        heads = _places_of_heads(own[0], len(classes))
        rows = np.frombuffer(b"".join(own), np.uint8).reshape(len(own), size)
        if not np.all(rows[:, heads] == rows[0, heads]) and not _are_packed(own, classes):
            return False
    return True


def _places_of_heads(packed: msgspec.Raw, count: int) -> list[int]:
    """The places of all bytes of a row that is sound, but for the bodies of its ciphertexts."""
    at = len(_list_head(count))
    places = list(range(at))
    for field in _fields.decode(packed):
        body = at + len(_head(len(field))) + 1
        places += range(at, body)
        at = body + len(field) - 1
    return places


def _are_packed(packed: Sequence[msgspec.Raw], classes: Sequence[LeastClass]) -> bool:
    """Whether rows are packed, looked at by column, all rows at once; see
    :func:`are_packed_fields`.
    """
    lengths = np.fromiter(map(len, packed), np.int64, len(packed))
    ends = np.cumsum(lengths)
    # Behind the last row there is room for what a row that breaks off would have next.
    data = np.frombuffer(b"".join([*packed, bytes(_LONGEST_HEAD)]), np.uint8)
    at = ends - lengths
    for byte in _list_head(len(classes)):
        if not _is_all(data, at, ends, byte):
            return False
        at = at + 1
    for stated in classes:
        sizes, at = _sizes(data, at)
        if not all(stated.may_be(size - BESIDE_CLASS) for size in set(sizes.tolist())):
            return False
        if not _is_all(data, at, ends, SEAL_VERSION):
            return False
        at = at + sizes
        if np.any(at > ends):
            return False
    return bool(np.all(at == ends))


def _list_head(count: int) -> bytes:
    if count <= _SHORT_LIST:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big")


def _is_all(
    data: NDArray[np.uint8], at: NDArray[np.int64], ends: NDArray[np.int64], byte: int
) -> bool:
    """Whether each row has this byte there."""
    return bool(np.all(at < ends) and np.all(data[at] == byte))


def _sizes(
    data: NDArray[np.uint8], at: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The size of the byte string that begins at each place, -1 where none does in the one valid
    way; and where its bytes begin.
    """
    marks = data[at]
    sizes = np.full(len(at), -1, np.int64)
    begin = at.copy()
    for mark, width, least in _HEADS:
        own = np.flatnonzero(marks == mark)
        if not len(own):
            continue
        size = np.zeros(len(own), np.int64)
        for place in range(width):
            size = size << 8 | data[at[own] + 1 + place]
        sizes[own] = np.where(size >= least, size, -1)
        begin[own] += 1 + width
        if len(own) == len(at):
            break
    return sizes, begin

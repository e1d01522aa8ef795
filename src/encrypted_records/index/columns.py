"""One field of a segment, sorted: which rows hold which value (docs/SPEC.md, section 5).

A column lists local ordinals in the order (absent first, then by index key, then by ordinal) and
beside them the keys of the rows that have one. All work on many entries is numpy's.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto import values
from encrypted_records.crypto.format import INDEX_KEY_BYTES
from encrypted_records.crypto.keys import FieldKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.model.definition import FieldSpec, FieldType, Value

Ordinals = NDArray[np.uint32]
#: uint64 offsets for numbers, fixed-width byte strings for texts.
Keys = NDArray[np.uint64] | NDArray[np.bytes_]

_HEAD = struct.Struct(">I")
_NUMBER_KEYS = np.dtype(">u8")
_TEXT_KEYS = np.dtype(f"S{INDEX_KEY_BYTES}")
_ORDINAL = np.dtype(">u4")


def _key_type(kind: FieldType) -> np.dtype[np.generic]:
    return _TEXT_KEYS if kind == "string" else _NUMBER_KEYS


@dataclass(frozen=True, eq=False, slots=True)
class Column:
    """Entries sorted by (absent first, key, ordinal).

    ``ordinals`` has one entry per row; ``keys`` one per row that has a value, so that the row of
    ``keys[i]`` is ``ordinals[absent + i]``.
    """

    ordinals: Ordinals
    keys: Keys

    @property
    def absent(self) -> int:
        """How many rows have no value; theirs are the first ordinals."""
        return len(self.ordinals) - len(self.keys)


def build(spec: FieldSpec, key: FieldKey, column: Sequence[Value]) -> Column:
    """The column of ``spec`` over rows whose local ordinals are 0, 1, 2, ...

    Args:
        key: the field's, under the log's first key version (docs/SPEC.md, section 2).
        column: each row's accepted value, None where absent.
    """
    present = [ordinal for ordinal, value in enumerate(column) if value is not None]
    if spec.type == "string":
        texts = (values.order_bytes(str(column[ordinal])) for ordinal in present)
        keys: Keys = np.array([values.string_key(text, key.tail) for text in texts], _TEXT_KEYS)
    else:
        offsets = [values.to_offset(spec, column[ordinal]) for ordinal in present]
        keys = np.array(offsets, np.uint64)
    missing = np.setdiff1d(
        np.arange(len(column), dtype=np.uint32), np.array(present, np.uint32), assume_unique=True
    )
    return _sorted(missing, np.array(present, np.uint32), keys)


def absent(rows: Ordinals) -> Column:
    """The column of a field that none of these rows has."""
    return Column(rows, np.array([], np.uint64))


def _sorted(missing: Ordinals, ordinals: Ordinals, keys: Keys) -> Column:
    order = np.lexsort((ordinals, keys))
    return Column(np.concatenate((np.sort(missing), ordinals[order])), keys[order])


def joined(parts: Sequence[tuple[Column, Ordinals]], kind: FieldType) -> Column:
    """Several columns of one field as one.

    Args:
        parts: each column with the new local ordinal of each of its old ones.
    """
    missing = [moved[column.ordinals[: column.absent]] for column, moved in parts]
    ordinals = [moved[column.ordinals[column.absent :]] for column, moved in parts]
    native = _key_type(kind).newbyteorder("=")
    keys: Keys = np.concatenate([column.keys.astype(native) for column, _ in parts])
    return _sorted(np.concatenate(missing), np.concatenate(ordinals), keys)


def encoded_size(kind: FieldType, count: int) -> int:
    """Bytes of :func:`encode` for ``count`` rows: nothing but the count and type matters."""
    return _HEAD.size + count * (_ORDINAL.itemsize + _key_type(kind).itemsize)


def encode(column: Column, kind: FieldType) -> bytes:
    """Number of absent rows, ordinals, keys; zeros stand for the keys of absent rows."""
    keys = np.zeros(len(column.ordinals), _key_type(kind))
    keys[: len(column.keys)] = column.keys
    return _HEAD.pack(column.absent) + column.ordinals.astype(_ORDINAL).tobytes() + keys.tobytes()


def decode(data: bytes, kind: FieldType, count: int) -> Column:
    """Undo :func:`encode` for ``count`` rows, accepting nothing that it would not make.

    Raises:
        DoesNotOpen: not the encoding of a column of that many rows.
    """
    if len(data) != encoded_size(kind, count):
        raise DoesNotOpen("a sealed column has the wrong size")
    (missing,) = _HEAD.unpack_from(data)
    ordinals = np.frombuffer(data, _ORDINAL, count, _HEAD.size).astype(np.uint32)
    key_type = _key_type(kind)
    at = _HEAD.size + count * _ORDINAL.itemsize
    if missing > count:
        raise DoesNotOpen("a sealed column counts more absent rows than rows")
    keys = np.frombuffer(data, key_type, count - missing, at)
    end = at + len(keys) * key_type.itemsize
    if not _in_order(ordinals, keys) or data.count(0, end) != len(data) - end:
        raise DoesNotOpen("a sealed column is not in order")
    return Column(ordinals, keys.astype(key_type.newbyteorder("=")))


def _in_order(ordinals: Ordinals, keys: NDArray[Any]) -> bool:
    """Binary search finds fewer rows in a column that is not."""
    absent = len(ordinals) - len(keys)
    rising = ordinals[:-1] < ordinals[1:]
    below, equal = keys[:-1] < keys[1:], keys[:-1] == keys[1:]
    return bool(np.all(rising[: max(0, absent - 1)]) and np.all(below | (equal & rising[absent:])))

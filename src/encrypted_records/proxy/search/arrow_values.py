"""Convert column keys to exact Arrow arrays, without a Python value for each row.

Requires pyarrow, which is part of the extra ``sql``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from encrypted_records.crypto import values
from encrypted_records.crypto.format import INDEX_KEY_PREFIX, UUID_KEY_BYTES
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.packing import matrix
from encrypted_records.index.query.column_windows import Codes, FieldValues, RowKeys
from encrypted_records.model.definition import FieldSpec, Value
from encrypted_records.model.field_types.base import text_of
from encrypted_records.model.field_types.calendar import MICROSECONDS_PER_DAY
from encrypted_records.model.texts import comparable

#: Days from January 1 of the year 1, where grids begin, to January 1, 1970.
_EPOCH = date(1970, 1, 1).toordinal() - 1
_WORD = 1 << 64
_BYTE_OF_ESCAPES = b"\x01"


def field_of(spec: FieldSpec) -> pyarrow.Field:
    """The Arrow field for a schema's field: texts are dictionaries."""
    kind = _type_of(spec)
    if pyarrow.types.is_string(kind):
        kind = pyarrow.dictionary(pyarrow.int32(), kind)
    return pyarrow.field(spec.name, kind)


def _type_of(spec: FieldSpec) -> pyarrow.DataType:
    name = spec.field_type.column_type(spec)
    known = {
        "date32[day]": pyarrow.date32(),
        "time64[us]": pyarrow.time64("us"),
        "timestamp[us]": pyarrow.timestamp("us"),
        "timestamp[us, tz=UTC]": pyarrow.timestamp("us", "UTC"),
        "duration[us]": pyarrow.duration("us"),
        "uuid": pyarrow.uuid(),
    }
    if name.startswith("decimal128"):
        digits, decimals = name.removeprefix("decimal128(").removesuffix(")").split(", ")
        return pyarrow.decimal128(int(digits), int(decimals))
    return known[name] if name in known else pyarrow.type_for_alias(name)


def array_of_values(spec: FieldSpec, given: Sequence[Value]) -> pyarrow.Array:
    """The values of a field in some records; None is an absent value."""
    if spec.field_type.is_text:
        texts = [None if value is None else comparable(str(value)) for value in given]
        return pyarrow.array(texts, pyarrow.string()).dictionary_encode()
    present = values.present_values(given)
    make = values.uuid_keys if spec.kind.of_bytes else partial(values.to_offsets, spec)
    there = np.array([value is not None for value in given], np.bool_)
    return array_of(spec, FieldValues(make(present), np.where(there, np.cumsum(there), 0)))


def array_of(spec: FieldSpec, given: FieldValues | RowKeys) -> pyarrow.Array:
    """The values of a field, which does not hold texts, in some rows. Row-major keys are
    overwritten.

    Raises:
        DoesNotOpen: a key stands for no value of the field.
    """
    kind = _type_of(spec)
    if pyarrow.types.is_string(kind):
        assert isinstance(given, FieldValues)
        return _dictionary(_written(spec, given.keys), given.codes)
    if isinstance(given, RowKeys):
        cells, present = _cells(spec, kind, given.keys), given.present
    else:
        first = np.zeros(1, given.keys.dtype)  # for absent rows
        keys = np.concatenate((first, given.keys))
        cells, present = _cells(spec, kind, keys).take(given.codes, axis=0), given.codes != 0
    rows = len(cells)
    if pyarrow.types.is_boolean(kind):
        cells = np.packbits(cells, bitorder="little")
    if spec.kind.of_bytes:
        storage = _filled(pyarrow.binary(UUID_KEY_BYTES), rows, cells, present)
        return pyarrow.ExtensionArray.from_storage(pyarrow.uuid(), storage)
    return _filled(kind, rows, cells, present)


# --- texts ----------------------------------------------------------------------------------------


def texts_of(given: FieldValues, long: Mapping[int, str]) -> pyarrow.Array:
    """The values of a text field in some rows.

    Args:
        long: the texts that are longer than keys hold, by the keys' indexes.

    Raises:
        DoesNotOpen: a key holds no text.
    """
    return _dictionary(_texts(given.keys, long), given.codes)


def _texts(keys: Keys, long: Mapping[int, str]) -> pyarrow.Array:
    if keys.dtype.itemsize > INDEX_KEY_PREFIX:
        keys = keys.astype(f"S{INDEX_KEY_PREFIX}")
    padded = keys.tobytes()
    if long or _BYTE_OF_ESCAPES in padded:
        told = (long.get(at) for at in range(len(keys)))
        return pyarrow.array(
            [
                values.text_of(bytes(key)) if text is None else text
                for key, text in zip(keys.tolist(), told, strict=True)
            ],
            pyarrow.string(),
        )
    offsets = np.zeros(len(keys) + 1, np.int32)
    np.cumsum(np.strings.str_len(keys), out=offsets[1:])
    # Order bytes contain no zero, so all nonzero bytes are text.
    data = padded.translate(None, b"\0")
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)]
    texts = pyarrow.Array.from_buffers(pyarrow.string(), len(keys), buffers)
    try:
        texts.validate(full=True)
    except pyarrow.ArrowInvalid:
        raise DoesNotOpen("an index key contains no text") from None
    return texts


def _written(spec: FieldSpec, keys: Keys) -> pyarrow.Array:
    """Numbers with more digits than Arrow decimals hold, as text."""
    shown = [text_of(values.from_key(spec, key)) for key in keys.tolist()]
    return pyarrow.array(shown, pyarrow.string())


def _dictionary(texts: pyarrow.Array, codes: Codes) -> pyarrow.Array:
    indices = codes.astype(np.int32)
    indices -= np.int32(1)
    places = _filled(pyarrow.int32(), len(indices), indices, codes != 0)
    return pyarrow.DictionaryArray.from_arrays(places, texts)


# --- points and uuids -----------------------------------------------------------------------------


def _cells(spec: FieldSpec, kind: pyarrow.DataType, keys: Keys) -> NDArray[Any]:
    """The values of keys in Arrow's representation; for booleans, whether each is true. The keys
    are overwritten."""
    if spec.kind.of_bytes:
        return matrix(keys).view(np.uint64)
    rules = spec.numbers
    if len(keys) and int(keys.max()) > rules.highest - rules.lowest:
        raise DoesNotOpen("an encrypted number is outside its field's bounds")
    if pyarrow.types.is_decimal(kind):
        return _wide(keys, rules.lowest)
    # Modulo 2**64: a result that fits is right.
    keys += np.uint64(_start(kind, rules.lowest) % _WORD)
    points = keys.view(np.int64)
    if pyarrow.types.is_boolean(kind):
        return points.astype(np.bool_)
    return points.astype(np.int32) if kind.bit_width == 32 else points


def _start(kind: pyarrow.DataType, lowest: int) -> int:
    """Arrow's number for the point at which a grid begins."""
    if pyarrow.types.is_date32(kind):
        return lowest - _EPOCH
    if pyarrow.types.is_timestamp(kind):
        return lowest - _EPOCH * MICROSECONDS_PER_DAY
    return lowest


def _wide(offsets: NDArray[np.uint64], lowest: int) -> NDArray[np.uint64]:
    """Points as 128-bit numbers, lower half first."""
    low, high = np.uint64(lowest % _WORD), np.uint64((lowest >> 64) % _WORD)
    offsets += low
    words = np.empty((len(offsets), 2), np.uint64)
    words[:, 0] = offsets
    words[:, 1] = high
    words[:, 1] += offsets < low
    return words


def _filled(
    kind: Any, rows: int, cells: NDArray[Any], present: NDArray[np.bool_] | None
) -> pyarrow.Array:
    """An array made of these bytes. ``pyarrow.array`` would import pandas, if installed, which
    takes as long as several columns."""
    mask = None
    if present is not None and not present.all():
        mask = pyarrow.py_buffer(np.packbits(present, bitorder="little"))
    return pyarrow.Array.from_buffers(kind, rows, [mask, pyarrow.py_buffer(cells)])

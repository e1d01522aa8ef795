"""Typed value <-> canonical bytes (docs/SPEC.md, sections 3 and 5).

Two encodings: the *plaintext* of a sealed field, whose length shows only a size class, and the
*index key*, whose order as bytes or as an unsigned integer is the order of the values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.keys import TailKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.model.definition import FieldSpec, Value, comparable
from encrypted_records.model.shapes import NUMBER_PLAIN_BYTES, is_padded_length, padded_length

_MARKER = b"\x80"
_NUMBER_TYPES = {"integer": fmt.TYPE_INTEGER, "number": fmt.TYPE_NUMBER}
_ESCAPES = ((b"\x01", b"\x01\x02"), (b"\x00", b"\x01\x01"))
_ESCAPED = re.compile(rb"\x01(.?)", re.DOTALL)
_ESCAPES_OF = {b"\x01": b"\x00", b"\x02": b"\x01"}


def to_offset(spec: FieldSpec, value: Value) -> int:
    """The place of a number on its field's grid, from 0 at the minimum; fits 64 bits."""
    assert isinstance(value, int) or (value is not None and not isinstance(value, str))
    rules = spec.numbers
    # Not value.scaleb(): that rounds to the thread's 28 digits, and bounds may have more.
    point = value if isinstance(value, int) else rules.to_grid(value)
    return point - rules.lowest


def to_offsets(spec: FieldSpec, column: Sequence[Value]) -> NDArray[np.uint64]:
    """:func:`to_offset` of every value, none of which is absent."""
    if spec.type == "integer":
        lowest = spec.numbers.lowest
        return np.array([value - lowest for value in column], np.uint64)  # type: ignore[operator] # integers
    return np.array([to_offset(spec, value) for value in column], np.uint64)


def from_offset(spec: FieldSpec, offset: int) -> Value:
    rules = spec.numbers
    point = rules.lowest + offset
    if offset < 0 or point > rules.highest:
        raise DoesNotOpen("a sealed number lies outside its field's bounds")
    return point if spec.type == "integer" else rules.from_grid(point)


def encode(spec: FieldSpec, value: Value) -> bytes:
    """The plaintext of a field: a type byte, then 8 bytes of number, or padded UTF-8.

    Padding is one marker byte and zeros (ISO/IEC 7816-4) up to the length class. An absent value
    has the length of a number, or of the smallest class of strings.
    """
    if spec.type != "string":
        if value is None:
            return bytes(NUMBER_PLAIN_BYTES)
        offset = to_offset(spec, value)
        return bytes((_NUMBER_TYPES[spec.type],)) + offset.to_bytes(NUMBER_PLAIN_BYTES - 1, "big")
    if value is None:
        return bytes(1 + padded_length(1))
    assert isinstance(value, str)
    text = value.encode() + _MARKER
    return b"\x03" + text.ljust(padded_length(len(text)), b"\x00")


def encode_column(spec: FieldSpec, column: Sequence[Value]) -> list[bytes]:
    """:func:`encode` of every value, several times faster than one by one."""
    if spec.type != "string":
        return _encode_numbers(spec, column)
    texts = [value.encode() for value in column if value is not None]  # type: ignore[union-attr] # of a string field
    sizes = {len(text) for text in texts}
    widths = {size: 1 + padded_length(size + 1) for size in sizes}
    plain = [(b"\x03" + text + _MARKER).ljust(widths[len(text)], b"\x00") for text in texts]
    if len(plain) == len(column):
        return plain
    absent, present = encode(spec, None), iter(plain)
    return [absent if value is None else next(present) for value in column]


def _encode_numbers(spec: FieldSpec, column: Sequence[Value]) -> list[bytes]:
    plain = np.zeros((len(column), NUMBER_PLAIN_BYTES), np.uint8)
    present = np.array([value is not None for value in column], np.bool_)
    offsets = to_offsets(spec, [value for value in column if value is not None])
    plain[present, 0] = _NUMBER_TYPES[spec.type]
    plain[present, 1:] = offsets.astype(">u8").view(np.uint8).reshape(-1, NUMBER_PLAIN_BYTES - 1)
    data = plain.tobytes()
    step = NUMBER_PLAIN_BYTES
    return [data[at : at + step] for at in range(0, len(data), step)]


def decode(spec: FieldSpec, plain: bytes) -> Value:
    """Undo :func:`encode`, accepting nothing that it would not make.

    Raises:
        DoesNotOpen: not the encoding of a value of this field.
    """
    kind = plain[0] if plain else -1
    if spec.type != "string":
        if len(plain) == NUMBER_PLAIN_BYTES:
            if kind == _NUMBER_TYPES[spec.type]:
                return from_offset(spec, int.from_bytes(plain[1:], "big"))
            if not any(plain):
                return None
    elif is_padded_length(len(plain) - 1):
        if kind == fmt.TYPE_STRING:
            return _unpadded(plain[1:])
        if len(plain) == 1 + padded_length(1) and not any(plain):
            return None
    raise DoesNotOpen("a sealed field holds no value of its type")


def _unpadded(padded: bytes) -> str:
    text = padded.rstrip(b"\x00")
    if text[-1:] == _MARKER and padded_length(len(text)) == len(padded):
        try:
            return text[:-1].decode()
        except UnicodeDecodeError:
            pass
    raise DoesNotOpen("a sealed string is not padded UTF-8")


def order_bytes(text: str) -> bytes:
    """UTF-8 of the text's NFC form, without zero bytes, in the same order as before.

    0x00 becomes 01 01 and 0x01 becomes 01 02, so that index keys can be padded with zeros and
    compared as fixed-width byte strings.
    """
    data = comparable(text).encode()
    for byte, escaped in _ESCAPES:
        if byte in data:
            data = data.replace(byte, escaped)
    return data


def string_keys(texts: Sequence[str], tail: TailKey) -> NDArray[np.bytes_]:
    """:func:`string_key` of the :func:`order_bytes` of every text, zero-padded to one width."""
    together = "".join(texts)
    if "\x00" in together or "\x01" in together:
        ordered = [order_bytes(text) for text in texts]
    elif together.isascii():
        ordered = [text.encode() for text in texts]
    else:
        # Normalizing brings no byte that would have to be escaped.
        ordered = [comparable(text).encode() for text in texts]
    if max(map(len, ordered), default=0) > fmt.INDEX_KEY_PREFIX:
        ordered = [string_key(one, tail) for one in ordered]
    return np.array(ordered, f"S{fmt.INDEX_KEY_BYTES}")


def text_of(ordered: bytes) -> str:
    """Undo :func:`order_bytes`, up to normalization: the text as it is compared.

    Raises:
        DoesNotOpen: no text has these order bytes.
    """
    try:
        return _ESCAPED.sub(lambda found: _ESCAPES_OF[found[1]], ordered).decode()
    except (UnicodeDecodeError, KeyError):
        raise DoesNotOpen("an index key holds no text") from None


def is_long(ordered: bytes) -> bool:
    """Whether an index key keeps only a part of these order bytes."""
    return len(ordered) > fmt.INDEX_KEY_PREFIX


def string_key(ordered: bytes, tail: TailKey) -> bytes:
    """The index key of a string: its order bytes, or their first 48 and a keyed hash.

    Equal strings have equal keys. Two long strings with the same first 48 bytes are in the order
    of their hashes, which is no order; whoever asks for one checks the opened records.
    """
    if not is_long(ordered):
        return ordered
    return ordered[: fmt.INDEX_KEY_PREFIX] + tail.compute(ordered)[: fmt.INDEX_KEY_TAIL]

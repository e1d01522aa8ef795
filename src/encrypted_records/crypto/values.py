"""Typed value <-> canonical bytes (docs/SPEC.md, sections 3 and 5).

Two encodings: the *plaintext* of a sealed field, whose length shows only a size class, and the
*index key*, whose order as bytes or as an unsigned integer is the order of the values.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Hashable, Sequence
from decimal import Decimal
from typing import TypeVar
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.keys import TailKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.model.ciphertext_lengths import (
    NUMBER_PLAIN_BYTES,
    LeastClass,
    fixed_class,
    is_fixed_length,
    padded_length,
)
from encrypted_records.model.definition import FieldSpec, Value
from encrypted_records.model.field_types.base import POINT_BYTES, KeyKind, ValueRefused
from encrypted_records.model.texts import comparable

V = TypeVar("V", bound=Hashable)

#: A column has few values if each appears this often on average. It is checked in full only if this
#: many first rows have at most this many distinct values.
_REPEATED = 4
_SAMPLE, _MOST_OF_SAMPLE = 1024, 768
_MARKER = b"\x80"
_ESCAPES = ((b"\x01", b"\x01\x02"), (b"\x00", b"\x01\x01"))
_ESCAPED = re.compile(rb"\x01(.?)", re.DOTALL)
_ESCAPES_OF = {b"\x01": b"\x00", b"\x02": b"\x01"}


def to_offset(spec: FieldSpec, value: Value) -> int:
    """The offset of a number on its field's grid, from 0 at the minimum; fits 64 bits."""
    return spec.field_type.to_point(spec, value) - spec.numbers.lowest


def uuid_keys(column: Sequence[Value]) -> NDArray[np.bytes_]:
    """:func:`uuid_key` of every value, none of which is absent."""
    return np.frombuffer(_uuid_bytes(column), f"S{fmt.UUID_KEY_BYTES}")


def _uuid_bytes(column: Sequence[Value]) -> bytes:
    """:func:`uuid_key` of every value, concatenated."""
    return bytes.fromhex("".join(column).replace("-", ""))  # type: ignore[arg-type] # of a uuid field


def to_offsets(spec: FieldSpec, column: Sequence[Value]) -> NDArray[np.uint64]:
    """:func:`to_offset` of every value, none of which is absent."""
    lowest = spec.numbers.lowest
    if spec.field_type.values_are_points:
        return np.array([value - lowest for value in column], np.uint64)  # type: ignore[operator] # integers
    to_point = spec.field_type.to_point
    return np.array([to_point(spec, value) - lowest for value in column], np.uint64)


def from_offset(spec: FieldSpec, offset: int) -> Value:
    rules = spec.numbers
    point = rules.lowest + offset
    if offset < 0 or point > rules.highest:
        raise DoesNotOpen("an encrypted number is outside its field's bounds")
    return spec.field_type.from_point(spec, point)


def from_key(spec: FieldSpec, key: int | bytes) -> Value:
    """The value of an index key: instants in UTC, and normalized texts if they are not long.

    Raises:
        DoesNotOpen: no value of the field has this key.
    """
    if isinstance(key, int):
        return from_offset(spec, key)
    return from_uuid_key(key) if spec.kind is KeyKind.UUID else text_of(key)


def shown(sealed_spec: FieldSpec, spec: FieldSpec, value: Value) -> Value:
    """A value that was sealed under ``sealed_spec``, with the decimals of ``spec``, which has at
    least as many.
    """
    if sealed_spec is spec or not isinstance(value, Decimal) or sealed_spec.number is None:
        return value
    more = spec.numbers.precision - sealed_spec.number.precision
    return (
        spec.numbers.from_grid(sealed_spec.number.to_grid(value) * 10**more) if more > 0 else value
    )


def encode(spec: FieldSpec, value: Value, stated: LeastClass) -> bytes:
    """The plaintext of a field: a type byte, then 8 bytes of number, or padded UTF-8.

    Padding is one marker byte and zeros (ISO/IEC 7816-4) up to the length class. An absent value
    has the length of a number, or of the field's least class.

    Args:
        stated: the class that the plaintext's group states for the field.
    """
    if value is None:
        return bytes(1 + stated.length)
    head = bytes((spec.field_type.type_byte,))
    if spec.field_type.fixed_bytes is not None:
        return head + spec.field_type.pack(spec, value)
    assert isinstance(value, str)
    text = value.encode() + _MARKER
    return head + text.ljust(_width(len(text), stated), b"\x00")


def uuid_key(value: Value) -> bytes:
    """A uuid as in index keys and plaintexts: 16 bytes."""
    assert isinstance(value, str)
    return UUID(value).bytes


def from_uuid_key(key: bytes) -> str:
    """Undo :func:`uuid_key`, also for a key without its trailing zero bytes."""
    return str(UUID(bytes=key.ljust(fmt.UUID_KEY_BYTES, b"\x00")))


def _width(size: int, stated: LeastClass) -> int:
    """The padded length for a text of ``size`` bytes, with its marker."""
    width = max(stated.length, padded_length(size))
    # A value longer than the only class that its group states: sealing it would be a bug.
    assert not stated.only or width == stated.length, "a value is longer than its only class"
    return width


def encode_column(spec: FieldSpec, column: Sequence[Value], stated: LeastClass) -> list[bytes]:
    """:func:`encode` of every value, several times faster than individually."""
    kind = spec.field_type
    if kind.fixed_bytes is not None:
        if kind.keys is KeyKind.UUID:
            return _encode_uuids(spec, column, stated)
        if kind.fixed_bytes != POINT_BYTES:
            return [encode(spec, value, stated) for value in column]
        return _encode_numbers(spec, column)
    numbers = few_values(column)
    if numbers is not None:
        encoded = encode_column(spec, list(numbers), stated)
        return list(map(dict(zip(numbers, encoded, strict=True)).__getitem__, column))
    texts = [value.encode() for value in column if value is not None]  # type: ignore[union-attr] # of a string field
    sizes = set(map(len, texts))
    widths = {size: 1 + _width(size + 1, stated) for size in sizes}
    plain = [(b"\x03" + text + _MARKER).ljust(widths[len(text)], b"\x00") for text in texts]
    if len(plain) == len(column):
        return plain
    absent, present = encode(spec, None, stated), iter(plain)
    return [absent if value is None else next(present) for value in column]


def present_rows(column: Sequence[Value]) -> NDArray[np.bool_] | slice:
    """The index of the rows with a value, for numpy."""
    if None not in column:
        return slice(None)
    return np.array([value is not None for value in column], np.bool_)


def present_values(column: Sequence[Value]) -> Sequence[Value]:
    """The values of the rows that have a value."""
    return column if None not in column else [value for value in column if value is not None]


def seems_repeated(column: Sequence[Hashable]) -> bool:
    """Whether a long column may have few distinct values, judged by its beginning."""
    sample = column[:_SAMPLE]
    return len(sample) == _SAMPLE and len(set(sample)) <= _MOST_OF_SAMPLE


def few_values(column: Sequence[V]) -> dict[V, int] | None:
    """The distinct values of a long column that has few, numbered in order of appearance; otherwise
    None. With them, work is done once per value instead of once per row.
    """
    if not seems_repeated(column):
        return None
    distinct = dict.fromkeys(column)
    if len(distinct) > len(column) // _REPEATED:
        return None
    return {value: number for number, value in enumerate(distinct)}


def _encode_uuids(spec: FieldSpec, column: Sequence[Value], stated: LeastClass) -> list[bytes]:
    width = fmt.UUID_KEY_BYTES
    data = _uuid_bytes([value for value in column if value is not None])
    head = bytes((spec.field_type.type_byte,))
    plain = [head + data[at : at + width] for at in range(0, len(data), width)]
    if len(plain) == len(column):
        return plain
    absent, present = encode(spec, None, stated), iter(plain)
    return [absent if value is None else next(present) for value in column]


def _encode_numbers(spec: FieldSpec, column: Sequence[Value]) -> list[bytes]:
    plain = np.zeros((len(column), NUMBER_PLAIN_BYTES), np.uint8)
    present = present_rows(column)
    offsets = to_offsets(spec, present_values(column))
    plain[present, 0] = spec.field_type.type_byte
    plain[present, 1:] = offsets.astype(">u8").view(np.uint8).reshape(-1, NUMBER_PLAIN_BYTES - 1)
    data = plain.tobytes()
    step = NUMBER_PLAIN_BYTES
    return [data[at : at + step] for at in range(0, len(data), step)]


def decode(spec: FieldSpec, plain: bytes, stated: LeastClass) -> Value:
    """Undo :func:`encode`, accepting nothing that it would not make.

    Raises:
        DoesNotOpen: not the encoding of a value of this field, or not in a class that its group
            states.
    """
    return decoder(spec, stated)(plain)


def decoder(spec: FieldSpec, stated: LeastClass) -> Callable[[bytes], Value]:
    """:func:`decode` for the plaintexts of one field of a group."""
    fixed = fixed_class(spec)
    if fixed is None:
        return _text_decoder(spec.field_type.type_byte, stated)
    size, absent = 1 + fixed.length, bytes(1 + fixed.length)
    kind, is_stated = spec.field_type.type_byte, stated == fixed

    def decode_fixed(plain: bytes) -> Value:
        if is_stated and len(plain) == size:
            if plain[0] == kind:
                return _from_fixed(spec, plain[1:])
            if plain == absent:
                return None
        raise _no_value()

    return decode_fixed


def _text_decoder(kind: int, stated: LeastClass) -> Callable[[bytes], Value]:
    is_of_texts, absent = not is_fixed_length(stated.length), bytes(1 + stated.length)

    def decode_text(plain: bytes) -> Value:
        if is_of_texts and stated.may_be(len(plain) - 1):
            if plain[0] == kind:
                return _remove_padding(plain[1:], stated)
            if plain == absent:
                return None
        raise _no_value()

    return decode_text


def _no_value() -> DoesNotOpen:
    return DoesNotOpen("an encrypted field contains no value of its type")


def _from_fixed(spec: FieldSpec, data: bytes) -> Value:
    try:
        return spec.field_type.unpack(spec, data)
    except ValueRefused:
        detail = f"an encrypted {spec.field_type.name} is outside its field's bounds"
        raise DoesNotOpen(detail) from None


def _remove_padding(padded: bytes, stated: LeastClass) -> str:
    text = padded.rstrip(b"\x00")
    size = len(padded)
    # Any text that is not longer than the least class has that class.
    if text[-1:] == _MARKER and (size == stated.length or padded_length(len(text)) == size):
        try:
            return text[:-1].decode()
        except UnicodeDecodeError:
            pass
    raise DoesNotOpen("an encrypted string is not padded UTF-8")


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
    elif unicodedata.is_normalized("NFC", together):
        # Then every part is normalized, too; a single check is faster than a check of each.
        ordered = [text.encode() for text in texts]
    else:
        # Normalization adds no bytes that would need escaping.
        ordered = [comparable(text).encode() for text in texts]
    if max(map(len, ordered), default=0) > fmt.INDEX_KEY_PREFIX:
        ordered = [string_key(text, tail) for text in ordered]
    return np.array(ordered, f"S{fmt.INDEX_KEY_BYTES}")


def word_key(word: str, tail: TailKey) -> int:
    """The index key of a folded word: a keyed hash with its highest bit set."""
    return fmt.WORDS_FROM | int.from_bytes(tail.compute(word.encode())[:8], "big")


def text_of(ordered: bytes) -> str:
    """Undo :func:`order_bytes`, up to normalization: the text normalized for comparison.

    Raises:
        DoesNotOpen: no text has these order bytes.
    """
    try:
        return _ESCAPED.sub(lambda match: _ESCAPES_OF[match[1]], ordered).decode()
    except (UnicodeDecodeError, KeyError):
        raise DoesNotOpen("an index key contains no text") from None


def is_long(ordered: bytes) -> bool:
    """Whether an index key keeps only a part of these order bytes."""
    return len(ordered) > fmt.INDEX_KEY_PREFIX


def string_key(ordered: bytes, tail: TailKey) -> bytes:
    """The index key of a string: its order bytes, or their first 48 and a keyed hash.

    Equal strings have equal keys. Two long strings with the same first 48 bytes are ordered by
    their hashes, not by their texts; a caller that needs an exact order checks the opened records.
    """
    if not is_long(ordered):
        return ordered
    return ordered[: fmt.INDEX_KEY_PREFIX] + tail.compute(ordered)[: fmt.INDEX_KEY_TAIL]

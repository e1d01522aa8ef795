"""Sections 3 and 4: values, plaintexts, sealed fields and groups."""

from __future__ import annotations

import math
import unicodedata
from decimal import Decimal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.reference import does_not_open
from tests.reference.definitions import Definition, Field, from_point, grid, lengths, to_point, u32
from tests.reference.keys import Schema, mac, seal_key, tail_key, uid

Value = str | Decimal | None
#: record id, record version, field name to value
Record = tuple[bytes, int, dict[str, Value]]


def length_class(size: int) -> int:
    for small in (16, 32, 48, 64):
        if size <= small:
            return small
    e = int(math.log2(size))
    s = int(math.log2(e)) + 1
    step = 2 ** (e - s)
    return -(-size // step) * step


def pad(data: bytes) -> bytes:
    marked = data + b"\x80"
    return marked + bytes(length_class(len(marked)) - len(marked))


def offset(field: Field, value: Decimal) -> int:
    return to_point(field, value) - grid(field)[0]


def plaintext(field: Field, value: Value) -> bytes:
    if field["type"] == "string":
        return bytes(17) if value is None else b"\x03" + pad(str(value).encode())
    if value is None:
        return bytes(9)
    assert isinstance(value, Decimal)
    kind = {"integer": b"\x01", "number": b"\x02"}[field["type"]]
    return kind + offset(field, value).to_bytes(8, "big")


def value_of(field: Field, plain: bytes) -> Value:
    """The value whose plaintext this is, found by encoding it again."""
    if plain == plaintext(field, None):
        return None
    value: Value
    if field["type"] == "string":
        body = plain[1:].rstrip(b"\x00")
        try:
            value = body[:-1].decode()
        except UnicodeDecodeError:
            raise does_not_open() from None
    else:
        low, high = grid(field)
        point = low + int.from_bytes(plain[1:], "big")
        if point > high:
            raise does_not_open()
        value = from_point(field, point)
    if plaintext(field, value) != plain:
        raise does_not_open()
    return value


def order_bytes(text: str) -> bytes:
    escapes = {0: b"\x01\x01", 1: b"\x01\x02"}
    data = unicodedata.normalize("NFC", text).encode()
    return b"".join(escapes.get(byte, bytes((byte,))) for byte in data)


def index_key_of(field: Field, key: bytes, value: Value) -> bytes:
    """Eight bytes for a number, up to 64 for a string."""
    assert value is not None
    if isinstance(value, Decimal):
        return offset(field, value).to_bytes(8, "big")
    ordered = order_bytes(value)
    if len(ordered) <= 48:
        return ordered
    return ordered[:48] + mac(tail_key(key), ordered)[:16]


def encrypt(key: bytes, nonce: bytes, plain: bytes, context: bytes) -> bytes:
    return b"\x01" + AESGCM(key).encrypt(nonce, plain, context)


def decrypt(key: bytes, nonce: bytes, sealed: bytes, context: bytes) -> bytes:
    if sealed[:1] != b"\x01":
        raise does_not_open()
    try:
        return AESGCM(key).decrypt(nonce, sealed[1:], context)
    except InvalidTag:
        raise does_not_open() from None


def _context(schema: Schema, record: bytes, version: int) -> bytes:
    return schema.place + record + u32(version)


def seal_field(
    schema: Schema,
    name: str,
    field: Field,
    group: bytes,
    ordinal: int,
    record: bytes,
    version: int,
    value: Value,
) -> bytes:
    key = seal_key(schema.field(name, field), group)
    context = _context(schema, record, version) + name.encode()
    return encrypt(key, bytes(8) + u32(ordinal), plaintext(field, value), context)


def open_field(
    schema: Schema,
    name: str,
    field: Field,
    group: bytes,
    ordinal: int,
    record: bytes,
    version: int,
    sealed: bytes,
) -> Value:
    key = seal_key(schema.field(name, field), group)
    context = _context(schema, record, version) + name.encode()
    return value_of(field, decrypt(key, bytes(8) + u32(ordinal), sealed, context))


def group_uid(schema: Schema, definition: Definition, records: list[Record], r: bytes) -> bytes:
    content = lengths(*(_context(schema, record, version) for record, version, _ in records))
    for name, field in definition.fields.items():
        content += lengths(name.encode())
        content += lengths(*(plaintext(field, data.get(name)) for _, _, data in records))
    return uid(schema.uids, r, content)


def seal_rows(
    schema: Schema, definition: Definition, records: list[Record], group: bytes
) -> list[list[bytes]]:
    """The sealed fields of each record, in the order of the definition."""
    return [
        [
            seal_field(schema, name, field, group, ordinal, record, version, data.get(name))
            for name, field in definition.fields.items()
        ]
        for ordinal, (record, version, data) in enumerate(records)
    ]

"""Sections 3 and 4: values, plaintexts, sealed fields and groups."""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.reference import does_not_open
from tests.reference.definitions import (
    Definition,
    Field,
    allowed_values,
    field_id,
    from_point,
    grid,
    lengths,
    to_point,
    u32,
)
from tests.reference.keys import Schema, mac, seal_key, tail_key, uid

Value = str | bool | Decimal | None
#: A least class, and 1 where there is no other.
Class = tuple[int, int]
#: record id, record version, field name to value
Record = tuple[bytes, int, dict[str, Value]]


def length_class(size: int) -> int:
    for small in (16, 32, 48, 64):
        if size <= small:
            return small
    e = int(math.log2(size))
    s = int(math.log2(e)) + 1
    step: int = 2 ** (e - s)
    return -(-size // step) * step


def class_of(field: Field) -> Class:
    """What a writer takes from the definition (4.1.1)."""
    if field.get("format") in ("uuid", "date-time"):
        return {"uuid": 16, "date-time": 10}[field["format"]], 1
    if field["type"] != "string" or "format" in field:
        return 8, 1
    allowed = allowed_values(field)
    longest = 2**20
    if allowed is not None:
        longest = max([len(value.encode()) for value in allowed], default=0)
        alike = max(longest, int(field.get("padTo", 0)))
    else:
        if "maxLength" in field:
            longest = min(longest, 4 * int(field["maxLength"]))
        if "padTo" in field:
            alike = int(field["padTo"])
        elif longest <= 1024:
            alike = longest
        else:
            alike = 31
    least = length_class(alike + 1)
    return least, 1 if longest + 1 <= least else 0


def pad(data: bytes, least: int) -> bytes:
    marked = data + b"\x80"
    return marked + bytes(max(least, length_class(len(marked))) - len(marked))


def offset(field: Field, value: Value) -> int:
    """Of a format by Python's calendar, whose first day is the grid's."""
    if "format" in field:
        if isinstance(value, bool):
            return int(value)
        text = str(value)
        if field["format"] == "duration":
            return _microseconds(text) - grid(field)[0]
        if field["format"] == "time":
            text = f"0001-01-01T{text}"
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        since = moment - datetime(1, 1, 1, tzinfo=UTC)
        return since.days if field["format"] == "date" else since // timedelta(microseconds=1)
    assert isinstance(value, Decimal)
    return to_point(field, value) - grid(field)[0]


def plaintext(field: Field, value: Value, stated: Class | None = None) -> bytes:
    """Under what a group states; what its definition asks for where nothing else is said."""
    least, _ = stated or class_of(field)
    if "format" in field:
        return bytes(1 + least) if value is None else _formatted(field, value)
    if field["type"] == "string":
        return bytes(1 + least) if value is None else b"\x03" + pad(str(value).encode(), least)
    if value is None:
        return bytes(9)
    assert isinstance(value, Decimal)
    kind = {"integer": b"\x01", "number": b"\x02"}[field["type"]]
    return kind + offset(field, value).to_bytes(8, "big")


#: Formats in the order of their type bytes, the first of which is 4.
_FORMATS = ("date", "time", "date-time", "uuid", "boolean", "duration", "local-date-time")


def _microseconds(text: str) -> int:
    """A duration in its canonical spelling, as the sum of its parts."""
    sign, _, parts = text.partition("P")
    total, digits = Decimal(0), ""
    seconds = {"D": 86400, "H": 3600, "M": 60, "S": 1}
    for letter in parts.replace("T", ""):
        if letter in seconds:
            total, digits = total + Decimal(digits) * seconds[letter], ""
        else:
            digits += letter
    return int(total * 10**6) * (-1 if sign else 1)


def _duration(microseconds: int) -> str:
    rest, shown = Decimal(abs(microseconds)) / 10**6, ""
    for unit, each in (("D", 86400), ("H", 3600), ("M", 60)):
        count, rest = divmod(rest, each)
        shown += f"{int(count)}{unit}" if count else ""
        shown += "T" if unit == "D" else ""
    shown += f"{rest.normalize():f}S" if rest else ""
    shown = shown.removesuffix("T") or "T0S"
    return f"{'-' if microseconds < 0 else ''}P{shown}"


def _formatted(field: Field, value: Value) -> bytes:
    kind = _FORMATS.index(field["format"])
    if field["format"] == "uuid":
        return bytes((4 + kind,)) + bytes.fromhex(str(value).replace("-", ""))
    plain = bytes((4 + kind,)) + offset(field, value).to_bytes(8, "big")
    if field["format"] == "date-time":
        minutes = datetime.fromisoformat(str(value)).utcoffset()
        assert minutes is not None
        plain += (minutes // timedelta(minutes=1) + 1439).to_bytes(2, "big")
    return plain


def _from_formatted(field: Field, plain: bytes) -> Value:
    """The value in its one spelling, if these bytes are of one."""
    if field["format"] == "uuid":
        return str(UUID(bytes=plain[1:17]))
    point = grid(field)[0] + int.from_bytes(plain[1:9], "big")
    if point > grid(field)[1]:
        raise does_not_open()
    if field["format"] == "boolean":
        return bool(point)
    if field["format"] == "duration":
        return _duration(point)
    if field["format"] == "date":
        return date.fromordinal(point + 1).isoformat()
    moment = datetime(1, 1, 1) + timedelta(microseconds=point)  # noqa: DTZ001 - its offset follows
    if field["format"] == "time":
        return _short(moment.time().isoformat())
    if field["format"] == "local-date-time":
        return _short(moment.isoformat())
    minutes = int.from_bytes(plain[9:], "big") - 1439
    try:
        local = moment + timedelta(minutes=minutes)
        zone = timezone(timedelta(minutes=minutes))
    except (OverflowError, ValueError):
        raise does_not_open() from None
    shown = local.replace(tzinfo=zone).isoformat()
    return _short(shown[:-6]) + ("Z" if minutes == 0 else shown[-6:])


def _short(clock: str) -> str:
    return clock.rstrip("0") if "." in clock else clock


def value_of(field: Field, plain: bytes, stated: Class | None = None) -> Value:
    """The value whose plaintext this is, found by encoding it again."""
    least, only = stated or class_of(field)
    if "format" in field:
        if (least, only) != class_of(field) or len(plain) != 1 + least:
            raise does_not_open()
    elif (field["type"] == "string") == (least in (8, 10)) or (only and len(plain) != 1 + least):
        raise does_not_open()
    if plain == plaintext(field, None, stated):
        return None
    value: Value
    if "format" in field:
        value = _from_formatted(field, plain)
    elif field["type"] == "string":
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
    if plaintext(field, value, stated) != plain:
        raise does_not_open()
    return value


def order_bytes(text: str) -> bytes:
    escapes = {0: b"\x01\x01", 1: b"\x01\x02"}
    data = unicodedata.normalize("NFC", text).encode()
    return b"".join(escapes.get(byte, bytes((byte,))) for byte in data)


def index_key_of(field: Field, key: bytes, value: Value) -> bytes:
    """Eight bytes for a number, sixteen for a uuid, up to 64 for a string."""
    assert value is not None
    if "format" in field:
        return plaintext(field, value)[1 : 17 if field["format"] == "uuid" else 9]
    if not isinstance(value, str):
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
    field: Field,
    group: bytes,
    ordinal: int,
    record: bytes,
    version: int,
    value: Value,
) -> bytes:
    key = seal_key(schema.field(field), group)
    context = _context(schema, record, version) + u32(field_id(field))
    return encrypt(key, bytes(8) + u32(ordinal), plaintext(field, value), context)


def open_field(
    schema: Schema,
    field: Field,
    group: bytes,
    ordinal: int,
    record: bytes,
    version: int,
    sealed: bytes,
    stated: Class | None = None,
) -> Value:
    key = seal_key(schema.field(field), group)
    context = _context(schema, record, version) + u32(field_id(field))
    return value_of(field, decrypt(key, bytes(8) + u32(ordinal), sealed, context), stated)


def classes(definition: Definition) -> list[list[int]]:
    """What a group states of its fields, in their order."""
    return [list(class_of(field)) for field in definition.fields.values()]


def group_uid(
    schema: Schema,
    definition: Definition,
    records: list[Record],
    r: bytes,
    holes: list[tuple[int, int]] | None = None,
) -> bytes:
    """Holes are (first, count) runs of ordinals that have no record."""
    content = lengths(*(_context(schema, record, version) for record, version, _ in records))
    for name, field in definition.fields.items():
        content += lengths(u32(field_id(field)))
        content += lengths(*(plaintext(field, data.get(name)) for _, _, data in records))
    if holes:
        content += lengths(b"".join(u32(first) + u32(count) for first, count in holes))
    return uid(schema.uids, r, content)


def seal_rows(
    schema: Schema,
    definition: Definition,
    records: list[Record],
    group: bytes,
    ordinals: list[int] | None = None,
) -> list[list[bytes]]:
    """The sealed fields of each record, in the order of the definition; ``ordinals`` are 0, 1, 2
    and so on where none are given."""
    return [
        [
            seal_field(schema, field, group, ordinal, record, version, data.get(name))
            for name, field in definition.fields.items()
        ]
        for ordinal, (record, version, data) in zip(
            ordinals or range(len(records)), records, strict=True
        )
    ]

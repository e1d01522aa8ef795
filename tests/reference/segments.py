"""Sections 5 and 6: columns, minis and their headers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.reference import Refused, does_not_open, words
from tests.reference.definitions import Definition, Field, columns, field_id, lengths, u32
from tests.reference.fields import Value, decrypt, encrypt, index_key_of
from tests.reference.keys import Schema, index_key, uid
from tests.reference.msgpack import pack

PLAIN = 1
MINI_NONCE = b"\x01" + bytes(7) + u32(0)


def key_width(field: Field) -> int:
    return 64 if field["type"] == "string" else 8


def column(field: Field, key: bytes, rows: Iterable[tuple[int, Value]]) -> bytes:
    """The encoded column over (local ordinal, value) pairs."""
    width = key_width(field)
    pairs = list(rows)
    missing = sorted(ordinal for ordinal, value in pairs if value is None)
    present = sorted(
        (index_key_of(field, key, value).ljust(width, b"\x00"), ordinal)
        for ordinal, value in pairs
        if value is not None
    )
    ordinals = missing + [ordinal for _, ordinal in present]
    return (
        u32(len(missing))
        + b"".join(u32(ordinal) for ordinal in ordinals)
        + b"".join(one for one, _ in present)
        + bytes(width * len(missing))
    )


def read_column(field: Field, data: bytes, count: int) -> list[tuple[int, bytes | None]]:
    """(local ordinal, padded index key or None) in the column's order."""
    width = key_width(field)
    if len(data) != 4 + count * (4 + width):
        raise does_not_open()
    absent = int.from_bytes(data[:4], "big")
    if absent > count:
        raise does_not_open()
    ordinals = [int.from_bytes(data[4 + 4 * at : 8 + 4 * at], "big") for at in range(count)]
    start = 4 + 4 * count
    keys: list[bytes | None] = [None] * absent
    keys += [data[start + width * at : start + width * (at + 1)] for at in range(count - absent)]
    return list(zip(ordinals, keys, strict=True))


def runs(ordinals: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for ordinal in sorted(ordinals):
        if found and sum(found[-1]) == ordinal:
            found[-1][1] += 1
        else:
            found.append([ordinal, 1])
    return found


@dataclass(frozen=True)
class Mini:
    uid: bytes
    header: bytes
    page: bytes


def _page_context(schema: Schema, segment: bytes, field: Field) -> bytes:
    return schema.place + segment + MINI_NONCE + u32(field_id(field))


def build_mini(
    schema: Schema,
    definition: Definition,
    groups: list[tuple[bytes, int]],
    rows: list[tuple[int, dict[str, Value]]],
    r: bytes,
    inputs: list[bytes] | None = None,
    tails: Schema | None = None,
) -> Mini:
    """A mini over (local ordinal, data) pairs; ``tails`` is the log's first key, if another."""
    first = tails or schema
    every = columns(definition)
    of_words = {
        name: words.entries(definition, field, first.field(field), rows)
        for name, field in every.items()
        if field["type"] == "words"
    }
    encoded = {
        name: words.encode(of_words[name])
        if name in of_words
        else column(
            field,
            first.field(field),
            ((ordinal, data.get(name)) for ordinal, data in rows),
        )
        for name, field in every.items()
    }
    ids = [field_id(every[name]) for name in encoded]
    kinds = [[2, words.places(of_words[name])] if name in of_words else PLAIN for name in encoded]
    listed = runs([ordinal for ordinal, _ in rows])
    header = pack([1, "mini", groups, ids, listed, inputs or [], kinds])
    segment = uid(schema.uids, r, lengths(header, *encoded.values()))
    page = b"".join(
        encrypt(
            index_key(schema.field(every[name]), segment),
            MINI_NONCE,
            plain,
            _page_context(schema, segment, every[name]),
        )
        for name, plain in encoded.items()
    )
    sealed = encrypt(schema.meta(segment), bytes(12), header, schema.place + segment)
    return Mini(segment, sealed, page)


def open_header(schema: Schema, segment: bytes, header: bytes) -> list[Any]:
    plain = decrypt(schema.meta(segment), bytes(12), header, schema.place + segment)
    found = msgspec.msgpack.decode(plain)
    if found[0] != 1:
        raise does_not_open()
    if found[1] != "mini" or any(kind != PLAIN and kind[0] != 2 for kind in found[6]):
        raise Refused("unsupported")
    return list(found)


def named(definition: Definition, number: int, kind: Any) -> tuple[str, Field]:
    """The column that a header names by an id and a kind."""
    return next(
        (name, field)
        for name, field in columns(definition).items()
        if field_id(field) == number and (field["type"] == "words") == (kind != PLAIN)
    )


def open_mini(
    schema: Schema, definition: Definition, segment: bytes, header: bytes, page: bytes
) -> dict[str, list[tuple[int, bytes | None]]]:
    """Each field's column as :func:`read_column` gives it."""
    _, _, _, ids, rows, _, kinds = open_header(schema, segment, header)
    count = sum(length for _, length in rows)
    found: dict[str, list[tuple[int, bytes | None]]] = {}
    at = 0
    for one, kind in zip(ids, kinds, strict=True):
        name, field = named(definition, one, kind)
        size = 17 + 4 + (count * (4 + key_width(field)) if kind == PLAIN else 12 * kind[1])
        key = index_key(schema.field(field), segment)
        plain = decrypt(
            key, MINI_NONCE, page[at : at + size], _page_context(schema, segment, field)
        )
        found[name] = (
            read_column(field, plain, count) if kind == PLAIN else [*words.read(plain, kind[1])]
        )
        at += size
    if at != len(page):
        raise does_not_open()
    return found

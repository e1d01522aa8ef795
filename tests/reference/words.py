"""Section 5.1: columns of words, entry by entry."""

from __future__ import annotations

import unicodedata

from tests.oracle import fold, words
from tests.reference import does_not_open
from tests.reference.definitions import Definition, Field, u32
from tests.reference.fields import Value, class_of, length_class
from tests.reference.keys import mac, tail_key

#: A local ordinal and a key.
Entry = tuple[int, bytes]
_WORDS, _UNDECIDED = 2**63, 2**62


def room(length: int) -> int:
    return min(length, 64) // 3 + max(0, length - 64) // 6


def word_key(tail: bytes, word: str) -> bytes:
    hashed = int.from_bytes(mac(tail, word.encode())[:8], "big")
    return (hashed | _WORDS).to_bytes(8, "big")


def entries(
    definition: Definition, field: Field, key: bytes, rows: list[tuple[int, dict[str, Value]]]
) -> list[Entry]:
    """Of (local ordinal, data) pairs; ``key`` is that of the column of words."""
    least, only = class_of(definition.fields[field["of"]])
    found = []
    for ordinal, data in rows:
        value = data.get(field["of"])
        text = "" if value is None else str(value)
        length = least
        if value is not None and not only:
            length = max(least, length_class(len(text.encode()) + 1))
        distinct = set(words(unicodedata.normalize("NFC", text)))
        known = all(unicodedata.category(one) != "Cn" for one in fold(text))
        if known and len(distinct) <= room(length):
            found.append((room(length).to_bytes(8, "big"), ordinal))
            found += [(word_key(tail_key(key), word), ordinal) for word in distinct]
        else:
            found.append(((_UNDECIDED + room(length)).to_bytes(8, "big"), ordinal))
    return [(ordinal, one) for one, ordinal in sorted(found)]


def places(column: list[Entry]) -> int:
    """For how many entries the column has room."""
    heads = [int.from_bytes(key, "big") for _, key in column]
    return sum(1 + head % _UNDECIDED for head in heads if head < _WORDS)


def encode(column: list[Entry]) -> bytes:
    plain = u32(len(column)) + b"".join(u32(ordinal) for ordinal, _ in column)
    plain += b"".join(key for _, key in column)
    return plain.ljust(4 + 12 * places(column), b"\x00")


def read(data: bytes, listed: int) -> list[Entry]:
    if len(data) != 4 + 12 * listed:
        raise does_not_open()
    count = int.from_bytes(data[:4], "big")
    keys = 4 + 4 * count
    return [
        (
            int.from_bytes(data[4 + 4 * at : 8 + 4 * at], "big"),
            data[keys + 8 * at : keys + 8 * at + 8],
        )
        for at in range(count)
    ]

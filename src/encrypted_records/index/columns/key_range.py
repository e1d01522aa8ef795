"""Ranges of sorted index keys: what a column is searched for."""

from __future__ import annotations

from typing import Literal, NamedTuple

from encrypted_records.crypto import values
from encrypted_records.crypto.format import INDEX_KEY_BYTES, INDEX_KEY_PREFIX


class Edge(NamedTuple):
    """A point between sorted keys: before (left) or after (right) all keys equal to ``key``."""

    key: int | bytes
    side: Literal["left", "right"]


class KeyRange(NamedTuple):
    """The keys between two edges."""

    first: Edge
    last: Edge


def last_with(prefix: bytes) -> Edge:
    """After all keys that begin with these order bytes (at most 48)."""
    return Edge(prefix.ljust(INDEX_KEY_BYTES, b"\xff"), "right")


def longer_than_key(ordered: bytes) -> KeyRange:
    """The keys of long strings whose first 48 order bytes are those of ``ordered``."""
    prefix = ordered[:INDEX_KEY_PREFIX]
    # The string that is just the prefix, and ends there, is not long.
    return KeyRange(Edge(prefix, "right"), last_with(prefix))


def alike(key: int | bytes) -> KeyRange:
    """The keys that the index treats as equal to ``key``: of long strings, all of their class."""
    if isinstance(key, bytes) and values.is_long(key):
        return longer_than_key(key)
    return KeyRange(Edge(key, "left"), Edge(key, "right"))

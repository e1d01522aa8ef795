"""Strings that are longer than an index key and share its prefix.

An index key holds the first 48 order bytes of a string and, for a longer string, a hash of the
whole (docs/SPEC.md, section 5). Long strings with the same first 48 bytes are a *class*: their keys
show which of them are equal, but not their order. Code that needs the order, or a text itself,
requests it here; the caller opens a record for each and tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto import values
from encrypted_records.crypto.format import INDEX_KEY_BYTES, INDEX_KEY_PREFIX
from encrypted_records.crypto.keys import TailKey
from encrypted_records.errors import DoesNotOpen, InvalidQuery
from encrypted_records.index.columns.column import Keys
from encrypted_records.model.texts import comparable

#: Maximum number of records opened to decide the order of long strings, or to show them.
MAX_OPENED = 10_000
_CLASS_BYTES = INDEX_KEY_PREFIX + 1


class Texts:
    """Known and wanted long strings, by field and index key.

    ``wanted`` has the position of a row with each string.
    """

    def __init__(self, most: int = MAX_OPENED) -> None:
        """
        Args:
            most: maximum number of long strings that may be wanted at once.
        """
        self._most = most
        self._known: dict[tuple[str, bytes], str] = {}
        self.wanted: dict[tuple[str, bytes], int] = {}

    def learn(self, field: str, text: str, tail: TailKey) -> bytes:
        """Add a string of any length; returns its index key as it is in arrays."""
        key = values.string_key(values.order_bytes(text), tail).rstrip(b"\x00")
        self._known[field, key] = comparable(text)
        self.wanted.pop((field, key), None)
        return key

    def answer(self, field: str, key: bytes, text: object, tail: TailKey) -> None:
        """Add the value of the row that was opened for ``key``.

        Raises:
            DoesNotOpen: the row has another string than the index.
        """
        if not isinstance(text, str) or self.learn(field, text, tail) != key:
            raise DoesNotOpen("the index and a record contradict each other")

    def get(self, field: str, key: bytes) -> str | None:
        return self._known.get((field, key))

    def want(self, field: str, key: bytes, position: int) -> None:
        """
        Raises:
            InvalidQuery: ``too_many_long``; the answer would need more opened records than allowed.
        """
        self.wanted[field, key] = position
        if len(self.wanted) > self._most:
            raise InvalidQuery(
                f"more than {self._most} long strings would have to be decrypted for this answer",
                code="too_many_long",
                hint="narrow the condition, or leave out the field whose values begin alike",
            )

    def text(self, field: str, key: bytes, position: Callable[[], int]) -> str:
        """The text of an index key; an empty placeholder for a long text that is now wanted, of the
        row at ``position``."""
        if len(key) <= INDEX_KEY_PREFIX:
            return values.text_of(key)
        text = self.get(field, key)
        if text is None:
            self.want(field, key, position())
            return ""
        return text


def classes(keys: Keys) -> NDArray[Any]:
    """Keys reduced to the part that orders them: equal results of long strings are a class."""
    if keys.dtype.kind != "S" or keys.dtype.itemsize < INDEX_KEY_BYTES:
        return keys
    raw = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), INDEX_KEY_BYTES)
    names = np.zeros((len(keys), _CLASS_BYTES), np.uint8)
    names[:, :INDEX_KEY_PREFIX] = raw[:, :INDEX_KEY_PREFIX]
    # Order bytes have no zeros: with a last byte of 1, a class sorts after its first 48 bytes.
    names[:, INDEX_KEY_PREFIX] = raw[:, INDEX_KEY_PREFIX:].any(axis=1)
    return names.view(f"S{_CLASS_BYTES}").ravel()


def inner_ranks(field: str, keys: NDArray[np.bytes_], texts: Texts) -> NDArray[np.int64]:
    """The rank of the known keys within their class, from 1 on; 0 for all others."""
    distinct, at = np.unique(keys, return_inverse=True)
    ranks = np.zeros(len(distinct), np.int64)
    for members in find_mixed(distinct):
        told = ((texts.get(field, bytes(distinct[key])), key) for key in members)
        # Code points sort like their UTF-8.
        known = sorted((text, key) for text, key in told if text is not None)
        for rank, (_, key) in enumerate(known, 1):
            ranks[key] = rank
    return ranks[at]


def find_mixed(distinct: NDArray[np.bytes_]) -> list[list[int]]:
    """The positions of the classes with several of these sorted keys."""
    by_class = classes(distinct)
    alike = np.flatnonzero(by_class[1:] == by_class[:-1])
    groups: list[list[int]] = []
    for at in alike.tolist():
        if groups and groups[-1][-1] == at:
            groups[-1].append(at + 1)
        else:
            groups.append([at, at + 1])
    return groups

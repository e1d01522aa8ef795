"""The values of a JSON array, or of JSON values one after the other, one by one.

Memory stays flat, and numbers exact, however long the text is.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from encrypted_records.errors import Malformed
from encrypted_records.model.strict_json import JsonItems, JsonValue, skip_blanks

_ITEMS = JsonItems("value", "text")
#: A value that does not end within so many characters is refused; a record has at most 16 MiB.
_LONGEST = 32 << 20


def values_of(pieces: Iterator[bytes]) -> Iterator[Any]:
    """The items of an array, or the values of a text that is not an array, such as one per line.

    Raises:
        Malformed: not UTF-8, not JSON, or not as :mod:`~encrypted_records.model.strict_json` has
            it; the message names the value by its number, never its content.
    """
    text = _Text(pieces)
    number = 1
    if text.next() != "[":
        while text.next():
            yield _require(text.take(_ITEMS.read, number), number)
            number += 1
        return
    text.skip()
    is_last = False
    while not is_last:
        step = text.take(_ITEMS.step, number)
        if step.item is not None:
            yield _require(step.item, number)
        is_last = step.is_last
        number += 1
    _ITEMS.check_end(text.next(), 0)


def _require(found: JsonValue, number: int) -> Any:
    """
    Raises:
        Malformed: the value is refused.
    """
    if found.fault:
        raise Malformed(f"value {number}: {found.fault}")
    return found.value


class _Ends(Protocol):
    @property
    def end(self) -> int: ...


T = TypeVar("T", bound=_Ends)


class _Text:
    """Characters that are read as they are needed, and dropped when they were taken."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._text = ""
        self._at = 0
        self._ended = False

    def next(self) -> str:
        """The next character that is not blank; none at the end."""
        while True:
            self._at = skip_blanks(self._text, self._at)
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read()

    def skip(self) -> None:
        self._at += 1

    def take(self, read: Callable[..., T | None], number: int) -> T:
        """The ``number``-th value that ``read`` of :class:`JsonItems` finds in this text."""
        while True:
            found = read(self._text, self._at, number, final=self._ended)
            if found is not None:
                self._at = found.end
                return found
            if len(self._text) - self._at > _LONGEST:
                raise Malformed(f"value {number} has more than {_LONGEST} characters")
            self._read()

    def _read(self) -> None:
        piece = next(self._pieces, b"")
        self._ended = not piece
        try:
            more = self._decode(piece, self._ended)
        except UnicodeDecodeError:
            raise Malformed("not UTF-8") from None
        self._text = self._text[self._at :] + more
        self._at = 0

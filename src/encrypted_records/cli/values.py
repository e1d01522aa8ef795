"""The values of a JSON array, or of JSON values one after the other, one by one.

Memory stays flat, and numbers exact, however long the text is.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from encrypted_records.errors import Malformed
from encrypted_records.model import strict_json

#: A value that does not end within so many characters is none; a record has at most 16 MiB.
_LONGEST = 32 << 20
#: What a number may still be followed by, where a text ends.
_GOES_ON = re.compile(r"[0-9.eE+-]*")
_BLANK = re.compile(r"[ \t\r\n]*")


def values_of(pieces: Iterator[bytes]) -> Iterator[Any]:
    """The items of an array, or the values of a text that is none, such as one per line.

    Raises:
        Malformed: not UTF-8, not JSON, or not as :mod:`~encrypted_records.model.strict_json` has
            it; the message names the value by its number, never its content.
    """
    text = _Text(pieces)
    row = 0
    if text.next() != "[":
        while text.next():
            row += 1
            yield text.value(row)
        return
    text.skip()
    mark = "," if text.next() != "]" else "]"
    while mark == ",":
        row += 1
        yield text.value(row)
        mark = text.next()
        if mark not in (",", "]"):
            raise Malformed(f"value {row} is followed by neither a comma nor the array's end")
        if mark == ",":
            text.skip()
    text.skip()
    if text.next():
        raise Malformed("something follows the end of the array")


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
            self._at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]  # always
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read()

    def skip(self) -> None:
        self._at += 1

    def value(self, row: int) -> Any:
        """The value that begins here, which is the ``row``-th."""
        self.next()
        while True:
            try:
                found, end = strict_json.value_at(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._ended or len(self._text) - self._at > _LONGEST:
                    raise Malformed(f"value {row} is not JSON: {error.msg.lower()}") from None
            except Malformed as error:
                raise Malformed(f"value {row}: {error.message}") from None
            except RecursionError:
                raise Malformed(f"value {row} is nested too deeply") from None
            else:
                if self._ended or not _GOES_ON.fullmatch(self._text, end):
                    self._at = end
                    return found
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

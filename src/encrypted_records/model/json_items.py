"""The items of a JSON array whose text comes in pieces, or values one after the other.

The caller keeps the text and says whether more of it may come; here nothing is kept.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from encrypted_records.errors import Malformed
from encrypted_records.model import strict_json

_SPACE = re.compile(r"[ \t\r\n]*")
#: What a number ends with, and what may still follow where a text ends.
_DIGITS = "0123456789"
_NUMBER_GOES_ON = re.compile(r"[0-9.eE+-]*")
#: A text that is not all there fails to parse within so many characters of its end, or in a string.
_TAIL = 16


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value that ends before ``end``; ``fault`` says why it is refused though it is JSON."""

    value: Any
    fault: str
    end: int


@dataclass(frozen=True, slots=True)
class ArrayStep:
    """An item of an array; None where the array is empty. ``end`` is behind the comma or bracket
    that follows it, and ``is_last`` says whether it is the bracket."""

    item: JsonValue | None
    end: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class JsonItems:
    """Reads items, and calls them in its errors by what they are.

    Args:
        item: what one is called, such as ``record``.
        whole: what all of it is called, such as ``upload``.
    """

    item: str
    whole: str

    def read(self, text: str, begin: int, number: int, *, final: bool) -> JsonValue | None:
        """The value that begins at ``begin``; None where it is not all there yet.

        Args:
            number: of the value, from 1, for errors.
            final: whether nothing follows ``text``.

        Raises:
            Malformed: it is not JSON.
        """
        begin = skip_blanks(text, begin)
        try:
            try:
                value, end = strict_json.value_at(text, begin)
                fault = ""
            except Malformed as error:
                value, end = None, strict_json.end_of(text, begin)
                fault = error.message
        except json.JSONDecodeError as error:
            if not final and (
                error.msg.startswith("Unterminated") or error.pos > len(text) - _TAIL
            ):
                return None
            if error.pos >= len(text):
                raise Malformed(f"the {self.whole} breaks off in {self.item} {number}") from None
            raise Malformed(f"{self.item} {number} is not JSON: {error.msg.lower()}") from None
        except RecursionError:
            raise Malformed(f"{self.item} {number} is nested too deeply") from None
        if not final and text[end - 1] in _DIGITS and _NUMBER_GOES_ON.fullmatch(text, end):
            return None
        return JsonValue(value, fault, end)

    def step(self, text: str, begin: int, number: int, *, final: bool) -> ArrayStep | None:
        """The array's item after the bracket or comma that ends at ``begin``; None where it, or
        the mark that follows it, is not there yet.

        Raises:
            Malformed: as :meth:`read`; also where neither a comma nor the end follows.
        """
        begin = skip_blanks(text, begin)
        if number == 1 and text[begin : begin + 1] == "]":
            return ArrayStep(None, begin + 1, is_last=True)
        item = self.read(text, begin, number, final=final)
        if item is None:
            return None
        end = skip_blanks(text, item.end)
        mark = text[end : end + 1]
        if not mark and not final:
            return None
        if mark not in (",", "]"):
            raise Malformed(
                f"{self.item} {number} is followed by neither a comma nor the array's end"
            )
        return ArrayStep(item, end + 1, is_last=mark == "]")

    def check_end(self, text: str, begin: int) -> None:
        """
        Raises:
            Malformed: something follows the end of the array.
        """
        if skip_blanks(text, begin) < len(text):
            raise Malformed("something follows the end of the array")


def skip_blanks(text: str, begin: int) -> int:
    """The place of the next character that is not blank, or the end of the text."""
    return _SPACE.match(text, begin).end()  # type: ignore[union-attr]  # it always matches

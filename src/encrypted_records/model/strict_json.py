"""JSON exactly as in RFC 8259, as a whole or item by item, read and written.

Numbers keep their exact value (``int`` or ``Decimal``, never ``float``). NaN, infinities and
duplicate keys are refused, because two readers could interpret such a text differently. Half of a
surrogate pair is refused because no encoder accepts it: an answer or a stored text could not
contain it. Parsers of records allow it in values, so that validation names row and field.

The items of an array, and consecutive values, can also be read while their text is still arriving.
The caller buffers the text and says whether more may come; this module keeps no state.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any

import msgspec

from encrypted_records.errors import Flaw, Malformed, TooLarge

#: Longest number accepted, in characters. Exact arithmetic on longer ones costs quadratic time.
MAX_NUMBER_LENGTH = 400
#: Maximum values in the body of a request: numbers, texts, and the arrays and objects that contain
#: them. A hundred records of 512 fields have half as many.
MAX_VALUES = 100_000
#: Exceptions of msgspec for a text that is not JSON of the expected type, or is nested too deeply.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
#: The error text for a text that no encoder accepts.
HALF = "holds half of a surrogate pair"
#: Maximum halves of surrogate pairs that errors list per text.
_MOST_HALVES = 10
#: Escapes of halves, paired or not; a text in UTF-8 without these escapes has no halves.
_ESCAPED_HALF = re.compile(rb"\\u[dD][89a-fA-F]")


def escape_pointer(token: str) -> str:
    """One token of an RFC 6901 pointer."""
    return token.replace("~", "~0").replace("/", "~1")


def _integer(text: str) -> int:
    if len(text) > MAX_NUMBER_LENGTH:
        raise Malformed(f"a number has more than {MAX_NUMBER_LENGTH} characters")
    return int(text)


def decimal(text: str) -> Decimal:
    """The exact value of a JSON number with a fraction or exponent.

    Raises:
        Malformed: it is too long, or its exponent is too large.
    """
    if len(text) > MAX_NUMBER_LENGTH:
        raise Malformed(f"a number has more than {MAX_NUMBER_LENGTH} characters")
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of 19 digits or more
        raise Malformed("a number has too large an exponent") from None


def _constant(text: str) -> Any:
    raise Malformed(f"{text} is not a JSON number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Malformed("an object has the same key twice")
    try:
        "".join(members).encode()
    except UnicodeEncodeError:
        # Errors contain keys, and a response with this key could not be encoded.
        raise Malformed(f"a key {HALF}") from None
    return members


#: Finds the end of a value, even if the rules above refuse the value.
_lenient = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=len)
_decoder = json.JSONDecoder(
    object_pairs_hook=_object,
    parse_int=_integer,
    parse_float=decimal,
    parse_constant=_constant,
)


def loads(text: str | bytes, *, halves: bool = False) -> Any:
    """The value of a JSON text.

    Args:
        halves: whether values, but not keys, may hold half of a surrogate pair: for records, whose
            validation names the row and the field.

    Raises:
        Malformed: not UTF-8, not JSON, nested too deeply, a duplicate key, half of a surrogate
            pair, or a number that is invalid or too long. The message gives the line and column,
            or the errors a pointer, never the content.
    """
    value = _loads(text)
    if not halves and _may_hold_halves(text):
        _refuse_halves(value)
    return value


def refuse_halves(text: bytes) -> None:
    """Refuse a JSON text with half of a surrogate pair; other faults are left to its parser.

    Raises:
        Malformed: a text or key in it holds one. The errors have a pointer to each text.
    """
    if not _may_hold_halves(text):
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    _refuse_halves(value)


def _may_hold_halves(text: str | bytes) -> bool:
    if isinstance(text, bytes):
        return _ESCAPED_HALF.search(text) is not None
    # A ``str`` may contain halves directly, for example in an argument of a command.
    return "\\u" in text or not text.isascii()


def _refuse_halves(value: Any) -> None:
    flaws = tuple(
        Flaw("unicode", HALF, pointer) for pointer in islice(_halves(value), _MOST_HALVES)
    )
    if flaws:
        raise Malformed(f"a text {HALF}", flaws=flaws)


def _halves(value: Any) -> Iterator[str]:
    """Pointers to the texts with half of a surrogate pair; for a key, to its object."""
    waiting = [("", value)]
    while waiting:
        pointer, value = waiting.pop()
        if isinstance(value, str):
            if not is_encodable(value):
                yield pointer
        elif isinstance(value, list):
            waiting += [(f"{pointer}/{at}", value[at]) for at in reversed(range(len(value)))]
        elif isinstance(value, dict):
            if not all(map(is_encodable, value)):
                yield pointer
                continue
            waiting += [
                (f"{pointer}/{escape_pointer(name)}", item) for name, item in value.items()
            ][::-1]


def is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _loads(text: str | bytes) -> Any:
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Malformed(f"not UTF-8 at byte {error.start}") from None
    try:
        return _decoder.decode(text)
    except json.JSONDecodeError as error:
        raise Malformed(
            f"not JSON at line {error.lineno}, column {error.colno}: {error.msg.lower()}"
        ) from None
    except RecursionError:
        raise Malformed("nested too deeply") from None


def refuse_many(text: bytes, most: int = MAX_VALUES) -> None:
    """Refuse a text of more than ``most`` values, without parsing it, in linear time.

    A parser holds the interpreter lock while it creates millions of values. In a text that is not
    JSON, the count is right up to the mistake, and a parser creates no more values than that.

    Raises:
        TooLarge: the number of arrays, objects and their items exceeds ``most``.
    """
    if _marks(text) < most:
        return
    # The remaining quotes begin or end strings; marks inside strings do not count.
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 4 * most or _marks(b"".join(plain.split(b'"')[::2])) >= most:
        raise TooLarge(
            f"more than {most} values in one body",
            hint="send fewer values per request; docs/http-api.md lists the limits of each",
        )


def _marks(text: bytes) -> int:
    """The number of arrays, objects, and commas between their items."""
    return sum(text.count(mark) for mark in (b",", b"[", b"{"))


def value_at(text: str, start: int) -> tuple[Any, int]:
    """The value that begins at ``start``, and its end. Values in it, but not keys, may contain half
    of a surrogate pair.

    Raises:
        json.JSONDecodeError: it is not JSON, or incomplete.
        Malformed: as :func:`loads`; :func:`end_of` still finds its end.
        RecursionError: nested too deeply.
    """
    return _decoder.raw_decode(text, start)


def end_of(text: str, start: int) -> int:
    """The end of the value that begins at ``start``.

    Raises:
        json.JSONDecodeError, RecursionError: as :func:`value_at`.
    """
    return _lenient.raw_decode(text, start)[1]


#: The bytes of a JSON text. A ``Decimal`` becomes a number with all of its digits, not a string.
encode = msgspec.json.Encoder(decimal_format="number").encode
#: The same bytes for every order of the members.
encode_sorted = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


_SPACE = re.compile(r"[ \t\r\n]*")
#: The last characters of numbers, after which a truncated text may continue the number.
_DIGITS = "0123456789"
_NUMBER_GOES_ON = re.compile(r"[0-9.eE+-]*")
#: An incomplete text fails to parse within this many characters of its end, or in a string.
_TAIL = 16


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value that ends before ``end``; ``fault`` is the reason if it is valid JSON but refused."""

    value: Any
    fault: str
    end: int


@dataclass(frozen=True, slots=True)
class ArrayStep:
    """An item of an array; None if the array is empty. ``end`` is after the comma or bracket that
    follows it, and ``is_last`` says whether that is the bracket.
    """

    item: JsonValue | None
    end: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class JsonItems:
    """Reads items, and names them in its errors.

    Args:
        item: the name of an item, such as ``record``.
        whole: the name of the whole, such as ``upload``.
    """

    item: str
    whole: str

    def read(self, text: str, begin: int, number: int, *, final: bool) -> JsonValue | None:
        """The value that begins at ``begin``; None while it is incomplete.

        Args:
            number: the number of the value, from 1, for errors.
            final: whether ``text`` is complete.

        Raises:
            Malformed: it is not JSON.
        """
        begin = skip_blanks(text, begin)
        try:
            try:
                value, end = value_at(text, begin)
                fault = ""
            except Malformed as error:
                value, end = None, end_of(text, begin)
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
        """The array's item after the bracket or comma that ends at ``begin``; None while it, or the
        mark that follows it, is incomplete.

        Raises:
            Malformed: as :meth:`read`; also if neither a comma nor the end follows.
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
    """The index of the next character that is not blank, or the end of the text."""
    return _SPACE.match(text, begin).end()  # type: ignore[union-attr]  # it always matches

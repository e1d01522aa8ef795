"""What a stored value becomes where its field takes another type, format or number of decimals.

Nothing is lost without being asked: a value that the new field would hold otherwise is refused.
"""

from __future__ import annotations

from decimal import Decimal

from encrypted_records.model.definition import FieldSpec, Value, canonical
from encrypted_records.model.rules import ValueRefused, as_decimal


def convert(before: FieldSpec, after: FieldSpec, value: Value) -> Value:
    """The value as a record of ``after`` holds it.

    A number becomes the text of its one spelling (no exponent, no zeros at the end), and such a
    text a number; ``true`` and ``false`` are the texts of booleans, 1 and 0 their numbers; a text
    becomes a date, a time, an instant or a uuid where it is one.

    Raises:
        ValueRefused: it keeps not the rules of ``after``, or would be another value there.
    """
    if value is None:
        return None
    sent = _as(before, after, value)
    kept = after.accept(sent)
    if after.format is None and not _is_same(sent, kept):
        raise ValueRefused("type", "would lose digits")
    if isinstance(value, str) and not isinstance(sent, str) and text_of(kept) != value:
        raise ValueRefused("type", "is not the one spelling of a number")
    return kept


def text_of(value: Value) -> str:
    """A value that is there, as text."""
    assert value is not None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    return canonical(Decimal(value))


def _as(before: FieldSpec, after: FieldSpec, value: Value) -> Value:
    """The value as somebody would send it for ``after``."""
    if (before.type, before.format) == (after.type, after.format):
        return value
    if after.format == "boolean":
        return _as_boolean(value)
    if after.type == "string":
        return text_of(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        return _as_number(value)
    return value


def _as_boolean(value: Value) -> Value:
    known: dict[Value, bool] = {"true": True, "false": False, 1: True, 0: False}
    if value not in known:
        raise ValueRefused("type", "is neither true nor false")
    return known[value]


def _as_number(text: str) -> Value:
    plain = text.removeprefix("-").replace(".", "", 1)
    if not (plain.isascii() and plain.isdecimal()):
        raise ValueRefused("type", "is no number")
    number = Decimal(text)
    return int(number) if "." not in text else number


def _is_same(sent: Value, kept: Value) -> bool:
    number = as_decimal(sent)
    return sent == kept if number is None else number == as_decimal(kept)

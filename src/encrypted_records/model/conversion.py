"""Conversion of stored values where their field takes another type, format or number of decimals.

Nothing is lost without being asked: a value that the new field would hold otherwise is refused.
"""

from __future__ import annotations

from encrypted_records.model.definition import FieldSpec, Value
from encrypted_records.model.field_types.base import text_of
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


def _as(before: FieldSpec, after: FieldSpec, value: Value) -> Value:
    """The value as somebody would send it for ``after``."""
    return value if before.field_type is after.field_type else after.field_type.convert(value)


def _is_same(sent: Value, kept: Value) -> bool:
    number = as_decimal(sent)
    return sent == kept if number is None else number == as_decimal(kept)

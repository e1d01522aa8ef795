"""Columns of Parquet and Arrow as fields of their declared types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Any

from encrypted_records.errors import InvalidSetting
from encrypted_records.model import field_types
from encrypted_records.model.field_types import TYPES
from encrypted_records.model.field_types.base import FieldType

_PADDED = 31


@dataclass(slots=True)
class ColumnFacts:
    """Facts about a column's values that its type does not tell.

    Attributes:
        digits: before the point, the most of all numbers.
        decimals: of floats, the most as they are shortest written.
        longest: bytes of the longest text.
        odd: whether a time is finer than microseconds.
        present: whether there is any.
    """

    digits: int = 1
    decimals: int = 0
    longest: int = 0
    odd: bool = False
    present: bool = False

    def add(self, column: Any, declared: Any) -> None:
        from pyarrow import compute, types  # noqa: PLC0415 - optional, and slow to import

        kind = declared.type
        self.present |= column.null_count < len(column)
        if types.is_dictionary(kind):
            column, kind = column.dictionary, kind.value_type
        if types.is_integer(kind) or types.is_decimal(kind):
            extremes = compute.min_max(column).as_py()
            numbers = [extreme for extreme in extremes.values() if extreme is not None]
            self.digits = max(
                [self.digits, *(Decimal(number).adjusted() + 1 for number in numbers)]
            )
        elif types.is_floating(kind):
            for value in compute.unique(column).to_pylist():
                if value is not None and isfinite(value):
                    self._add_float(value)
        elif _is_text(kind):
            self.longest = max(self.longest, _longest(column))
        elif types.is_temporal(kind) and getattr(kind, "unit", "") == "ns" and not self.odd:
            self.odd = _is_finer_than_microseconds(column, declared.name)

    def _add_float(self, value: float) -> None:
        number = Decimal(repr(value)).normalize()
        exponent = number.as_tuple().exponent
        assert isinstance(exponent, int)
        self.digits = max(self.digits, number.adjusted() + 1)
        self.decimals = max(self.decimals, -exponent)


def field_of(declared: Any, seen: ColumnFacts) -> tuple[dict[str, Any], str | None]:
    """The field that a column becomes, and what to look at.

    Args:
        declared: a field of Arrow.

    Raises:
        InvalidSetting: there are values of a type that cannot be stored.
    """
    from pyarrow import types  # noqa: PLC0415 - optional, and slow to import

    kind = declared.type
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_decimal(kind) or types.is_floating(kind):
        field = _number(kind, seen)
        if field is None:
            return field_types.propose_text(_PADDED), "more than 18 digits: kept as text"
        if types.is_floating(kind):
            return field, f"a value with more than {field.get('precision', 0)} decimals is refused"
        return field, None
    if seen.odd:
        return field_types.propose_text(_PADDED), "finer than microseconds: kept as text"
    if (named := _type_of(kind)) is not None:
        return named.propose(), named.frame.note
    if _is_text(kind):
        return field_types.propose_text(seen.longest), None
    if seen.present:
        raise InvalidSetting(
            f"{declared.name}: values of type {kind} cannot be stored",
            hint="leave the column out, or turn it into texts",
        )
    return field_types.propose_text(_PADDED), f"{kind}: kept as text"


def _number(kind: Any, seen: ColumnFacts) -> dict[str, Any] | None:
    """A number field for an Arrow type of numbers; None if a field cannot have that many digits."""
    from pyarrow import types  # noqa: PLC0415 - optional, and slow to import

    if types.is_floating(kind):
        return field_types.propose_decimal(seen.digits, seen.decimals)
    if types.is_decimal(kind):
        if kind.precision > field_types.MAX_DIGITS or not 0 <= kind.scale <= kind.precision:
            return None
        return field_types.propose_number(kind.scale, kind.precision - kind.scale)
    if seen.digits > field_types.MAX_DIGITS:
        return None
    signed = types.is_signed_integer(kind)
    most = 2 ** (kind.bit_width - signed)
    return field_types.propose_whole_number(-most if signed else 0, most - 1)


def _type_of(kind: Any) -> FieldType | None:
    """The type that all columns of this type of Arrow become."""
    printed = str(kind)
    taken = ((kind, kind.frame.taken) for kind in TYPES)
    return next((type_ for type_, form in taken if form and re.fullmatch(form, printed)), None)


def _is_text(kind: Any) -> bool:
    from pyarrow import types  # noqa: PLC0415 - optional, and slow to import

    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _longest(texts: Any) -> int:
    from pyarrow import compute, types  # noqa: PLC0415 - optional, and slow to import

    if types.is_string_view(texts.type):
        return max(
            (len(text.encode()) for text in texts.to_pylist() if text is not None), default=0
        )
    return compute.max(compute.binary_length(texts)).as_py() or 0


def _is_finer_than_microseconds(column: Any, name: str) -> bool:
    from encrypted_records.client.sdk.frames import cells_of_arrow  # noqa: PLC0415 - slow to import

    return any(isinstance(cell, str) for cell in cells_of_arrow(column, name, 0))

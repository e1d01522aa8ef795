"""Texts, whole numbers, numbers, booleans and uuids. Uuids are parsed by RFC 9562."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final

from encrypted_records.model.field_types.base import (
    MAX_STRING_BYTES,
    SIGNS,
    Control,
    FieldType,
    FrameTypes,
    KeyKind,
    NumberRules,
    Span,
    Sql,
    ValueRefused,
    as_decimal,
    grid_of,
    refuse_form,
    require_text,
)
from encrypted_records.model.strict_json import MAX_NUMBER_LENGTH
from encrypted_records.model.texts import comparable

if TYPE_CHECKING:
    from encrypted_records.model.definition import FieldSpec, Value


#: "40~45" is a number from 40 to 45. Text fields have no such ranges: it may be a value.
_NUMBER = r"(-?[0-9]{1,40}(?:\.[0-9]{1,40})?)"
_RANGE = re.compile(f"{_NUMBER}~{_NUMBER}")
#: In a filter, whose values are often texts, "40" and ">= 40" are accepted, too.
_SIGNED_NUMBER = re.compile(rf"([<>]=?|)\s*{_NUMBER}")
#: Limits of 64-bit whole numbers, and the maximum digits of 128-bit decimal numbers.
_HALF, _MOST_DIGITS = 1 << 63, 38
_CELL = re.compile(r"-?[0-9]+(\.[0-9]+)?")


class Text(FieldType):
    name = "string"
    json_type = "string"
    is_format = False
    keys = KeyKind.TEXT
    type_byte = 3
    fixed_bytes = None
    said = "text"
    about = "exact and prefix search"
    phrases = "text"
    reveals = "text"
    reading = "text"
    frame = FrameTypes("string", "string")
    control = Control("text", example="Ada")

    def column_type(self, spec: FieldSpec) -> str:
        return "string"

    def only_lengths(self, spec: FieldSpec) -> bool:
        return spec.allowed is None and spec.string.pattern is None

    def accept(self, spec: FieldSpec, raw: object) -> str:
        # Fast path: most strings need no check of every rule.
        if type(raw) is str:
            if spec.any_text and len(raw) <= MAX_STRING_BYTES and raw.isascii():
                return raw
            # Allowed values were checked against all other rules when the definition was parsed.
            if spec.allowed is not None and raw in spec.allowed:
                return raw
        if not isinstance(raw, str):
            raise ValueRefused("type", "expected a string")
        try:
            size = len(raw) if raw.isascii() else len(raw.encode())
        except UnicodeEncodeError:
            raise ValueRefused("unicode", "holds half of a surrogate pair") from None
        if size > MAX_STRING_BYTES:
            raise ValueRefused("max_length", f"longer than {MAX_STRING_BYTES} bytes of UTF-8")
        spec.string.check(raw)
        if spec.allowed is not None:
            raise ValueRefused("enum", "not one of the values the field allows")
        return raw

    def read_text(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise ValueRefused("type", "expected a string")
        try:
            raw.encode()
        except UnicodeEncodeError:
            raise ValueRefused("unicode", "holds half of a surrogate pair") from None
        return comparable(raw)


class _AnyNumber(FieldType):
    is_format = False
    is_number = True
    phrases = "number"
    reveals = "number"
    reading = "number"
    control = Control("number", "number", r"-?[0-9]+(\.[0-9]+)?", example="42")
    _expected: ClassVar[str]

    def accept(self, spec: FieldSpec, raw: object) -> Value:
        rules = spec.numbers
        # Fast path: most values need no decimals. ``type`` excludes bool, a subclass of int.
        if type(raw) is int and spec.only_bounds and rules.lowest <= raw <= rules.highest:
            return raw
        value = as_decimal(raw)
        if value is None:
            raise ValueRefused("type", f"expected {self._expected}")
        rules.check(value)
        if spec.allowed is not None and value not in spec.allowed:
            raise ValueRefused("enum", "not one of the values the field allows")
        return self._keep(spec, rules, value)

    @abstractmethod
    def _keep(self, spec: FieldSpec, rules: NumberRules, value: Decimal) -> Value: ...

    def to_point(self, spec: FieldSpec, value: Value) -> int:
        # Not value.scaleb(): it rounds to the thread's 28 digits, and bounds may have more.
        if type(value) is int:
            return value if spec.numbers.precision == 0 else spec.numbers.to_grid(Decimal(value))
        number = as_decimal(value)
        assert number is not None
        return spec.numbers.to_grid(number)

    def convert(self, value: Value) -> Value:
        if isinstance(value, bool):
            return int(value)
        if not isinstance(value, str):
            return value
        plain = value.removeprefix("-").replace(".", "", 1)
        if not (plain.isascii() and plain.isdecimal()):
            raise ValueRefused("type", "is not a number")
        number = Decimal(value)
        return int(number) if "." not in value else number

    def read_span(self, spec: FieldSpec, raw: object) -> Span:
        # Only type and bounds count here: searching for a value that an enum excludes is valid, and
        # finds nothing.
        number = as_decimal(None if raw is None else self.accept(spec.without_rules, raw))
        if number is None:
            raise ValueRefused("type", "expected a number; is_null finds absent fields")
        point = spec.numbers.to_grid(number)
        return Span(point, point)

    def read_lowest(self, spec: FieldSpec, raw: object, *, included: bool) -> int:
        bound = self._bound(spec, raw)
        return bound(ROUND_CEILING) if included else bound(ROUND_FLOOR) + 1

    def read_highest(self, spec: FieldSpec, raw: object, *, included: bool) -> int:
        bound = self._bound(spec, raw)
        return bound(ROUND_FLOOR) if included else bound(ROUND_CEILING) - 1

    def _bound(self, spec: FieldSpec, raw: object) -> Callable[[str], int]:
        number = as_decimal(raw)
        if number is None:
            raise ValueRefused("type", "expected a number")
        return lambda rounding: spec.numbers.clamp(number, rounding)

    def read_filter(self, typed: str) -> tuple[str, Any]:
        found = _SIGNED_NUMBER.fullmatch(typed)
        return super().read_filter(typed) if found is None else (SIGNS[found[1]], Decimal(found[2]))

    def read_range(self, raw: object) -> tuple[Any, Any] | None:
        found = _RANGE.fullmatch(raw) if isinstance(raw, str) else None
        return None if found is None else (Decimal(found[1]), Decimal(found[2]))

    def of_cell(self, cell: str) -> object:
        """A number in plain decimal notation."""
        if len(cell) > MAX_NUMBER_LENGTH or not _CELL.fullmatch(cell):
            return cell
        return Decimal(cell) if "." in cell else int(cell)


class Integer(_AnyNumber):
    name = "integer"
    json_type = "integer"
    type_byte = 1
    said = "whole number"
    about = "numbers without decimals"
    frame = FrameTypes(None, "Int64")
    values_are_points = True
    _expected = "an integer"

    def column_type(self, spec: FieldSpec) -> str:
        rules = spec.numbers
        fits = rules.lowest >= -_HALF and rules.highest < _HALF
        return "int64" if fits else _decimal_type(rules)

    def only_bounds(self, spec: FieldSpec) -> bool:
        rules = spec.number
        return rules is not None and spec.allowed is None and rules == rules.bounds_only

    def _keep(self, spec: FieldSpec, rules: NumberRules, value: Decimal) -> int:
        point = rules.to_grid(value)
        if point != value:
            raise ValueRefused("type", "expected an integer, found a fraction")
        return point

    def from_point(self, spec: FieldSpec, point: int) -> int:
        return point


class Number(_AnyNumber):
    name = "number"
    json_type = "number"
    type_byte = 2
    has_decimals = True
    said = "number"
    about = "numbers with decimals"
    frame = FrameTypes(None, "float64")
    _expected = "a number"

    def column_type(self, spec: FieldSpec) -> str:
        return _decimal_type(spec.numbers)

    def _keep(self, spec: FieldSpec, rules: NumberRules, value: Decimal) -> Decimal:
        kept = rules.from_grid(rules.to_grid(value))
        if spec.exact and kept != value:
            raise ValueRefused("precision", f"has more than {rules.precision} decimals")
        try:
            rules.check(kept)
        except ValueRefused as refused:
            detail = f"once rounded to the field's precision, {refused.detail}"
            raise ValueRefused(refused.code, detail) from None
        return kept

    def from_point(self, spec: FieldSpec, point: int) -> Decimal:
        return spec.numbers.from_grid(point)


def _decimal_type(rules: NumberRules) -> str:
    """Arrow's decimal type with room for each point; a text type if there is none."""
    digits = max(len(str(abs(point))) for point in (rules.lowest, rules.highest))
    digits = max(digits, rules.precision, 1)
    return f"decimal128({digits}, {rules.precision})" if digits <= _MOST_DIGITS else "string"


def step_of(field: Mapping[str, Any]) -> int | Decimal:
    """The least difference between two values of a number field.

    Args:
        field: from a JSON definition.
    """
    has_decimals = field["type"] == Number.name
    return Decimal(1).scaleb(-int(field["precision"])) if has_decimals else 1


TEXT: Final = Text()
INTEGER: Final = Integer()
NUMBER: Final = Number()


UUID_BYTES = 16
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Boolean(FieldType):
    """``True`` or ``False``; in JSON Schema, an integer from 0 to 1."""

    name = "boolean"
    json_type = "integer"
    type_byte = 8
    is_boolean = True
    is_ordered = False
    bounds_in_definition = (0, 1)
    said = "yes or no"
    about = "true or false"
    phrases = "same"
    reading = "boolean"
    frame = FrameTypes("bool", "boolean", taken=r"bool", declared="BoolType")
    sql = Sql(("boolean",), "{0}")
    control = Control("choice", example="true")
    grid = grid_of(0, 1)

    def column_type(self, spec: FieldSpec) -> str:
        return "bool"

    def accept(self, spec: FieldSpec, raw: object) -> bool:
        if not isinstance(raw, bool):
            raise ValueRefused("type", "expected true or false")
        return raw

    def to_point(self, spec: FieldSpec, value: Value) -> int:
        assert isinstance(value, int)
        return int(value)

    def from_point(self, spec: FieldSpec, point: int) -> bool:
        return bool(point)

    def convert(self, value: Value) -> bool:
        known: dict[Value, bool] = {"true": True, "false": False, 1: True, 0: False}
        if value not in known:
            raise ValueRefused("type", "is neither true nor false")
        return known[value]

    def read_filter(self, typed: str) -> tuple[str, Any]:
        return "eq", self.of_cell(typed)

    def of_cell(self, cell: str) -> object:
        return {"true": True, "false": False}.get(cell, cell)


class Uuid(FieldType):
    name = "uuid"
    json_type = "string"
    keys = KeyKind.UUID
    type_byte = 7
    fixed_bytes = UUID_BYTES
    identifies = True
    said = "UUID"
    about = "hexadecimal, in one spelling"
    phrases = "same"
    frame = FrameTypes("string", "string", declared="UUIDType")
    sql = Sql(("uuid",))
    control = Control("text", example="0190163d-8694-739b-aea5-966c26f8ad91")

    def column_type(self, spec: FieldSpec) -> str:
        return "uuid"

    def accept(self, spec: FieldSpec, raw: object) -> str:
        return self.read_text(raw)

    def read_text(self, raw: object) -> str:
        text = require_text(self.name, raw)
        if not _UUID.fullmatch(text):
            raise refuse_form("expected a uuid: 32 hexadecimal digits in five groups")
        return text.lower()

    def pack(self, spec: FieldSpec, value: Value) -> bytes:
        assert isinstance(value, str)
        return bytes.fromhex(value.replace("-", ""))

    def unpack(self, spec: FieldSpec, plain: bytes) -> str:
        digits = plain.hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


BOOLEAN: Final = Boolean()
UUID: Final = Uuid()

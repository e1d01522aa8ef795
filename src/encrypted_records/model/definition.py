"""What a schema definition may say, and what that makes of a value.

The rules are constraints 1-7 of the interface plus the JSON Schema keywords that can be checked
on one value alone. The API uses :func:`parse_definition` to accept a definition, the proxy and
the ingest pipeline use :meth:`FieldSpec.accept` to check values; nothing else knows them.

A number is handled as a point on its field's *grid*: value * 10**precision, an integer. An
integer field is a grid of precision 0. Rounding never leaves the bounds: a value that would is
refused, so whatever comes out of a record can go into one.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_CEILING,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
)
from functools import cached_property
from typing import Any, Literal

import re2

FieldType = Literal["string", "integer", "number"]
#: A field's value once accepted; None is an absent field.
Value = str | int | Decimal | None

MAX_FIELDS = 512
MAX_FIELD_NAME = 200
MAX_PRECISION = 18
#: Bounds lie within +-10**MAX_MAGNITUDE; the distance between them fits 64 bits.
MAX_MAGNITUDE = 40
#: Longest string value, in bytes of UTF-8.
MAX_STRING_BYTES = 1 << 20

#: Bounds have up to MAX_MAGNITUDE digits before the point and 60 after it.
_EXACT = Context(prec=MAX_MAGNITUDE + 60 + 20)
#: For remainders, of values as sent: up to 400 digits and any exponent.
_WIDE = Context(prec=999, Emin=MIN_EMIN, Emax=MAX_EMAX)


class ValueRefused(ValueError):
    """A value does not fit its field. ``code`` is stable; ``detail`` never repeats the value."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def as_decimal(value: object) -> Decimal | None:
    """The exact value of a JSON number, or None where ``value`` is none (booleans are none)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, Decimal) and value.is_finite():
        return value
    return None


@dataclass(frozen=True)
class StringRules:
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None

    @cached_property
    def compiled(self) -> Any:
        """The pattern, compiled; None where there is none."""
        return None if self.pattern is None else compile_pattern(self.pattern)

    def check(self, text: str) -> None:
        if self.min_length is not None and len(text) < self.min_length:
            raise ValueRefused("min_length", f"shorter than {self.min_length} characters")
        if self.max_length is not None and len(text) > self.max_length:
            raise ValueRefused("max_length", f"longer than {self.max_length} characters")
        if self.compiled is not None and not self.compiled.search(text):
            raise ValueRefused("pattern", "does not match the field's pattern")


@dataclass(frozen=True)
class NumberRules:
    """Bounds and grid of an integer or number field. Exact throughout."""

    minimum: Decimal
    maximum: Decimal
    precision: int = 0
    exclusive_minimum: Decimal | None = None
    exclusive_maximum: Decimal | None = None
    multiple_of: Decimal | None = None

    @cached_property
    def lowest(self) -> int:
        """The lowest grid point within the bounds."""
        return self._scaled(self.minimum, ROUND_CEILING)

    @cached_property
    def highest(self) -> int:
        """The highest grid point within the bounds."""
        return self._scaled(self.maximum, ROUND_FLOOR)

    @property
    def bounds_only(self) -> NumberRules:
        """The same grid without the keywords that only narrow what may be stored."""
        return NumberRules(self.minimum, self.maximum, self.precision)

    def _scaled(self, value: Decimal, rounding: str) -> int:
        point = value.quantize(Decimal((0, (1,), -self.precision)), rounding, _EXACT)
        return int(point.scaleb(self.precision, _EXACT))

    def check(self, value: Decimal) -> None:
        if value < self.minimum:
            raise ValueRefused("minimum", f"below the minimum of {self.minimum}")
        if value > self.maximum:
            raise ValueRefused("maximum", f"above the maximum of {self.maximum}")
        if self.exclusive_minimum is not None and value <= self.exclusive_minimum:
            raise ValueRefused("exclusive_minimum", f"must be above {self.exclusive_minimum}")
        if self.exclusive_maximum is not None and value >= self.exclusive_maximum:
            raise ValueRefused("exclusive_maximum", f"must be below {self.exclusive_maximum}")
        # Both operands are bounded by now, so the remainder cannot be a large computation.
        if self.multiple_of is not None and _WIDE.remainder(value, self.multiple_of):
            raise ValueRefused("multiple_of", f"no multiple of {self.multiple_of}")

    def to_grid(self, value: Decimal) -> int:
        """The grid point of a value within the bounds, rounded half to even."""
        return self._scaled(value, ROUND_HALF_EVEN)

    def clamp(self, value: Decimal, rounding: str) -> int:
        """The grid point at ``value`` rounded as asked, one step outside where it lies beyond.

        Comparisons use it: a range may reach past the bounds, and however far past makes no
        difference.
        """
        # The sums are made in an exact context: the thread's own rounds to 28 digits.
        if value < _EXACT.subtract(self.minimum, Decimal(1)):
            return self.lowest - 1
        if value > _EXACT.add(self.maximum, Decimal(1)):
            return self.highest + 1
        return self._scaled(value, rounding)

    def from_grid(self, point: int) -> Decimal:
        return Decimal(point).scaleb(-self.precision, _EXACT)


@dataclass(frozen=True)
class FieldSpec:
    name: str
    type: FieldType
    number: NumberRules | None = None
    string: StringRules = StringRules()
    #: accepted values (``enum`` and ``const``); None where any will do
    allowed: frozenset[str | Decimal] | None = None

    @cached_property
    def only_bounds(self) -> bool:
        """Whether any integer within the bounds is a value of this field."""
        rules = self.number
        return (
            rules is not None
            and self.type == "integer"
            and self.allowed is None
            and rules == rules.bounds_only
        )

    @cached_property
    def any_text(self) -> bool:
        """Whether any string that is not too long is a value of this field."""
        return self.type == "string" and self.allowed is None and self.string == StringRules()

    @property
    def numbers(self) -> NumberRules:
        """The rules of a numeric field; asking a string field for them is our bug."""
        assert self.number is not None, "a string field has no grid"
        return self.number

    def accept(self, raw: object) -> Value:
        """The value a record of this field holds when its owner sent ``raw``.

        Integers come back as ``int``; numbers as ``Decimal`` with the field's decimals, rounded
        half to even; strings as they are.

        Raises:
            ValueRefused: of the wrong type, outside the bounds, or against another keyword.
        """
        if raw is None:
            return None
        # What most strings are, without looking at every rule.
        if self.any_text and type(raw) is str and len(raw) <= MAX_STRING_BYTES and raw.isascii():
            return raw
        return self._accept_string(raw) if self.type == "string" else self._accept_number(raw)

    def _accept_string(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise ValueRefused("type", "expected a string")
        try:
            size = len(raw) if raw.isascii() else len(raw.encode())
        except UnicodeEncodeError:
            raise ValueRefused("unicode", "holds half of a surrogate pair") from None
        if size > MAX_STRING_BYTES:
            raise ValueRefused("max_length", f"longer than {MAX_STRING_BYTES} bytes of UTF-8")
        self.string.check(raw)
        if self.allowed is not None and raw not in self.allowed:
            raise ValueRefused("enum", "not one of the values the field allows")
        return raw

    def _accept_number(self, raw: object) -> int | Decimal:
        rules = self.numbers
        # What most values are, without the cost of decimals; bool is an int of another type.
        if type(raw) is int and self.only_bounds and rules.lowest <= raw <= rules.highest:
            return raw
        value = as_decimal(raw)
        if value is None:
            raise ValueRefused("type", f"expected a number of type {self.type}")
        rules.check(value)
        if self.allowed is not None and value not in self.allowed:
            raise ValueRefused("enum", "not one of the values the field allows")
        point = rules.to_grid(value)
        if self.type == "integer":
            if point != value:
                raise ValueRefused("type", "expected an integer, found a fraction")
            return point
        kept = rules.from_grid(point)
        try:
            rules.check(kept)
        except ValueRefused as refused:
            detail = f"once rounded to the field's precision, {refused.detail}"
            raise ValueRefused(refused.code, detail) from None
        return kept

    @cached_property
    def binding(self) -> bytes:
        """SHA-256 over type, minimum, maximum and precision: what constraint 7 fixes into keys.

        Numbers enter in canonical form, so that ``1``, ``1.0`` and ``1e0`` bind alike.
        """
        parts: list[str] = [self.type]
        if self.number is not None:
            parts += [canonical(self.number.minimum), canonical(self.number.maximum)]
            parts.append(str(self.number.precision))
        return hashlib.sha256(length_prefixed(*(part.encode() for part in parts))).digest()


def compile_pattern(pattern: str) -> Any:
    """A regular expression in the syntax of RE2, which matches in linear time.

    With Python's own engine, whoever writes a schema could stall every proxy that validates by it.

    Raises:
        re2.error: not of that syntax, which has no look-around and no back-references.
    """
    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


def canonical(value: Decimal) -> str:
    """One spelling per value: plain notation, no exponent, no trailing zeros, no minus zero."""
    if value == 0:
        return "0"
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def length_prefixed(*parts: bytes) -> bytes:
    """Unambiguous concatenation: each part after its length as four big-endian bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


@dataclass(frozen=True)
class SchemaDefinition:
    """A definition that has passed every rule.

    ``fields`` keep the order in which the definition names them.
    """

    fields: Mapping[str, FieldSpec]
    required: frozenset[str] = field(default_factory=frozenset)

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that change whenever the meaning does, and never with the spelling alone."""
        parts: list[bytes] = []
        for name in sorted(self.fields):
            spec = self.fields[name]
            parts += [name.encode(), spec.binding, str(name in self.required).encode()]
            numbers = spec.number
            keywords: list[Decimal | None] = (
                [numbers.exclusive_minimum, numbers.exclusive_maximum, numbers.multiple_of]
                if numbers
                else []
            )
            parts += [b"-" if value is None else canonical(value).encode() for value in keywords]
            rules = spec.string
            for rule in (rules.min_length, rules.max_length, rules.pattern):
                parts.append(b"-" if rule is None else b"=" + str(rule).encode())
            allowed = spec.allowed or frozenset()
            parts.append(b"-" if spec.allowed is None else str(len(allowed)).encode())
            parts += sorted(
                canonical(value).encode() if isinstance(value, Decimal) else value.encode()
                for value in allowed
            )
        return hashlib.sha256(length_prefixed(*parts)).digest()

    @cached_property
    def numeric(self) -> frozenset[str]:
        """The names of the integer and number fields."""
        return frozenset(name for name, spec in self.fields.items() if spec.type != "string")

    def spec(self, name: str) -> FieldSpec | None:
        return self.fields.get(name)


def comparable(text: str) -> str:
    """The form in which strings are compared: NFC (UAX #15), nothing else folded."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)

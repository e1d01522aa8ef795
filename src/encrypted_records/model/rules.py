"""The rules of one field, and whether a value keeps them.

A number is handled as a point on its field's *grid*: value * 10**precision, an integer. An
integer field is a grid of precision 0. Rounding never leaves the bounds: a value that would is
refused, so every value from a record can be stored in a record.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from typing import Any

MAX_PRECISION = 18
#: Longest string value, in bytes of UTF-8.
MAX_STRING_BYTES = 1 << 20
#: Bounds lie within +-10**MAX_MAGNITUDE; the distance between them fits 64 bits.
MAX_MAGNITUDE = 40
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
    """The exact value of a JSON number, or None if ``value`` is not one (booleans are not)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, Decimal) and value.is_finite():
        return value
    return None


def canonical(value: Decimal) -> str:
    """The canonical spelling of a number: plain notation, no exponent, no trailing zeros, no minus
    zero.
    """
    if value == 0:
        return "0"
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True)
class StringRules:
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None

    @cached_property
    def compiled(self) -> Any:
        """The pattern, compiled; None if there is no pattern."""
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
            raise ValueRefused("multiple_of", f"not a multiple of {self.multiple_of}")

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


def compile_pattern(pattern: str) -> Any:
    """A regular expression in the syntax of RE2, which matches in linear time.

    With Python's own engine, the author of a schema could stall every proxy that validates by it.

    Raises:
        re2.error: not of that syntax, which has no look-around and no back-references.
    """
    import re2  # noqa: PLC0415 - a client without a side does without it

    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)

"""Rules of a field's values, and the base of all types: grid, stored forms, comparisons, names.

A number is handled as a point on its field's *grid*: value * 10**precision, an integer. An integer
field is a grid of precision 0. Rounding never crosses the bounds: such a value is refused, so every
value that a record returns can be stored again.

Only this package answers questions about types; other code asks :attr:`FieldSpec.field_type` and
compares no names. Other layers need data about types, too, such as Arrow's type of a column: these
are plain attributes of the type, so that the model imports none of these layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, LiteralString

if TYPE_CHECKING:
    from encrypted_records.model.definition import FieldSpec, Value


MAX_PRECISION = 18
#: Longest string value, in bytes of UTF-8.
MAX_STRING_BYTES = 1 << 20
#: Bounds lie within +-10**MAX_MAGNITUDE; the distance between them fits 64 bits.
MAX_MAGNITUDE = 40
#: Bounds have up to MAX_MAGNITUDE digits before the point and 60 after it.
_EXACT = Context(prec=MAX_MAGNITUDE + 60 + 20)
#: For remainders of values as sent: up to 400 digits and any exponent.
_WIDE = Context(prec=999, Emin=MIN_EMIN, Emax=MAX_EMAX)


class ValueRefused(ValueError):
    """A value does not fit its field. ``code`` is stable; ``detail`` never repeats the value."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def as_decimal(value: object) -> Decimal | None:
    """The exact value of a JSON number; None for anything else, including booleans."""
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
        """The same grid without the keywords that only restrict values."""
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
        # Both operands are bounded at this point, so the remainder is cheap.
        if self.multiple_of is not None and _WIDE.remainder(value, self.multiple_of):
            raise ValueRefused("multiple_of", f"not a multiple of {self.multiple_of}")

    def to_grid(self, value: Decimal) -> int:
        """The grid point of a value within the bounds, rounded half to even."""
        return self._scaled(value, ROUND_HALF_EVEN)

    def clamp(self, value: Decimal, rounding: str) -> int:
        """The grid point at ``value``, rounded by ``rounding``; a point just outside if it is
        beyond the bounds.

        Comparisons use it: a range may extend past the bounds, and the distance makes no
        difference.
        """
        # Calculate in an exact context, because the thread's context rounds to 28 digits.
        if value < _EXACT.subtract(self.minimum, Decimal(1)):
            return self.lowest - 1
        if value > _EXACT.add(self.maximum, Decimal(1)):
            return self.highest + 1
        return self._scaled(value, rounding)

    def from_grid(self, point: int) -> Decimal:
        return Decimal(point).scaleb(-self.precision, _EXACT)


def compile_pattern(pattern: str) -> Any:
    """A regular expression in the syntax of RE2, which matches in linear time.

    With Python's ``re``, the author of a schema could stall every proxy that validates with it.

    Raises:
        re2.error: not of that syntax, which has no look-around and no back-references.
    """
    import re2  # noqa: PLC0415 - a bare client does not install it

    options = re2.Options()
    options.log_errors = False
    return re2.compile(pattern, options)


JsonType = Literal["string", "integer", "number"]
Phrases = Literal["text", "number", "time", "length", "same"]
#: Sealed bytes of a value on a grid: a 64-bit number.
POINT_BYTES = 8


class KeyKind(Enum):
    """Forms of index keys: text, points of a grid, 16 bytes of a uuid, or words of a text."""

    TEXT = "text"
    POINT = "point"
    UUID = "uuid"
    WORDS = "words"

    @property
    def of_bytes(self) -> bool:
        """Whether keys are compared as bytes, not as numbers."""
        return self in (KeyKind.TEXT, KeyKind.UUID)


@dataclass(frozen=True, slots=True)
class Span:
    """The points from ``first`` to ``last``, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class FrameTypes:
    """Columns of frames.

    Attributes:
        arrow: the Arrow type of a column of values, as printed by ``pyarrow``; None if it depends
            on the bounds of the field.
        pandas: the dtype.
        taken: a pattern of printed Arrow types whose columns are proposed as this type.
        declared: the name in ``msgspec.inspect`` of a class's types that are proposed as this type.
        note: a remark on a proposal from a declared type.
    """

    arrow: str | None
    pandas: str
    taken: str | None = None
    declared: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Sql:
    """Columns of PostgreSQL.

    Attributes:
        names: types whose columns are proposed as this type.
        shown: the expression that selects values; ``{0}`` is the column.
        note: a remark to check.
    """

    names: tuple[str, ...] = ()
    shown: LiteralString = "{0}::text"
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Control:
    """The control for entering a value on pages.

    Attributes:
        form: ``text``, ``number``, ``choice`` (true or false), or ``instant`` (with an offset).
            ``native`` is the browser's control named ``html``.
        html: the type of the browser's control.
        pattern: of the values that this control shows without loss; others get a text field.
        attributes: of the HTML control.
        example: an example value.
        steps: whether the control needs the smallest step between values.
        hints: whether a text field shows the example while it is empty.
    """

    form: Literal["text", "number", "choice", "instant", "native"]
    html: str = "text"
    pattern: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    example: str = ""
    steps: bool = False
    hints: bool = False


class FieldType(ABC):
    """A type of field; each type has a single instance.

    Attributes:
        name: the JSON type, or the enforced format.
        json_type: ``type`` in a definition.
        is_format: whether ``format`` names it, if formats are enforced.
        keys: the form of its index keys.
        type_byte: the first byte of each plaintext (docs/SPEC.md, section 3).
        fixed_bytes: bytes of each plaintext after its type byte; None if texts are padded.
        keys_tell_all: whether an index key contains the whole value; for texts, whether it can.
        values_are_points: whether a value equals its point.
        is_number: whether records contain JSON numbers, which can be summed.
        has_decimals: whether values have decimals, which a field may round.
        is_boolean: whether records contain true or false.
        is_ordered: whether lt, le, gt, ge and between apply.
        day_points: points per day, if values have years, months, weeks and days.
        is_day: whether a value is a whole day.
        is_moment: whether a value is a day or an instant, by which records can expire.
        identifies: whether values that are all different identify their records.
        bounds_in_definition: bounds that a definition of such a field always states.
        said: the type's name for users.
        about: its values in words.
        phrases: the set of comparisons that pages offer: ``text``, ``number``, ``time``, ``length``
            (of a time) or ``same`` (equal or not).
        reveals: what its sealed lengths reveal: ``text``, ``number`` or ``format``.
        reading: the name of such columns in readings of files; None if there is none.
        cell_form: the form of a cell in words, if all files use the same form.
        example: an example value for errors.
    """

    name: ClassVar[str]
    json_type: ClassVar[JsonType]
    is_format: ClassVar[bool] = True
    keys: ClassVar[KeyKind] = KeyKind.POINT
    type_byte: ClassVar[int]
    fixed_bytes: ClassVar[int | None] = POINT_BYTES
    keys_tell_all: ClassVar[bool] = True
    values_are_points: ClassVar[bool] = False
    is_number: ClassVar[bool] = False
    has_decimals: ClassVar[bool] = False
    is_boolean: ClassVar[bool] = False
    is_ordered: ClassVar[bool] = True
    day_points: ClassVar[int | None] = None
    is_day: ClassVar[bool] = False
    is_moment: ClassVar[bool] = False
    identifies: ClassVar[bool] = False
    bounds_in_definition: ClassVar[tuple[int, int] | None] = None
    said: ClassVar[str]
    about: ClassVar[str]
    phrases: ClassVar[Phrases]
    reveals: ClassVar[Literal["text", "number", "format"]] = "format"
    reading: ClassVar[str | None] = None
    cell_form: ClassVar[str | None] = None
    frame: ClassVar[FrameTypes]
    sql: ClassVar[Sql] = Sql()
    control: ClassVar[Control] = Control("text")
    #: the grid of all values; None for texts, or if the bounds depend on the field
    grid: ClassVar[NumberRules | None] = None

    @property
    def is_text(self) -> bool:
        return self.keys is KeyKind.TEXT

    @property
    def reads_as_dates(self) -> bool:
        """Whether values have years, months and days, by which charts group them."""
        return self.day_points is not None

    # --- definitions ------------------------------------------------------------------------------

    @property
    def format(self) -> str | None:
        return self.name if self.is_format else None

    def propose(self) -> dict[str, Any]:
        """The definition of a field with this format."""
        body: dict[str, Any] = {"type": self.json_type, "format": self.name}
        if self.bounds_in_definition is not None:
            low, high = self.bounds_in_definition
            body |= {"minimum": low, "maximum": high}
        return body

    def only_bounds(self, spec: FieldSpec) -> bool:
        """Whether any integer within the bounds is a value."""
        return False

    def only_lengths(self, spec: FieldSpec) -> bool:
        """Whether any string of a fitting length is a value."""
        return False

    # --- values -----------------------------------------------------------------------------------

    @abstractmethod
    def accept(self, spec: FieldSpec, raw: object) -> Value:
        """The value that is stored for ``raw``, which is not None.

        Raises:
            ValueRefused: as :meth:`FieldSpec.accept`.
        """

    def to_point(self, spec: FieldSpec, value: Value) -> int:
        """The point of an accepted value on the grid."""
        raise TypeError(f"values of {self.name} are not points of a grid")

    def from_point(self, spec: FieldSpec, point: int) -> Value:
        """The value at a point of the grid."""
        raise TypeError(f"values of {self.name} are not points of a grid")

    def pack(self, spec: FieldSpec, value: Value) -> bytes:
        """The plaintext of a value after its type byte, :attr:`fixed_bytes` long."""
        return (self.to_point(spec, value) - spec.numbers.lowest).to_bytes(POINT_BYTES, "big")

    def unpack(self, spec: FieldSpec, plain: bytes) -> Value:
        """Undo :meth:`pack`.

        Raises:
            ValueRefused: no value has this plaintext.
        """
        point = spec.numbers.lowest + int.from_bytes(plain, "big")
        if point > spec.numbers.highest:
            raise ValueRefused("bounds", "lies outside its field's bounds")
        return self.from_point(spec, point)

    def convert(self, value: Value) -> Value:
        """Convert a present value of another type to the form in which a caller would send it for
        this type.

        Raises:
            ValueRefused: the value has no such form.
        """
        return text_of(value)

    # --- questions --------------------------------------------------------------------------------

    def read_text(self, raw: object) -> str:
        """A text operand of a comparison, normalized for comparison.

        Raises:
            ValueRefused: no value can be compared with it.
        """
        raise TypeError(f"values of {self.name} are not texts")

    def read_span(self, spec: FieldSpec, raw: object) -> Span:
        """The points of a value in a comparison.

        Raises:
            ValueRefused: as :meth:`accept`.
        """
        point = self.to_point(spec, self.accept(spec, raw))
        return Span(point, point)

    def read_lowest(self, spec: FieldSpec, raw: object, *, included: bool) -> int:
        """The first point above ``raw``, or at it.

        Raises:
            ValueRefused: as :meth:`read_span`.
        """
        span = self.read_span(spec, raw)
        return span.first if included else span.last + 1

    def read_highest(self, spec: FieldSpec, raw: object, *, included: bool) -> int:
        """The last point below ``raw``, or at it.

        Raises:
            ValueRefused: as :meth:`read_span`.
        """
        span = self.read_span(spec, raw)
        return span.last if included else span.first - 1

    def read_filter(self, typed: str) -> tuple[str, Any]:
        """The operator and the value of a filter's text."""
        return "eq", typed

    def read_range(self, raw: object) -> tuple[Any, Any] | None:
        """The bounds of an ``eq`` value that stands for a range; None for a single value."""
        return None

    def of_cell(self, cell: str) -> object:
        """A table cell as a record's value; the cell itself if it is not such a value."""
        return cell

    def read_cell(self, cell: str) -> str | None:
        """The canonical text of a file's cell, for a type with a :attr:`cell_form`; None if it is
        not a value.
        """
        raise TypeError(f"cells of {self.name} have no form of their own")

    def is_evident(self, cell: str) -> bool:
        """Whether a text is almost certainly of this type; a column is proposed as this type only
        if at least one cell is.
        """
        return True

    # --- columns ----------------------------------------------------------------------------------

    @abstractmethod
    def column_type(self, spec: FieldSpec) -> str:
        """The Arrow type of a column of values, as printed by ``pyarrow``: exact for all bounds;
        ``uuid`` is the extension type ``arrow.uuid``.
        """

    # --- frames -----------------------------------------------------------------------------------

    def to_frame(self, value: Any) -> Any:
        """A record's value in the form for data frames with types :attr:`frame`."""
        return value


def text_of(value: Value) -> str:
    """A present value as text."""
    assert value is not None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    return canonical(Decimal(value))


def grid_of(lowest: int, highest: int) -> NumberRules:
    """The grid of a format: whole numbers from ``lowest`` to ``highest``."""
    return NumberRules(Decimal(lowest), Decimal(highest))


def refuse_form(detail: str) -> ValueRefused:
    """The error for a text that does not have a format's form."""
    return ValueRefused("format", detail)


def require_text(name: str, raw: object) -> str:
    """
    Raises:
        ValueRefused: not a string.
    """
    if not isinstance(raw, str):
        raise ValueRefused("type", f"expected a string that is a {name}")
    return raw


SIGNS: Final[Mapping[str, str]] = {"": "eq", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}

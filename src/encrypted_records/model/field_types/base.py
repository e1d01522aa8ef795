"""A type of field: its grid, its stored forms, its comparisons, and its names elsewhere.

Every question about a type is answered here or by one of the classes of this package; other code
asks :attr:`FieldSpec.field_type` and compares no names. Other layers need data about types, too,
such as what Arrow calls a column: these are plain values of the type, so that the model imports
none of these layers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, LiteralString

from encrypted_records.model.rules import NumberRules, ValueRefused, canonical

if TYPE_CHECKING:
    from encrypted_records.model.definition import FieldSpec, Value

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
        """Whether keys are compared as bytes, and not as numbers."""
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
        arrow: the type of Arrow that a column of values gets, as ``pyarrow`` prints it. None where
            it depends on the bounds of the field.
        pandas: the dtype.
        taken: a pattern of the printed types of Arrow whose columns are proposed as this type.
        declared: of a class, what is proposed as this type: its name in ``msgspec.inspect``.
        note: on a proposal from a declared type.
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
        names: types that are proposed as this type.
        shown: how values are selected; ``{0}`` is the column.
        note: what to look at.
    """

    names: tuple[str, ...] = ()
    shown: LiteralString = "{0}::text"
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Control:
    """The control with which people enter a value on pages.

    Attributes:
        form: ``text``, ``number``, ``choice`` (true or false), or ``instant`` (with an offset).
            ``native`` is the browser's control named ``html``.
        html: the type of the browser's control.
        pattern: of the values that this control shows without loss; others get a field of text.
        attributes: of the control in HTML.
        example: of a value.
        steps: whether the control needs to know how fine a value is.
        hints: whether a field of text shows the example while it is empty.
    """

    form: Literal["text", "number", "choice", "instant", "native"]
    html: str = "text"
    pattern: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    example: str = ""
    steps: bool = False
    hints: bool = False


class FieldType(ABC):
    """A type of field, of which there is one instance each.

    Attributes:
        name: the JSON type, or the enforced format.
        json_type: what ``type`` says in a definition.
        is_format: whether ``format`` names it, where formats are enforced.
        keys: the form of its index keys.
        type_byte: begins the plaintext of each sealed value (docs/SPEC.md, section 3).
        fixed_bytes: bytes of each plaintext behind its type; None where texts are padded.
        keys_tell_all: whether an index key says the whole value; of texts, whether it can.
        values_are_points: whether a value is its own point.
        is_number: whether records hold JSON numbers, which are summed.
        has_decimals: whether values have decimals, which a field may round.
        is_boolean: whether records hold true or false.
        is_ordered: whether lt, le, gt, ge and between compare its values.
        day_points: points of a day, where values have years, months, weeks and days.
        is_day: whether a value is a whole day.
        is_moment: whether a value is a day or an instant, by which records can expire.
        identifies: whether values that are all different name their records.
        bounds_in_definition: bounds that the definition of such a field always says.
        said: what people call it.
        about: its values in words.
        phrases: the set of comparisons that pages offer: ``text``, ``number``, ``time``,
            ``length`` (of a time) or ``same`` (equal or not).
        reveals: what its sealed lengths tell: ``text``, ``number`` or ``format``.
        reading: what readings of files call a column of such values; None where none is.
        cell_form: a cell of such a column in words, where it has one form in all files.
        example: values as an error shows them.
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
    #: the points of all values; None where they are texts, or the field has its own bounds
    grid: ClassVar[NumberRules | None] = None

    @property
    def is_text(self) -> bool:
        return self.keys is KeyKind.TEXT

    @property
    def reads_as_dates(self) -> bool:
        """Whether values have years, months and days, by which pictures group them."""
        return self.day_points is not None

    # --- definitions ------------------------------------------------------------------------------

    @property
    def format(self) -> str | None:
        return self.name if self.is_format else None

    def propose(self) -> dict[str, Any]:
        """The definition of a field of a format."""
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
        """The place of an accepted value on the grid."""
        raise TypeError(f"values of {self.name} are not points of a grid")

    def from_point(self, spec: FieldSpec, point: int) -> Value:
        """The value at a point of the grid."""
        raise TypeError(f"values of {self.name} are not points of a grid")

    def pack(self, spec: FieldSpec, value: Value) -> bytes:
        """The plaintext of a value behind its type: :attr:`fixed_bytes` of them."""
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
        """A text to compare values with, in the form in which texts are compared.

        Raises:
            ValueRefused: no value can be compared with it.
        """
        raise TypeError(f"values of {self.name} are not texts")

    def read_span(self, spec: FieldSpec, raw: object) -> Span:
        """The points that a comparison means by a value.

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
        """The operator and the value that a filter means by a text."""
        return "eq", typed

    def read_range(self, raw: object) -> tuple[Any, Any] | None:
        """The bounds that a value of ``eq`` means, if it means a range."""
        return None

    def of_cell(self, cell: str) -> object:
        """A cell of a table as a record has it; the cell itself where it has no such value."""
        return cell

    def read_cell(self, cell: str) -> str | None:
        """The canonical text of a cell of a file, of a type with a :attr:`cell_form`; None where it
        is no value."""
        raise TypeError(f"cells of {self.name} have no form of their own")

    def is_evident(self, cell: str) -> bool:
        """Whether a text of this type is hardly anything else; of a column that is proposed to be
        of the type, at least one is."""
        return True

    # --- columns ----------------------------------------------------------------------------------

    @abstractmethod
    def column_type(self, spec: FieldSpec) -> str:
        """The type of Arrow of a column of values, as ``pyarrow`` prints it: exact, whatever the
        bounds; ``uuid`` is the extension type ``arrow.uuid``."""

    # --- frames -----------------------------------------------------------------------------------

    def to_frame(self, value: Any) -> Any:
        """A value of a record as frames of :attr:`frame` hold it."""
        return value


def text_of(value: Value) -> str:
    """A value that is there, as text."""
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
    """Refuse a text that does not have the form of a format."""
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

"""Schema definitions, how they read values, and the columns that they have.

The rules are constraints 1-7 of the interface plus the JSON Schema keywords that can be checked on
a single value. The API uses :func:`parse_definition` to accept a definition; the proxy and the
ingest pipeline use :meth:`FieldSpec.accept` to check values. No other code knows the rules.

A definition has a column for each field, and a further column for each field whose words are
indexed (docs/SPEC.md, section 5.1). A column of words belongs to a virtual field that no record
has: it has the id of the field of texts, and another binding.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any

from encrypted_records.model.field_types import FORMATS, PLAIN
from encrypted_records.model.field_types.base import (
    MAX_STRING_BYTES,
    FieldType,
    JsonType,
    KeyKind,
    NumberRules,
    StringRules,
    canonical,
)

#: A hundred years.
MAX_DAYS = 36_525
DAY_MILLISECONDS = 86_400_000
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Retention:
    """A record is deleted when more than ``days`` whole days lie between today and its day: the day
    on which it was first stored, or that of its value of ``field``. A record without the value
    stays.
    """

    days: int
    field: str | None = None

    @property
    def canonical(self) -> str:
        """The period in the canonical spelling of definitions."""
        named = (
            "" if self.field is None else f',"field":{json.dumps(self.field, ensure_ascii=False)}'
        )
        return f'{{"days":{self.days}{named}}}'

    def before(self, now: float) -> date:
        """Records whose day is before this day expire; ``now`` is in seconds since 1970."""
        return datetime.fromtimestamp(now, UTC).date() - timedelta(days=self.days)

    def where(self, now: float, *, moments: bool) -> dict[str, Any]:
        """The condition that selects expired records by their value of :attr:`field`.

        Args:
            moments: whether the values have the format ``date-time``; otherwise ``date``.
        """
        day = self.before(now).isoformat()
        value = f"{day}T00:00:00Z" if moments else day
        return {"field": self.field, "op": "lt", "value": value}


def number_of(day: date) -> int:
    """Days since 1970."""
    return (day - _EPOCH).days


#: A field's value once accepted; None is an absent field.
Value = str | int | Decimal | None

MAX_FIELDS = 512
MAX_FIELD_NAME = 200
#: Up to this ``maxLength``, in characters, values are padded to the length of the longest value.
MAX_PADDED_CHARACTERS = 256
#: Largest ``padTo``, in bytes of UTF-8.
MAX_PAD_TO = 1 << 16
#: Maximum bytes of padding classes of a record's fields together: 100 records fit one body.
MAX_PADDED_BYTES = 600 << 10
#: Values up to this many bytes have the same length if no keyword states one.
_ANY_TEXT_BYTES = 31
#: Bytes of UTF-8 of one character, at most.
_CHARACTER_BYTES = 4


#: The rules of a string field without keywords.
ANY_STRING = StringRules()


@dataclass(frozen=True)
class FieldSpec:
    name: str
    type: JsonType
    number: NumberRules | None = None
    string: StringRules = ANY_STRING
    #: accepted values (``enum`` and ``const``); None if any value is accepted
    allowed: frozenset[str | Decimal] | None = None
    #: an enforced format, which defines a type
    format: str | None = None
    #: for a number: whether a value with more decimals than are kept is refused, not rounded
    exact: bool = False
    #: names the field in keys and formats, independent of the field's name; from 1 on
    id: int = 0

    @cached_property
    def id_bytes(self) -> bytes:
        """:attr:`id` as keys and associated data name the field: 4 bytes."""
        return self.id.to_bytes(4, "big")

    #: for a string field: values of up to this many bytes of UTF-8 are padded to the same length
    pad_to: int | None = None
    #: for a string field: whether its words are indexed
    words: bool = False

    @cached_property
    def longest_bytes(self) -> int:
        """The size of the longest value that a string field may have, in bytes of UTF-8."""
        if self.allowed is not None:
            return max((len(value.encode()) for value in self.texts), default=0)
        longest = self.string.max_length
        if longest is None:
            return MAX_STRING_BYTES
        return min(MAX_STRING_BYTES, longest * _CHARACTER_BYTES)

    @cached_property
    def alike_bytes(self) -> int:
        """The length in UTF-8 bytes up to which the values of a string field, and absent ones, are
        encrypted at the same length.
        """
        if self.allowed is not None:
            return max(self.longest_bytes, self.pad_to or 0)
        if self.pad_to is not None:
            return self.pad_to
        longest = self.string.max_length
        padded = longest is not None and longest <= MAX_PADDED_CHARACTERS
        return self.longest_bytes if padded else _ANY_TEXT_BYTES

    @cached_property
    def field_type(self) -> FieldType:
        """The properties that the type of the field decides."""
        return PLAIN[self.type] if self.format is None else FORMATS[self.format]

    @property
    def is_of_texts(self) -> bool:
        """Whether values are compared as texts, not as points of a grid."""
        return self.kind.of_bytes

    @property
    def texts(self) -> list[str]:
        """The allowed values of a string field."""
        return [value for value in self.allowed or () if isinstance(value, str)]

    @cached_property
    def only_bounds(self) -> bool:
        """Whether any integer within the bounds is a value of this field."""
        return self.field_type.only_bounds(self)

    @cached_property
    def any_text(self) -> bool:
        """Whether any string that is not too long is a value of this field."""
        return self.only_lengths and self.string == ANY_STRING

    @cached_property
    def only_lengths(self) -> bool:
        """Whether any string of a fitting length is a value of this field."""
        return self.field_type.only_lengths(self)

    @cached_property
    def kind(self) -> KeyKind:
        """The form of the keys of its column."""
        return self.field_type.keys

    @cached_property
    def numbers(self) -> NumberRules:
        """The rules of a field whose values are points of a grid; calling this for another field
        is a bug."""
        rules = self.field_type.grid or self.number
        assert rules is not None, "a text field has no grid"
        return rules

    @cached_property
    def without_rules(self) -> FieldSpec:
        """The field with only its type and its bounds."""
        number = None if self.number is None else self.number.bounds_only
        return FieldSpec(self.name, self.type, number, format=self.format)

    def to_point(self, value: Value) -> int | None:
        """The place of an accepted value on the field's grid; None for an absent one."""
        return None if value is None else self.field_type.to_point(self, value)

    def accept(self, raw: object) -> Value:
        """The value that a record of this field holds if its owner sent ``raw``.

        Integers come back as ``int``; numbers as ``Decimal`` with the field's decimals, rounded
        half to even; strings unchanged, and those of a format in its canonical spelling; booleans
        as ``bool``.

        Raises:
            ValueRefused: wrong type, outside the bounds, or against another keyword; or it would be
                rounded, and :attr:`exact` forbids that.
        """
        return None if raw is None else self.field_type.accept(self, raw)

    def is_rounded(self, sent: object) -> bool:
        """Whether a value of a number field is stored as another value than was sent; False also
        for a value that is not stored at all.
        """
        rules = self.numbers
        if not isinstance(sent, Decimal) or not rules.minimum <= sent <= rules.maximum:
            return False
        # Most values have no more decimals than are kept; the exponent shows that without
        # arithmetic.
        exponent = sent.as_tuple().exponent
        assert isinstance(exponent, int)
        return exponent < -rules.precision and rules.from_grid(rules.to_grid(sent)) != sent

    @cached_property
    def binding(self) -> bytes:
        """SHA-256 over type and enforced format, or type, minimum, maximum and precision: the
        properties that constraint 7 fixes into keys.

        Numbers enter in canonical form, so that ``1``, ``1.0`` and ``1e0`` bind alike.
        """
        parts: list[str] = [self.type]
        if self.format is not None:
            # Three parts, a number that no field without a format has.
            parts += ["format", self.format]
        elif self.number is not None:
            parts += [canonical(self.number.minimum), canonical(self.number.maximum)]
            parts.append(str(self.number.precision))
        return hashlib.sha256(length_prefixed(*(part.encode() for part in parts))).digest()


def length_prefixed(*parts: bytes) -> bytes:
    """Unambiguous concatenation: each part after its length as four big-endian bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


@dataclass(frozen=True)
class SchemaDefinition:
    """A definition that has passed every rule.

    ``fields`` are in the order of the definition, and each has a distinct id.
    """

    fields: Mapping[str, FieldSpec]
    required: frozenset[str] = field(default_factory=frozenset)
    #: the id of the next field that is added; ids are never reused
    next_id: int = 1
    #: whether ``format`` is enforced, and defines types
    formats: bool = False
    #: sets of fields whose values no two records share
    unique: tuple[tuple[str, ...], ...] = ()
    #: how long records stay; None means permanently
    retention: Retention | None = None
    #: whether a number with more decimals than its field keeps is refused, not rounded
    exact: bool = False

    @classmethod
    def first(
        cls,
        fields: Mapping[str, FieldSpec],
        required: frozenset[str],
        *,
        formats: bool = False,
        unique: tuple[tuple[str, ...], ...] = (),
        retention: Retention | None = None,
        exact: bool = False,
    ) -> SchemaDefinition:
        """A definition that follows no other: ids are in code point order of the names."""
        specs = {
            name: replace(spec, exact=exact and spec.field_type.has_decimals)
            for name, spec in fields.items()
        }
        new = cls(specs, required, 1, formats, unique, retention, exact)
        return new.following(cls({}))

    def following(
        self, before: SchemaDefinition, renamed: Mapping[str, str] | None = None
    ) -> SchemaDefinition:
        """This definition with the ids of ``before``; new fields get the next ids.

        Fields are the same if they have the same name, except renamed fields.

        Args:
            renamed: names in this definition, mapped to the fields' names in ``before``.
        """
        renamed = renamed or {}
        known = {name: spec.id for name, spec in before.fields.items()}
        moved = set(renamed.values())
        ids = {name: number for name, number in known.items() if name not in moved}
        ids |= {name: known[old] for name, old in renamed.items()}
        new = sorted(name for name in self.fields if name not in ids)
        ids |= {name: number for number, name in enumerate(new, before.next_id)}
        fields = {name: replace(spec, id=ids[name]) for name, spec in self.fields.items()}
        return replace(self, fields=fields, next_id=before.next_id + len(new))

    def follows(self, before: SchemaDefinition) -> bool:
        """Whether the ids are those of a definition that follows ``before``."""
        new = sorted(name for name, spec in self.fields.items() if spec.id not in before.by_id)
        ids = [self.fields[name].id for name in new]
        distinct = len(self.by_id) == len(self.fields)
        next_id = before.next_id + len(new)
        return distinct and ids == list(range(before.next_id, next_id)) and self.next_id == next_id

    def as_rounding(self) -> SchemaDefinition:
        """The definition for a sender who wants surplus decimals rounded. Its text and its digest
        stay.
        """
        fields = {name: replace(spec, exact=False) for name, spec in self.fields.items()}
        return replace(self, fields=fields)

    @cached_property
    def canonical(self) -> bytes:
        """The definition in its canonical spelling, as the log holds it (docs/SPEC.md, section
        7.4).

        It leaves annotations out, because they change nothing.
        """
        ids = ",".join(str(spec.id) for spec in self.fields.values())
        fields = ",".join(
            f"{_quoted(name)}:{{{','.join(_members(spec))}}}" for name, spec in self.fields.items()
        )
        required = ",".join(map(_quoted, sorted(self.required)))
        enforced = '"formats":"enforced",' if self.formats else ""
        enforced += '"rounding":"refuse",' if self.exact else ""
        sets = ",".join(f"[{','.join(map(_quoted, names))}]" for names in self.unique)
        unique = f',"unique":[{sets}]' if sets else ""
        kept = f',"retention":{self.retention.canonical}' if self.retention else ""
        later_members = f'"required":[{required}]{unique}{kept}'
        schema = f'{{"type":"object",{enforced}"properties":{{{fields}}},{later_members}}}'
        return f'{{"next":{self.next_id},"ids":[{ids}],"schema":{schema}}}'.encode()

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that name the definition: SHA-256 of :attr:`canonical`."""
        return hashlib.sha256(self.canonical).digest()

    @cached_property
    def columns_digest(self) -> str:
        """64 hexadecimal digits that identify the fields and the types of their columns,
        independent of their order.
        """
        types = sorted(
            (name, spec.field_type.column_type(spec)) for name, spec in self.fields.items()
        )
        parts = (part.encode() for pair in types for part in pair)
        return hashlib.sha256(length_prefixed(*parts)).hexdigest()

    @cached_property
    def by_id(self) -> Mapping[int, FieldSpec]:
        return {spec.id: spec for spec in self.fields.values()}

    @cached_property
    def ids(self) -> list[int]:
        """The ids of the fields, in the order of ``fields``."""
        return [spec.id for spec in self.fields.values()]

    @cached_property
    def numeric(self) -> frozenset[str]:
        """The names of the fields whose values are numbers."""
        return frozenset(name for name, spec in self.fields.items() if spec.field_type.is_number)

    def find_rounded(self, sent: Mapping[str, object]) -> list[str]:
        """The fields of a record whose values are stored with fewer decimals than were sent."""
        return [name for name, spec in self._rounding.items() if spec.is_rounded(sent.get(name))]

    @cached_property
    def _rounding(self) -> Mapping[str, FieldSpec]:
        return {name: spec for name, spec in self.fields.items() if spec.field_type.has_decimals}

    @cached_property
    def cell_readers(self) -> Mapping[str, Callable[[str], object]]:
        """Readers of table cells, for the fields whose values are not texts."""
        of_texts = FieldType.of_cell
        return {
            name: spec.field_type.of_cell
            for name, spec in self.fields.items()
            if type(spec.field_type).of_cell is not of_texts
        }

    def spec(self, name: str) -> FieldSpec | None:
        return self.fields.get(name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _members(spec: FieldSpec) -> Iterator[str]:
    """The keywords of a field with their values, in the canonical spelling."""
    yield f'"type":"{spec.type}"'
    if spec.format is not None:
        yield f'"format":"{spec.format}"'
    numbers, strings = spec.number, spec.string
    if numbers is not None:
        yield f'"minimum":{canonical(numbers.minimum)}'
        yield f'"maximum":{canonical(numbers.maximum)}'
        if spec.field_type.has_decimals:
            yield f'"precision":{numbers.precision}'
        for keyword, value in (
            ("exclusiveMinimum", numbers.exclusive_minimum),
            ("exclusiveMaximum", numbers.exclusive_maximum),
            ("multipleOf", numbers.multiple_of),
        ):
            if value is not None:
                yield f'"{keyword}":{canonical(value)}'
    for keyword, length in (("minLength", strings.min_length), ("maxLength", strings.max_length)):
        if length is not None:
            yield f'"{keyword}":{length}'
    if strings.pattern is not None:
        yield f'"pattern":{_quoted(strings.pattern)}'
    if spec.pad_to is not None:
        yield f'"padTo":{spec.pad_to}'
    if spec.allowed is not None:
        allowed = (
            canonical(choice) if isinstance(choice, Decimal) else _quoted(choice)
            for choice in spec.allowed
        )
        yield f'"enum":[{",".join(sorted(allowed)) or "null"}]'
    if spec.words:
        yield '"x-index":["words"]'


def with_ids_for_types(new: SchemaDefinition, before: SchemaDefinition) -> SchemaDefinition:
    """``new``, which follows ``before``, with a new id for each field whose type or format differs:
    its ciphertexts have other lengths, and so need another id.
    """
    had = before.by_id
    other = {
        name
        for name, spec in new.fields.items()
        if spec.id in had and spec.field_type is not had[spec.id].field_type
    }
    added = {name for name, spec in new.fields.items() if spec.id not in had}
    numbers = enumerate(sorted(other | added), before.next_id)
    ids = {name: number for number, name in numbers}
    fields = {name: replace(spec, id=ids.get(name, spec.id)) for name, spec in new.fields.items()}
    return replace(new, fields=fields, next_id=before.next_id + len(ids))


#: After a field's name, which cannot contain it: the name of the column of its words.
_MARK = "\0words"


class WordsSpec(FieldSpec):
    """The words of a field's texts; takes the place of the field where keys and columns
    are named.
    """

    @cached_property
    def kind(self) -> KeyKind:
        return KeyKind.WORDS

    @cached_property
    def binding(self) -> bytes:
        # Two parts, a number that no field has.
        return hashlib.sha256(length_prefixed(b"string", b"words")).digest()


def words_column(name: str) -> str:
    """The name of the column of a field's words."""
    return name + _MARK


def words_spec(spec: FieldSpec) -> WordsSpec:
    """The column of the words of a text field."""
    return WordsSpec(words_column(spec.name), spec.type, id=spec.id)


def column_spec(definition: SchemaDefinition, name: str) -> FieldSpec:
    """The field, or the words of a field, of the column with this name."""
    if name.endswith(_MARK):
        return words_spec(definition.fields[name.removesuffix(_MARK)])
    return definition.fields[name]


def columns_of(definition: SchemaDefinition) -> Iterator[FieldSpec]:
    """All columns of a new segment of the definition, in order."""
    for spec in definition.fields.values():
        yield spec
        if spec.words:
            yield words_spec(spec)


def same_column(definition: SchemaDefinition, spec: FieldSpec) -> FieldSpec | None:
    """The field of ``spec`` in another definition, by its id; None if it has none."""
    column = definition.by_id.get(spec.id)
    if column is None or not isinstance(spec, WordsSpec):
        return column
    return words_spec(column) if column.kind is KeyKind.TEXT else None


def hint_of_sets(definition: SchemaDefinition) -> str:
    """How to choose the set of unique fields that finds records."""
    if not definition.unique:
        return "make a field unique in the schema's definition, or store the records without this"
    sets = ", or ".join(" and ".join(names) for names in definition.unique)
    return f"the schema's unique fields are {sets}"

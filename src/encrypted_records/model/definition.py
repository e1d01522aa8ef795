"""What a schema definition may say, and what that makes of a value.

The rules are constraints 1-7 of the interface plus the JSON Schema keywords that can be checked
on one value alone. The API uses :func:`parse_definition` to accept a definition, the proxy and
the ingest pipeline use :meth:`FieldSpec.accept` to check values; nothing else knows them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Literal

from encrypted_records.model import formats
from encrypted_records.model.formats import Format
from encrypted_records.model.normalization import normalized
from encrypted_records.model.retention import Retention
from encrypted_records.model.rules import NumberRules, StringRules, ValueRefused, as_decimal

FieldType = Literal["string", "integer", "number"]
#: What a column's keys are made of: text, points of a grid, 16 bytes, or words of a text.
KeyKind = Literal["string", "integer", "number", "uuid", "words"]
#: A field's value once accepted; None is an absent field.
Value = str | int | Decimal | None

MAX_FIELDS = 512
MAX_FIELD_NAME = 200
#: Longest string value, in bytes of UTF-8.
MAX_STRING_BYTES = 1 << 20
#: Up to so many characters, ``maxLength`` says to how many bytes the values of a field are padded.
MAX_PADDED_CHARACTERS = 256
#: Largest ``padTo``, in bytes of UTF-8.
MAX_PAD_TO = 1 << 16
#: To how many bytes the fields of one record may be padded together: 100 records fit one body.
MAX_PADDED_BYTES = 600 << 10
#: Up to how many bytes values are alike where no keyword says so.
_ANY_TEXT_BYTES = 31
#: Bytes of UTF-8 of one character, at most.
_CHARACTER_BYTES = 4


#: The rules of a string field that has none.
ANY_STRING = StringRules()


@dataclass(frozen=True)
class FieldSpec:
    name: str
    type: FieldType
    number: NumberRules | None = None
    string: StringRules = ANY_STRING
    #: accepted values (``enum`` and ``const``); None if any value is accepted
    allowed: frozenset[str | Decimal] | None = None
    #: an enforced format, which makes a type of its own
    format: Format | None = None
    #: of a number: whether a value with more decimals than are kept is refused, not rounded
    exact: bool = False
    #: names the field in keys and formats, whatever its name becomes; from 1 on
    id: int = 0

    @cached_property
    def id_bytes(self) -> bytes:
        """:attr:`id` as keys and associated data name the field: 4 bytes."""
        return self.id.to_bytes(4, "big")

    #: of a string field: values of up to so many bytes of UTF-8 are to look alike
    pad_to: int | None = None
    #: of a string field: whether its words are indexed
    words: bool = False

    @cached_property
    def longest_bytes(self) -> int:
        """How many bytes of UTF-8 the longest value of a string field may have."""
        if self.allowed is not None:
            return max((len(value.encode()) for value in self.texts), default=0)
        longest = self.string.max_length
        if longest is None:
            return MAX_STRING_BYTES
        return min(MAX_STRING_BYTES, longest * _CHARACTER_BYTES)

    @cached_property
    def alike_bytes(self) -> int:
        """Up to how many bytes of UTF-8 the values of a string field are sealed at one length,
        with absent ones."""
        if self.allowed is not None:
            return max(self.longest_bytes, self.pad_to or 0)
        if self.pad_to is not None:
            return self.pad_to
        longest = self.string.max_length
        padded = longest is not None and longest <= MAX_PADDED_CHARACTERS
        return self.longest_bytes if padded else _ANY_TEXT_BYTES

    @property
    def is_of_texts(self) -> bool:
        """Whether values are compared as texts, and not as points of a grid."""
        return self.kind in ("string", "uuid")

    @property
    def texts(self) -> list[str]:
        """The allowed values of a string field."""
        return [value for value in self.allowed or () if isinstance(value, str)]

    @cached_property
    def only_bounds(self) -> bool:
        """Whether any integer within the bounds is a value of this field."""
        rules = self.number
        return (
            rules is not None
            and self.kind == "integer"
            and self.format is None
            and self.allowed is None
            and rules == rules.bounds_only
        )

    @cached_property
    def any_text(self) -> bool:
        """Whether any string that is not too long is a value of this field."""
        return self.only_lengths and self.string == ANY_STRING

    @cached_property
    def only_lengths(self) -> bool:
        """Whether any string of a fitting length is a value of this field."""
        return self.kind == "string" and self.allowed is None and self.string.pattern is None

    @cached_property
    def kind(self) -> KeyKind:
        if self.format is None:
            return self.type
        return "uuid" if self.format == "uuid" else "integer"

    @cached_property
    def numbers(self) -> NumberRules:
        """The rules of a field whose values are points of a grid; asking another field for them is
        our bug."""
        rules = self.number if self.format is None else formats.RULES.get(self.format)
        assert rules is not None, "a field of texts has no grid"
        return rules

    def to_point(self, value: Value) -> int | None:
        """Where an accepted value lies on the field's grid; None of an absent one."""
        if value is None:
            return None
        if self.format is not None:
            assert not isinstance(value, Decimal)
            return formats.to_point(self.format, value)
        number = as_decimal(value)
        return None if number is None else self.numbers.to_grid(number)

    def accept(self, raw: object) -> Value:
        """The value a record of this field holds when its owner sent ``raw``.

        Integers come back as ``int``; numbers as ``Decimal`` with the field's decimals, rounded
        half to even; strings as they are, and those of a format in its one spelling; booleans as
        ``bool``.

        Raises:
            ValueRefused: of the wrong type, outside the bounds, or against another keyword; or it
                would be rounded, where :attr:`exact` says that this is refused.
        """
        if raw is None:
            return None
        if self.format is not None:
            return formats.accept(self.format, raw)
        # What most strings are, without looking at every rule.
        if self.any_text and type(raw) is str and len(raw) <= MAX_STRING_BYTES and raw.isascii():
            return raw
        # Each of them was checked against all other rules when the definition was read.
        if self.allowed is not None and type(raw) is str and raw in self.allowed:
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
        if self.allowed is not None:
            raise ValueRefused("enum", "not one of the values the field allows")
        return raw

    def _accept_number(self, raw: object) -> int | Decimal:
        rules = self.numbers
        # What most values are, without the cost of decimals; bool is an int of another type.
        if type(raw) is int and self.only_bounds and rules.lowest <= raw <= rules.highest:
            return raw
        value = as_decimal(raw)
        if value is None:
            raise ValueRefused(
                "type", "expected an integer" if self.type == "integer" else "expected a number"
            )
        rules.check(value)
        if self.allowed is not None and value not in self.allowed:
            raise ValueRefused("enum", "not one of the values the field allows")
        point = rules.to_grid(value)
        if self.type == "integer":
            if point != value:
                raise ValueRefused("type", "expected an integer, found a fraction")
            return point
        kept = rules.from_grid(point)
        if self.exact and kept != value:
            raise ValueRefused("precision", f"has more than {rules.precision} decimals")
        try:
            rules.check(kept)
        except ValueRefused as refused:
            detail = f"once rounded to the field's precision, {refused.detail}"
            raise ValueRefused(refused.code, detail) from None
        return kept

    def is_rounded(self, sent: object) -> bool:
        """Whether a value of a number field is stored as another one than was sent; False also of
        a value that is not stored at all."""
        rules = self.numbers
        if not isinstance(sent, Decimal) or not rules.minimum <= sent <= rules.maximum:
            return False
        # Most have no more decimals than are kept, which is seen without any sums.
        exponent = sent.as_tuple().exponent
        assert isinstance(exponent, int)
        return exponent < -rules.precision and rules.from_grid(rules.to_grid(sent)) != sent

    @cached_property
    def binding(self) -> bytes:
        """SHA-256 over type and enforced format, or type, minimum, maximum and precision: what
        constraint 7 fixes into keys.

        Numbers enter in canonical form, so that ``1``, ``1.0`` and ``1e0`` bind alike.
        """
        parts: list[str] = [self.type]
        if self.format is not None:
            # Three parts: no field without a format has as many.
            parts += ["format", self.format]
        elif self.number is not None:
            parts += [canonical(self.number.minimum), canonical(self.number.maximum)]
            parts.append(str(self.number.precision))
        return hashlib.sha256(length_prefixed(*(part.encode() for part in parts))).digest()


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

    ``fields`` keep the order in which the definition names them, and each has an id of its own.
    """

    fields: Mapping[str, FieldSpec]
    required: frozenset[str] = field(default_factory=frozenset)
    #: the id of the next field that is added: none is given twice
    next_id: int = 1
    #: whether ``format`` is enforced, and makes types
    formats: bool = False
    #: sets of fields whose values no two records share
    unique: tuple[tuple[str, ...], ...] = ()
    #: for how long records stay; None is permanently
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
        """A definition that follows no other: ids are in the order of the names' code points."""
        own = {
            name: replace(spec, exact=exact and spec.type == "number")
            for name, spec in fields.items()
        }
        new = cls(own, required, 1, formats, unique, retention, exact)
        return new.following(cls({}))

    def following(
        self, before: SchemaDefinition, renamed: Mapping[str, str] | None = None
    ) -> SchemaDefinition:
        """This definition with the ids of ``before``; fields that are new there get the next ones.

        Fields are the same if they have the same name, but for those that were renamed.

        Args:
            renamed: names of this definition, and those that these fields have in ``before``.
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
        """Whether the ids are those of a definition that comes after ``before``."""
        new = sorted(name for name, spec in self.fields.items() if spec.id not in before.by_id)
        ids = [self.fields[name].id for name in new]
        distinct = len(self.by_id) == len(self.fields)
        next_id = before.next_id + len(new)
        return distinct and ids == list(range(before.next_id, next_id)) and self.next_id == next_id

    def as_rounding(self) -> SchemaDefinition:
        """The definition for a sender who wants decimals that a field does not keep rounded. Its
        text and its digest stay."""
        fields = {name: replace(spec, exact=False) for name, spec in self.fields.items()}
        return replace(self, fields=fields)

    def renamed_since(self, before: SchemaDefinition) -> dict[str, str]:
        """The names of fields that had another one in ``before``, and that one."""
        every = ((spec, before.by_id.get(spec.id)) for spec in self.fields.values())
        return {
            spec.name: was.name for spec, was in every if was is not None and was.name != spec.name
        }

    @cached_property
    def canonical(self) -> bytes:
        """The definition in its one spelling, as the log holds it (docs/SPEC.md, section 7.4).

        Annotations are not in it, since they change nothing.
        """
        ids = ",".join(str(spec.id) for spec in self.fields.values())
        fields = ",".join(
            f"{_quoted(name)}:{{{','.join(_members(spec))}}}" for name, spec in self.fields.items()
        )
        required = ",".join(map(_quoted, sorted(self.required)))
        enforced = '"formats":"enforced",' if self.formats else ""
        enforced += '"rounding":"refuse",' if self.exact else ""
        sets = ",".join(f"[{','.join(map(_quoted, one))}]" for one in self.unique)
        unique = f',"unique":[{sets}]' if sets else ""
        kept = f',"retention":{self.retention.canonical}' if self.retention else ""
        rest = f'"required":[{required}]{unique}{kept}'
        schema = f'{{"type":"object",{enforced}"properties":{{{fields}}},{rest}}}'
        return f'{{"next":{self.next_id},"ids":[{ids}],"schema":{schema}}}'.encode()

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that name the definition: SHA-256 of :attr:`canonical`."""
        return hashlib.sha256(self.canonical).digest()

    @cached_property
    def by_id(self) -> Mapping[int, FieldSpec]:
        return {spec.id: spec for spec in self.fields.values()}

    @cached_property
    def ids(self) -> list[int]:
        """The ids of the fields, in the order of ``fields``."""
        return [spec.id for spec in self.fields.values()]

    @cached_property
    def numeric(self) -> frozenset[str]:
        """The names of the integer and number fields that are no booleans."""
        return frozenset(
            name
            for name, spec in self.fields.items()
            if spec.type != "string" and spec.format is None
        )

    def find_rounded(self, sent: Mapping[str, object]) -> list[str]:
        """The fields of a record whose values are stored with fewer decimals than were sent."""
        return [name for name, spec in self._rounding.items() if spec.is_rounded(sent.get(name))]

    @cached_property
    def _rounding(self) -> Mapping[str, FieldSpec]:
        return {name: one for name, one in self.fields.items() if one.type == "number"}

    @cached_property
    def booleans(self) -> frozenset[str]:
        return frozenset(name for name, one in self.fields.items() if one.format == "boolean")

    def spec(self, name: str) -> FieldSpec | None:
        return self.fields.get(name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _members(spec: FieldSpec) -> Iterator[str]:
    """The keywords of a field with their values, as they are written in the one spelling."""
    yield f'"type":"{spec.type}"'
    if spec.format is not None:
        yield f'"format":"{spec.format}"'
    numbers, strings = spec.number, spec.string
    if numbers is not None:
        yield f'"minimum":{canonical(numbers.minimum)}'
        yield f'"maximum":{canonical(numbers.maximum)}'
        if spec.type == "number":
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
            canonical(one) if isinstance(one, Decimal) else _quoted(one) for one in spec.allowed
        )
        yield f'"enum":[{",".join(sorted(allowed)) or "null"}]'
    if spec.words:
        yield '"x-index":["words"]'


def comparable(text: str) -> str:
    """The form in which strings are compared: NFC (UAX #15), nothing else folded."""
    return text if text.isascii() else normalized("NFC", text)

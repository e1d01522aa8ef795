"""Parse the text of a JSON Schema to a :class:`SchemaDefinition`, or to all errors in it.

All errors are reported at once, each with its JSON pointer, so that one round of corrections is
enough.

JSON Schema treats an unknown keyword as an annotation, which makes no value valid or invalid. Such
keywords are kept (``faker``, ``unit``, ``x-owner``). A keyword that would change which values are
valid, and that is not enforced here, is refused, because its author relies on it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from encrypted_records.errors import Flaw, InvalidDefinition, Malformed
from encrypted_records.model import strict_json
from encrypted_records.model.definition import (
    MAX_DAYS,
    MAX_FIELD_NAME,
    MAX_FIELDS,
    MAX_PAD_TO,
    MAX_PADDED_BYTES,
    FieldSpec,
    Retention,
    SchemaDefinition,
)
from encrypted_records.model.field_types import FORMATS, PLAIN, TYPES
from encrypted_records.model.field_types.base import (
    MAX_MAGNITUDE,
    MAX_PRECISION,
    FieldType,
    JsonType,
    NumberRules,
    StringRules,
    ValueRefused,
    as_decimal,
    compile_pattern,
)
from encrypted_records.model.strict_json import escape_pointer
from encrypted_records.model.texts import normalized

#: Keywords of JSON Schema, by draft up to 2020-12, that change which values are valid or refer to
#: other parts of the schema.
_JSON_SCHEMA = frozenset(
    # drafts 0 to 3
    "divisibleBy disallow extends maxDecimal maximumCanEqual minimumCanEqual optional requires"
    # drafts 4 to 7
    " additionalItems additionalProperties allOf anyOf const contains dependencies else enum"
    " exclusiveMaximum exclusiveMinimum if items maxItems maxLength maxProperties maximum minItems"
    " minLength minProperties minimum multipleOf not oneOf pattern patternProperties properties"
    " propertyNames $ref required then type uniqueItems"
    # 2019-09 and 2020-12
    " dependentRequired dependentSchemas $dynamicRef maxContains minContains prefixItems"
    " $recursiveRef unevaluatedItems unevaluatedProperties".split()
)
#: Keywords of this format that are in no draft.
_OURS = frozenset({"precision", "padTo"})

ROOT = frozenset(
    "type properties required additionalProperties formats rounding unique retention".split()
)
_FIELD = frozenset({"type", "enum", "const"})
#: Names further indexes of a field.
INDEX = "x-index"
STRING = _FIELD | {"minLength", "maxLength", "pattern", "padTo", INDEX}
NUMBER = _FIELD | {
    *("minimum", "maximum", "precision", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
}
#: For a field with an enforced format, which alone decides the valid values.
FORMATTED = frozenset({"type", "format"})
BOOLEAN = FORMATTED | {"minimum", "maximum"}


def reason_against(keyword: str, enforced: frozenset[str]) -> str | None:
    """The reason why ``keyword`` cannot be combined with those that are ``enforced``; None if it
    can.

    ``enforced`` is one of the sets above.
    """
    if keyword in enforced:
        return None
    if keyword in _JSON_SCHEMA or keyword in _OURS:
        where = "at the root" if enforced is ROOT else "for a field of this type"
        return f"not supported {where}, and it would change which values are valid"
    if keyword == INDEX:
        return "it is for string fields without an enforced format"
    meant = _SPELLINGS.get(_spell(keyword))
    if meant is None and enforced is ROOT:
        meant = _ROOT_SPELLINGS.get(_spell(keyword))
    if meant is not None:
        return f"did you mean {meant}?"
    return None


def _spell(keyword: str) -> str:
    return keyword.replace("_", "").replace("-", "").lower()


#: Every keyword by its letters alone. ``max_length`` is not taken as an annotation: its author
#: means ``maxLength``, and would not notice that nothing is enforced.
_SPELLINGS = {_spell(keyword): keyword for keyword in _JSON_SCHEMA | _OURS | {INDEX}}
#: Names of required keywords in other programs. Where the keyword itself is present, they are
#: annotations.
_SHORT = {"minimum": "min", "maximum": "max"}
#: Rules at the root. In a field they are annotations, under any spelling.
_ROOT_SPELLINGS = {
    _spell(keyword): keyword for keyword in ("formats", "rounding", "unique", "retention")
}


def name_problem(name: str) -> str | None:
    """The mistake in the name of a field; None if it is valid."""
    if not name or len(name) > MAX_FIELD_NAME:
        return f"must have 1 to {MAX_FIELD_NAME} characters"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        return "contains a control character or half of a surrogate pair"
    return None


#: Maximum numbers of sets in a definition, and of fields in a set.
MAX_SETS = 16
MAX_SET_FIELDS = 8

Sets = tuple[tuple[str, ...], ...]
#: Each mistake, and its position below ``unique``.
Flaws = list[tuple[str, tuple[str, ...]]]


def read_sets(listed: Any, fields: Collection[str]) -> tuple[Sets, Flaws]:
    """The sets in canonical order, and the mistakes in them."""
    if not isinstance(listed, list) or len(listed) > MAX_SETS:
        return (), [(f"expected an array of up to {MAX_SETS} arrays of field names", ())]
    flaws: Flaws = []
    sets: set[tuple[str, ...]] = set()
    for position, names in enumerate(listed):
        at = (str(position),)
        if not isinstance(names, list) or not 1 <= len(names) <= MAX_SET_FIELDS:
            flaws.append((f"expected an array of 1 to {MAX_SET_FIELDS} field names", at))
            continue
        unknown = [
            (*at, str(place))
            for place, name in enumerate(names)
            if not isinstance(name, str) or name not in fields
        ]
        flaws += [("names no field", path) for path in unknown]
        if unknown:
            continue
        unique = tuple(sorted(names))
        if len(set(unique)) < len(unique):
            flaws.append(("names a field twice", at))
        elif unique in sets:
            flaws.append(("occurs twice", at))
        sets.add(unique)
    return tuple(sorted(sets)), flaws


def find_format(body: Mapping[str, Any]) -> FieldType | None:
    """The type that the format of a field names."""
    named = body["format"]
    return FORMATS.get(named) if isinstance(named, str) else None


def find_keywords(kind: JsonType) -> frozenset[str]:
    """The keywords that a field with an enforced format may have."""
    return BOOLEAN if PLAIN[kind].is_number else FORMATTED


def find_flaws(kind: JsonType, body: Mapping[str, Any]) -> Iterator[str]:
    """Mistakes in the format of a field."""
    known = find_format(body)
    if known is None:
        shown = f", and not {body['format'][:40]}" if isinstance(body["format"], str) else ""
        yield f"enforced formats are {', '.join(FORMATS)}{shown}"
    elif kind != known.json_type:
        yield f"{known.name} is for fields of type {known.json_type}"


def make_spec(
    name: str, kind: JsonType, body: Mapping[str, Any], rules: NumberRules | None
) -> FieldSpec | str:
    """The field, or the mistake in its bounds. :func:`find_flaws` must have found none in its
    format.

    Args:
        rules: the bounds in the definition.
    """
    bounds = FORMATS[body["format"]].bounds_in_definition
    if rules is not None and (rules.lowest, rules.highest) != bounds:
        assert bounds is not None
        return f"a {body['format']} has minimum {bounds[0]} and maximum {bounds[1]}"
    return FieldSpec(name, kind, number=rules, format=body["format"])


def read_retention(
    root: Mapping[str, Any], sound: Mapping[str, FieldSpec], names: Collection[str]
) -> tuple[Retention | None, Flaws]:
    """The rule, and the mistakes in it.

    Args:
        sound: the fields without a flaw, among those that the definition ``names``.
    """
    if "retention" not in root:
        return None, []
    body, flaws = root["retention"], list[tuple[str, tuple[str, ...]]]()
    if not isinstance(body, dict):
        return None, [("expected an object with days and, optionally, field", ())]
    flaws += [
        (("expected days and, optionally, field"), (key,))
        for key in body
        if key not in ("days", "field")
    ]
    days = as_decimal(body.get("days"))
    if days is None or not 1 <= days <= MAX_DAYS or days != int(days):
        flaws.append((f"expected an integer from 1 to {MAX_DAYS}", ("days",)))
    if "field" in body:
        flaws += [(detail, ("field",)) for detail in _flaws_of_field(body["field"], sound, names)]
    if flaws or days is None:
        return None, flaws
    return Retention(int(days), body.get("field")), []


def _flaws_of_field(
    name: object, sound: Mapping[str, FieldSpec], names: Collection[str]
) -> list[str]:
    if not isinstance(name, str) or name not in names:
        return ["names no field"]
    spec = sound.get(name)
    if spec is not None and not spec.field_type.is_moment:
        named = " or ".join(kind.name for kind in TYPES if kind.is_moment)
        return [f"expected a field of the enforced format {named}"]
    return []


MAX_DEFINITION_BYTES = 1 << 20
#: The limit for the canonical spelling, with numbers written out and ids.
MAX_CANONICAL_BYTES = 2 << 20
#: Bytes that ids may add when a definition follows another.
_ROOM_FOR_IDS = 16 << 10
_OTHER = "a definition is not in this version's canonical form"
_LARGEST = Decimal(10) ** MAX_MAGNITUDE
_FINEST = -60


def parse_definition(text: str | bytes, *, pointer: str = "/schema") -> SchemaDefinition:
    """Read a definition.

    Args:
        text: the JSON text of the definition.
        pointer: of the definition in the request; it begins every pointer of an error.

    Raises:
        InvalidDefinition: with all errors.
    """
    if len(text) > MAX_DEFINITION_BYTES:
        raise _unacceptable(
            [Flaw("too_large", f"larger than {MAX_DEFINITION_BYTES} bytes", pointer=pointer)]
        )
    try:
        root = strict_json.loads(text)
    except Malformed as error:
        raise _unacceptable([Flaw("malformed", error.message, pointer=pointer)]) from None
    definition = _read(root, pointer)
    if len(definition.canonical) > MAX_CANONICAL_BYTES - _ROOM_FOR_IDS:
        detail = f"larger than {MAX_CANONICAL_BYTES} bytes with its numbers written out"
        raise _unacceptable([Flaw("too_large", detail, pointer=pointer)])
    return definition


def _read(root: Any, pointer: str) -> SchemaDefinition:
    reader = _DefinitionReader(pointer)
    definition = reader.root(root)
    if reader.errors or definition is None:
        raise _unacceptable(reader.errors)
    return definition


def parse_canonical(text: bytes) -> SchemaDefinition:
    """Read a definition in its canonical spelling: undo :attr:`SchemaDefinition.canonical`.

    Raises:
        Malformed: not a definition of this version, or not in the canonical spelling.
    """
    try:
        if len(text) > MAX_CANONICAL_BYTES:
            raise Malformed("too large")
        members = _canonical.decode(text)
        read = _read(strict_json.loads(bytes(members.schema)), "")
        if len(members.ids) != len(read.fields) or len(set(members.ids)) != len(members.ids):
            raise Malformed("not one id for each field")
        fields = {
            name: replace(spec, id=number)
            for (name, spec), number in zip(read.fields.items(), members.ids, strict=True)
        }
        definition = replace(read, fields=fields, next_id=members.next)
    except InvalidDefinition as error:
        unknown = [flaw.detail for flaw in error.flaws if flaw.code == "format"]
        detail = f"a definition is not of this version: {unknown[0]}" if unknown else _OTHER
        raise Malformed(detail) from None
    except (msgspec.DecodeError, Malformed, UnicodeDecodeError):
        raise Malformed(_OTHER) from None
    if max(members.ids) >= members.next or definition.canonical != text:
        raise Malformed(_OTHER)
    return definition


def show_canonical(text: str) -> str:
    """A canonical text of ours as JSON Schema."""
    return bytes(_canonical.decode(text).schema).decode()


class _Canonical(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    next: Annotated[int, Meta(ge=2, lt=2**32)]
    ids: list[Annotated[int, Meta(ge=1, lt=2**32)]]
    schema: msgspec.Raw


_canonical = msgspec.json.Decoder(_Canonical)


def _unacceptable(errors: list[Flaw]) -> InvalidDefinition:
    return InvalidDefinition("the schema definition is not acceptable", flaws=tuple(errors))


class _DefinitionReader:
    """Collects errors while it reads, so that one mistake does not hide the next."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.errors: list[Flaw] = []
        self.formats = False

    def report(self, code: str, detail: str, *path: str) -> None:
        pointer = self.base + "".join("/" + escape_pointer(token) for token in path)
        self.errors.append(Flaw(code, detail, pointer=pointer))

    def root(self, root: Any) -> SchemaDefinition | None:
        if not isinstance(root, dict):
            self.report("type", "expected a JSON object")
            return None
        if root.get("type") != "object":
            self.report("root_type", 'the root type must be "object"', "type")
        if root.get("additionalProperties", False) is not False:
            self.report(
                "unsupported_keyword",
                "records contain only the named fields; leave this out or say false",
                "additionalProperties",
            )
        self.refuse_keywords(root, ROOT)
        self.formats = "formats" in root
        if self.formats and root["formats"] != "enforced":
            self.report("keyword", 'must be "enforced", or left out', "formats")
        rounding = root.get("rounding", "half-even")
        if rounding not in ("half-even", "refuse"):
            self.report("keyword", 'must be "half-even" or "refuse", or left out', "rounding")
        fields = self.properties(root.get("properties"))
        named = root.get("properties")
        # A field with an error is still named, so that one mistake is not reported twice.
        names = frozenset(named) if isinstance(named, dict) else frozenset[str]()
        required = self.required(root.get("required", []), names)
        unique, flaws = read_sets(root.get("unique", []), names)
        retention, more = read_retention(root, fields, names)
        for keyword, found in (("unique", flaws), ("retention", more)):
            for detail, path in found:
                self.report(keyword, detail, keyword, *path)
        if sum(spec.alike_bytes for spec in fields.values()) > MAX_PADDED_BYTES:
            detail = f"the fields of a record would be padded to more than {MAX_PADDED_BYTES} bytes"
            self.report("too_wide", detail, "properties")
        return SchemaDefinition.first(
            fields,
            required,
            formats=self.formats,
            unique=unique,
            retention=retention,
            exact=rounding == "refuse",
        )

    def refuse_keywords(
        self, members: dict[str, Any], enforced: frozenset[str], *path: str
    ) -> None:
        for keyword in members:
            reason = reason_against(keyword, enforced)
            if reason is not None:
                self.report("unsupported_keyword", reason, *path, keyword)

    def properties(self, members: Any) -> dict[str, FieldSpec]:
        if not isinstance(members, dict) or not members:
            self.report(
                "properties", "expected an object that names at least one field", "properties"
            )
            return {}
        if len(members) > MAX_FIELDS:
            self.report("too_many_fields", f"more than {MAX_FIELDS} fields", "properties")
            return {}
        fields: dict[str, FieldSpec] = {}
        normal: dict[str, str] = {}
        for name, body in members.items():
            problem = name_problem(name)
            if problem is None and normal.setdefault(normalized("NFKC", name), name) != name:
                problem = "differs from another field's name only in Unicode normalisation"
            if problem is not None:
                self.report("field_name", problem, "properties", name)
                continue
            spec = self.field(name, body)
            if spec is not None:
                fields[name] = spec
        return fields

    def required(self, listed: Any, fields: frozenset[str]) -> frozenset[str]:
        if not isinstance(listed, list):
            self.report("required", "expected an array of field names", "required")
            return frozenset()
        names: set[str] = set()
        for position, name in enumerate(listed):
            if not isinstance(name, str) or name not in fields:
                self.report("required", "names no field", "required", str(position))
            elif name in names:
                self.report("required", "named twice", "required", str(position))
            else:
                names.add(name)
        return frozenset(names)

    def field(self, name: str, body: Any) -> FieldSpec | None:
        path = ("properties", name)
        if not isinstance(body, dict):
            self.report("type", "expected an object", *path)
            return None
        kind = body.get("type")
        if not isinstance(kind, str) or (plain := PLAIN.get(kind)) is None:
            named = ", ".join(PLAIN).replace(", number", " or number")
            self.report("field_type", f"must be {named}", *path, "type")
            return None
        if self.formats and "format" in body:
            return self.formatted(name, plain.json_type, body)
        before = len(self.errors)
        number: NumberRules | None = None
        string = StringRules()
        if not plain.is_number:
            self.refuse_keywords(body, STRING, *path)
            string = self.string_rules(body, *path)
        else:
            self.refuse_keywords(body, NUMBER, *path)
            number = self.number_rules(plain.json_type, body, *path)
        if len(self.errors) > before:
            return None
        pad_to = self.pad_to(body, *path)
        words = INDEX in body
        spec = FieldSpec(name, plain.json_type, number, string, pad_to=pad_to, words=words)
        return self.with_allowed(spec, body, *path)

    def formatted(self, name: str, kind: JsonType, body: dict[str, Any]) -> FieldSpec | None:
        """A field whose format determines its type."""
        path, before = ("properties", name), len(self.errors)
        for detail in find_flaws(kind, body):
            self.report("format", detail, *path, "format")
        self.refuse_keywords(body, find_keywords(kind), *path)
        is_number = PLAIN[kind].is_number
        rules = self.number_rules(kind, body, *path) if is_number else None
        if len(self.errors) > before:
            return None
        spec = make_spec(name, kind, body, rules)
        if isinstance(spec, str):
            self.report("format", spec, *path, "format")
            return None
        return spec

    def count(self, body: dict[str, Any], keyword: str, *path: str) -> int | None:
        value = as_decimal(body.get(keyword))
        if keyword not in body:
            return None
        if value is None or value < 0 or value > 2**31 or value != int(value):
            self.report("keyword", "expected an integer of at least 0", *path, keyword)
            return None
        return int(value)

    def string_rules(self, body: dict[str, Any], *path: str) -> StringRules:
        pattern = body.get("pattern")
        if "pattern" in body:
            import re2  # noqa: PLC0415 - a bare client does not install it

            try:
                compile_pattern(body["pattern"])
            except (re2.error, TypeError, UnicodeEncodeError):
                detail = "not a regular expression in RE2's syntax, which has no look-around"
                self.report("keyword", detail, *path, "pattern")
        if body.get(INDEX, ["words"]) != ["words"]:
            self.report("keyword", 'expected ["words"]', *path, INDEX)
        shortest = self.count(body, "minLength", *path)
        longest = self.count(body, "maxLength", *path)
        if shortest is not None and longest is not None and shortest > longest:
            self.report("bounds", "above maxLength", *path, "minLength")
        return StringRules(min_length=shortest, max_length=longest, pattern=pattern)

    def pad_to(self, body: dict[str, Any], *path: str) -> int | None:
        value = self.count(body, "padTo", *path)
        if value is not None and not 1 <= value <= MAX_PAD_TO:
            self.report("keyword", f"from 1 to {MAX_PAD_TO}", *path, "padTo")
            return None
        return value

    def decimal(
        self, body: dict[str, Any], keyword: str, *path: str, needed: bool = False
    ) -> Decimal | None:
        if keyword not in body:
            short = _SHORT.get(keyword)
            if short is not None and short in body:
                self.report("unsupported_keyword", f"did you mean {keyword}?", *path, short)
            elif needed:
                self.report("missing_keyword", f"{keyword} is required here", *path, keyword)
            return None
        value = as_decimal(body[keyword])
        if value is None:
            self.report("keyword", "expected a number", *path, keyword)
            return None
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int)
        if (
            not -_LARGEST <= value <= _LARGEST
            or value.adjusted() > MAX_MAGNITUDE
            or exponent < _FINEST
        ):
            self.report(
                "bounds",
                f"must lie within 10**{MAX_MAGNITUDE} and have at most {-_FINEST} decimals",
                *path,
                keyword,
            )
            return None
        return value

    def number_rules(self, kind: JsonType, body: dict[str, Any], *path: str) -> NumberRules | None:
        minimum = self.decimal(body, "minimum", *path, needed=True)
        maximum = self.decimal(body, "maximum", *path, needed=True)
        above = self.decimal(body, "exclusiveMinimum", *path)
        below = self.decimal(body, "exclusiveMaximum", *path)
        step = self.decimal(body, "multipleOf", *path)
        precision = self.precision(kind, body, *path)
        if step is not None and step <= 0:
            self.report("keyword", "must be above 0", *path, "multipleOf")
        if minimum is None or maximum is None or precision is None:
            return None
        if not PLAIN[kind].has_decimals:
            for keyword, bound in (("minimum", minimum), ("maximum", maximum)):
                if bound != bound.to_integral_value():
                    self.report("bounds", "must be an integer", *path, keyword)
        if minimum > maximum:
            self.report("bounds", "above maximum", *path, "minimum")
            return None
        rules = NumberRules(minimum, maximum, precision, above, below, step)
        if rules.lowest > rules.highest:
            self.report("bounds", "no number of that precision lies within them", *path, "minimum")
        if rules.highest - rules.lowest >= 2**64:
            self.report(
                "domain",
                "maximum minus minimum, counted in steps of the precision, exceeds 64 bits",
                *path,
                "maximum",
            )
        return rules

    def precision(self, kind: JsonType, body: dict[str, Any], *path: str) -> int | None:
        if not PLAIN[kind].has_decimals:
            if self.count(body, "precision", *path):
                self.report("keyword", "an integer field has no decimals", *path, "precision")
            return 0
        if "precision" not in body:
            self.report("missing_keyword", "precision is required here", *path, "precision")
            return None
        value = self.count(body, "precision", *path)
        if value is not None and value > MAX_PRECISION:
            self.report("keyword", f"at most {MAX_PRECISION}", *path, "precision")
            return None
        return value

    def with_allowed(self, spec: FieldSpec, body: dict[str, Any], *path: str) -> FieldSpec:
        listed: list[tuple[str, Any]] = []
        if "enum" in body:
            if not isinstance(body["enum"], list) or not body["enum"]:
                self.report("keyword", "expected an array with at least one value", *path, "enum")
                return spec
            listed += [("enum", value) for value in body["enum"]]
        if "const" in body:
            listed.append(("const", body["const"]))
        if not listed:
            return spec
        accepted: dict[str, set[str | Decimal]] = {}
        for keyword, raw in listed:
            accepted.setdefault(keyword, set())
            try:
                value = spec.accept(raw)
            except ValueRefused as refused:
                self.report(
                    "keyword", f"a value is not valid for the field: {refused}", *path, keyword
                )
                continue
            exact = value if isinstance(value, str | None) else as_decimal(raw)
            if exact is not None and exact != value:
                detail = "a value has more decimals than the field's precision keeps"
                self.report("keyword", detail, *path, keyword)
            elif exact is not None:
                accepted[keyword].add(exact)
        allowed = set.intersection(*accepted.values())
        return replace(spec, allowed=frozenset(allowed))

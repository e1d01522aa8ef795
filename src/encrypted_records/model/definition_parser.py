"""Parse the text of a JSON Schema to a :class:`SchemaDefinition`, or to all errors in it.

All errors are reported at once, each with its JSON pointer, so that one round of corrections
is enough.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from encrypted_records.errors import Flaw, InvalidDefinition, Malformed
from encrypted_records.model import definition_keywords, strict_json
from encrypted_records.model import definition_keywords as keywords
from encrypted_records.model.definition import (
    MAX_FIELDS,
    MAX_PAD_TO,
    MAX_PADDED_BYTES,
    FieldSpec,
    SchemaDefinition,
)
from encrypted_records.model.definition_keywords import read_retention
from encrypted_records.model.field_types import PLAIN
from encrypted_records.model.field_types.base import JsonType
from encrypted_records.model.normalization import normalized
from encrypted_records.model.rules import (
    MAX_MAGNITUDE,
    MAX_PRECISION,
    NumberRules,
    StringRules,
    ValueRefused,
    as_decimal,
    compile_pattern,
)
from encrypted_records.model.strict_json import escape_pointer

MAX_DEFINITION_BYTES = 1 << 20
#: The same in its one spelling, with numbers written out and ids.
MAX_CANONICAL_BYTES = 2 << 20
#: What ids may add when a definition follows another.
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
    reader = _Reader(pointer)
    definition = reader.root(root)
    if reader.errors or definition is None:
        raise _unacceptable(reader.errors)
    return definition


def parse_canonical(text: bytes) -> SchemaDefinition:
    """Read a definition in its one spelling: undo :attr:`SchemaDefinition.canonical`.

    Raises:
        Malformed: it is no definition of this version, or spelled in another way.
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
    """The definition that a canonical text of ours says, as JSON Schema."""
    return bytes(_canonical.decode(text).schema).decode()


class _Canonical(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    next: Annotated[int, Meta(ge=2, lt=2**32)]
    ids: list[Annotated[int, Meta(ge=1, lt=2**32)]]
    schema: msgspec.Raw


_canonical = msgspec.json.Decoder(_Canonical)


def _unacceptable(errors: list[Flaw]) -> InvalidDefinition:
    return InvalidDefinition("the schema definition is not acceptable", flaws=tuple(errors))


class _Reader:
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
        self.refuse_keywords(root, keywords.ROOT)
        self.formats = "formats" in root
        if self.formats and root["formats"] != "enforced":
            self.report("keyword", 'must be "enforced", or left out', "formats")
        rounding = root.get("rounding", "half-even")
        if rounding not in ("half-even", "refuse"):
            self.report("keyword", 'must be "half-even" or "refuse", or left out', "rounding")
        fields = self.properties(root.get("properties"))
        named = root.get("properties")
        # A field with an error is still named: one mistake is not reported as two.
        names = frozenset(named) if isinstance(named, dict) else frozenset[str]()
        required = self.required(root.get("required", []), names)
        unique, flaws = definition_keywords.read_sets(root.get("unique", []), names)
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
            reason = keywords.refuse(keyword, enforced)
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
            problem = keywords.name_problem(name)
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
            self.refuse_keywords(body, keywords.STRING, *path)
            string = self.string_rules(body, *path)
        else:
            self.refuse_keywords(body, keywords.NUMBER, *path)
            number = self.number_rules(plain.json_type, body, *path)
        if len(self.errors) > before:
            return None
        pad_to = self.pad_to(body, *path)
        words = keywords.INDEX in body
        spec = FieldSpec(name, plain.json_type, number, string, pad_to=pad_to, words=words)
        return self.with_allowed(spec, body, *path)

    def formatted(self, name: str, kind: JsonType, body: dict[str, Any]) -> FieldSpec | None:
        """A field whose format is a type of its own."""
        path, before = ("properties", name), len(self.errors)
        for detail in definition_keywords.find_flaws(kind, body):
            self.report("format", detail, *path, "format")
        self.refuse_keywords(body, definition_keywords.find_keywords(kind), *path)
        is_number = PLAIN[kind].is_number
        rules = self.number_rules(kind, body, *path) if is_number else None
        if len(self.errors) > before:
            return None
        spec = definition_keywords.make_spec(name, kind, body, rules)
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
            import re2  # noqa: PLC0415 - a client without a side does without it

            try:
                compile_pattern(body["pattern"])
            except (re2.error, TypeError, UnicodeEncodeError):
                detail = "not a regular expression in RE2's syntax, which has no look-around"
                self.report("keyword", detail, *path, "pattern")
        if body.get(keywords.INDEX, ["words"]) != ["words"]:
            self.report("keyword", 'expected ["words"]', *path, keywords.INDEX)
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
            if needed:
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

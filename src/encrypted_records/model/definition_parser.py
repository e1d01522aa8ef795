"""From the text of a JSON Schema to a :class:`SchemaDefinition`, or to every flaw in it.

All flaws are reported at once, each with its JSON pointer, so that one round of corrections
is enough.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import re2

from encrypted_records.errors import Flaw, InvalidDefinition, Malformed
from encrypted_records.model import strict_json
from encrypted_records.model.definition import (
    MAX_FIELD_NAME,
    MAX_FIELDS,
    MAX_MAGNITUDE,
    MAX_PRECISION,
    FieldSpec,
    FieldType,
    NumberRules,
    SchemaDefinition,
    StringRules,
    ValueRefused,
    as_decimal,
    compile_pattern,
)

MAX_DEFINITION_BYTES = 1 << 20
_LARGEST = Decimal(10) ** MAX_MAGNITUDE
_FINEST = -60

_ANNOTATIONS = frozenset(
    "title description examples default format deprecated readOnly writeOnly"
    " $schema $id $comment contentEncoding contentMediaType".split()
)
_ROOT_KEYWORDS = frozenset({"type", "properties", "required", "additionalProperties"})
_NUMBER_KEYWORDS = frozenset(
    "minimum maximum precision exclusiveMinimum exclusiveMaximum multipleOf".split()
)
_STRING_KEYWORDS = frozenset({"minLength", "maxLength", "pattern"})
_ANY_KEYWORDS = frozenset({"type", "enum", "const"})


def parse_definition(text: str | bytes, *, pointer: str = "/schema") -> SchemaDefinition:
    """Read a definition.

    Args:
        text: the JSON text of the definition.
        pointer: where it stands in the request, put before every pointer of a flaw.

    Raises:
        InvalidDefinition: with all flaws.
    """
    if len(text) > MAX_DEFINITION_BYTES:
        raise _unacceptable(
            [Flaw("too_large", f"larger than {MAX_DEFINITION_BYTES} bytes", pointer=pointer)]
        )
    try:
        root = strict_json.loads(text)
    except Malformed as error:
        raise _unacceptable([Flaw("malformed", error.message, pointer=pointer)]) from None
    reader = _Reader(pointer)
    definition = reader.root(root)
    if reader.flaws or definition is None:
        raise _unacceptable(reader.flaws)
    return definition


def _unacceptable(flaws: list[Flaw]) -> InvalidDefinition:
    return InvalidDefinition("the schema definition is not acceptable", flaws=tuple(flaws))


def escape_pointer(token: str) -> str:
    """One token of an RFC 6901 pointer."""
    return token.replace("~", "~0").replace("/", "~1")


class _Reader:
    """Collects flaws while it reads, so that one mistake does not hide the next."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.flaws: list[Flaw] = []

    def flaw(self, code: str, detail: str, *path: str) -> None:
        pointer = self.base + "".join("/" + escape_pointer(token) for token in path)
        self.flaws.append(Flaw(code, detail, pointer=pointer))

    def root(self, root: Any) -> SchemaDefinition | None:
        if not isinstance(root, dict):
            self.flaw("type", "expected a JSON object")
            return None
        if root.get("type") != "object":
            self.flaw("root_type", 'the root type must be "object"', "type")
        if root.get("additionalProperties", False) is not False:
            self.flaw(
                "unsupported_keyword",
                "records hold the named fields and no others; leave this out or say false",
                "additionalProperties",
            )
        self.unknown(root, _ROOT_KEYWORDS)
        fields = self.properties(root.get("properties"))
        named = root.get("properties")
        # A field with a flaw is still named: one mistake is not reported as two.
        names = frozenset(named) if isinstance(named, dict) else frozenset[str]()
        required = self.required(root.get("required", []), names)
        return SchemaDefinition(fields=fields, required=required)

    def unknown(self, found: dict[str, Any], known: Iterable[str], *path: str) -> None:
        for keyword in found:
            if keyword not in known and keyword not in _ANNOTATIONS:
                self.flaw("unsupported_keyword", "this keyword is not supported", *path, keyword)

    def properties(self, found: Any) -> dict[str, FieldSpec]:
        if not isinstance(found, dict) or not found:
            self.flaw(
                "properties", "expected an object that names at least one field", "properties"
            )
            return {}
        if len(found) > MAX_FIELDS:
            self.flaw("too_many_fields", f"more than {MAX_FIELDS} fields", "properties")
            return {}
        fields: dict[str, FieldSpec] = {}
        normal: dict[str, str] = {}
        for name, body in found.items():
            problem = _name_problem(name)
            if (
                problem is None
                and normal.setdefault(unicodedata.normalize("NFKC", name), name) != name
            ):
                problem = "differs from another field's name only in Unicode normalisation"
            if problem is not None:
                self.flaw("field_name", problem, "properties", name)
                continue
            spec = self.field(name, body)
            if spec is not None:
                fields[name] = spec
        return fields

    def required(self, found: Any, fields: frozenset[str]) -> frozenset[str]:
        if not isinstance(found, list):
            self.flaw("required", "expected an array of field names", "required")
            return frozenset()
        names: set[str] = set()
        for position, name in enumerate(found):
            if not isinstance(name, str) or name not in fields:
                self.flaw("required", "names no field", "required", str(position))
            elif name in names:
                self.flaw("required", "named twice", "required", str(position))
            else:
                names.add(name)
        return frozenset(names)

    def field(self, name: str, body: Any) -> FieldSpec | None:
        path = ("properties", name)
        if not isinstance(body, dict):
            self.flaw("type", "expected an object", *path)
            return None
        kind = body.get("type")
        if kind not in ("string", "integer", "number"):
            self.flaw("field_type", "must be string, integer or number", *path, "type")
            return None
        before = len(self.flaws)
        number: NumberRules | None = None
        string = StringRules()
        if kind == "string":
            self.unknown(body, _ANY_KEYWORDS | _STRING_KEYWORDS, *path)
            string = self.string_rules(body, *path)
        else:
            self.unknown(body, _ANY_KEYWORDS | _NUMBER_KEYWORDS, *path)
            number = self.number_rules(kind, body, *path)
        if len(self.flaws) > before:
            return None
        spec = FieldSpec(name=name, type=kind, number=number, string=string)
        return self.with_allowed(spec, body, *path)

    def count(self, body: dict[str, Any], keyword: str, *path: str) -> int | None:
        value = as_decimal(body.get(keyword))
        if keyword not in body:
            return None
        if value is None or value < 0 or value > 2**31 or value != int(value):
            self.flaw("keyword", "expected an integer of at least 0", *path, keyword)
            return None
        return int(value)

    def string_rules(self, body: dict[str, Any], *path: str) -> StringRules:
        pattern = body.get("pattern")
        if "pattern" in body:
            try:
                compile_pattern(body["pattern"])
            except (re2.error, TypeError, UnicodeEncodeError):
                detail = "not a regular expression in RE2's syntax, which has no look-around"
                self.flaw("keyword", detail, *path, "pattern")
        shortest = self.count(body, "minLength", *path)
        longest = self.count(body, "maxLength", *path)
        if shortest is not None and longest is not None and shortest > longest:
            self.flaw("bounds", "above maxLength", *path, "minLength")
        return StringRules(min_length=shortest, max_length=longest, pattern=pattern)

    def decimal(
        self, body: dict[str, Any], keyword: str, *path: str, needed: bool = False
    ) -> Decimal | None:
        if keyword not in body:
            if needed:
                self.flaw("missing_keyword", f"{keyword} is required here", *path, keyword)
            return None
        value = as_decimal(body[keyword])
        if value is None:
            self.flaw("keyword", "expected a number", *path, keyword)
            return None
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int)
        if (
            not -_LARGEST <= value <= _LARGEST
            or value.adjusted() > MAX_MAGNITUDE
            or exponent < _FINEST
        ):
            self.flaw(
                "bounds",
                f"must lie within 10**{MAX_MAGNITUDE} and have at most {-_FINEST} decimals",
                *path,
                keyword,
            )
            return None
        return value

    def number_rules(self, kind: FieldType, body: dict[str, Any], *path: str) -> NumberRules | None:
        minimum = self.decimal(body, "minimum", *path, needed=True)
        maximum = self.decimal(body, "maximum", *path, needed=True)
        above = self.decimal(body, "exclusiveMinimum", *path)
        below = self.decimal(body, "exclusiveMaximum", *path)
        step = self.decimal(body, "multipleOf", *path)
        precision = self.precision(kind, body, *path)
        if step is not None and step <= 0:
            self.flaw("keyword", "must be above 0", *path, "multipleOf")
        if minimum is None or maximum is None or precision is None:
            return None
        if kind == "integer":
            for keyword, bound in (("minimum", minimum), ("maximum", maximum)):
                if bound != bound.to_integral_value():
                    self.flaw("bounds", "must be an integer", *path, keyword)
        if minimum > maximum:
            self.flaw("bounds", "above maximum", *path, "minimum")
            return None
        rules = NumberRules(minimum, maximum, precision, above, below, step)
        if rules.lowest > rules.highest:
            self.flaw("bounds", "no number of that precision lies within them", *path, "minimum")
        if rules.highest - rules.lowest >= 2**64:
            self.flaw(
                "domain",
                "maximum minus minimum, counted in steps of the precision, exceeds 64 bits",
                *path,
                "maximum",
            )
        return rules

    def precision(self, kind: FieldType, body: dict[str, Any], *path: str) -> int | None:
        if kind == "integer":
            if self.count(body, "precision", *path):
                self.flaw("keyword", "an integer field has no decimals", *path, "precision")
            return 0
        if "precision" not in body:
            self.flaw("missing_keyword", "precision is required here", *path, "precision")
            return None
        value = self.count(body, "precision", *path)
        if value is not None and value > MAX_PRECISION:
            self.flaw("keyword", f"at most {MAX_PRECISION}", *path, "precision")
            return None
        return value

    def with_allowed(self, spec: FieldSpec, body: dict[str, Any], *path: str) -> FieldSpec:
        listed: list[tuple[str, Any]] = []
        if "enum" in body:
            if not isinstance(body["enum"], list) or not body["enum"]:
                self.flaw("keyword", "expected an array with at least one value", *path, "enum")
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
                self.flaw("keyword", f"a value is no value of the field: {refused}", *path, keyword)
                continue
            exact = value if isinstance(value, str | None) else as_decimal(raw)
            if exact is not None and exact != value:
                detail = "a value has more decimals than the field's precision keeps"
                self.flaw("keyword", detail, *path, keyword)
            elif exact is not None:
                accepted[keyword].add(exact)
        allowed = set.intersection(*accepted.values())
        return FieldSpec(spec.name, spec.type, spec.number, spec.string, frozenset(allowed))


def _name_problem(name: str) -> str | None:
    if not name or len(name) > MAX_FIELD_NAME:
        return f"must have 1 to {MAX_FIELD_NAME} characters"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        return "holds a control character or half of a surrogate pair"
    return None

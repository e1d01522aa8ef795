"""A definition is taken with its exact meaning, or refused with every flaw and its place."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.errors import InvalidDefinition
from encrypted_records.model.definition import MAX_FIELDS, SchemaDefinition
from encrypted_records.model.definition_parser import MAX_DEFINITION_BYTES, parse_definition
from encrypted_records.model.strict_json import escape_pointer

EXAMPLES = Path(__file__).parents[2] / "examples"


def flaws_of(text: str) -> list[tuple[str, str]]:
    with pytest.raises(InvalidDefinition) as caught:
        parse_definition(text)
    return [(flaw.code, flaw.pointer or "") for flaw in caught.value.flaws]


def with_field(body: str, name: str = "f") -> str:
    return f'{{"type": "object", "properties": {{{json.dumps(name)}: {body}}}}}'


def parsed(body: str) -> Any:
    return parse_definition(with_field(body)).fields["f"]


def number(minimum: str, maximum: str, precision: str = "0", more: str = "") -> str:
    return (
        f'{{"type": "number", "minimum": {minimum}, "maximum": {maximum},'
        f' "precision": {precision}{more}}}'
    )


def integer(minimum: str, maximum: str, more: str = "") -> str:
    return f'{{"type": "integer", "minimum": {minimum}, "maximum": {maximum}{more}}}'


def string(more: str = "") -> str:
    return f'{{"type": "string"{more}}}'


FIELD = "/schema/properties/f"


def flaw(code: str, keyword: str) -> list[tuple[str, str]]:
    return [(code, f"{FIELD}/{keyword}")]


ROOTS: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("no JSON", "{", [("malformed", "/schema")]),
    ("a number that is none", '{"type": NaN}', [("malformed", "/schema")]),
    ("a key twice", '{"type": "object", "type": "object"}', [("malformed", "/schema")]),
    ("no object", "[]", [("type", "/schema")]),
    (
        "another root type",
        '{"type": "array", "properties": {"f": {"type": "string"}}}',
        [("root_type", "/schema/type")],
    ),
    (
        "no root type",
        '{"properties": {"f": {"type": "string"}}}',
        [("root_type", "/schema/type")],
    ),
    ("no properties", '{"type": "object"}', [("properties", "/schema/properties")]),
    (
        "empty properties",
        '{"type": "object", "properties": {}}',
        [("properties", "/schema/properties")],
    ),
    (
        "properties in a list",
        '{"type": "object", "properties": ["f"]}',
        [("properties", "/schema/properties")],
    ),
    (
        "further fields allowed",
        '{"type": "object", "additionalProperties": true, "properties": {"f": {"type": "string"}}}',
        [("unsupported_keyword", "/schema/additionalProperties")],
    ),
    (
        "keywords that change the meaning",
        '{"type": "object", "allOf": [], "$ref": "#", "properties": {"f": {"type": "string"}}}',
        [("unsupported_keyword", "/schema/allOf"), ("unsupported_keyword", "/schema/$ref")],
    ),
    (
        "required is no list",
        '{"type": "object", "required": "f", "properties": {"f": {"type": "string"}}}',
        [("required", "/schema/required")],
    ),
    (
        "required names no field, a number, and one field twice",
        '{"type": "object", "required": ["f", "g", 1, "f"],'
        ' "properties": {"f": {"type": "string"}}}',
        [("required", f"/schema/required/{position}") for position in (1, 2, 3)],
    ),
    (
        "a flawed field is not reported again by required",
        '{"type": "object", "required": ["f"], "properties": {"f": {"type": "array"}}}',
        flaw("field_type", "type"),
    ),
    (
        "names that differ in normalisation only",
        '{"type": "object", "properties": {"\\u00e9": {"type": "string"},'
        ' "e\\u0301": {"type": "string"}}}',
        [("field_name", "/schema/properties/e\u0301")],
    ),
]
FIELDS: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("no object", '"string"', [("type", FIELD)]),
    ("no type", "{}", flaw("field_type", "type")),
    *(
        (f"type {kind}", f'{{"type": {kind}}}', flaw("field_type", "type"))
        for kind in ('"boolean"', '"object"', '"array"', '"null"', '["string", "integer"]', "1")
    ),
    (
        "no bounds",
        '{"type": "integer"}',
        [("missing_keyword", f"{FIELD}/{one}") for one in ("minimum", "maximum")],
    ),
    (
        "a number without anything",
        '{"type": "number"}',
        [("missing_keyword", f"{FIELD}/{one}") for one in ("minimum", "maximum", "precision")],
    ),
    ("bounds the wrong way round", integer("2", "1"), flaw("bounds", "minimum")),
    (
        "bounds of an integer with fractions",
        integer("0.5", "1.5"),
        [("bounds", f"{FIELD}/minimum"), ("bounds", f"{FIELD}/maximum")],
    ),
    ("a bound that is text", integer('"0"', "1"), flaw("keyword", "minimum")),
    ("a bound that is true", integer("0", "true"), flaw("keyword", "maximum")),
    ("a bound that is null", integer("null", "1"), flaw("keyword", "minimum")),
    ("a bound too large", integer("0", "1e41"), flaw("bounds", "maximum")),
    (
        "a bound just too large",
        integer(str(10**40), str(10**40 + 1)),
        flaw("bounds", "maximum"),
    ),
    ("a bound far too large", integer("-1e999999999", "0"), flaw("bounds", "minimum")),
    ("a bound too fine", number("1e-61", "1"), flaw("bounds", "minimum")),
    ("2**64 + 1 points", integer("0", str(2**64)), flaw("domain", "maximum")),
    (
        "2**64 + 1 points of a number",
        number("0", "1844674407370955161.6", "1"),
        flaw("domain", "maximum"),
    ),
    (
        "decimals of an integer",
        integer("0", "1", ', "precision": 1'),
        flaw("keyword", "precision"),
    ),
    ("too many decimals", number("0", "1", "19"), flaw("keyword", "precision")),
    ("half a decimal", number("0", "1", "0.5"), flaw("keyword", "precision")),
    ("less than no decimals", number("0", "1", "-1"), flaw("keyword", "precision")),
    ("decimals as text", number("0", "1", '"2"'), flaw("keyword", "precision")),
    (
        "a step of zero",
        integer("0", "1", ', "multipleOf": 0'),
        flaw("keyword", "multipleOf"),
    ),
    (
        "a step below zero",
        integer("0", "1", ', "multipleOf": -1'),
        flaw("keyword", "multipleOf"),
    ),
    (
        "an exclusive bound as in draft 4",
        integer("0", "1", ', "exclusiveMinimum": true'),
        flaw("keyword", "exclusiveMinimum"),
    ),
    ("bounds of a string", string(', "minimum": 0'), flaw("unsupported_keyword", "minimum")),
    (
        "a length of a number",
        integer("0", "1", ', "minLength": 1'),
        flaw("unsupported_keyword", "minLength"),
    ),
    ("a length below zero", string(', "minLength": -1'), flaw("keyword", "minLength")),
    ("a length of 1e999", string(', "maxLength": 1e999'), flaw("keyword", "maxLength")),
    ("a length of null", string(', "maxLength": null'), flaw("keyword", "maxLength")),
    (
        "lengths the wrong way round",
        string(', "minLength": 2, "maxLength": 1'),
        flaw("bounds", "minLength"),
    ),
    ("padded to nothing", string(', "padTo": 0'), flaw("keyword", "padTo")),
    ("padded too far", string(', "padTo": 65537'), flaw("keyword", "padTo")),
    ("padded to half a byte", string(', "padTo": 1.5'), flaw("keyword", "padTo")),
    ("padding as text", string(', "padTo": "9"'), flaw("keyword", "padTo")),
    (
        "padding of a number",
        integer("0", "1", ', "padTo": 9'),
        flaw("unsupported_keyword", "padTo"),
    ),
    (
        "a value longer than a record may be padded to",
        string(f', "enum": ["{"x" * 614_401}"]'),
        [("too_wide", "/schema/properties")],
    ),
    ("no pattern", string(', "pattern": "("'), flaw("keyword", "pattern")),
    ("a pattern of null", string(', "pattern": null'), flaw("keyword", "pattern")),
    ("a pattern in a list", string(', "pattern": ["a"]'), flaw("keyword", "pattern")),
    ("an empty enum", string(', "enum": []'), flaw("keyword", "enum")),
    ("an enum of another type", string(', "enum": [1]'), flaw("keyword", "enum")),
    (
        "an enum outside the bounds",
        integer("0", "1", ', "enum": [0, 2]'),
        flaw("keyword", "enum"),
    ),
    (
        "a const against the pattern",
        string(', "pattern": "b", "const": "a"'),
        flaw("keyword", "const"),
    ),
    ("a reference", string(', "$ref": "#/x"'), flaw("unsupported_keyword", "$ref")),
    ("decimals of a string", string(', "precision": 2'), flaw("unsupported_keyword", "precision")),
    (
        "a field that is required by itself, as in draft 3",
        string(', "required": true'),
        flaw("unsupported_keyword", "required"),
    ),
]


def test_the_padding_of_all_fields_together_has_a_limit() -> None:
    def padded(count: int, to: int) -> str:
        fields = {f"f{at}": {"type": "string", "padTo": to} for at in range(count)}
        return json.dumps({"type": "object", "properties": fields})

    assert parse_definition(padded(512, 1200)).fields["f0"].pad_to == 1200
    assert flaws_of(padded(10, 61_441)) == [("too_wide", "/schema/properties")]
    every = {f"f{at}": {"type": "string", "maxLength": 256} for at in range(512)}
    assert parse_definition(json.dumps({"type": "object", "properties": every}))


def cases(table: list[tuple[str, str, list[tuple[str, str]]]]) -> list[Any]:
    return [pytest.param(text, flaws, id=name) for name, text, flaws in table]


@pytest.mark.parametrize(("text", "flaws"), cases(ROOTS))
def test_a_root_outside_the_subset_is_refused(text: str, flaws: list[tuple[str, str]]) -> None:
    assert flaws_of(text) == flaws


@pytest.mark.parametrize(("body", "flaws"), cases(FIELDS))
def test_a_field_outside_the_subset_is_refused(body: str, flaws: list[tuple[str, str]]) -> None:
    assert flaws_of(with_field(body)) == flaws


@pytest.mark.parametrize("name", ["", "x" * 201, "a\x00b", "a\nb", "\x7f"], ids=repr)
def test_a_name_that_cannot_be_shown_is_refused(name: str) -> None:
    assert [code for code, _ in flaws_of(with_field(string(), name))] == ["field_name"]


def test_half_of_a_surrogate_pair_in_a_name_is_refused_without_being_repeated() -> None:
    assert flaws_of(with_field(string(), "\ud800")) == [("malformed", "/schema")]


@pytest.mark.parametrize("name", ["x" * 200, "a/b", " ", '"', "\u65e5", "__proto__", "type"])
def test_odd_names_are_names(name: str) -> None:
    assert list(parse_definition(with_field(string(), name)).fields) == [name]


def test_pointers_are_escaped() -> None:
    assert flaws_of(with_field("{}", "a/b~c")) == [
        ("field_type", "/schema/properties/a~1b~0c/type")
    ]
    assert escape_pointer("~1") == "~01"


def test_all_flaws_are_reported_at_once_under_the_given_pointer() -> None:
    text = (
        '{"type": "array", "properties": {"a": {"type": "x"}, "b": {"type": "integer"}},'
        ' "required": ["c"]}'
    )
    with pytest.raises(InvalidDefinition) as caught:
        parse_definition(text, pointer="/here")
    pointers = [flaw.pointer for flaw in caught.value.flaws]
    assert pointers == [
        "/here/type",
        "/here/properties/a/type",
        "/here/properties/b/minimum",
        "/here/properties/b/maximum",
        "/here/required/0",
    ]


def test_512_fields_are_taken_and_513_are_not() -> None:
    def text(count: int) -> str:
        return json.dumps(
            {"type": "object", "properties": {f"f{at}": {"type": "string"} for at in range(count)}}
        )

    assert len(parse_definition(text(MAX_FIELDS)).fields) == 512
    assert flaws_of(text(MAX_FIELDS + 1)) == [("too_many_fields", "/schema/properties")]


def test_a_text_that_is_too_large_is_refused_unread() -> None:
    assert flaws_of("x" * (MAX_DEFINITION_BYTES + 1)) == [("too_large", "/schema")]


def test_a_census_like_definition_is_taken_in_its_order() -> None:
    definition = parse_definition((EXAMPLES / "census.schema.json").read_bytes())
    assert list(definition.fields)[:3] == ["age", "workclass", "fnlwgt"]
    assert definition.fields["age"].numbers.highest == 120


def test_a_taxi_like_definition_is_taken_exactly() -> None:
    definition: SchemaDefinition = parse_definition(
        """{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
        "title": "rides", "additionalProperties": false, "required": ["pickup", "fare"],
        "properties": {
          "pickup": {"type": "string", "format": "date-time", "minLength": 20, "maxLength": 35},
          "fare": {"type": "number", "minimum": -0.1, "maximum": 1e3, "precision": 1},
          "lon": {"type": "number", "minimum": -180, "maximum": 180.0, "precision": 6.0},
          "flag": {"type": "string", "enum": ["Y", "N"], "default": "N", "examples": ["Y"]},
          "tip": {"type": "integer", "minimum": -9007199254740993, "maximum": 9007199254740993}
        }}"""
    )
    fare = definition.fields["fare"].numbers
    assert (fare.minimum, fare.lowest, fare.highest) == (Decimal("-0.1"), -1, 10000)
    assert definition.fields["lon"].numbers.precision == 6
    assert definition.fields["tip"].numbers.lowest == -(2**53) - 1
    assert definition.fields["flag"].allowed == frozenset({"Y", "N"})
    assert definition.required == {"pickup", "fare"}


@pytest.mark.parametrize(
    ("body", "lowest", "highest"),
    [
        (integer("5", "5"), 5, 5),
        (integer("-10", "-3"), -10, -3),
        (integer("1e2", "1E+3"), 100, 1000),
        (integer("0", str(2**64 - 1)), 0, 2**64 - 1),
        (integer(str(-(2**63)), str(2**63 - 1)), -(2**63), 2**63 - 1),
        (integer("1.0", "2.00", ', "precision": 0'), 1, 2),
        (integer(str(10**40 - 1), str(10**40)), 10**40 - 1, 10**40),
        (number("-0.15", "0.15", "1"), -1, 1),
        (number("0.1", "0.1", "1"), 1, 1),
        (number("-0", "0e5", "18"), 0, 0),
        (number("-1e-60", "1e-59", "0"), 0, 0),
        (number("-1.8446744073709551615", "0", "18"), -1844674407370955161, 0),
        (number("1e40", "1e40", "18"), 10**58, 10**58),
    ],
)
def test_bounds_become_grid_points_exactly(body: str, lowest: int, highest: int) -> None:
    rules = parsed(body).numbers
    assert (rules.lowest, rules.highest) == (lowest, highest)


@pytest.mark.parametrize(
    ("more", "allowed"),
    [
        ("", None),
        (', "const": "a"', {"a"}),
        (', "enum": ["a", "b", "a"]', {"a", "b"}),
        (', "enum": ["a", null]', {"a"}),
        (', "enum": ["a", "b"], "const": "b"', {"b"}),
        (', "enum": ["a"], "const": "b"', set()),
        (', "enum": ["a"], "const": null', set()),
        (', "const": null', set()),
    ],
)
def test_enum_and_const_leave_what_both_allow(more: str, allowed: set[str] | None) -> None:
    assert parsed(string(more)).allowed == allowed


def test_annotations_do_not_change_the_digest_and_the_order_of_fields_does() -> None:
    one = '{"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}'
    other = (
        '{"title": "t", "properties": {"a": {"type": "string", "description": "d"},'
        ' "b": {"type": "string"}}, "type": "object"}'
    )
    turned = '{"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "string"}}}'
    digests = [parse_definition(text).digest for text in (one, other, turned)]
    assert digests[0] == digests[1] != digests[2]
    assert [parse_definition(one).spec(name) is None for name in "abc"] == [False, False, True]


@pytest.mark.parametrize(
    "body",
    [
        '{"type": "number", "minimum": 0.01, "maximum": 0.09, "precision": 1}',
        '{"type": "number", "minimum": 0, "maximum": 1, "precision": 1, "enum": [0.25]}',
        '{"type": "number", "minimum": 0, "maximum": 1, "precision": 1, "const": 0.25}',
    ],
)
def test_rules_that_no_kept_value_can_meet_are_refused(body: str) -> None:
    with pytest.raises(InvalidDefinition):
        parse_definition(f'{{"type": "object", "properties": {{"f": {body}}}}}')

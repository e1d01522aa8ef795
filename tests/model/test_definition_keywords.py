"""Annotations are kept; what would change which values are valid is enforced or refused."""

from __future__ import annotations

import json

import pytest

from encrypted_records.errors import InvalidDefinition
from encrypted_records.model.definition_parser import parse_definition
from tests.model.test_definition_parser import FIELD, flaws_of, integer, parsed, string, with_field

#: What a value must be or must not be, by drafts of JSON Schema, and nobody here enforces.
NOT_ENFORCED = (
    "additionalItems allOf anyOf contains dependencies dependentRequired dependentSchemas disallow"
    " divisibleBy else extends if items maxContains maxDecimal maxItems maxProperties"
    " maximumCanEqual minContains minItems minProperties minimumCanEqual not oneOf optional"
    " patternProperties prefixItems propertyNames requires then unevaluatedItems"
    " unevaluatedProperties uniqueItems $dynamicRef $recursiveRef $ref".split()
)
WITHOUT_EFFECT = (
    "title description examples default format deprecated readOnly writeOnly $schema $id $comment"
    " $anchor $defs definitions contentEncoding contentMediaType contentSchema"
    " faker faker_args unit x-owner x-ui:order nullable __proto__ constructor a/b".split()
)


@pytest.mark.parametrize("keyword", NOT_ENFORCED)
def test_a_keyword_that_would_change_what_is_valid_is_refused_by_name(keyword: str) -> None:
    fields = {
        "a": {"type": "string", keyword: [1]},
        "b": {"type": "integer", "minimum": 0, "maximum": 1, keyword: True},
    }
    text = json.dumps({"type": "object", keyword: {}, "properties": fields})
    assert flaws_of(text) == [
        ("unsupported_keyword", f"/schema/{keyword}"),
        ("unsupported_keyword", f"/schema/properties/a/{keyword}"),
        ("unsupported_keyword", f"/schema/properties/b/{keyword}"),
    ]


@pytest.mark.parametrize("keyword", ["", " ", *WITHOUT_EFFECT])
@pytest.mark.parametrize("value", ["name", None, [1.5, {}], {"type": "array"}], ids=repr)
def test_a_keyword_that_says_nothing_of_values_is_kept(keyword: str, value: object) -> None:
    text, number = {"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 1}
    plain = {"type": "object", "properties": {"a": text, "b": number}}
    more = {keyword: value}
    noted = {**plain, **more, "properties": {"a": {**text, **more}, "b": {**number, **more}}}
    assert parse_definition(json.dumps(noted)).digest == parse_definition(json.dumps(plain)).digest


@pytest.mark.parametrize(
    ("body", "written", "meant"),
    [
        (string(', "max_length": 5'), "max_length", "maxLength"),
        (string(', "maxlength": 5'), "maxlength", "maxLength"),
        (string(', "Pattern": "a"'), "Pattern", "pattern"),
        (integer("0", "9", ', "multiple-of": 2'), "multiple-of", "multipleOf"),
    ],
)
def test_a_misspelt_keyword_is_no_annotation(body: str, written: str, meant: str) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        parse_definition(with_field(body))
    [found] = caught.value.flaws
    assert (found.code, found.pointer) == ("unsupported_keyword", f"{FIELD}/{written}")
    assert found.detail == f"did you mean {meant}?"


def test_bounds_by_their_short_names_are_answered_with_the_keywords() -> None:
    assert flaws_with_detail(with_field('{"type": "integer", "min": 0, "max": 9}')) == [
        (f"{FIELD}/min", "did you mean minimum?"),
        (f"{FIELD}/max", "did you mean maximum?"),
    ]


def test_short_names_beside_bounds_are_annotations() -> None:
    plain, noted = with_field(integer("0", "9")), with_field(integer("0", "9", ', "max": 5'))
    assert parse_definition(noted).digest == parse_definition(plain).digest


@pytest.mark.parametrize("meant", ["formats", "unique", "retention"])
def test_a_rule_of_the_root_in_capitals_is_not_taken_for_an_annotation(meant: str) -> None:
    plain = {"type": "object", "properties": {"a": {"type": "string"}}}
    (flaw,) = flaws_with_detail(json.dumps({**plain, meant.title(): "enforced"}))
    assert flaw == (f"/schema/{meant.title()}", f"did you mean {meant}?")
    noted = {**plain, "properties": {"a": {"type": "string", meant.title(): "enforced"}}}
    assert parse_definition(json.dumps(noted)).digest == parse_definition(json.dumps(plain)).digest


def flaws_with_detail(text: str) -> list[tuple[str | None, str]]:
    with pytest.raises(InvalidDefinition) as refused:
        parse_definition(text)
    return [(flaw.pointer, flaw.detail) for flaw in refused.value.flaws]


def test_retention_is_a_rule_at_the_root_and_an_annotation_in_a_field() -> None:
    body = string(', "retention": true')
    assert parsed(body).allowed is None
    text = f'{{"type": "object", "retention": [], "properties": {{"f": {string()}}}}}'
    assert flaws_of(text) == [("retention", "/schema/retention")]

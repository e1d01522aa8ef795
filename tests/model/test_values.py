"""What a field accepts is exact, equals JSON Schema where both speak, and never shows the value."""

from __future__ import annotations

import json
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from encrypted_records.errors import InvalidDefinition
from encrypted_records.model import strict_json
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.field_types.base import (
    MAX_STRING_BYTES,
    NumberRules,
    ValueRefused,
    as_decimal,
    canonical,
)
from tests.index.strategies import accepted, bounds, definition_texts
from tests.reference import definitions as plain


def field(body: str) -> FieldSpec:
    return parse_definition(f'{{"type": "object", "properties": {{"f": {body}}}}}').fields["f"]


AGE = field('{"type": "integer", "minimum": 0, "maximum": 120}')
PRICE = field('{"type": "number", "minimum": -5, "maximum": 5, "precision": 1}')
NAME = field('{"type": "string"}')


@pytest.mark.parametrize(
    ("spec", "sent", "kept"),
    [
        (AGE, "41", 41),
        (AGE, "41.0", 41),
        (AGE, "4.1e1", 41),
        (AGE, "-0", 0),
        (AGE, "-0.0", 0),
        (AGE, "null", None),
        (PRICE, "0.05", Decimal("0.0")),
        (PRICE, "0.15", Decimal("0.2")),
        (PRICE, "0.25", Decimal("0.2")),
        (PRICE, "-0.25", Decimal("-0.2")),
        (PRICE, "0.2500000000000000000000000000000000000000000000000001", Decimal("0.3")),
        (PRICE, "4.96", Decimal("5.0")),
        (PRICE, "1e-999999999", Decimal("0.0")),
        (PRICE, "0e999999999", Decimal("0.0")),
        (NAME, '""', ""),
        (NAME, '"\\u0000"', "\x00"),
        (NAME, '"e\\u0301"', "e\u0301"),
    ],
)
def test_an_accepted_value_is_kept_as_specified(spec: FieldSpec, sent: str, kept: Any) -> None:
    found = spec.accept(strict_json.loads(sent, halves=True))
    assert found == kept
    assert type(found) is type(kept)
    assert str(found) == str(kept) or found == 0


@pytest.mark.parametrize(
    ("spec", "sent", "code"),
    [
        (AGE, "true", "type"),
        (AGE, '"41"', "type"),
        (AGE, "[]", "type"),
        (AGE, "{}", "type"),
        (AGE, "41.5", "type"),
        (AGE, "1e-999999999", "type"),
        (AGE, "-1", "minimum"),
        (AGE, "-1e-300", "minimum"),
        (AGE, "121", "maximum"),
        (AGE, "120.0000000000000000000000000000000000001", "maximum"),
        (AGE, "1e999999999", "maximum"),
        (PRICE, "5.01", "maximum"),
        (PRICE, "false", "type"),
        (NAME, "1", "type"),
        (NAME, "false", "type"),
        (NAME, '"\\ud83d"', "unicode"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(spec: FieldSpec, sent: str, code: str) -> None:
    with pytest.raises(ValueRefused) as caught:
        spec.accept(strict_json.loads(sent, halves=True))
    assert caught.value.code == code


@pytest.mark.parametrize(
    "value", [float("nan"), 1.5, Decimal("NaN"), Decimal("Infinity"), "1", None]
)
def test_floats_and_what_is_no_number_are_no_decimals(value: object) -> None:
    assert as_decimal(value) is None


def test_strings_are_limited_by_bytes() -> None:
    assert NAME.accept("\u00e9" * (MAX_STRING_BYTES // 2)) is not None
    with pytest.raises(ValueRefused, match="bytes"):
        NAME.accept("\u00e9" * (MAX_STRING_BYTES // 2) + "x")


@pytest.mark.parametrize(
    ("more", "good", "bad", "code"),
    [
        (', "minLength": 2', "\U0001f600\U0001f600", "\U0001f600", "min_length"),
        (', "maxLength": 1', "\U0001f600", "ab", "max_length"),
        (', "pattern": "^a+$"', "aa", "ab", "pattern"),
        (', "pattern": "b"', "abc", "ac", "pattern"),
        (', "enum": ["a"]', "a", "A", "enum"),
        (', "const": "\\u00e9"', "\u00e9", "e\u0301", "enum"),
    ],
)
def test_keywords_of_strings_are_enforced(more: str, good: str, bad: str, code: str) -> None:
    spec = field(f'{{"type": "string"{more}}}')
    assert spec.accept(good) == good
    with pytest.raises(ValueRefused) as caught:
        spec.accept(bad)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("more", "good", "bad", "code"),
    [
        (', "exclusiveMinimum": -1', "-0.99", "-1", "exclusive_minimum"),
        (', "exclusiveMaximum": 1', "0.99", "1.0", "exclusive_maximum"),
        (', "multipleOf": 0.3', "0.9", "1", "multiple_of"),
        (', "multipleOf": 1', "0e-2000000", "1e-2000000", "multiple_of"),
        (', "enum": [0.5]', "5e-1", "0.50001", "enum"),
    ],
)
def test_keywords_of_numbers_are_enforced_exactly(
    more: str, good: str, bad: str, code: str
) -> None:
    spec = field(f'{{"type": "number", "minimum": -5, "maximum": 5, "precision": 2{more}}}')
    spec.accept(Decimal(good))
    with pytest.raises(ValueRefused) as caught:
        spec.accept(Decimal(bad))
    assert caught.value.code == code


@given(st.data())
def test_rounding_is_that_of_the_decimal_module_in_a_roomy_context(data: st.DataObject) -> None:
    definition_text = data.draw(definition_texts())
    for name, spec in parse_definition(definition_text).fields.items():
        if spec.type != "number":
            continue
        sent = data.draw(accepted(plain.load(definition_text).fields[name]))
        kept = spec.accept(sent)
        assert isinstance(kept, Decimal)
        unit = Decimal(1).scaleb(-spec.numbers.precision)
        with localcontext(Context(prec=500)):
            assert kept == sent.quantize(unit, ROUND_HALF_EVEN)
        assert spec.numbers.lowest <= spec.numbers.to_grid(kept) <= spec.numbers.highest
        assert spec.accept(sent) == spec.numbers.from_grid(spec.numbers.to_grid(sent))


@given(st.data())
def test_clamping_is_exact_within_and_one_step_outside_beyond(data: st.DataObject) -> None:
    text = data.draw(definition_texts())
    for name, spec in parse_definition(text).fields.items():
        if spec.type == "string":
            continue
        rules = spec.numbers
        operand = data.draw(bounds(plain.load(text).fields[name]))
        scaled = Fraction(operand) * 10**rules.precision
        for rounding, exact in (
            (ROUND_FLOOR, scaled.__floor__()),
            (ROUND_CEILING, scaled.__ceil__()),
        ):
            found = rules.clamp(operand, rounding)
            inside = rules.lowest <= exact <= rules.highest
            assert found == exact if inside else _same_side(rules, found, exact)


def test_clamping_just_outside_a_bound_is_still_exact() -> None:
    """0.15 is kept as 0.2, so that an operand of 0.16 lies between two kept values."""
    rules = NumberRules(Decimal("-0.15"), Decimal("0.15"), precision=1)
    assert [rules.clamp(Decimal("0.16"), one) for one in (ROUND_FLOOR, ROUND_CEILING)] == [1, 2]
    assert [rules.clamp(Decimal("-0.16"), one) for one in (ROUND_FLOOR, ROUND_CEILING)] == [-2, -1]


def _same_side(rules: NumberRules, found: int, exact: int) -> bool:
    return (found < rules.lowest) == (exact < rules.lowest) and (found > rules.highest) == (
        exact > rules.highest
    )


@given(st.decimals(allow_nan=False, allow_infinity=False, places=None))
def test_a_number_has_one_canonical_spelling(value: Decimal) -> None:
    text = canonical(value)
    assert Decimal(text) == value
    assert re.fullmatch(r"0|-?([1-9]\d*|0)(\.\d*[1-9])?", text)
    assert text == plain.canonical(value)
    assert canonical(value.normalize(Context(prec=999))) == text


def _with_bounds(keywords: dict[str, object]) -> dict[str, object]:
    precision = {"precision": 1} if keywords["type"] == "number" else {}
    return keywords | {"minimum": -3, "maximum": 3} | precision


KEYWORDS = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number"])},
    optional={
        "exclusiveMinimum": st.integers(-3, 3),
        "exclusiveMaximum": st.integers(-3, 3),
        "multipleOf": st.sampled_from([1, 2, Decimal("0.5"), Decimal("0.1")]),
        "enum": st.lists(st.integers(-3, 3), min_size=1, max_size=3),
        "const": st.integers(-3, 3),
    },
).map(_with_bounds)


TEXT_KEYWORDS = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        "minLength": st.integers(0, 3),
        "maxLength": st.integers(0, 4),
        "pattern": st.sampled_from(["a", "^a", "^[ab]*$", "."]),
        "enum": st.lists(st.text("ab", max_size=3), min_size=1, max_size=3),
        "const": st.text("ab", max_size=3),
    },
)
SENT: st.SearchStrategy[object] = st.one_of(
    st.integers(-5, 5),
    st.decimals(-4, 4, places=2),
    st.text("abc", max_size=5),
    st.booleans(),
    st.just([]),
)
#: The library with JSON Schema's own notion of an integer, for Decimals.
_checker = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
    "integer",
    lambda _, value: (
        not isinstance(value, bool)
        and (isinstance(value, int) or (isinstance(value, Decimal) and value == int(value)))
    ),
)
Validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=_checker)


@given(st.one_of(KEYWORDS, TEXT_KEYWORDS), st.lists(SENT, min_size=1, max_size=10))
def test_shared_keywords_accept_what_the_jsonschema_library_accepts(
    body: dict[str, Any], sent: list[Any]
) -> None:
    """Of a number, the library has to accept what was sent and also what is kept of it."""
    text = json.dumps(body, default=float)
    try:
        spec = field(text)
    except InvalidDefinition:
        assume(False)
    validator = Validator(body)
    for value in sent:
        try:
            spec.accept(value)
        except ValueRefused:
            assert not (validator.is_valid(value) and validator.is_valid(kept(body, value))), value
        else:
            assert validator.is_valid(value), value
            assert validator.is_valid(kept(body, value)), value


def kept(body: dict[str, Any], value: Any) -> Any:
    """What a field keeps of a value: a number field rounds."""
    if body["type"] != "number" or not isinstance(value, int | Decimal) or isinstance(value, bool):
        return value
    unit = Decimal(1).scaleb(-int(body["precision"]))
    return Decimal(value).quantize(unit, ROUND_HALF_EVEN, Context(prec=500))


@pytest.mark.parametrize("sent", ["c\u00e9liac", "-98765.4321", "98765.4321", "0.98765"])
def test_a_refusal_never_repeats_the_value(sent: str) -> None:
    keywords = ['"maxLength": 1', '"minLength": 99', '"pattern": "^q$"', '"enum": ["q"]']
    specs = [AGE, PRICE, NAME, *(field(f'{{"type": "string", {keyword}}}') for keyword in keywords)]
    values: list[Any] = [sent] if sent[0] == "c" else [sent, Decimal(sent)]
    refusals = 0
    for spec in specs:
        for value in values:
            try:
                spec.accept(value)
            except ValueRefused as refused:
                refusals += 1
                assert sent.lstrip("-") not in refused.detail + str(refused) + repr(refused)
    assert refusals > 5


@pytest.mark.parametrize(
    ("more", "bad", "code"),
    [
        ("", "0.05", "minimum"),
        ("", "9.95", "maximum"),
        (', "exclusiveMinimum": 1', "1.04", "exclusive_minimum"),
        (', "exclusiveMaximum": 2', "1.96", "exclusive_maximum"),
        (', "multipleOf": 0.25', "0.75", "multiple_of"),
    ],
)
def test_a_value_that_rounding_would_take_out_of_its_rules_is_refused(
    more: str, bad: str, code: str
) -> None:
    """Otherwise what comes back of a record could not be stored again."""
    spec = field(f'{{"type": "number", "minimum": 0.05, "maximum": 9.95, "precision": 1{more}}}')
    with pytest.raises(ValueRefused, match="once rounded") as caught:
        spec.accept(Decimal(bad))
    assert caught.value.code == code


@given(st.data())
def test_what_a_record_gives_back_it_also_takes(data: st.DataObject) -> None:
    text = data.draw(definition_texts())
    for name, spec in parse_definition(text).fields.items():
        kept = spec.accept(data.draw(accepted(plain.load(text).fields[name])))
        assert spec.accept(kept) == kept

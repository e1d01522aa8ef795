"""The search page's filters and the question that they ask."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from encrypted_records.errors import Flaw, InvalidQuery
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.field_types import BY_NAME
from encrypted_records.model.joins import Joins
from encrypted_records.model.queries import parse_query
from encrypted_records.model.text_conditions import FOLDING, MOST_EDITS, TEXT_OPERATORS
from encrypted_records.proxy.pages.comparisons import AMONG, has_spellings, phrases_of
from encrypted_records.proxy.pages.search_form import Filter, Question, condition_of

TYPES = {
    "city": "string",
    "age": "integer",
    "height": "number",
    "born": "date",
    "opens": "time",
    "seen": "date-time",
    "key": "uuid",
    "alive": "boolean",
}
VALUES = {
    "string": ("Rome", "Paris"),
    "date": ("1990-06-01", "2000-02-29"),
    "time": ("08:30:00", "17:00:00"),
    "date-time": ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
    "uuid": ("0" * 8 + "-0000-4000-8000-" + "0" * 12,) * 2,
    "boolean": ("true", "false"),
}
DEFINITION = parse_definition(
    b'{"type": "object", "formats": "enforced", "properties": {"city": {"type": "string"},'
    b' "born": {"type": "string", "format": "date"}, "opens": {"type": "string", "format": "time"},'
    b' "seen": {"type": "string", "format": "date-time"},'
    b' "key": {"type": "string", "format": "uuid"},'
    b' "alive": {"type": "integer", "minimum": 0, "maximum": 1, "format": "boolean"},'
    b' "age": {"type": "integer", "minimum": 0, "maximum": 150},'
    b' "height": {"type": "number", "minimum": 0, "maximum": 3, "precision": 2}}}'
)


def asked(**form: str) -> dict[str, Any]:
    question = Question()
    question.take({name.replace("_", "-"): value for name, value in form.items()}, TYPES)
    return question.body("/api/schemas/x/", TYPES)


@pytest.mark.parametrize(
    ("form", "condition"),
    [
        (
            {"field_0": "city", "op_0": "prefix", "value_0": "Ro"},
            {"field": "city", "op": "prefix", "value": "Ro"},
        ),
        (
            {"field_0": "city", "op_0": "in", "value_0": "Rome\r\nNew York, NY\r\n\r\n"},
            {"field": "city", "op": "in", "value": ["Rome", "New York, NY"]},
        ),
        (
            {"field_0": "age", "op_0": "between", "value_0": " 18", "second_0": "65"},
            {"field": "age", "op": "between", "value": [18, 65]},
        ),
        (
            {"field_0": "height", "op_0": "gt", "value_0": "1.50"},
            {"field": "height", "op": "gt", "value": Decimal("1.50")},
        ),
        (
            {"field_0": "age", "op_0": "missing"},
            {"field": "age", "op": "is_null", "value": True},
        ),
        (
            {"field_0": "age", "op_0": "present"},
            {"field": "age", "op": "is_null", "value": False},
        ),
        (
            {"field_0": "city", "op_0": "near_two", "value_0": "Rmoe", "spelling_0": "any"},
            {"field": "city", "op": "near", "value": "Rmoe", "within": 2, "fold": True},
        ),
        (
            {"field_0": "city", "op_0": "in", "value_0": "rome\nOSLO", "spelling_0": "any"},
            {"field": "city", "op": "in", "value": ["rome", "OSLO"], "fold": True},
        ),
        # spelling counts where a comparison cannot do without, whatever was ticked before
        (
            {"field_0": "age", "op_0": "eq", "value_0": "7", "spelling_0": "any"},
            {"field": "age", "op": "eq", "value": 7},
        ),
        # as questions that were saved by a version before have it
        (
            {"field_0": "city", "op_0": "contains_alike", "value_0": "rom"},
            {"field": "city", "op": "contains", "value": "rom", "fold": True},
        ),
        # a comparison that the field's new type lacks becomes the type's first
        (
            {"field_0": "city", "op_0": "between", "value_0": "Rome"},
            {"field": "city", "op": "eq", "value": "Rome"},
        ),
    ],
)
def test_a_filter_asks_what_it_says(form: dict[str, str], condition: dict[str, Any]) -> None:
    assert asked(**form)["where"] == {"and": [condition]}


@pytest.mark.parametrize(
    ("kind", "op"), [(kind, op) for kind in BY_NAME for op in phrases_of(kind)]
)
def test_every_phrase_is_one_that_the_search_understands(kind: str, op: str) -> None:
    name = next(name for name in TYPES if TYPES[name] == kind)
    value, second = VALUES.get(kind, ("2", "3"))
    value = "who from visits where ward = 'north'" if op in AMONG else value

    body = asked(field_0=name, op_0=op, value_0=value, second_0=second)

    parse_query(body, DEFINITION, Joins())
    (condition,) = body["where"]["and"]
    assert condition.get("not", condition)["field"] == name
    assert ("not" in condition) == (op == "not_among")


def test_every_comparison_of_texts_is_offered_also_in_any_spelling_and_at_each_distance() -> None:
    offered = [
        asked(field_0="city", op_0=op, value_0="a%", second_0="b", spelling_0="any")["where"]
        for op in phrases_of("string")
        if op not in AMONG
    ]
    conditions = [condition for where in offered for condition in where["and"]]
    assert {one["op"] for one in conditions} >= {*TEXT_OPERATORS, *FOLDING}
    assert {one["op"] for one in conditions if one.get("fold")} == set(FOLDING)
    near = [one.get("within", 1) for one in conditions if one["op"] == "near"]
    assert near == list(range(1, MOST_EDITS + 1))
    assert not any(has_spellings(kind, "eq") for kind in BY_NAME if kind != "string")


def test_the_values_of_another_schema_are_typed_as_on_the_command_line() -> None:
    name = "of `all`"
    ward = {"field": "ward", "op": "eq", "value": "north"}
    of = {"schema": "visits", "field": "who", "where": ward}
    for typed in (
        "who from visits where ward = 'north'",
        " SELECT who FROM visits where ward='north'",
    ):
        flaws: list[Flaw] = []
        condition = condition_of(Filter(name, "among", [typed]), {name: "string"}, flaws)
        assert (condition, flaws) == ({"field": name, "op": "in", "of": of}, [])
    for typed in ("secret", "who from", "who from visits) or (a = 1"):
        with pytest.raises(InvalidQuery) as caught:
            asked(field_0="city", op_0="among", value_0=typed)
        (flaw,) = caught.value.flaws
        assert flaw.field == "city"
        assert typed not in flaw.detail


def test_filters_that_nothing_was_typed_into_do_not_count() -> None:
    assert "where" not in asked(field_0="city", op_0="eq", value_0="  ")
    assert "where" not in asked()


def test_filters_combine_to_all_or_any_of_them() -> None:
    two = {"field_0": "city", "op_0": "eq", "value_0": "Rome", "field_1": "age", "op_1": "missing"}

    assert list(asked(**two)["where"]) == ["and"]
    assert list(asked(**two, any="yes")["where"]) == ["or"]


@pytest.mark.parametrize("typed", ["many", "1,5", "1e3", "NaN"])
def test_what_is_no_number_is_refused_with_its_field_and_not_repeated(typed: str) -> None:
    with pytest.raises(InvalidQuery) as caught:
        asked(field_0="age", op_0="ge", value_0=typed)

    (flaw,) = caught.value.flaws
    assert flaw.field == "age"
    assert typed not in flaw.detail


def test_a_column_sorts_up_then_down_then_not_at_all() -> None:
    question = Question(pages=["cursor"])
    seen = []
    for _ in range(3):
        question.sort("age")
        seen.append(question.body("x", TYPES).get("order_by"))

    up, down = ([{"field": "age", "descending": way}] for way in (False, True))
    assert seen == [up, down, None]
    assert question.pages == []

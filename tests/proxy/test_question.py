"""The line that asks, the parts of a question, and the search that they ask for."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.client.sdk.condition_language import NotUnderstood
from encrypted_records.errors import InvalidQuery
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.predicates import Joins
from encrypted_records.model.queries import parse_query
from encrypted_records.proxy.pages.search_form import (
    SHOWN_OF_PART,
    Question,
    condition_of,
    is_words,
    read_line,
    types_of,
)

DEFINITION: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "properties": {
        "city": {"type": "string"},
        "born": {"type": "string", "format": "date"},
        "seen": {"type": "string", "format": "date-time"},
        "alive": {"type": "integer", "minimum": 0, "maximum": 1, "format": "boolean"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "height": {"type": "number", "minimum": 0, "maximum": 3, "precision": 2},
        "note": {"type": "string"},
    },
}
TYPES = types_of(DEFINITION)
PARSED = parse_definition(json.dumps(DEFINITION))


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("  ", []),
        ("age >= 30 and city='Rome'", ["age >= 30", 'city = "Rome"']),
        ("age = 1 or city = 'x'", ['age = 1 or city = "x"']),
        ("(age = 1 or age = 2) and alive = TRUE", ["age = 1 or age = 2", "alive = true"]),
        ("mary", ["mary"]),
        (" Mary O'Brien ", ["Mary O'Brien"]),
        ("'age > 3'", ["'age > 3'"]),
        ("mary and john", ["mary and john"]),
        ("born > 1980", ["born > 1980"]),
        ("age in (select who from visits)", ["age in (select who from visits)"]),
    ],
)
def test_a_line_becomes_parts_that_must_all_hold(line: str, parts: list[str]) -> None:
    read = read_line(line, DEFINITION)
    assert read == parts
    body = Question(read).body("x", TYPES)
    assert ("where" in body) == bool(parts)
    parse_query(body, PARSED, Joins())


@pytest.mark.parametrize(
    ("line", "at", "what"),
    [
        ("age > 30 and aeg = 3", 13, "no such field"),
        ("age = old", 6, "expected a value"),
        ("city = 'x' and (age = 'old' or height > 1)", 16, "expected an integer"),
        ("Age > 3", 0, "no such field"),
        ("born > 'tomorrow'", 0, "date"),
        ("age >", 5, "expected a value after >"),
        ("age > 3 xor 7", 8, "expected the end"),
        ("not age = 1 and city in (select a from b where", 46, "expected the name of a field"),
        ("x=" + "(" * 65536, 2, "expected a value"),
        ("wrad contains 'a'", 0, "no such field"),
        (r' "C:\data"', 0, "cannot be a text"),
    ],
)
def test_a_line_that_asks_nothing_is_refused_at_its_place(line: str, at: int, what: str) -> None:
    with pytest.raises(NotUnderstood) as refused:
        read_line(line, DEFINITION)
    assert refused.value.at == at
    assert what in refused.value.what


@given(st.text(max_size=30) | st.text("age city=<>()'\"`,1.- or", max_size=24))
def test_every_line_is_parts_that_can_be_asked_or_a_named_error(line: str) -> None:
    try:
        parts = read_line(line, DEFINITION)
    except InvalidQuery:
        return
    parse_query(Question(parts).body("x", TYPES), PARSED, Joins())
    assert [read_line(part, DEFINITION) for part in parts] == [[part] for part in parts]


def test_words_are_looked_for_in_all_texts_in_any_spelling() -> None:
    (part,) = read_line('"O\'Brien"', DEFINITION)
    contains = {"op": "contains", "value": "O'Brien", "fold": True}
    asked = condition_of(part, TYPES)
    assert asked == {"or": [{"field": name, **contains} for name in ("city", "note")]}
    assert Question([part]).says(TYPES) == ['any text contains "O\'Brien"']
    assert not is_words("age", TYPES)
    with pytest.raises(NotUnderstood, match="text field that can be searched"):
        read_line("mary", {"type": "object", "properties": {"age": {"type": "integer"}}})


def test_a_form_carries_every_part_of_a_long_line() -> None:
    parts = read_line(" and ".join(f"age != {number}" for number in range(120)), DEFINITION)
    assert len(parts) == 120
    assert Question.read(dict(Question(parts).carried()), TYPES).parts == parts


def test_a_part_about_a_field_that_is_gone_is_refused_and_not_looked_for_as_words() -> None:
    asked = Question(['ward contains "a"']).body("x", TYPES)
    with pytest.raises(InvalidQuery) as refused:
        parse_query(asked, PARSED, Joins())
    assert "no such field" in refused.value.flaws[0].detail


def test_a_part_that_cannot_be_asked_is_shown_all_the_same() -> None:
    assert Question([r'"C:\data"']).says(TYPES) == [r'any text contains "C:\data"']


def test_long_parts_are_shown_by_their_beginning() -> None:
    (part,) = read_line(f"city = '{'x' * 65536}'", DEFINITION)
    (said,) = Question([part]).says(TYPES)
    assert len(said) == SHOWN_OF_PART + 1


@pytest.mark.parametrize(
    ("form", "parts"),
    [
        ({"field_0": "city", "op_0": "prefix", "value_0": "Ro"}, ['city starts with "Ro"']),
        (
            {"field_0": "city", "op_0": "in", "value_0": "Rome\r\nNew York, NY\r\n\r\n"},
            ['city in ("Rome", "New York, NY")'],
        ),
        (
            {"field_0": "age", "op_0": "between", "value_0": " 18", "second_0": "65"},
            ["age between 18 and 65"],
        ),
        ({"field_0": "age", "op_0": "between", "value_0": "", "second_0": "65"}, ["age <= 65"]),
        ({"field_0": "height", "op_0": "gt", "value_0": "1.50"}, ["height > 1.50"]),
        ({"field_0": "age", "op_0": "missing"}, ["age is null"]),
        ({"field_0": "age", "op_0": "present"}, ["age is not null"]),
        (
            {"field_0": "city", "op_0": "near_two", "value_0": "Rmoe", "spelling_0": "any"},
            ['city near "Rmoe" within 2 folded'],
        ),
        (
            {"field_0": "city", "op_0": "contains_alike", "value_0": "rom"},
            ['city contains "rom" folded'],
        ),
        (
            {"field_0": "city", "op_0": "not_among", "value_0": "who from visits where a = 1"},
            ["city not in (select who from visits where a = 1)"],
        ),
        ({"field_0": "alive", "op_0": "eq", "value_0": "yes"}, ["alive = true"]),
        ({"field_0": "age", "op_0": "eq", "value_0": "old"}, ['age = "old"']),
        ({"field_0": "city", "op_0": "eq", "value_0": "  "}, []),
        (
            {
                **{"field_0": "city", "op_0": "eq", "value_0": "Rome", "any": "yes"},
                **{"field_1": "age", "op_1": "ge", "value_1": "60"},
                **{"field_2": "city", "op_2": "eq", "value_2": "Oslo", "narrows_2": "yes"},
            },
            ['city = "Rome" or age >= 60', 'city = "Oslo"'],
        ),
    ],
)
def test_a_question_that_a_version_before_has_saved_asks_the_same(
    form: dict[str, str], parts: list[str]
) -> None:
    form = {name.replace("_", "-"): text for name, text in form.items()}
    assert Question.read(form, TYPES).parts == parts


def test_a_year_of_a_date_is_a_text_and_of_a_number_a_number() -> None:
    assert condition_of("born between 1980 and 1989", TYPES)["value"] == ["1980", "1989"]
    assert condition_of("not seen < 2026", TYPES)["not"]["value"] == "2026"
    assert condition_of("age > 30", TYPES)["value"] == 30
    assert condition_of("height > 1.50", TYPES)["value"] == Decimal("1.50")


def test_a_column_sorts_up_then_down_then_not_at_all() -> None:
    question = Question(pages=["cursor"])
    seen = []
    for _ in range(3):
        question.sort("age")
        seen.append(question.body("x", TYPES).get("order_by"))

    up, down = ([{"field": "age", "descending": way}] for way in (False, True))
    assert seen == [up, down, None]
    assert question.pages == []

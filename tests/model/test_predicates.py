"""A search is read with its exact meaning, or refused with a pointer to what cannot be asked."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from encrypted_records.errors import InvalidQuery
from encrypted_records.model import predicates as p
from encrypted_records.model import queries as c
from encrypted_records.model import queries as q
from encrypted_records.model import strict_json
from encrypted_records.model.definition_parser import parse_definition

DEFINITION = parse_definition(
    """{"type": "object", "properties": {
        "age": {"type": "integer", "minimum": 0, "maximum": 120, "enum": [1, 2]},
        "price": {"type": "number", "minimum": -1, "maximum": 1, "precision": 1},
        "city": {"type": "string", "maxLength": 3},
        "a/b": {"type": "string"}
    }}"""
)


def where(text: str) -> p.Predicate:
    return q.parse_query({"where": strict_json.loads(text)}, DEFINITION).where


def flaw_of(body: dict[str, Any]) -> tuple[str, str | None]:
    with pytest.raises(InvalidQuery) as caught:
        q.parse_query(body, DEFINITION)
    (flaw,) = caught.value.flaws
    return flaw.code, flaw.pointer


def asked(field: str, op: str, value: str | None = None) -> p.Predicate:
    tail = "" if value is None else f', "value": {value}'
    return where(f'{{"field": "{field}", "op": "{op}"{tail}}}')


def text_range(low: str | None, high: str | None, low_in: bool, high_in: bool) -> p.TextRange:
    return p.TextRange("city", low, high, low_included=low_in, high_included=high_in)


@pytest.mark.parametrize(
    ("field", "op", "value", "expected"),
    [
        ("age", "eq", "41", p.NumberIn("age", frozenset({41}))),
        ("age", "eq", "41.0", p.NumberIn("age", frozenset({41}))),
        ("age", "ne", "0", p.Not(p.NumberIn("age", frozenset({0})))),
        ("age", "in", "[1, 2e0, 1]", p.NumberIn("age", frozenset({1, 2}))),
        ("age", "lt", "5", p.NumberRange("age", 0, 4)),
        ("age", "lt", "4.5", p.NumberRange("age", 0, 4)),
        ("age", "le", "4.5", p.NumberRange("age", 0, 4)),
        ("age", "gt", "4.5", p.NumberRange("age", 5, 120)),
        ("age", "ge", "4.5", p.NumberRange("age", 5, 120)),
        ("age", "gt", "5", p.NumberRange("age", 6, 120)),
        ("age", "between", "[3, 5]", p.NumberRange("age", 3, 5)),
        ("age", "between", "[-1e99, 1e99]", p.NumberRange("age", -1, 121)),
        ("age", "between", "[5, 3]", p.NumberRange("age", 5, 3)),
        ("price", "eq", "0.05", p.NumberIn("price", frozenset({0}))),
        ("price", "in", "[0.15, 0.25]", p.NumberIn("price", frozenset({2}))),
        ("price", "ge", "0.05", p.NumberRange("price", 1, 10)),
        ("price", "le", "0.05", p.NumberRange("price", -10, 0)),
        ("price", "lt", "1e-300", p.NumberRange("price", -10, 0)),
        ("city", "eq", '"e\\u0301"', p.TextIn("city", frozenset({"\u00e9"}))),
        (
            "city",
            "eq",
            '"longer than maxLength"',
            p.TextIn("city", frozenset({"longer than maxLength"})),
        ),
        ("city", "ne", '""', p.Not(p.TextIn("city", frozenset({""})))),
        ("city", "in", '["a", "b"]', p.TextIn("city", frozenset({"a", "b"}))),
        ("city", "lt", '"a"', text_range(None, "a", False, False)),
        ("city", "le", '"a"', text_range(None, "a", False, True)),
        ("city", "gt", '"a"', text_range("a", None, False, False)),
        ("city", "ge", '"a"', text_range("a", None, True, False)),
        ("city", "between", '["a", "b"]', text_range("a", "b", True, True)),
        ("city", "prefix", '"A\\u030a"', p.TextPrefix("city", "\u00c5")),
        ("city", "is_null", None, p.Absent("city")),
        ("city", "is_null", "null", p.Absent("city")),
        ("age", "is_null", "true", p.Absent("age")),
        ("age", "is_null", "false", p.Not(p.Absent("age"))),
    ],
)
def test_an_operator_becomes_its_leaf(
    field: str, op: str, value: str | None, expected: p.Predicate
) -> None:
    assert asked(field, op, value) == expected


@pytest.mark.parametrize(
    ("field", "op", "value", "code", "at"),
    [
        ("gone", "eq", "1", "unknown_field", "/field"),
        ("age", "like", "1", "op", "/op"),
        ("age", "prefix", '"1"', "op", "/op"),
        ("age", "eq", '"1"', "type", "/value"),
        ("age", "eq", "true", "type", "/value"),
        ("age", "eq", "null", "type", "/value"),
        ("age", "eq", "1.5", "type", "/value"),
        ("age", "eq", "121", "maximum", "/value"),
        ("age", "ne", "-1", "minimum", "/value"),
        ("age", "in", "[]", "type", "/value"),
        ("age", "in", "1", "type", "/value"),
        ("age", "in", "[1, 121]", "maximum", "/value/1"),
        ("age", "in", "[null]", "type", "/value/0"),
        ("age", "lt", '"1"', "type", "/value"),
        ("age", "lt", "null", "type", "/value"),
        ("age", "lt", "[]", "type", "/value"),
        ("age", "between", "[1]", "type", "/value"),
        ("age", "between", "[1, 2, 3]", "type", "/value"),
        ("age", "between", '[1, "2"]', "type", "/value/1"),
        ("age", "between", "[null, 2]", "type", "/value/0"),
        ("age", "is_null", "0", "type", "/value"),
        ("city", "eq", "1", "type", "/value"),
        ("city", "eq", "null", "type", "/value"),
        ("city", "in", '["a", 1]', "type", "/value/1"),
        ("city", "lt", "1", "type", "/value"),
        ("city", "prefix", "1", "type", "/value"),
        ("city", "prefix", "null", "type", "/value"),
        ("city", "eq", '"\\ud800"', "unicode", "/value"),
        ("city", "between", '["a", "\\ud800"]', "unicode", "/value/1"),
    ],
)
def test_a_comparison_that_cannot_be_asked_is_refused_with_its_place(
    field: str, op: str, value: str, code: str, at: str
) -> None:
    found = {"field": field, "op": op, "value": strict_json.loads(value, halves=True)}
    assert flaw_of({"where": found}) == (code, f"/where{at}")


@pytest.mark.parametrize(
    ("field", "op", "value", "more", "code", "at"),
    [
        ("city", "matches", "(a", {}, "pattern", "/value"),
        ("city", "matches", "(?=a)", {}, "pattern", "/value"),
        ("city", "matches", "a" * 1001, {}, "pattern", "/value"),
        ("city", "matches", "((a{1000}){1000}){1000}", {}, "pattern", "/value"),
        ("city", "like", "a\\b", {}, "pattern", "/value"),
        ("age", "contains", "1", {}, "op", "/op"),
        ("age", "eq", 1, {"fold": True}, "op", "/fold"),
        ("city", "lt", "a", {"fold": True}, "op", "/fold"),
        ("city", "contains", "a", {"fold": "yes"}, "type", "/fold"),
        ("city", "contains", ["a"], {}, "type", "/value"),
        ("city", "near", "a", {"within": 3}, "within", "/within"),
        ("city", "near", "a", {"within": True}, "within", "/within"),
        ("city", "contains", "a", {"within": 1}, "op", "/within"),
        ("city", "has_words", "...", {}, "words", "/value"),
        ("city", "has_phrase", "a " * 65, {}, "words", "/value"),
        ("city", "has_words", "a", {"fold": True}, "op", "/fold"),
        ("age", "has_words", "1", {}, "op", "/op"),
        ("city", "in", [], {"fold": True}, "type", "/value"),
        ("city", "in", ["a", 1], {"fold": True}, "type", "/value/1"),
    ],
)
def test_a_test_of_a_text_that_cannot_be_asked_is_refused_with_its_place(
    field: str, op: str, value: Any, more: dict[str, Any], code: str, at: str
) -> None:
    found = {"field": field, "op": op, "value": value, **more}
    assert flaw_of({"where": found}) == (code, f"/where{at}")


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({"where": []}, "type", "/where"),
        ({"where": {}}, "where", "/where"),
        ({"where": {"xor": []}}, "where", "/where"),
        ({"where": {"and": [], "or": []}}, "where", "/where"),
        ({"where": {"and": []}}, "type", "/where/and"),
        ({"where": {"or": {}}}, "type", "/where/or"),
        ({"where": {"or": [{"not": 1}]}}, "type", "/where/or/0/not"),
        ({"where": {"and": [{"op": "eq"}]}}, "unknown_field", "/where/and/0/field"),
        ({"where": {"field": "age"}}, "op", "/where/op"),
        ({"where": {"field": ["age"], "op": "eq"}}, "unknown_field", "/where/field"),
        ({"where": {"field": "age", "op": ["eq"]}}, "op", "/where/op"),
        ({"where": {"field": "age", "op": "eq", "x/y": 1}}, "unknown_member", "/where/x~1y"),
        ({"order_by": "age"}, "type", "/order_by"),
        ({"order_by": ["age"] * 9}, "type", "/order_by"),
        ({"order_by": ["gone"]}, "unknown_field", "/order_by/0"),
        ({"order_by": ["age", "-age"]}, "order_by", "/order_by/1"),
        ({"order_by": [1]}, "type", "/order_by/0"),
        ({"order_by": [{"field": "age", "descending": 1}]}, "type", "/order_by/0"),
        ({"order_by": [{"field": "age", "down": True}]}, "unknown_member", "/order_by/0/down"),
        ({"x~y": 1}, "unknown_member", "/x~0y"),
        ({"limit": -1}, "limit", "/limit"),
        ({"limit": 1001}, "limit", "/limit"),
        ({"limit": True}, "limit", "/limit"),
        ({"limit": "1"}, "limit", "/limit"),
        ({"limit": Decimal("1.0")}, "limit", "/limit"),
        ({"limit": None}, "limit", "/limit"),
        ({"count": 1}, "type", "/count"),
        ({"count": None}, "type", "/count"),
        ({"cursor": 1}, "type", "/cursor"),
        ({"fields": "age"}, "type", "/fields"),
        ({"fields": ["age", "gone"]}, "unknown_field", "/fields/1"),
        ({"fields": [["age"]]}, "unknown_field", "/fields/0"),
        ({"filters": {}}, "type", "/filters"),
        ({"filters": [{"label": "age"}]}, "type", "/filters/0"),
        ({"filters": [{"label": "age", "value": 1, "op": "lt"}]}, "type", "/filters/0"),
        ({"filters": [{"label": "gone", "value": 1}]}, "unknown_field", "/filters/0/label"),
        ({"filters": [{"label": "age", "value": "one"}]}, "type", "/filters/0/value"),
        ({"filters": [{"label": "age", "value": ">"}]}, "type", "/filters/0/value"),
        ({"filters": [{"label": "age", "value": "1.5"}]}, "type", "/filters/0/value"),
        ({"filters": [{"label": "age", "value": "=1"}]}, "type", "/filters/0/value"),
        ({"filters": [{"label": "age", "value": "\u0661"}]}, "type", "/filters/0/value"),
    ],
    ids=str,
)
def test_a_search_that_cannot_be_asked_is_refused_with_its_place(
    body: dict[str, Any], code: str, pointer: str
) -> None:
    assert flaw_of(body) == (code, pointer)


def test_an_empty_search_asks_for_everything() -> None:
    query = q.parse_query({}, DEFINITION)
    assert query == q.Query(p.Everything(), (), None, q.DEFAULT_LIMIT, None, count=False)
    assert q.parse_query({"where": None, "filters": None, "cursor": None}, DEFINITION) == query


def test_every_member_of_a_search_is_read() -> None:
    body = {
        "schema": "/api/schemas/x/",
        "where": {"field": "age", "op": "eq", "value": 1},
        "filters": [{"label": "city", "value": "x"}],
        "order_by": ["-age"],
        "fields": ["a/b", "age"],
        "limit": 0,
        "cursor": "abc",
        "count": True,
    }
    age, city = p.NumberIn("age", frozenset({1})), p.TextIn("city", frozenset({"x"}))
    expected = q.Query(
        p.And((age, city)),
        (q.SortKey("age", descending=True),),
        ("a/b", "age"),
        0,
        "abc",
        count=True,
    )
    assert q.parse_query(body, DEFINITION) == expected


TYPED = parse_definition(
    json.dumps(
        {
            "type": "object",
            "formats": "enforced",
            "properties": {
                "level": {"type": "integer", "minimum": 0, "maximum": 102},
                "score": {"type": "number", "minimum": -5, "maximum": 10, "precision": 2},
                "kind": {"type": "string"},
                "day": {"type": "string", "format": "date"},
                "alive": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
            },
        }
    )
)


@pytest.mark.parametrize(
    ("label", "text", "op", "value"),
    [
        ("level", "40", "eq", 40),
        ("level", "40.0", "eq", 40),
        ("level", "40~45", "between", [40, 45]),
        ("level", ">40", "gt", 40),
        ("level", ">= 47", "ge", 47),
        ("score", "<1.7", "lt", Decimal("1.7")),
        ("score", "<=-1.5", "le", Decimal("-1.5")),
        ("score", "1.50", "eq", Decimal("1.5")),
        ("day", ">2026-01-31", "gt", "2026-01-31"),
        ("day", "<=2026-01", "le", "2026-01"),
        ("day", "2026-01-31", "eq", "2026-01-31"),
        ("alive", "true", "eq", True),
        ("alive", "false", "eq", False),
        ("kind", ">40", "eq", ">40"),
        ("kind", "40", "eq", "40"),
        ("kind", "true", "eq", "true"),
    ],
)
def test_a_filter_takes_a_text_of_the_fields_type_and_a_sign(
    label: str, text: str, op: str, value: Any
) -> None:
    by_filter = q.parse_query({"filters": [{"label": label, "value": text}]}, TYPED)
    same = q.parse_query({"where": {"field": label, "op": op, "value": value}}, TYPED)
    assert by_filter.where == same.where


def test_a_condition_takes_no_text_for_a_number() -> None:
    with pytest.raises(InvalidQuery):
        q.parse_query({"where": {"field": "level", "op": "eq", "value": "40"}}, TYPED)


def test_and_or_and_not_nest() -> None:
    found = where(
        '{"or": [{"not": {"field": "age", "op": "is_null"}},'
        ' {"and": [{"field": "city", "op": "is_null"}, {"field": "age", "op": "is_null"}]}]}'
    )
    both = p.And((p.Absent("city"), p.Absent("age")))
    assert found == p.Or((p.Not(p.Absent("age")), both))
    assert p.fields_of(found) == {"age", "city"}
    assert p.fields_of(p.Everything()) == frozenset()


def test_ranges_of_one_field_that_all_must_hold_are_one() -> None:
    found = where(
        '{"and": [{"field": "age", "op": "ge", "value": 20}, {"field": "city", "op": "is_null"},'
        ' {"and": [{"field": "age", "op": "lt", "value": 30}]}]}'
    )
    assert found == p.And((p.NumberRange("age", 20, 29), p.Absent("city")))


def nested(levels: int) -> Any:
    found: Any = {"field": "age", "op": "is_null"}
    for _ in range(levels - 1):
        found = {"not": found}
    return found


def test_conditions_nest_16_deep_and_no_deeper() -> None:
    q.parse_query({"where": nested(c.MAX_DEPTH)}, DEFINITION)
    code, pointer = flaw_of({"where": nested(c.MAX_DEPTH + 1)})
    assert (code, pointer) == ("too_deep", "/where" + "/not" * c.MAX_DEPTH)


def test_256_comparisons_are_taken_and_no_more() -> None:
    one = {"field": "age", "op": "is_null"}
    q.parse_query({"where": {"or": [one] * c.MAX_COMPARISONS}}, DEFINITION)
    assert flaw_of({"where": {"or": [one] * (c.MAX_COMPARISONS + 1)}})[0] == "too_many"
    filters = [{"label": "age", "value": 1}]
    body = {"where": {"or": [one] * c.MAX_COMPARISONS}, "filters": filters}
    assert flaw_of(body) == ("too_many", "/filters/0")


def test_4096_values_of_all_comparisons_are_taken_and_no_more() -> None:
    many = {"field": "age", "op": "in", "value": [1] * 1000}
    one = {"field": "age", "op": "eq", "value": 1}
    assert c.MAX_VALUES == 4096
    q.parse_query({"where": {"or": [many] * 4 + [one] * 96}}, DEFINITION)
    found = {"or": [many] * 4 + [one] * 97}
    assert flaw_of({"where": found}) == ("too_many_values", "/where/or/100/value")
    # They are counted before any of them is looked at.
    wrong = {"field": "age", "op": "in", "value": ["no number"] * 1000}
    assert flaw_of({"where": {"or": [many] * 4 + [wrong]}})[0] == "too_many_values"


def test_1000_values_are_taken_and_no_more() -> None:
    q.parse_query({"where": {"field": "age", "op": "in", "value": [1] * 1000}}, DEFINITION)
    found = {"field": "age", "op": "in", "value": [1] * 1001}
    assert flaw_of({"where": found}) == ("type", "/where/value")


def test_asking_for_a_value_that_an_enum_rules_out_is_a_question_like_any_other() -> None:
    assert asked("age", "eq", "3") == p.NumberIn("age", frozenset({3}))


def test_ranges_near_very_large_bounds_are_exact() -> None:
    low = 10**40 - 1000
    definition = parse_definition(
        '{"type": "object", "properties": {"n": {"type": "integer",'
        f' "minimum": {low}, "maximum": {low + 500}}}}}}}'
    )
    for op, first, last in [("ge", 100, 500), ("gt", 101, 500), ("le", 0, 100), ("lt", 0, 99)]:
        body = {"where": {"field": "n", "op": op, "value": low + 100}}
        expected = p.NumberRange("n", low + first, low + last)
        assert q.parse_query(body, definition).where == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([], ()),
        (["age", "-city"], (q.SortKey("age"), q.SortKey("city", descending=True))),
        ([{"field": "a/b"}], (q.SortKey("a/b"),)),
        ([{"field": "age", "descending": True}], (q.SortKey("age", descending=True),)),
    ],
)
def test_an_order_names_fields_and_which_of_them_descend(asked: Any, expected: Any) -> None:
    assert q.parse_query({"order_by": asked}, DEFINITION).order == expected

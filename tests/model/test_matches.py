"""What a predicate means on a plain record is what the oracle says it means."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given

from encrypted_records.model.definition import Value
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.predicates import matches
from encrypted_records.model.queries import parse_query
from tests import oracle
from tests.index.strategies import TEXTS, Case, cases


@given(cases())
def test_a_predicate_means_what_the_oracle_says(case: Case) -> None:
    definition = parse_definition(case.text)
    for where in case.asked:
        asked = parse_query({"where": where}, definition).where
        for record in case.records:
            data: dict[str, Value] = {
                name: definition.fields[name].accept(value) for name, value in record.items()
            }
            expected = oracle.holds(where, record, case.fields)
            assert matches(asked, data, definition) == expected
            present = {name: value for name, value in data.items() if value is not None}
            assert matches(asked, present, definition) == expected


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge", "prefix"])
def test_every_text_compares_with_every_other_as_the_oracle_says(op: str) -> None:
    text = '{"type": "object", "properties": {"s": {"type": "string"}}}'
    definition = parse_definition(text)
    fields: dict[str, dict[str, Any]] = {"s": {"type": "string"}}
    for operand in TEXTS:
        where = {"field": "s", "op": op, "value": operand}
        asked = parse_query({"where": where}, definition).where
        for stored in TEXTS:
            expected = oracle.holds(where, {"s": stored}, fields)
            assert matches(asked, {"s": stored}, definition) == expected


def test_an_absent_field_is_in_no_comparison_and_ne_is_the_negation_of_eq() -> None:
    definition = parse_definition(
        '{"type": "object", "properties": {"s": {"type": "string"},'
        ' "n": {"type": "integer", "minimum": 0, "maximum": 9}}}'
    )

    def holds(field: str, op: str, value: Any) -> bool:
        body = {"where": {"field": field, "op": op, "value": value}}
        return matches(parse_query(body, definition).where, {}, definition)

    for field, value in (("s", ""), ("n", 0)):
        assert holds(field, "ne", value)
        assert not holds(field, "is_null", value=False)
        for op in ("eq", "lt", "le", "gt", "ge"):
            assert not holds(field, op, value)
    assert not holds("s", "prefix", "")


def test_the_oracle_itself_says_what_the_rules_say() -> None:
    """Spelled out by hand, so that the two cannot be wrong together."""
    fields: dict[str, dict[str, Any]] = {
        "s": {"type": "string"},
        "n": {"type": "number", "minimum": 0, "maximum": 9, "precision": 1},
    }

    def holds(op: str, value: Any, **record: Any) -> bool:
        (field,) = record
        return oracle.holds({"field": field, "op": op, "value": value}, record, fields)

    assert holds("eq", "\u00e9", s="e\u0301")
    assert not holds("eq", "E", s="e")
    assert holds("lt", "\U00010000", s="\uffff"), "code points, not UTF-16"
    assert holds("prefix", "", s="")
    assert not holds("prefix", "e", s="e\u0301")
    assert holds("eq", Fraction(1, 4), n=Fraction(1, 5)), "0.25 rounds to 0.2"
    assert holds("eq", Fraction(7, 20), n=Fraction(2, 5)), "0.35 rounds to 0.4"
    assert holds("lt", Fraction(1, 4), n=Fraction(1, 4)), "stored 0.2, asked 0.25"
    assert not holds("le", Fraction(7, 20), n=Fraction(7, 20))
    assert holds("between", [0, 9], n=9)
    assert holds("ne", 1, n=None)
    assert not holds("ge", 0, n=None)
    assert holds("is_null", None, n=None)
    assert holds("is_null", False, n=0)

"""Why a question finds nothing, decided from counts alone: no service is needed."""

from __future__ import annotations

from typing import Any

import pytest

from encrypted_records.client.proxy.records import Reason
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.predicates import Predicate, TextIn
from encrypted_records.model.queries import Conditions
from encrypted_records.model.texts import TextTest
from encrypted_records.proxy.search.search import reason_about

DEFINITION = parse_definition("""{"type": "object", "properties": {
    "city": {"type": "string"},
    "age": {"type": "integer", "minimum": 0, "maximum": 99}}}""")


def told(asked: dict[str, Any], *counts: int) -> tuple[Reason, list[Predicate]]:
    """The reason, and what was counted for it, with these counts one after the other."""
    where = Conditions(DEFINITION).comparison(asked, "/where")
    reasoning = reason_about(asked, "/where", where, DEFINITION)
    counted: list[Predicate] = []
    left = list(counts)
    try:
        counted.append(next(reasoning))
        while True:
            counted.append(reasoning.send(left.pop(0)))
    except StopIteration as end:
        assert not left
        reason: Reason = end.value
        return reason, counted


def compare(field: str, op: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"field": field, "op": op, "value": value, **more}


def test_a_comparison_that_finds_something_is_counted_once() -> None:
    reason, counted = told(compare("city", "eq", " Oslo "), 3)
    assert reason == Reason("/where", "city", "eq", 3)
    assert counted == [TextIn("city", frozenset({" Oslo "}))]


def test_a_text_that_nobody_has_is_counted_in_any_spelling_and_without_blanks() -> None:
    reason, counted = told(compare("city", "eq", " Oslo "), 0, 4, 2)
    assert reason == Reason("/where", "city", "eq", 0, folded=4, trimmed=2)
    assert counted[1:] == [
        TextTest("city", "any_of", (" oslo ",), fold=True),
        TextIn("city", frozenset({"Oslo"})),
    ]


def test_what_ignores_case_is_not_counted_so_again() -> None:
    reason, counted = told(compare("city", "in", ["oslo", "rome "], fold=True), 0, 5)
    assert reason == Reason("/where", "city", "in", 0, folded=None, trimmed=5)
    assert counted[1] == TextTest("city", "any_of", ("oslo", "rome"), fold=True)


@pytest.mark.parametrize(
    "asked", [compare("city", "ne", "Oslo"), compare("city", "gt", "z"), compare("age", "eq", 7)]
)
def test_other_forms_are_of_texts_that_are_looked_for(asked: dict[str, Any]) -> None:
    reason, counted = told(asked, 0)
    assert (reason.count, reason.folded, reason.trimmed, len(counted)) == (0, None, None, 1)


def test_a_range_without_any_value_is_not_counted() -> None:
    reason, counted = told(compare("age", "between", [40, 30]))
    assert (reason.count, counted) == (0, [])
    assert reason.never is not None
    assert "lower bound" in reason.never


def test_a_pattern_that_cannot_be_trimmed_is_counted_as_it_is() -> None:
    """The pattern stays valid: its last blank is escaped."""
    reason, counted = told(compare("city", "matches", "^Oslo\\ "), 0, 1)
    assert reason == Reason("/where", "city", "matches", 0, folded=1)
    assert len(counted) == 2

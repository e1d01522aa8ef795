"""A record is accepted, or every flaw in it is named by row, field and pointer, never by value."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import Flaw
from encrypted_records.ingest.check import validate
from encrypted_records.model.definition_parser import parse_definition
from tests.index.strategies import accepted, definition_texts
from tests.reference import definitions as plain

DEFINITION = parse_definition(
    """{"type": "object", "required": ["name", "a/b~c"], "properties": {
        "name": {"type": "string", "maxLength": 5, "minLength": 2, "pattern": "^[a-z]*$"},
        "a/b~c": {"type": "string", "enum": ["yes", "no"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 120, "multipleOf": 2},
        "price": {"type": "number", "minimum": 0, "maximum": 9, "precision": 1,
                  "exclusiveMinimum": 0, "exclusiveMaximum": 9}
    }}"""
)
GOOD: dict[str, Any] = {"name": "anna", "a/b~c": "yes"}


def flaws_of(**change: Any) -> list[Flaw]:
    _, flaws = validate(DEFINITION, GOOD | change, row=7, pointer="/6/data")
    return flaws


def test_an_accepted_record_holds_what_is_kept() -> None:
    sent = GOOD | {"age": Decimal("40.0"), "price": Decimal("0.25")}
    data, flaws = validate(DEFINITION, sent, row=1, pointer="")
    assert flaws == []
    assert data == GOOD | {"age": 40, "price": Decimal("0.2")}


def test_absent_and_null_are_one_thing() -> None:
    assert validate(DEFINITION, GOOD | {"age": None}, row=1, pointer="") == (GOOD, [])


@pytest.mark.parametrize(
    ("field", "sent", "code", "token"),
    [
        ("name", None, "required", "name"),
        ("name", 7, "type", "name"),
        ("name", "aabbcc", "max_length", "name"),
        ("name", "a", "min_length", "name"),
        ("name", "AB", "pattern", "name"),
        ("name", "\ud800ab", "unicode", "name"),
        ("a/b~c", None, "required", "a~1b~0c"),
        ("a/b~c", "maybe", "enum", "a~1b~0c"),
        ("age", True, "type", "age"),
        ("age", "40", "type", "age"),
        ("age", Decimal("40.5"), "multiple_of", "age"),
        ("age", -1, "minimum", "age"),
        ("age", 121, "maximum", "age"),
        ("age", 3, "multiple_of", "age"),
        ("age", [], "type", "age"),
        ("price", Decimal(0), "exclusive_minimum", "price"),
        ("price", Decimal(9), "exclusive_maximum", "price"),
        ("price", {}, "type", "price"),
        ("x/y", 1, "unknown_field", "x~1y"),
        ("x/y", None, "unknown_field", "x~1y"),
    ],
)
def test_a_flaw_names_row_field_code_and_pointer(
    field: str, sent: Any, code: str, token: str
) -> None:
    (flaw,) = flaws_of(**{field: sent})
    expected = (code, f"/6/data/{token}", 7, field)
    assert (flaw.code, flaw.pointer, flaw.row, flaw.field) == expected


def test_a_required_field_that_was_not_sent_is_missing() -> None:
    data, flaws = validate(DEFINITION, {}, row=1, pointer="/0/data")
    assert data == {}
    assert [(flaw.code, flaw.field) for flaw in flaws] == [
        ("required", "name"),
        ("required", "a/b~c"),
    ]


def test_all_flaws_of_a_record_are_named_at_once() -> None:
    found = flaws_of(name=1, age="x", nope=1)
    assert [flaw.field for flaw in found] == ["name", "age", "nope"]


@pytest.mark.parametrize("sent", ["HIV positive", Decimal("98765.4321"), 98765, -98765])
@pytest.mark.parametrize("field", list(DEFINITION.fields))
def test_no_flaw_repeats_a_value(field: str, sent: Any) -> None:
    (flaw,) = flaws_of(**{field: sent})
    assert str(sent).lstrip("-") not in repr(flaw)


@given(definition_texts(), st.data())
def test_what_the_fields_accept_is_accepted_whole(text: str, data: st.DataObject) -> None:
    definition, fields = parse_definition(text), plain.load(text).fields
    sent = {name: data.draw(st.none() | accepted(field)) for name, field in fields.items()}
    kept, flaws = validate(definition, sent, row=1, pointer="")
    assert flaws == []
    assert set(kept) == {name for name, value in sent.items() if value is not None}
    again, flaws = validate(definition, kept, row=1, pointer="")
    in_bounds = all(
        isinstance(value, str) or field["minimum"] <= value <= field["maximum"]
        for value, field in ((kept[name], fields[name]) for name in kept)
    )
    assert not in_bounds or (again, flaws) == (kept, [])


def test_of_a_record_with_many_flaws_a_thousand_are_told() -> None:
    sent = GOOD | {f"unknown {at}": 1 for at in range(5000)}
    data, flaws = validate(DEFINITION, sent, row=1, pointer="")
    assert data == GOOD
    assert len(flaws) == 1000

"""For how long records stay: what a definition may say of it, and which day that means."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pytest

from encrypted_records.errors import InvalidDefinition
from encrypted_records.model.definition import Retention, SchemaDefinition, number_of
from encrypted_records.model.definition_changes import list_changes
from encrypted_records.model.definition_parser import parse_canonical, parse_definition
from encrypted_records.model.predicates import matches
from encrypted_records.model.queries import Conditions

FIELDS = {
    "name": {"type": "string"},
    "seen": {"type": "string", "format": "date"},
    "at": {"type": "string", "format": "date-time"},
    "on": {"type": "boolean"},
}
NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC).timestamp()


def text_of(rule: Any, **root: Any) -> str:
    fields = {name: body for name, body in FIELDS.items() if name != "on"}
    return json.dumps(
        {"type": "object", "formats": "enforced", "properties": fields, "retention": rule, **root}
    )


def parsed(rule: Any, **root: Any) -> SchemaDefinition:
    return parse_definition(text_of(rule, **root))


@pytest.mark.parametrize(
    ("rule", "meant"),
    [
        ({"days": 1}, Retention(1)),
        ({"days": 36525}, Retention(36525)),
        ({"days": 30.0}, Retention(30)),
        ({"field": "seen", "days": 7}, Retention(7, "seen")),
        ({"days": 7, "field": "at"}, Retention(7, "at")),
    ],
)
def test_a_rule_is_read_and_stands_in_the_one_spelling(rule: Any, meant: Retention) -> None:
    definition = parsed(rule)
    assert definition.retention == meant
    assert parse_canonical(definition.canonical) == definition
    assert definition.digest != parse_definition(text_of({"days": 99})).digest


@pytest.mark.parametrize(
    ("rule", "pointers"),
    [
        (None, [""]),
        ([], [""]),
        (365, [""]),
        ({}, ["/days"]),
        ({"days": 0}, ["/days"]),
        ({"days": -1}, ["/days"]),
        ({"days": 1.5}, ["/days"]),
        ({"days": 36526}, ["/days"]),
        ({"days": 1e300}, ["/days"]),
        ({"days": True}, ["/days"]),
        ({"days": "365"}, ["/days"]),
        ({"days": 1, "years": 1}, ["/years"]),
        ({"days": 1, "field": "gone"}, ["/field"]),
        ({"days": 1, "field": None}, ["/field"]),
        ({"days": 1, "field": ["seen"]}, ["/field"]),
        ({"days": 1, "field": "name"}, ["/field"]),
        ({"days": 0, "field": "name", "x": 1}, ["/x", "/days", "/field"]),
    ],
)
def test_what_is_no_rule_is_refused_by_its_place(rule: Any, pointers: list[str]) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        parsed(rule)
    found = [(flaw.code, flaw.pointer) for flaw in caught.value.flaws]
    assert found == [("retention", f"/schema/retention{pointer}") for pointer in pointers]


def test_a_date_that_is_only_a_word_is_no_date_to_go_by() -> None:
    root = json.loads(text_of({"days": 1, "field": "seen"}))
    del root["formats"]
    with pytest.raises(InvalidDefinition) as caught:
        parse_definition(json.dumps(root))
    assert [flaw.pointer for flaw in caught.value.flaws] == ["/schema/retention/field"]


def test_another_rule_is_a_change_that_takes_one_commit_and_a_renamed_field_is_none() -> None:
    before = parsed({"days": 7, "field": "seen"})
    for rule in ({"days": 8, "field": "seen"}, {"days": 7, "field": "at"}, {"days": 7}):
        after = parsed(rule).following(before)
        (change,) = list_changes(before, after)
        assert (change.code, change.cost.value) == ("retention_changed", "commit")
    without = json.loads(text_of({"days": 1}))
    del without["retention"]
    plain = parse_definition(json.dumps(without)).following(before)
    assert [change.code for change in list_changes(before, plain)] == ["retention_changed"]
    assert [change.code for change in list_changes(plain, before)] == ["retention_changed"]
    fields = {("met" if name == "seen" else name): FIELDS[name] for name in ("name", "seen", "at")}
    renamed = parsed({"days": 7, "field": "met"}, properties=fields)
    codes = [
        change.code for change in list_changes(before, renamed.following(before, {"met": "seen"}))
    ]
    assert codes == ["field_renamed"]


@pytest.mark.parametrize(
    ("field", "value", "goes"),
    [
        ("seen", "2026-02-28", True),
        ("seen", "2026-03-01", False),
        ("seen", "2027-01-01", False),
        ("seen", None, False),
        ("at", "2026-02-28T23:59:59Z", True),
        ("at", "2026-03-01T00:30:00+01:00", True),
        ("at", "2026-03-01T00:00:00Z", False),
        ("at", None, False),
    ],
)
def test_a_record_goes_when_more_whole_days_lie_between(
    field: str, value: str | None, *, goes: bool
) -> None:
    definition = parsed({"days": 1, "field": field})
    rule, spec = Retention(1, field), definition.fields[field]
    assert rule.before(NOON) == date(2026, 3, 1)
    where = rule.where(NOON, moments=spec.format == "date-time")
    data = {field: spec.accept(value)}
    assert matches(Conditions(definition).read({"where": where}), data, definition) is goes


def test_days_are_counted_from_1970() -> None:
    assert number_of(Retention(1).before(86_400.0)) == 0
    assert number_of(Retention(1).before(86_399.9)) == -1

"""A search may begin further on, and a number may be asked for as a range in one text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from encrypted_records.model.queries import MAX_OFFSET
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": -150, "maximum": 150},
        "height": {"type": "number", "minimum": -3, "maximum": 3, "precision": 2},
    },
}
COUNT = 230


@pytest.fixture(scope="module")
def store(services: Callable[[str], Service]) -> Store:
    made = new_store(services("sqlite"), DEFINITION)
    made.ingest([{"age": number % 90, "height": number / 100} for number in range(COUNT)])
    return made


def ids(answer: dict[str, Any]) -> list[str]:
    return [result["id"] for result in answer["results"]]


def test_a_cursor_goes_on_behind_a_page_with_an_offset(store: Store) -> None:
    whole = ids(store.search(None, limit=1000, order_by=["age"]))
    page = store.search(None, limit=10, offset=30, order_by=["age"], count=True)
    assert page["count"] == COUNT
    following = store.search(None, limit=10, cursor=page["next_cursor"], order_by=["age"])
    assert ids(page) + ids(following) == whole[30:50]


@pytest.mark.parametrize("offset", [-1, MAX_OFFSET + 1, 10**30, 1.5, "1", True, None])
def test_an_offset_beyond_its_bounds_is_refused_by_name(store: Store, offset: Any) -> None:
    answer = store.ask(None, offset=offset)
    (flaw,) = answer.json()["errors"]
    assert (answer.status, flaw["code"], flaw["pointer"]) == (400, "offset", "/offset")
    assert "next_cursor" in flaw["detail"]


def test_an_offset_beside_a_cursor_is_refused(store: Store) -> None:
    cursor = store.search(None, limit=1)["next_cursor"]
    (flaw,) = store.ask(None, cursor=cursor, offset=1).json()["errors"]
    assert (flaw["code"], flaw["pointer"]) == ("offset", "/offset")
    assert store.ask(None, cursor=cursor, offset=0).status == 200


@pytest.mark.parametrize(
    ("field", "value", "low", "high"),
    [
        ("age", "40~45", 40, 45),
        ("age", "-5~3", -5, 3),
        ("age", "45~40", 45, 40),
        ("age", "0~100000", 0, 100000),
        ("height", "0.15~0.25", 0.15, 0.25),
        ("height", "-1~-0.5", -1, -0.5),
        ("height", "0.1~1", 0.1, 1),
    ],
)
def test_a_range_in_one_text_is_between_its_bounds(
    store: Store, field: str, value: str, low: float, high: float
) -> None:
    between = {"field": field, "op": "between", "value": [low, high]}
    expected = ids(store.search(between, limit=1000))
    filtered = store.search(None, limit=1000, filters=[{"label": field, "value": value}])
    assert ids(filtered) == expected
    equal = {"field": field, "op": "eq", "value": value}
    assert ids(store.search(equal, limit=1000)) == expected
    without = {"field": field, "op": "ne", "value": value}
    assert len(ids(store.search(without, limit=1000))) == COUNT - len(expected)


def test_of_a_text_such_a_value_is_a_text(store: Store) -> None:
    mine = store.another_schema(DEFINITION)
    mine.ingest([{"name": "40~45"}, {"name": "42"}])
    found = mine.search(None, filters=[{"label": "name", "value": "40~45"}])
    assert [result["data"]["name"] for result in found["results"]] == ["40~45"]


@pytest.mark.parametrize("value", ["40~", "~45", "40~45~50", "a~b", "40 ~ 45", "1e1~2e1"])
def test_what_is_no_range_is_refused_with_field_and_pointer(store: Store, value: str) -> None:
    answer = store.ask(None, filters=[{"label": "age", "value": value}])
    (flaw,) = answer.json()["errors"]
    assert (answer.status, flaw["field"], flaw["pointer"]) == (400, "age", "/filters/0/value")

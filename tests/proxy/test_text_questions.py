"""A question that finds nothing is explained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.service import Service
from tests.support.store import Store, new_store

FIELDS: dict[str, Any] = {
    "email": {"type": "string"},
    "city": {"type": "string"},
    "age": {"type": "integer", "minimum": 0, "maximum": 120},
}
CITIES = ["Z\u00fcrich", "zurich", "Edinburgh", "Edinburg", "S\u00e3o Paulo", "", "100%"]
NAMES = ["smith", "Jones", "m\u00fcller", "O'Neill"]
PEOPLE: list[dict[str, Any]] = [
    {
        "email": f"{NAMES[number % 4]}.{number:05}@example{number % 9}.org",
        "city": CITIES[number % 7],
        "age": number + 60,
    }
    for number in range(10)
]


def text(op: str, field: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"field": field, "op": op, "value": value, **more}


@pytest.fixture(scope="module")
def store(services: Callable[[str], Service]) -> Store:
    store = new_store(services("sqlite"), {"type": "object", "properties": FIELDS})
    store.ingest(PEOPLE)
    return store


def test_a_question_that_finds_nothing_says_which_comparison_is_why(store: Store) -> None:
    where = {
        "and": [
            text("eq", "city", "ZURICH"),
            text("eq", "city", " Edinburgh "),
            {"not": text("contains", "email", "JONES")},
            text("gt", "age", 120),
            text("between", "age", [40, 30]),
            text("ge", "age", 0),
        ]
    }
    told = ask(store, "why", where=where)
    spelled, blank, part, beyond, turned, fits = told["comparisons"]
    cities = [person["city"] for person in PEOPLE]
    assert (told["records"], told["count"]) == (10, 0)
    assert spelled["pointer"] == "/where/and/0"
    both = sum(city in CITIES[:2] for city in cities)
    assert (spelled["count"], spelled["folded"], spelled["trimmed"]) == (0, both, None)
    edinburgh = cities.count("Edinburgh")
    assert (blank["count"], blank["folded"], blank["trimmed"]) == (0, 0, edinburgh)
    assert (part["pointer"], part["op"], part["count"]) == ("/where/and/2/not", "contains", 0)
    assert part["folded"] > 0
    assert "minimum and maximum" in beyond["never"]
    assert "above" in turned["never"]
    assert (fits["count"], fits["never"]) == (10, None)
    refused = store.proxy(
        "POST", "/api/records/why/", {"schema": store.schema, "where": text("eq", "no", 1)}
    )
    assert refused.status == 400
    assert refused.json()["errors"][0]["code"] == "unknown_field"


def ask(store: Store, path: str, **body: Any) -> Any:
    answer = store.proxy("POST", f"/api/records/{path}/", {"schema": store.schema, **body})
    assert answer.status == 200
    return answer.json()

"""A cursor leads on in the answer to its own question, and nowhere else."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
    },
}
ROWS = [{"city": ["Oslo", "Rome", "Bern"][at % 3], "age": at * 37 % 90} for at in range(60)]
WHERE = {"field": "age", "op": "ge", "value": 9}
ASKED: dict[str, Any] = {"where": WHERE, "order_by": ["age"]}


@pytest.fixture(scope="module")
def store(services: Callable[[str], Service]) -> Store:
    made = new_store(services("sqlite"), DEFINITION)
    made.ingest(ROWS)
    return made


@pytest.fixture(scope="module")
def cursor(store: Store) -> str:
    return str(store.search(**ASKED, limit=10)["next_cursor"])


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"order_by": ["age"]},
        {"where": WHERE},
        {"where": WHERE, "order_by": ["-age"]},
        {"where": WHERE, "order_by": ["city"]},
        {"where": WHERE, "order_by": ["age", "city"]},
        {"where": {**WHERE, "value": 10}, "order_by": ["age"]},
        {"where": {**WHERE, "op": "gt"}, "order_by": ["age"]},
        {**ASKED, "filters": [{"label": "city", "value": "Oslo"}]},
    ],
    ids=str,
)
def test_with_another_condition_or_order_it_is_refused(
    store: Store, cursor: str, other: dict[str, Any]
) -> None:
    _refused(store, cursor, other)


def test_in_another_schema_it_is_refused(store: Store, cursor: str) -> None:
    twin = store.another_schema(DEFINITION)
    twin.ingest(ROWS)
    _refused(twin, cursor, ASKED)


def test_an_altered_one_and_one_without_a_question_are_refused(store: Store, cursor: str) -> None:
    position, stored, joined, question = msgspec.msgpack.decode(base64.urlsafe_b64decode(cursor))
    other = bytes([question[0] ^ 1]) + question[1:]
    for content in (
        [position, stored],
        [position, stored, joined, other],
        [position, stored, joined, b""],
    ):
        altered = base64.urlsafe_b64encode(msgspec.msgpack.encode(content)).decode()
        _refused(store, altered, ASKED)


@pytest.mark.parametrize(
    "same",
    [
        {},
        {"limit": 7, "count": True},
        {"fields": ["city"]},
        {"filters": [], "offset": 0},
        {"where": dict(reversed(WHERE.items()))},
    ],
    ids=str,
)
def test_the_same_question_leads_on_however_it_is_shown(
    store: Store, cursor: str, same: dict[str, Any]
) -> None:
    every = [result["id"] for result in store.search(**ASKED, limit=100)["results"]]
    found = [
        result["id"]
        for result in store.search(**{"limit": 100, **ASKED, **same}, cursor=cursor)["results"]
    ]
    assert found == every[10 : 10 + same.get("limit", 100)]


def _refused(store: Store, cursor: str, question: dict[str, Any]) -> None:
    answer = store.proxy(
        "POST", "/api/records/search/", {"schema": store.schema, "cursor": cursor, **question}
    )
    assert (answer.status, answer.json()["code"]) == (400, "invalid_query"), answer.body
    assert [(error["code"], error["pointer"]) for error in answer.json()["errors"]] == [
        ("cursor", "/cursor")
    ]

"""The worst that somebody may ask of texts, dates and other schemas: answered right, or refused by
name."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from encrypted_records.model import ids
from encrypted_records.model.credentials import DEVICE_HEADER
from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_store

FIELDS: dict[str, Any] = {
    "text": {"type": "string"},
    "note": {"type": "string", "x-index": ["words"]},
    "day": {"type": "string", "format": "date"},
    "seen": {"type": "string", "format": "date-time"},
    "n": {"type": "integer", "minimum": 0, "maximum": 99},
}
#: What a pattern that goes back tries in each of its ways.
EVIL = "a" * 40
LAST = "9999-12-31T23:59:59.999Z"
ROWS: list[dict[str, Any]] = [
    {"text": EVIL, "note": f"{EVIL} b", "day": "9999-12-31", "seen": LAST, "n": 1},
    {"text": f"{EVIL}!", "note": EVIL * 3, "day": "0001-01-01", "seen": "0001-01-01T00:00:00Z"},
    {"text": "", "note": "b", "n": 3},
]


@pytest.fixture(scope="module")
def store(services: Callable[[str], Service]) -> Store:
    made = new_store(
        services("sqlite"), {"type": "object", "formats": "enforced", "properties": FIELDS}
    )
    made.ingest(ROWS)
    return made


def texts(store: Store, where: Any) -> list[str]:
    return [one["data"]["text"] for one in store.everything(where)]


@pytest.mark.parametrize(
    ("op", "value", "found"),
    [
        ("like", "%" * 1000, [EVIL, f"{EVIL}!", ""]),
        ("like", "%a" * 400, []),
        ("like", "%a" * 40, [EVIL]),
        ("like", "%a" * 40 + "%", [EVIL, f"{EVIL}!"]),
        ("like", "_" * 41, [f"{EVIL}!"]),
        ("matches", "^(a+)+$", [EVIL]),
        ("matches", "^(a|aa)*!$", [f"{EVIL}!"]),
        ("matches", "(.*)(.*)(.*)(.*)(.*)x", []),
        ("near", "a" * 50_000, []),
        ("near", "", [""]),
        ("contains", "a" * 100_000, []),
        ("prefix", "a" * 100_000, []),
    ],
    ids=lambda one: str(one)[:20],
)
def test_a_test_of_texts_takes_no_way_twice(
    store: Store, op: str, value: str, found: list[str]
) -> None:
    for more in ({}, {"fold": True}):
        where = {"field": "text", "op": op, "value": value, **more}
        assert texts(store, where) == found, more


@pytest.mark.parametrize("op", ["has_words", "has_phrase"])
def test_one_word_may_be_as_long_as_a_text(store: Store, op: str) -> None:
    for value, found in ((EVIL, 1), (EVIL * 3, 1), (EVIL * 2, 0), ("a" * 200_000, 0)):
        where = {"field": "note", "op": op, "value": value}
        assert len(store.found(where)) == found, len(value)


@pytest.mark.parametrize("field", ["text", "note", "day", "seen"])
def test_a_half_of_a_character_is_no_text(store: Store, field: str) -> None:
    """JSON can spell one, and UTF-8 cannot."""
    for name, value in ((field, "x\ud800"), (f"{field}\udfff", "x")):
        where = {"field": name, "op": "eq", "value": value}
        refused = send(store, "search", {"schema": store.schema, "where": where})
        assert refused.status == 400, refused.body
    stored = send(store, "ingest", [{"schema": store.schema, "data": {field: "\ud800"}}])
    assert stored.status == 400, stored.body
    assert len(store.everything()) == len(ROWS)


def send(store: Store, path: str, body: Any) -> Answer:
    """As Python's own encoder spells it, by escapes."""
    url = f"{store.service.proxy_url}/api/records/{path}/"
    headers = {"Content-Type": "application/json", DEVICE_HEADER: store.device.text}
    return call("POST", url, json.dumps(body).encode(), auth=store.account.auth, headers=headers)


@pytest.mark.parametrize(
    "beyond",
    ["9999-12-31T23:59:59-00:01", "0001-01-01T00:00:00+00:01", "10000-01-01T00:00:00Z"],
)
def test_an_instant_beyond_the_calendar_is_neither_stored_nor_another_one(
    store: Store, beyond: str
) -> None:
    refused = store.send([{"seen": beyond}])
    assert refused.status == 400
    assert refused.json()["errors"][0]["pointer"] == "/0/data/seen"
    for op in ("eq", "lt", "ge"):
        asked = store.ask({"field": "seen", "op": op, "value": beyond})
        assert asked.status == 400, (op, asked.body)
        assert asked.json()["errors"][0]["pointer"] == "/where/value"
    assert len(store.everything()) == len(ROWS)


def test_a_schema_that_one_may_not_read_is_as_one_that_is_not_there(store: Store) -> None:
    others = new_store(store.service, {"type": "object", "properties": {"id": {"type": "string"}}})
    others.ingest([{"id": EVIL}])
    nobody = f"/api/schemas/{ids.to_text(uuid.uuid4().bytes)}/"
    answers = []
    for of in (others.schema, nobody):
        selected = {"schema": of, "field": "id"}
        answer = store.ask({"field": "text", "op": "in", "of": selected})
        assert answer.status in (400, 404), answer.body
        answers.append((answer.status, answer.body.replace(of.encode(), b"<it>")))
    assert answers[0] == answers[1]

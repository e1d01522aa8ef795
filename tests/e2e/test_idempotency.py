"""A direct ingest that is sent again under its key is stored once, whatever happened in between."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
import uuid_utils

from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.fixture(scope="module")
def store(service: Service) -> Store:
    return new_store(service, DEFINITION)


def body(*stores: Store) -> bytes:
    records = [{"schema": one.schema, "data": {"name": "Ada"}} for one in stores]
    return json.dumps(records).encode()


def send(store: Store, data: bytes, key: object) -> Answer:
    url = f"{store.service.proxy_url}/api/records/ingest/"
    headers = {"Content-Type": "application/json", "Idempotency-Key": str(key)}
    return call("POST", url, data, auth=store.account.auth, headers=headers)


def key_of(seconds: float) -> uuid.UUID:
    """A key of so many seconds ago."""
    made = int((time.time() - seconds) * 1000).to_bytes(6, "big")
    return uuid.UUID(bytes=made + uuid_utils.uuid7().bytes[6:])


def test_the_same_request_is_stored_once_and_answered_alike(store: Store) -> None:
    one, other = store.another_schema(DEFINITION), store.another_schema(DEFINITION)
    key, data = uuid_utils.uuid7(), body(one, other, one)

    answers = [send(store, data, sent) for sent in (key, f'"{key}"', key)]

    assert [answer.status for answer in answers] == [201, 201, 201]
    assert answers[0].body == answers[1].body == answers[2].body
    made: Any = answers[0].json()
    assert one.found() == [made[0]["id"], made[2]["id"]]
    assert other.found() == [made[1]["id"]]


def test_another_key_or_another_body_is_another_request(store: Store) -> None:
    one = store.another_schema(DEFINITION)
    key = uuid_utils.uuid7()
    for data, sent in ((body(one), key), (body(one, one), key), (body(one), uuid_utils.uuid7())):
        assert send(store, data, sent).status == 201
    assert len(set(one.found())) == 4


def test_a_repetition_is_known_after_deletion_rotation_and_merges(store: Store) -> None:
    one = store.another_schema(DEFINITION)
    key, data = uuid_utils.uuid7(), body(one, one)
    first = send(store, data, key)
    assert one.proxy("DELETE", f"/api/records/{first.json()[0]['id']}/").status == 204
    assert one.proxy("POST", "/api/keyring/rotate/").status == 201
    one.ingest([{"name": "Bob"}])
    assert one.proxy("POST", f"{one.schema}merge/").status == 200

    assert send(store, data, key).body == first.body

    assert len(one.found()) == 2


KEYS: dict[str, Callable[[], object]] = {
    "empty": lambda: "",
    "no UUID": lambda: "7",
    "random alone": uuid.uuid4,
    "of yesterday": lambda: key_of(90_000),
    "of a quarter of an hour ahead": lambda: key_of(-900),
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_that_is_none_stores_nothing(store: Store, kind: str) -> None:
    key = KEYS[kind]()
    one = store.another_schema(DEFINITION)
    answer = send(store, body(one), key)
    assert (answer.status, answer.json()["code"]) == (400, "invalid_idempotency_key")
    assert one.found() == []
    if kind.startswith("of "):
        clocks = re.findall(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", answer.json()["detail"])
        made, now = map(datetime.fromisoformat, clocks)
        assert abs((now - made).total_seconds()) > 300
        assert "set both clocks" in answer.json()["hint"]

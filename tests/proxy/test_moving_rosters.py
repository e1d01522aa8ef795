"""The roster moves on again and again while a member is removed; others store all the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.proxy.write.committer import ATTEMPTS
from tests.support.front import Asked, Reply, running_front
from tests.support.proxies import running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import Answer, Service
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "unique": [["name"]],
}
MOVED = Reply(
    409,
    {"Content-Type": "application/problem+json"},
    b'{"code": "roster_moved", "status": 409, "detail": "the roster has moved on"}',
)


def delete(store: Store, record: str) -> Answer:
    return store.proxy("DELETE", f"/api/records/{record}/")


def change(store: Store, record: str) -> Answer:
    return store.proxy("PATCH", f"/api/records/{record}/", {"data": {"name": "changed"}})


def ingest(store: Store, _record: str) -> Answer:
    return store.send([{"name": "another"}])


def upsert(store: Store, _record: str) -> Answer:
    body = [{"schema": store.schema, "data": {"name": "third"}}]
    return store.proxy("PUT", "/api/records/?by=name", body)


@pytest.mark.parametrize("work", [delete, change, ingest, upsert])
def test_a_change_is_drafted_again_however_often_the_roster_moves(
    service: Service, tmp_path: Path, work: Callable[[Store, str], Answer]
) -> None:
    store = new_store(service, DEFINITION)
    (record,) = store.ingest([{"name": "one"}])
    refused = 0

    def move(asked: Asked) -> Reply | None:
        nonlocal refused
        if asked.path.partition("?")[0] != "/api/commits/" or refused > ATTEMPTS + 2:
            return None
        refused += 1
        return MOVED

    with (
        running_front(service.base_url) as front,
        running_proxy(front.url, with_keyrings(service, tmp_path)) as proxy,
    ):
        behind = dataclasses.replace(
            store, service=dataclasses.replace(service, proxy_url=proxy.url)
        )
        front.invent = move
        answer = work(behind, record)
    assert answer.status < 300, answer.body
    assert refused > ATTEMPTS

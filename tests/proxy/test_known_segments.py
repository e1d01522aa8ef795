"""Who stored records has their index: nothing of it is asked for again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.index.segments.merge_policy import TIERS
from tests.support.front import Asked, Front, Reply
from tests.support.held_back import is_for_pages
from tests.support.proxies import Proxy, running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

FIELDS: dict[str, Any] = {
    "name": {"type": "string"},
    "n": {"type": "integer", "minimum": 0, "maximum": 999},
}
FEW = TIERS[0].few


@pytest.fixture
def definition() -> dict[str, Any]:
    return {"type": "object", "properties": FIELDS, "unique": [["name"]]}


def pages_asked(front: Front) -> int:
    return sum(map(is_for_pages, front.asked))


def is_at(number: int) -> dict[str, Any]:
    return {"field": "n", "op": "eq", "value": number}


def test_what_was_stored_changed_or_upserted_is_found_without_asking_for_pages(
    front: Front, store: Store
) -> None:
    first, second = store.ingest([{"name": "a", "n": 1}, {"name": "b", "n": 2}])
    assert store.found(is_at(2)) == [second]
    changed = store.proxy("PATCH", f"/api/records/{first}/", {"data": {"n": 3}})
    assert changed.status == 200, changed.body
    assert store.found(is_at(3)) == [first]
    assert store.found(is_at(1)) == []
    body = [{"schema": store.schema, "data": {"name": "b", "n": 4}}]
    upserted = store.proxy("PUT", "/api/records/?by=name", body)
    assert upserted.status == 200, upserted.body
    assert store.found(is_at(4)) == [second]
    assert pages_asked(front) == 0


def test_another_proxy_asks_for_them_and_finds_the_same(
    service: Service, front: Front, definition: dict[str, Any], tmp_path: Path
) -> None:
    store = new_store(service, definition)
    found = store.ingest([{"name": "a", "n": 1}, {"name": "b", "n": 2}])
    folder = with_keyrings(service, tmp_path / "other")
    with running_proxy(front.url, folder) as other:
        theirs = replace(store, service=replace(store.service, proxy_url=other.url))
        assert theirs.found(is_at(2)) == [found[1]]
    assert pages_asked(front) == 1


def test_what_a_merge_made_is_asked_for_by_nobody_here(front: Front, store: Store) -> None:
    named = store.ingest([{"name": f"{n}", "n": n} for n in range(2 * FEW + 2)], at_once=1)
    for number in (0, FEW, 2 * FEW + 1):
        assert store.found(is_at(number)) == [named[number]]
    merges = [one for one in front.asked if one.path.startswith("/api/commits/")]
    # A commit each, and those of the merges.
    assert len(merges) > len(named)
    assert pages_asked(front) == 0


def test_a_segment_whose_commit_was_refused_is_not_kept(
    front: Front, proxy: Proxy, store: Store
) -> None:
    refusals = 0

    def refuse(asked: Asked) -> Reply | None:
        nonlocal refusals
        if not asked.path.startswith("/api/commits/"):
            return None
        refusals += 1
        body = b'{"title":"no","status":400,"detail":"no","code":"invalid_commit"}'
        return Reply(400, {"Content-Type": "application/problem+json"}, body)

    store.ingest([{"name": "a", "n": 1}])
    assert proxy.services.segments.uses["segments"].count == 1
    front.invent = refuse
    answer = store.send([{"name": "b", "n": 2}])
    assert answer.status >= 400
    assert refusals
    assert proxy.services.segments.uses["segments"].count == 1
    front.invent = lambda _: None
    assert store.found(is_at(2)) == []
    assert len(store.found()) == 1


def test_under_a_wider_definition_it_is_asked_for_and_read_by_that(
    front: Front, store: Store
) -> None:
    (record,) = store.ingest([{"name": "a", "n": 1}])
    wider = FIELDS | {"n": {"type": "integer", "minimum": -5, "maximum": 999}}
    body = {"type": "object", "properties": wider, "unique": [["name"]]}
    changed = store.proxy("PATCH", store.schema, {"schema": body})
    assert changed.status == 200, changed.body
    assert store.found(is_at(1)) == [record]
    assert pages_asked(front) == 1

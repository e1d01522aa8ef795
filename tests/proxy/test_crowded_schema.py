"""Many small ingests at once: each is stored, however few segments the schema has room for."""

from __future__ import annotations

import logging
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.http import problem
from encrypted_records.index.segments.merge_policy import Tier
from encrypted_records.ingest.seal import seal_group
from encrypted_records.model import ids
from encrypted_records.model.records import MAX_SMALL_SEGMENTS, PlainRecord
from encrypted_records.proxy.settings import Overrides
from encrypted_records.proxy.write.merge_scheduler import PAUSE_SECONDS
from tests.support.front import Reply, running_front
from tests.support.proxies import running_proxy
from tests.support.second_proxy import Proxy, act_as_second, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 10_000}},
}
AT_ONCE = 40


async def crowd(proxy: Proxy, count: int) -> None:
    """One commit that adds ``count`` segments of a record each."""
    ledger, definition = proxy.state.ledger, proxy.state.definition
    sealed = [
        seal_group(ledger.key, ledger.tails, definition, [PlainRecord(ids.new_id(), 1, {"n": n})])
        for n in range(count)
    ]
    upload = ledger.draft(
        definition,
        groups=[one.group for one in sealed],
        segments=[one.built.segment for one in sealed],
        rows=[one.batch for one in sealed],
        salts=[one.salt for one in sealed],
        headers=[one.built.header for one in sealed],
        pages=[page for one in sealed for page in one.built.pages],
    )
    (receipt,) = await proxy.services.api.commit([upload], proxy.caller.auth)
    await proxy.services.schemas.settle(proxy.caller, proxy.state, upload, receipt)


@pytest.fixture
def crowded(service: Service, tmp_path: Path) -> tuple[Store, Path]:
    """A schema that has room for few segments more, and a folder with its key."""
    store = new_store(service, DEFINITION)
    store.ingest([{"n": 0}])
    with_keyrings(service, tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "second")

    act_as_second(store, tmp_path / "first", lambda proxy: crowd(proxy, MAX_SMALL_SEGMENTS - 4))
    return store, tmp_path / "second"


def of_proxy(store: Store, url: str) -> Store:
    return replace(store, service=replace(store.service, proxy_url=url))


def numbers(store: Store) -> list[int]:
    return sorted(one["data"]["n"] for one in store.everything())


def test_ingests_beyond_the_limit_of_segments_merge_and_go_on_and_no_two_merges_race(
    crowded: tuple[Store, Path], caplog: pytest.LogCaptureFixture
) -> None:
    store, folder = crowded
    caplog.set_level(logging.INFO)
    with running_proxy(store.service.base_url, folder) as proxy:
        store = of_proxy(store, proxy.url)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(lambda n: store.send([{"n": 1000 + n}]), range(AT_ONCE)))
        assert [answer.status for answer in answers] == [201] * AT_ONCE
        merged = [line for line in caplog.messages if line.startswith("merged ")]
        assert len(merged) == 1
        assert "merging failed" not in caplog.text
        added = [1000 + n for n in range(AT_ONCE)]
        assert numbers(store) == [0, *range(MAX_SMALL_SEGMENTS - 4), *added]


def test_a_change_beyond_the_limit_of_segments_merges_and_goes_on(
    crowded: tuple[Store, Path],
) -> None:
    store, folder = crowded
    with running_proxy(store.service.base_url, folder) as proxy:
        store = of_proxy(store, proxy.url)
        changed = [result["url"] for result in store.search(limit=10)["results"]]
        with ThreadPoolExecutor(len(changed)) as pool:
            answers = pool.map(
                lambda url: store.proxy("PATCH", url, {"data": {"n": 9999}}), changed
            )
            assert [answer.status for answer in answers] == [200] * len(changed)
        assert numbers(store)[-10:] == [9999] * 10


def test_where_nothing_is_left_to_merge_the_refusal_comes_with_a_time_to_wait(
    crowded: tuple[Store, Path],
) -> None:
    store, folder = crowded
    with running_proxy(
        store.service.base_url, folder, overrides=Overrides(tiers=(Tier(1, 1000),))
    ) as proxy:
        store = of_proxy(store, proxy.url)
        statuses = [store.send([{"n": n}]) for n in range(5)]
        assert [answer.status for answer in statuses] == [201, 201, 201, 429, 429]
        assert statuses[-1].json()["code"] == "merge_first"
        assert int(statuses[-1].headers["Retry-After"]) > 0


def test_an_api_that_always_asks_for_a_merge_is_not_believed_for_ever(
    crowded: tuple[Store, Path],
) -> None:
    store, folder = crowded
    with running_front(store.service.base_url) as front:
        refusal = Reply(429, {"Content-Type": problem.MEDIA_TYPE}, b'{"code": "merge_first"}')
        seconds = 4.0
        with running_proxy(front.url, folder, overrides=Overrides(room_seconds=seconds)) as proxy:
            store = of_proxy(store, proxy.url)
            front.invent = lambda asked: refusal if asked.path == "/api/commits/" else None
            answer = store.send([{"n": 1}])
            assert (answer.status, answer.json()["code"]) == (429, "merge_first")
            tries = [asked for asked in front.asked if asked.path == "/api/commits/"]
            assert 1 < len(tries) <= 1 + seconds / PAUSE_SECONDS


def test_a_question_that_needs_more_of_the_index_than_any_may_is_refused_by_name(
    crowded: tuple[Store, Path],
) -> None:
    store, folder = crowded
    overrides = Overrides(question_pages=4, tiers=(Tier(1, 1000),))
    with running_proxy(store.service.base_url, folder, overrides=overrides) as proxy:
        store = of_proxy(store, proxy.url)
        where = {"field": "n", "op": "eq", "value": 1}
        answer = store.ask(where)
        assert (answer.status, answer.json()["code"]) == (413, "question_too_large")
        other = store.another_schema(DEFINITION)
        other.ingest([{"n": n} for n in range(4)], at_once=1)
        assert len(other.found(where)) == 1
        other.ingest([{"n": 5}])
        again = other.ask({"field": "n", "op": "eq", "value": 2})
        assert again.status == 200, "memory has all but one of its pages"

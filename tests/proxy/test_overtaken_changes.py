"""Others change a record, or merge segments, between two questions of a proxy to the API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.errors import Conflict, LogBroken
from encrypted_records.http import problem
from encrypted_records.index.segments.merge_policy import Tier
from tests.support.front import Asked, Front, Reply, nothing, running_front
from tests.support.proxies import running_proxy
from tests.support.second_proxy import Proxy, act_as_second, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 9},
    },
}
#: One segment is worth a merge with another.
TIERS = (Tier(64, 1),)


@pytest.fixture
def store(service: Service) -> Store:
    """At a proxy that the API tells the truth."""
    made = new_store(service, DEFINITION)
    made.ingest([{"name": "Ada", "n": 1}])
    return made


@pytest.fixture
def front(service: Service) -> Iterator[Front]:
    with running_front(service.base_url) as running:
        yield running
        running.invent = nothing


@pytest.fixture
def beside(store: Store, front: Front, tmp_path: Path) -> Iterator[Store]:
    with running_proxy(front.url, with_keyrings(store.service, tmp_path)) as proxy:
        yield replace(store, service=replace(store.service, proxy_url=proxy.url))


def gone(path: str, code: str, act: Callable[[], None]) -> Callable[[Asked], Reply | None]:
    """Act when something is first asked for at a path of the API, and say each time that this is
    gone, until something else is asked for there."""
    body = f'{{"status": 404, "code": "{code}", "title": "gone", "detail": "gone"}}'.encode()
    asked_first: list[bytes] = []

    def answer(asked: Asked) -> Reply | None:
        if not asked.path.endswith(path):
            return None
        if not asked_first:
            asked_first.append(asked.body)
            act()
        if asked.body not in asked_first:
            return None
        return Reply(404, {"Content-Type": problem.MEDIA_TYPE}, body)

    return answer


def merge(store: Store, folder: Path) -> None:
    """Merge its segments at a proxy of its own, in this process."""

    async def act(proxy: Proxy) -> None:
        assert await proxy.merger(*TIERS).merge_next(proxy.caller, proxy.state)

    act_as_second(store, with_keyrings(store.service, folder), act)


def test_a_change_of_a_field_goes_on_with_the_row_that_another_change_has_put_there(
    store: Store, beside: Store, front: Front
) -> None:
    (record,) = store.found()

    def overtake() -> None:
        said = store.proxy("PATCH", f"/api/records/{record}/", {"data": {"name": "Ida"}})
        assert said.status == 200, said.body

    front.invent = gone("/digests/", "row_gone", overtake)
    said = beside.proxy("PATCH", f"/api/records/{record}/", {"data": {"n": 2}})
    assert said.status == 200, said.body
    assert [one["data"] for one in store.everything()] == [{"name": "Ida", "n": 2}]


def test_a_change_of_a_record_that_was_deleted_meanwhile_finds_none(
    store: Store, beside: Store, front: Front
) -> None:
    (record,) = store.found()

    def overtake() -> None:
        assert store.proxy("DELETE", f"/api/records/{record}/").status == 204

    front.invent = gone("/digests/", "row_gone", overtake)
    said = beside.proxy("PATCH", f"/api/records/{record}/", {"data": {"n": 2}})
    assert (said.status, said.json()["code"]) == (404, "not_found")


def test_an_api_that_says_a_live_row_is_gone_is_not_believed(
    store: Store, beside: Store, front: Front
) -> None:
    (record,) = store.found()
    front.invent = gone("/digests/", "row_gone", lambda: None)
    said = beside.proxy("PATCH", f"/api/records/{record}/", {"data": {"n": 2}})
    assert (said.status, said.json()["code"]) == (422, "log_broken")
    assert [one["data"] for one in store.everything()] == [{"name": "Ada", "n": 1}]


def test_a_merge_of_a_segment_that_another_merge_took_says_that_it_came_second(
    store: Store, front: Front, tmp_path: Path
) -> None:
    store.ingest([{"name": "Bob", "n": 2}])
    fronted = replace(store, service=replace(store.service, base_url=front.url))
    front.invent = gone("/pages/", "segment_gone", lambda: merge(store, tmp_path / "first"))
    with pytest.raises(Conflict) as found:
        merge(fronted, tmp_path / "second")
    assert found.value.reason == "segment_not_live"
    assert sorted(one["data"]["n"] for one in store.everything()) == [1, 2]


def test_an_api_that_says_a_live_segment_is_gone_is_not_believed_by_a_merge(
    store: Store, front: Front, tmp_path: Path
) -> None:
    store.ingest([{"name": "Bob", "n": 2}])
    fronted = replace(store, service=replace(store.service, base_url=front.url))
    front.invent = gone("/pages/", "segment_gone", lambda: None)
    with pytest.raises(LogBroken):
        merge(fronted, tmp_path / "first")
    front.invent = nothing
    merge(fronted, tmp_path / "again")
    assert sorted(one["data"]["n"] for one in store.everything()) == [1, 2]

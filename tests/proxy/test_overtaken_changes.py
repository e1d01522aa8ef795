"""A record is changed by others between a proxy's look at it and the proof of its row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.http import problem
from tests.support.front import Asked, Front, Reply, nothing, running_front
from tests.support.proxies import running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

# Nothing here is the database's affair.
pytestmark = pytest.mark.parametrize("service", ["sqlite"], indirect=True)

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 9},
    },
}
NO_ROW = b'{"status": 404, "code": "row_gone", "title": "gone", "detail": "gone"}'


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


def without_the_row(act: Callable[[], None]) -> Callable[[Asked], Reply | None]:
    """Act when the proof of a row is first asked for, and say each time that the row is gone, until
    another row is asked for."""
    gone: list[bytes] = []

    def answer(asked: Asked) -> Reply | None:
        if not asked.path.endswith("/digests/"):
            return None
        if not gone:
            gone.append(asked.body)
            act()
        if asked.body not in gone:
            return None
        return Reply(404, {"Content-Type": problem.MEDIA_TYPE}, NO_ROW)

    return answer


def test_a_change_of_a_field_goes_on_with_the_row_that_another_change_has_put_there(
    store: Store, beside: Store, front: Front
) -> None:
    (record,) = store.found()

    def overtake() -> None:
        said = store.proxy("PATCH", f"/api/records/{record}/", {"data": {"name": "Ida"}})
        assert said.status == 200, said.body

    front.invent = without_the_row(overtake)
    said = beside.proxy("PATCH", f"/api/records/{record}/", {"data": {"n": 2}})
    assert said.status == 200, said.body
    assert [one["data"] for one in store.everything()] == [{"name": "Ida", "n": 2}]


def test_a_change_of_a_record_that_was_deleted_meanwhile_finds_none(
    store: Store, beside: Store, front: Front
) -> None:
    (record,) = store.found()

    def overtake() -> None:
        assert store.proxy("DELETE", f"/api/records/{record}/").status == 204

    front.invent = without_the_row(overtake)
    said = beside.proxy("PATCH", f"/api/records/{record}/", {"data": {"n": 2}})
    assert (said.status, said.json()["code"]) == (404, "not_found")


def test_an_api_that_says_a_live_row_is_gone_is_not_believed(
    store: Store, beside: Store, front: Front
) -> None:
    (record,) = store.found()
    front.invent = without_the_row(lambda: None)
    said = beside.proxy("PATCH", f"/api/records/{record}/", {"data": {"n": 2}})
    assert (said.status, said.json()["code"]) == (422, "log_broken")
    assert [one["data"] for one in store.everything()] == [{"name": "Ada", "n": 1}]

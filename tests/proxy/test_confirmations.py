"""Searches that come at once ask the API once whether their state is the present one, and each is
answered from a state that was the present one after it came."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from encrypted_records.model import ids
from tests.support.front import Asked, Front, Reply, running_front
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Service, call
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 100}},
}
SEARCHES = 20
#: For searches to come while the first one's confirmation is held back.
HELD_SECONDS = 0.7


@dataclass
class HeldBack:
    """Keeps the first confirmation back, as the API gave it, until it is let go."""

    came: Event = field(default_factory=Event)
    go: Event = field(default_factory=Event)
    asked: int = 0

    def __call__(self, asked: Asked, reply: Reply) -> Reply:
        if "/manifest/" in asked.path:
            self.asked += 1
            if self.asked == 1:
                self.came.set()
                assert self.go.wait(60)
        return reply


@pytest.fixture(scope="module")
def front(service: Service) -> Iterator[Front]:
    with running_front(service.base_url) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("confirmations") / "own"


@pytest.fixture(scope="module")
def proxy(front: Front, folder: Path) -> Iterator[Proxy]:
    with running_proxy(front.url, folder) as running:
        yield running


@pytest.fixture
def store(service: Service, proxy: Proxy) -> Store:
    made = new_store(service, DEFINITION)
    mine = replace(made, service=replace(service, proxy_url=proxy.url))
    mine.ingest([{"n": 1}])
    assert count(mine) == 1
    return mine


def count(store: Store) -> int:
    number: int = store.search(count=True)["count"]
    return number


def test_searches_that_wait_share_one_confirmation(store: Store, front: Front) -> None:
    held = HeldBack()
    with front.telling(held), ThreadPoolExecutor(SEARCHES + 1) as pool:
        first = pool.submit(count, store)
        assert held.came.wait(60)
        others = [pool.submit(count, store) for _ in range(SEARCHES)]
        time.sleep(HELD_SECONDS)
        held.go.set()

        assert first.result() == 1
        assert [other.result() for other in others] == [1] * SEARCHES
    assert held.asked < SEARCHES / 2


def test_searches_of_a_schema_that_is_not_known_yet_share_its_reading(
    store: Store, front: Front, proxy: Proxy
) -> None:
    me = call("GET", f"{proxy.url}/api/users/self/", auth=store.account.auth).json()["id"]
    proxy.services.schemas.forget_user(ids.from_text(me))
    held = HeldBack()
    with front.telling(held), ThreadPoolExecutor(SEARCHES + 1) as pool:
        first = pool.submit(count, store)
        assert held.came.wait(60)
        others = [pool.submit(count, store) for _ in range(SEARCHES)]
        time.sleep(HELD_SECONDS)
        held.go.set()

        assert first.result() == 1
        assert [other.result() for other in others] == [1] * SEARCHES
    assert held.asked < SEARCHES / 2


def test_a_search_never_shares_what_the_api_said_before_it_came(
    store: Store, front: Front, service: Service, folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    held = HeldBack()
    with running_proxy(service.base_url, copy) as beside, ThreadPoolExecutor(2) as pool:
        other = replace(store, service=replace(service, proxy_url=beside.url))
        with front.telling(held):
            before = pool.submit(count, store)
            assert held.came.wait(60)
            # Acknowledged while the first one's confirmation is on its way.
            other.ingest([{"n": 2}])
            after = pool.submit(count, store)
            time.sleep(HELD_SECONDS)
            assert not after.done()
            held.go.set()

            assert before.result() in (1, 2)
            assert after.result() == 2


def test_a_refused_confirmation_refuses_everybody_who_shares_it(store: Store, front: Front) -> None:
    def gone(asked: Asked, reply: Reply) -> Reply:
        return Reply(503, {}, b"") if "/manifest/" in asked.path else reply

    with front.telling(gone), ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda _: store.ask(count=True), range(5)))

    assert {answer.status for answer in answers} <= {502, 503}
    assert count(store) == 1

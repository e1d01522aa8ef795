"""A proxy reads a log while another part of it stores into the same schema: a commit that it sees
after it asked is not missing from the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.support.front import Asked, Front, Reply, honest, nothing, running_front
from tests.support.older import older_store
from tests.support.proxies import running_proxy
from tests.support.service import Answer, Service
from tests.support.store import Store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 100}},
}


@dataclass
class Overtaking:
    """Holds a commit back, and lets it go between the API's answer to a reading and the proxy."""

    front: Front
    store: Store
    sending: Future[Answer] | None = None
    came: Event = field(default_factory=Event)
    go: Event = field(default_factory=Event)

    def hold(self, asked: Asked) -> Reply | None:
        if asked.path == "/api/commits/":
            self.came.set()
            assert self.go.wait(60)
        return None

    def overtake(self, asked: Asked, reply: Reply) -> Reply:
        if "/manifest/" in asked.path and not self.go.is_set():
            self.go.set()
            assert self.sending is not None
            assert self.sending.result(60).status == 201
        return reply

    def during(self, ask: Callable[[], Answer]) -> Answer:
        """What is answered to a reading that begins while a commit is on its way to the API."""
        self.front.invent, self.front.lie = self.hold, self.overtake
        with ThreadPoolExecutor(1) as pool:
            self.sending = pool.submit(self.store.send, [{"n": 2}])
            try:
                assert self.came.wait(60)
                # Its user gets a newer keyring: whatever comes next reads the log by itself.
                rotated = self.store.proxy("POST", "/api/keyring/rotate/")
                assert rotated.status == 201, rotated.body
                return ask()
            finally:
                assert self.go.is_set(), "nothing was read"
                self.front.invent, self.front.lie = nothing, honest


@pytest.fixture
def overtaking(service: Service, tmp_path: Path) -> Iterator[Overtaking]:
    made = older_store(service, DEFINITION)
    with (
        running_front(service.base_url) as front,
        running_proxy(front.url, tmp_path / "own") as proxy,
    ):
        store = replace(made, service=replace(service, proxy_url=proxy.url))
        yield Overtaking(front, store)


def numbers(answer: Answer) -> list[int]:
    assert answer.status == 200, answer.body
    return [result["data"]["n"] for result in answer.json()["results"]]


def test_a_search_that_a_commit_overtakes_finds_its_records(overtaking: Overtaking) -> None:
    overtaking.store.ingest([{"n": 1}])
    assert numbers(overtaking.during(overtaking.store.ask)) == [1, 2]
    assert numbers(overtaking.store.ask()) == [1, 2]


def test_a_look_at_a_log_that_a_commit_overtakes_calls_it_whole(overtaking: Overtaking) -> None:
    store = overtaking.store
    store.ingest([{"n": 1}])
    path = f"{store.schema}log/"
    shown = overtaking.during(lambda: store.proxy("GET", path))
    assert (shown.status, shown.json()["state"]) == (200, "whole")

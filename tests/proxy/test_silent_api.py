"""An API whose connections stand and say nothing is named, soon, to everybody who asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from encrypted_records.client.transport import CONNECTIONS
from tests.support import jobs
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Answer, Service
from tests.support.silence import Silence, silence_before
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 10_000}},
}
#: The proxy's patience here; and what its answers may take on a busy machine. Twenty requests one
#: after another would take longer.
SECONDS, SOON = 1.0, 15.0


@pytest.fixture
def way(service: Service) -> Iterator[Silence]:
    with silence_before(urlsplit(service.base_url).port or 0) as silence:
        yield silence


@pytest.fixture
def proxy(way: Silence, tmp_path: Path) -> Iterator[Proxy]:
    with running_proxy(way.url, tmp_path / "own") as running:
        yield running


@contextmanager
def silence(way: Silence, proxy: Proxy) -> Iterator[None]:
    """The proxy has little patience meanwhile, and its own on a machine that is only busy."""
    transport = proxy.services.api.transport
    usual = transport.timing
    transport.timing = replace(usual, silent_seconds=SECONDS)
    try:
        with way.falling():
            yield
    finally:
        transport.timing = usual


@pytest.fixture
def store(service: Service, proxy: Proxy) -> Store:
    made = new_store(service, DEFINITION)
    return replace(made, service=replace(made.service, proxy_url=proxy.url))


def code(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json()["code"]


def test_whatever_is_asked_is_answered_by_name_and_nothing_piles_up(
    store: Store, way: Silence, proxy: Proxy
) -> None:
    store.ingest([{"n": 1}])
    asked: list[Callable[[], Answer]] = [
        lambda: store.send([{"n": 3}]),
        store.ask,
        lambda: store.proxy("GET", "/api/records/?schema=" + store.schema_id),
    ]
    with ThreadPoolExecutor(24) as pool, silence(way, proxy):
        began = time.monotonic()
        answers = [pool.submit(asked[number % 3]) for number in range(24)]
        assert {code(answer.result()) for answer in answers} == {(504, "api_timeout")}
        assert time.monotonic() - began < SOON
    assert 1 in [result["data"]["n"] for result in store.search()["results"]]
    assert store.send([{"n": 4}]).status == 201


def test_who_is_not_remembered_is_told_so_too(store: Store, way: Silence, proxy: Proxy) -> None:
    path = jobs.started(store, jobs.as_json(store, [{"n": 2}]))
    assert jobs.ended(store, path)["status"] == "completed"
    proxy.services.access.forget_everyone()
    with ThreadPoolExecutor(20) as pool, silence(way, proxy):
        began = time.monotonic()
        answers = [pool.submit(store.proxy, "GET", path) for _ in range(20)]
        assert {code(answer.result()) for answer in answers} == {(504, "api_timeout")}
        assert time.monotonic() - began < SOON
    assert store.proxy("GET", path).json()["status"] == "completed"


def test_a_busy_proxy_has_a_share_of_the_connections(store: Store, way: Silence) -> None:
    before = way.connections
    with ThreadPoolExecutor(60) as pool:
        answers = [
            pool.submit(store.ask, {"field": "n", "op": "eq", "value": n}) for n in range(60)
        ]
        assert {answer.result().status for answer in answers} == {200}
    assert way.connections - before <= CONNECTIONS

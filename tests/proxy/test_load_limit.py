"""In a crowd, what would be answered too late is refused at once, of those who ask most."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.types import Message, Receive, Scope, Send

from encrypted_records.errors import Overloaded
from encrypted_records.proxy.http.guard import LoadLimit, RunningRequests
from encrypted_records.proxy.settings import Overrides
from tests.support.front import Asked, Front, Reply, running_front
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Service, call
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 100}},
}
FEW = 4
REQUESTS = 40


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def admitted(crowd: RunningRequests, sender: bytes, count: int) -> int:
    """How many of so many requests are taken."""
    taken = 0
    for _ in range(count):
        try:
            crowd.enter(sender)
        except Overloaded:
            continue
        taken += 1
    return taken


def answered(
    crowd: RunningRequests, clock: Clock, sender: bytes, count: int, seconds: float
) -> None:
    for _ in range(count):
        clock.now += seconds
        crowd.leave(sender)


def test_few_requests_are_taken_however_long_they_last() -> None:
    clock = Clock()
    crowd = RunningRequests(few=10, most_seconds=1.0, clock=clock)
    for _ in range(5):
        assert admitted(crowd, b"one", 10) == 10
        answered(crowd, clock, b"one", 10, seconds=60.0)


def test_as_many_are_taken_as_are_answered_in_time() -> None:
    clock = Clock()
    crowd = RunningRequests(few=10, most_seconds=1.0, clock=clock)
    # A hundredth of a second each, so a hundred in a second.
    for _ in range(10):
        taken = admitted(crowd, b"one", 300)
        answered(crowd, clock, b"one", taken, seconds=0.01)
    assert 80 <= taken <= 120


def test_answers_that_come_many_together_are_not_taken_for_the_pace() -> None:
    clock = Clock()
    crowd = RunningRequests(few=10, most_seconds=1.0, clock=clock)
    under_way = admitted(crowd, b"one", 1000)
    for _ in range(20):
        # Two hundred in a second, and half of a second's at once.
        clock.now += 0.5
        answered(crowd, clock, b"one", 100, seconds=0.0)
        under_way += admitted(crowd, b"one", 1000) - 100
        assert under_way <= 250
    assert under_way >= 180


def test_a_crowd_is_not_taken_on_the_word_of_a_faster_one_before_it() -> None:
    clock = Clock()
    crowd = RunningRequests(few=10, most_seconds=1.0, clock=clock)

    def end_quickly() -> None:
        while crowd.under_way:
            answered(crowd, clock, b"one", 1, seconds=0.001)
        clock.now += 1

    first = admitted(crowd, b"one", 1000)
    end_quickly()
    second = admitted(crowd, b"one", 1000)
    for _ in range(10):
        answered(crowd, clock, b"one", 100, seconds=0.001)
        assert admitted(crowd, b"one", 100) == 100
    assert admitted(crowd, b"one", 1000) > second
    end_quickly()
    assert admitted(crowd, b"one", 1000) == second
    # The very first one finds nothing in memory.
    assert first == second / 2


def test_the_first_crowd_of_a_proxy_that_has_answered_many_is_as_any_other() -> None:
    clock = Clock()
    fresh, known = (RunningRequests(few=10, most_seconds=1.0, clock=clock) for _ in range(2))
    for _ in range(100):
        assert admitted(known, b"one", 5) == 5
        answered(known, clock, b"one", 5, seconds=0.01)
    assert admitted(known, b"one", 1000) == 2 * admitted(fresh, b"one", 1000)


def test_where_nobody_is_answered_nobody_more_is_taken() -> None:
    clock = Clock()
    crowd = RunningRequests(few=10, most_seconds=1.0, clock=clock)
    for _ in range(5):
        taken = admitted(crowd, b"one", 50)
        answered(crowd, clock, b"one", taken, seconds=0.01)
    assert admitted(crowd, b"one", 20) == 20
    clock.now += 5
    assert admitted(crowd, b"one", 50) == 0


def test_nobody_is_taken_on_the_word_of_a_faster_time_while_others_wait_for_too_long() -> None:
    clock = Clock()
    crowd = RunningRequests(few=10, most_seconds=1.0, clock=clock)
    # A thousand in a second, of whom five hundred wait.
    assert admitted(crowd, b"one", 100) == 100
    for _ in range(40):
        answered(crowd, clock, b"one", 100, seconds=0.001)
        admitted(crowd, b"one", 500 - crowd.under_way)
    assert crowd.under_way == 500
    # And then a hundred.
    changed = clock.now
    while clock.now < changed + 0.4:
        answered(crowd, clock, b"one", 10, seconds=0.01)
        assert admitted(crowd, b"one", 10) == 10
    while clock.now < changed + 3:
        answered(crowd, clock, b"one", 10, seconds=0.01)
        taken = admitted(crowd, b"one", 10)
        assert taken == 0 or clock.now < changed + 0.7


def test_long_requests_among_many_short_ones_keep_nobody_out() -> None:
    clock = Clock()
    crowd = RunningRequests(few=10, most_seconds=1.0, clock=clock)
    assert admitted(crowd, b"one", 5) == 5
    clock.now += 60  # five that last
    for _ in range(100):
        taken = admitted(crowd, b"one", 40)
        assert taken == 40
        answered(crowd, clock, b"one", taken, seconds=0.01)
        assert crowd.under_way == 5


def test_who_asks_little_is_taken_beside_who_asks_much() -> None:
    clock = Clock()
    crowd = RunningRequests(few=10, most_seconds=1.0, clock=clock)
    for _ in range(5):
        answered(crowd, clock, b"much", admitted(crowd, b"much", 300), seconds=0.01)
    assert admitted(crowd, b"much", 300) < 300
    assert admitted(crowd, b"little", 5) == 5
    assert admitted(crowd, b"much", 1) == 0


def test_after_a_crowd_everything_is_taken_again() -> None:
    clock = Clock()
    crowd = RunningRequests(few=10, most_seconds=1.0, clock=clock)
    # Slow ones.
    for _ in range(5):
        answered(crowd, clock, b"one", admitted(crowd, b"one", 50), seconds=0.4)
    assert admitted(crowd, b"one", 50) == 10
    answered(crowd, clock, b"one", 10, seconds=0.0)
    clock.now += 10
    assert admitted(crowd, b"one", 50) == 50


@pytest.fixture
def front(service: Service) -> Iterator[Front]:
    with running_front(service.base_url) as running:
        yield running


@pytest.fixture
def proxy(front: Front, tmp_path: Path) -> Iterator[Proxy]:
    overrides = Overrides(few_requests=FEW, answer_seconds=0.05)
    with running_proxy(front.url, tmp_path / "own", overrides=overrides) as running:
        yield running


def test_a_crowd_of_one_is_refused_in_part_and_another_is_answered(
    service: Service, proxy: Proxy, front: Front
) -> None:
    at_proxy = replace(service, proxy_url=proxy.url)
    busy, quiet = (replace(new_store(service, DEFINITION), service=at_proxy) for _ in range(2))
    for one in (busy, quiet):
        one.ingest([{"n": 7}])

    def slow(asked: Asked, reply: Reply) -> Reply:
        if "/manifest/" in asked.path:
            time.sleep(0.3)
        return reply

    def ask(store: Store) -> Any:
        return store.ask(count=True)

    with front.telling(slow), ThreadPoolExecutor(REQUESTS + 1) as pool:
        crowd = [pool.submit(ask, busy) for _ in range(REQUESTS)]
        time.sleep(0.15)
        beside = pool.submit(ask, quiet)
        answers = [one.result() for one in crowd]
        assert beside.result().status == 200

    refused = [answer for answer in answers if answer.status == 503]
    assert {answer.status for answer in answers} == {200, 503}
    assert {answer.json()["code"] for answer in refused} == {"overloaded"}
    assert all(1 <= int(answer.headers["Retry-After"]) <= 10 for answer in refused)
    assert busy.search(count=True)["count"] == 1  # and everything is as before


def log_in(proxy: Proxy, store: Store) -> int:
    account = store.account
    body = {"email": account.email, "password": account.password}
    return call("POST", f"{proxy.url}/api/token/", body).status


def test_bodies_that_never_end_keep_nobody_from_logging_in(
    service: Service, proxy: Proxy, front: Front
) -> None:
    store = new_store(service, DEFINITION)
    at = urlsplit(proxy.url)
    head = f"POST /api/token/ HTTP/1.1\r\nHost: {at.netloc}\r\nContent-Type: application/json\r\n"
    with ExitStack() as stack:
        for _ in range(3 * FEW):
            address = (str(at.hostname), int(at.port or 0))
            connection = stack.enter_context(socket.create_connection(address, timeout=30))
            connection.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        # Their heads have been read once a request that was sent after them is answered.
        for _ in range(FEW):
            assert log_in(proxy, store) == 200


async def _entered(*clients: str, bodies: bool) -> int:
    """How many requests without credentials from these addresses are taken, while none of them is
    answered and nobody has been answered for a while."""
    clock, done, taken = Clock(), asyncio.Event(), 0

    async def endpoint(_scope: Scope, receive: Receive, _send: Send) -> None:
        nonlocal taken
        if bodies:
            await receive()
        taken += 1
        await done.wait()

    limit = LoadLimit(endpoint, RunningRequests(few=FEW, most_seconds=1.0, clock=clock))

    async def ask(address: str) -> None:
        async def receive() -> Message:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message: Message) -> None: ...

        scope: Scope = {
            "type": "http",
            "path": "/api/token/",
            "headers": [(b"content-length", b"2")] if bodies else [],
            "client": (address, 1),
        }
        with suppress(Overloaded):
            await limit(scope, receive, send)

    crowd = [asyncio.create_task(ask("192.0.2.1")) for _ in range(FEW)]
    await asyncio.sleep(0)
    clock.now += 60
    before = taken
    more = [asyncio.create_task(ask(address)) for address in clients]
    await asyncio.sleep(0)
    found = taken - before
    done.set()
    await asyncio.gather(*crowd, *more)
    return found


@pytest.mark.parametrize("bodies", [False, True])
def test_a_crowd_without_credentials_from_one_address_keeps_no_other_out(bodies: bool) -> None:
    assert asyncio.run(_entered("192.0.2.1", bodies=bodies)) == 0
    assert asyncio.run(_entered("192.0.2.2", "192.0.2.3", bodies=bodies)) == 2

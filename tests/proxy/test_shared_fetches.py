"""Questions that come at once fetch each page once, also where the first one fails or goes away."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from encrypted_records.client.transport import CONNECTIONS
from encrypted_records.errors import ErsError
from encrypted_records.fair_queue import FairQueue
from encrypted_records.model import ids, wire
from encrypted_records.model.records import PageRef, RowRef
from encrypted_records.proxy.process import ROW_CHECKS
from encrypted_records.proxy.search import row_fetcher
from encrypted_records.proxy.search.caches import BLOCK
from encrypted_records.proxy.search.search import OpenedPage
from tests.support.front import Asked, Front, Reply, running_front
from tests.support.held_back import PATIENCE, HeldBack, Waiters, is_for_pages, is_for_rows, waiters
from tests.support.second_proxy import Proxy, second_proxy, store_groups, with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store

__all__ = ["waiters"]

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
}
#: More than a mini holds.
MANY = 4200
AT_ONCE = 24
#: Requests of a round that fail.
MOST_SPOILED = 8


@dataclass
class Cold:
    """A proxy in the event loop of the test that has the log, and no page and no row."""

    proxy: Proxy
    front: Front
    schema: bytes

    def ask(self, where: Any) -> asyncio.Task[OpenedPage]:
        body = {"where": where, "limit": 3}
        search = self.proxy.services.search
        return asyncio.create_task(search.ask(self.proxy.caller, self.schema, body))

    @property
    def requests(self) -> list[list[PageRef]]:
        """The pages of each request."""
        asked = [one.body for one in self.front.asked if is_for_pages(one)]
        return [list(wire.decode_all(body, PageRef)) for body in asked]

    def count(self, ending: str) -> int:
        """Requests whose path ends so."""
        paths = [asked.path.partition("?")[0] for asked in self.front.asked]
        return sum(path.endswith(ending) for path in paths)

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left of what was under way."""
        services = self.proxy.services
        parts = (services.pager._fetches, services.fetcher._opening, services.rows._fetches)
        return not any(part._under_way for part in parts)


@pytest.fixture(scope="module")
def stored(service: Service) -> Store:
    """One segment of many pages, and a mini."""
    store = new_store(service, DEFINITION)
    store.ingest([{"name": "first"}])
    return store


@pytest.fixture(scope="module")
def filled(stored: Store, tmp_path_factory: pytest.TempPathFactory) -> Store:
    rows = [{"name": name(n), "age": n % 90} for n in range(MANY)]
    store_groups(stored, tmp_path_factory.mktemp("filling"), rows)
    return stored


def name(number: int) -> str:
    return f"n{number:05}"


def is_named(number: int) -> dict[str, Any]:
    return {"field": "name", "op": "eq", "value": name(number)}


def names(page: OpenedPage) -> list[Any]:
    return [record.data["name"] for record in page.records]


@asynccontextmanager
async def cold(store: Store, folder: Path) -> AsyncIterator[Cold]:
    with running_front(store.service.base_url) as front:
        behind = replace(store, service=replace(store.service, base_url=front.url))
        async with second_proxy(behind, with_keyrings(store.service, folder)) as proxy:
            front.forget()
            one = Cold(proxy, front, ids.from_text(store.schema_id))
            yield one
            assert one.has_ended


def _waits(queue: FairQueue, tasks: int) -> bool:
    return queue.waiting == tasks


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110  of other threads
            await asyncio.sleep(0.005)


Scene = Callable[[Cold], Awaitable[None]]


@pytest.fixture
def play(filled: Store, tmp_path: Path) -> Iterator[Callable[[Scene], None]]:
    made = 0

    def play(scene: Scene) -> None:
        nonlocal made
        made += 1

        async def whole() -> None:
            async with cold(filled, tmp_path / str(made)) as one:
                await scene(one)

        asyncio.run(whole())

    yield play


def test_the_same_question_many_times_at_once_asks_for_what_it_asks_for_alone(
    play: Callable[[Scene], None],
) -> None:
    alone: list[int] = []

    async def ask_one(one: Cold) -> None:
        assert names(await one.ask(is_named(7))) == [name(7)]
        alone.extend(map(len, one.requests))

    async def ask_all(one: Cold) -> None:
        held = HeldBack()
        with one.front.telling(held):
            asked = [one.ask(is_named(7)) for _ in range(AT_ONCE)]
            await until(held.came.is_set)
            held.go.set()
            found = await asyncio.gather(*asked)
        assert [names(page) for page in found] == [[name(7)]] * AT_ONCE
        assert [len(pages) for pages in one.requests] == alone

    play(ask_one)
    assert len(alone) >= 3  # the mini, directories, entries
    play(ask_all)


def test_different_questions_at_once_ask_for_no_page_twice(
    play: Callable[[Scene], None], waiters: Waiters
) -> None:
    async def scene(one: Cold) -> None:
        held = HeldBack()
        numbers = range(0, MANY, MANY // AT_ONCE)
        with one.front.telling(held):
            asked = [one.ask(is_named(number)) for number in numbers]
            await until(held.came.is_set)
            await until(lambda: waiters.now == len(asked) - 1)
            held.go.set()
            found = await asyncio.gather(*asked)
        assert [names(page) for page in found] == [[name(number)] for number in numbers]
        # Each needs one page of entries, so that none comes beside it.
        times = Counter(ref for pages in one.requests for ref in pages)
        assert max(times.values()) == 1
        assert len(one.requests) < AT_ONCE

    play(scene)


def test_where_the_first_one_goes_away_another_fetches_for_all(
    play: Callable[[Scene], None], waiters: Waiters
) -> None:
    async def scene(one: Cold) -> None:
        held = HeldBack()
        with one.front.telling(held):
            first = one.ask(is_named(1))
            await until(held.came.is_set)
            asked = [one.ask(is_named(number)) for number in range(2, 2 + AT_ONCE)]
            await until(lambda: waiters.now == AT_ONCE)
            first.cancel()
            found = await asyncio.gather(*asked)
            assert first.cancelled()
            held.go.set()
        assert [names(page) for page in found] == [[name(n)] for n in range(2, 2 + AT_ONCE)]
        times = Counter(ref for pages in one.requests for ref in pages)
        # What the first one was fetching, once more.
        assert sorted(times.values())[-2:] == [1, 2]

    play(scene)


def test_what_fails_for_one_is_tried_again_for_the_others(
    play: Callable[[Scene], None], waiters: Waiters
) -> None:
    async def scene(one: Cold) -> None:
        held = HeldBack(spoil=lambda reply: replace(reply, status=500, body=b""))
        with one.front.telling(held):
            first = one.ask(is_named(1))
            await until(held.came.is_set)
            asked = [one.ask(is_named(number)) for number in range(2, 2 + AT_ONCE)]
            await until(lambda: waiters.now == AT_ONCE)
            held.go.set()
            found = await asyncio.gather(*asked)
            with pytest.raises(ErsError):
                await first
        assert [names(page) for page in found] == [[name(n)] for n in range(2, 2 + AT_ONCE)]

    play(scene)


def test_where_nothing_can_be_kept_all_are_answered_all_the_same(
    play: Callable[[Scene], None],
) -> None:
    async def scene(one: Cold) -> None:
        services = one.proxy.services
        services.segments.pool.budget = 0
        services.stores.pages.close()
        numbers = range(0, MANY, MANY // AT_ONCE)
        found = await asyncio.gather(*(one.ask(is_named(number)) for number in numbers))
        assert [names(page) for page in found] == [[name(number)] for number in numbers]

    play(scene)


def test_who_waits_for_anothers_rows_has_the_state_confirmed_meanwhile(
    play: Callable[[Scene], None], waiters: Waiters
) -> None:
    async def scene(one: Cold) -> None:
        held = HeldBack(holds=is_for_rows)
        with one.front.telling(held):
            asked = [one.ask(is_named(1000)) for _ in range(AT_ONCE)]
            await until(lambda: held.came.is_set() and waiters.now == AT_ONCE - 1)
            confirming = one.proxy.services.search._runner._confirmations._gathering
            await until(lambda: one.count("/manifest/") > 0 and not confirming._lines)
            before = one.count("/manifest/")
            held.go.set()
            found = await asyncio.gather(*asked)
        assert [names(page) for page in found] == [[name(1000)]] * AT_ONCE
        assert one.count("/manifest/") == before  # and not once more after that

    play(scene)


def test_a_crowd_that_fetches_rows_leaves_connections_to_who_needs_none(
    play: Callable[[Scene], None],
) -> None:
    async def scene(one: Cold) -> None:
        await one.ask(is_named(1))
        await one.proxy.background.settle(ROW_CHECKS)
        many = range(200, MANY, 90)  # more than there are connections
        assert len(many) > CONNECTIONS
        held = HeldBack(holds=is_for_rows, most=len(many))
        with one.front.telling(held):
            asked = [one.ask(is_named(number)) for number in many]
            await until(lambda: held.count == row_fetcher.AT_ONCE)
            assert names(await one.ask(is_named(1))) == [name(1)]
            assert held.count == row_fetcher.AT_ONCE < CONNECTIONS
            held.go.set()
            found = await asyncio.gather(*asked)
        assert [names(page) for page in found] == [[name(number)] for number in many]

    play(scene)


def test_who_waited_for_anothers_rows_in_vain_is_not_behind_who_came_since(
    play: Callable[[Scene], None], waiters: Waiters, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One request for rows at a time.
    monkeypatch.setattr(row_fetcher, "AT_ONCE", 1)

    async def scene(one: Cold) -> None:
        await one.ask(is_named(1))
        one.front.forget()
        places = one.proxy.services.rows._places
        first, second = HeldBack(holds=is_for_rows), HeldBack(holds=is_for_rows)
        # The first record is another one, so that the row of n has the number n + 1.
        block = 20 * BLOCK - 1
        numbers = [block + 50, block + 5, 40 * BLOCK, 50 * BLOCK]
        with one.front.telling(first):
            asked = [one.ask(is_named(numbers[0]))]
            await until(first.came.is_set)
            # A row of the same block, that does not come with it.
            asked.append(one.ask(is_named(numbers[1])))
            await until(lambda: waiters.now == 1)
            for at in (2, 3):
                asked.append(one.ask(is_named(numbers[at])))
                await until(partial(_waits, places, at - 1))
            with one.front.telling(second):
                first.go.set()
                await until(second.came.is_set)
                await until(lambda: places.waiting == 2)
                second.go.set()
                found = await asyncio.gather(*asked)
        assert [names(page) for page in found] == [[name(number)] for number in numbers]
        requests = [
            set(wire.decode_all(request.body, RowRef))
            for request in one.front.asked
            if is_for_rows(request)
        ]
        snapshot = one.proxy.state.ledger.snapshot()
        came = [
            next(at for at, refs in enumerate(requests) if snapshot.ref(number + 1) in refs)
            for number in numbers
        ]
        assert came == [0, 2, 1, 3]

    play(scene)


def test_all_who_stay_are_answered_while_others_go_away_and_requests_fail(
    play: Callable[[Scene], None],
) -> None:
    async def scene(one: Cold) -> None:
        chance = random.Random(7)
        one_by_one = Lock()
        spoiled = 0

        def spoil_some(asked: Asked, reply: Reply) -> Reply:
            nonlocal spoiled
            with one_by_one:
                if not is_for_pages(asked) or spoiled == MOST_SPOILED or chance.random() > 0.4:
                    return reply
                spoiled += 1
            return replace(reply, status=500, body=b"")

        for _ in range(6):
            spoiled = 0
            one.proxy.services.segments.clear()
            one.proxy.services.pager.drop(
                [segment.uid for segment in one.proxy.state.ledger.snapshot().segments]
            )
            with one.front.telling(spoil_some):
                wheres = [
                    {"field": "age", "op": "between", "value": [low, low + chance.randrange(20)]}
                    if (low := chance.randrange(90)) % 2
                    else is_named(chance.randrange(MANY))
                    for _ in range(AT_ONCE)
                ]
                asked = [one.ask(where) for where in wheres]
                leaving = set(chance.sample(range(AT_ONCE), AT_ONCE // 3))
                for at in leaving:
                    await asyncio.sleep(chance.random() / 100)
                    asked[at].cancel()
                found = await asyncio.gather(*asked, return_exceptions=True)
            stayed = [found[at] for at in range(AT_ONCE) if at not in leaving]
            answered = [one.records for one in stayed if isinstance(one, OpenedPage)]
            assert all(answered)
            failed = [one for one in stayed if isinstance(one, ErsError)]
            assert len(answered) + len(failed) == len(stayed)
            # Each request that failed was one question's.
            assert len(failed) <= spoiled
            assert len(answered) >= len(stayed) - MOST_SPOILED > 0

    play(scene)

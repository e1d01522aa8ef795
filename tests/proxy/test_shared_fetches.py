"""Questions that come at once fetch each page once; whoever fetches it may fail or go away, and
nobody gets by it what the API would not give them."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest

from encrypted_records.errors import ErsError
from encrypted_records.model import ids, wire
from encrypted_records.model.records import PageRef
from encrypted_records.proxy.process import fetches
from encrypted_records.proxy.schemas import states
from encrypted_records.proxy.search import fetcher, page_fetcher, row_fetcher
from encrypted_records.proxy.search.search import SearchPage
from tests.roles.people import Person
from tests.roles.shared_stage import SharedStage, set_up
from tests.support.front import Asked, Front, Reply, running_front
from tests.support.proxies import Proxy as Served
from tests.support.proxies import running_proxy
from tests.support.second_proxy import Proxy, second_proxy, with_keyrings
from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_store

# Nothing here is the database's affair.
pytestmark = pytest.mark.parametrize("service", ["sqlite"], indirect=True)

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
PATIENCE = 60.0
REFUSED = Reply(
    404,
    {"Content-Type": "application/problem+json"},
    json.dumps({"code": "not_found", "title": "Not found", "status": 404}).encode(),
)


def is_for_pages(asked: Asked) -> bool:
    return asked.path.partition("?")[0].endswith("/pages/")


def is_for_data(asked: Asked) -> bool:
    """For pages and rows, and for the log that confirms a state."""
    return asked.path.partition("?")[0].endswith(("/pages/", "/rows/", "/manifest/"))


@dataclass
class HeldBack:
    """Keeps the first answer with pages back until it is let go; ``spoil`` says what it is then."""

    came: Event = field(default_factory=Event)
    go: Event = field(default_factory=Event)
    spoil: Callable[[Reply], Reply] = lambda reply: reply

    def __call__(self, asked: Asked, reply: Reply) -> Reply:
        if is_for_pages(asked) and not self.came.is_set():
            self.came.set()
            assert self.go.wait(PATIENCE)
            return self.spoil(reply)
        return reply


@dataclass
class Waiters:
    """How many questions wait for another's fetch just now."""

    now: int = 0

    async def wait_for(self, some: Collection[fetches.Fetch]) -> bool:
        self.now += 1
        try:
            return await fetches.wait_for(some)
        finally:
            self.now -= 1


@pytest.fixture
def waiters(monkeypatch: pytest.MonkeyPatch) -> Waiters:
    made = Waiters()
    for module in (fetcher, page_fetcher, row_fetcher, states):
        monkeypatch.setattr(module, "wait_for", made.wait_for)
    return made


@dataclass
class Cold:
    """A proxy in the event loop of the test that has the log, and no page and no row."""

    proxy: Proxy
    front: Front
    schema: bytes

    def ask(self, where: Any) -> asyncio.Task[SearchPage]:
        body = {"where": where, "limit": 3}
        search = self.proxy.services.search
        return asyncio.create_task(search.ask(self.proxy.caller, self.schema, body))

    @property
    def requests(self) -> list[list[PageRef]]:
        """The pages of each request."""
        asked = [one.body for one in self.front.asked if is_for_pages(one)]
        return [list(wire.decode_all(body, PageRef)) for body in asked]

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left of what was under way."""
        services = self.proxy.services
        parts = (services.pager._fetches, services.fetcher._opening, services.rows._fetches)
        return not any(one._under_way for one in parts)


@pytest.fixture(scope="module")
def stored(service: Service) -> Store:
    """One segment of many pages, and a mini."""
    store = new_store(service, DEFINITION)
    store.ingest([{"name": "first"}])
    return store


@pytest.fixture(scope="module")
def filled(stored: Store, tmp_path_factory: pytest.TempPathFactory) -> Store:
    async def fill() -> None:
        folder = with_keyrings(stored.service, tmp_path_factory.mktemp("filling"))
        async with second_proxy(stored, folder) as proxy:
            await proxy.ingest([{"name": name(n), "age": n % 90} for n in range(MANY)])

    asyncio.run(fill())
    return stored


def name(number: int) -> str:
    return f"n{number:05}"


def is_named(number: int) -> dict[str, Any]:
    return {"field": "name", "op": "eq", "value": name(number)}


def names(page: SearchPage) -> list[Any]:
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


def test_whoever_stays_is_answered_while_others_go_away_and_requests_fail(
    play: Callable[[Scene], None],
) -> None:
    async def scene(one: Cold) -> None:
        chance = random.Random(7)

        spoiling = [False]

        def spoil_some(asked: Asked, reply: Reply) -> Reply:
            spoils = spoiling[0] and is_for_pages(asked)
            return replace(reply, status=500, body=b"") if spoils else reply

        for _ in range(6):
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
                    spoiling[0] = chance.random() < 0.3
                    asked[at].cancel()
                spoiling[0] = False
                found = await asyncio.gather(*asked, return_exceptions=True)
            for at, outcome in enumerate(found):
                if isinstance(outcome, SearchPage):
                    assert outcome.records
                elif at not in leaving:
                    assert isinstance(outcome, ErsError)
            assert any(isinstance(outcome, SearchPage) for outcome in found)

    play(scene)


# --- two users of one proxy ---------------------------------------------------------------------


@dataclass
class Both:
    """A proxy that has nothing, of an owner and a reader of one schema."""

    stage: SharedStage
    front: Front
    proxy: Served

    def forget(self, person: Person) -> None:
        """Have the proxy read the logs of this person again."""
        self.proxy.services.schemas.forget_user(ids.from_text(person.id))

    def ask(self, person: Person) -> Answer:
        where = {"field": "age", "op": "ge", "value": 0}
        body = {"schema": self.stage.schema["url"], "where": where, "count": True, "limit": 0}
        return call("POST", f"{self.proxy.url}/api/records/search/", body, auth=person.auth)

    @property
    def reader(self) -> Person:
        person = self.stage.person("reader")
        assert person is not None
        return person


@pytest.fixture
def both(service: Service, tmp_path: Path) -> Iterator[Both]:
    stage = set_up(service)
    own = with_keyrings(service, tmp_path / "own")
    with running_front(service.base_url) as front, running_proxy(front.url, own) as proxy:
        one = Both(stage, front, proxy)
        for person in (stage.owner, one.reader):
            assert one.ask(person).status == 200
        proxy.services.segments.clear()
        front.forget()
        yield one


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def asked_by(front: Front, person: Person) -> list[str]:
    """The last parts of the paths that the API was asked for with somebody's credentials."""
    mine = [one for one in front.asked if one.headers.get("Authorization") == person.auth]
    return [one.path.partition("?")[0].split("/")[-2] for one in mine if is_for_data(one)]


def test_who_waits_for_anothers_fetch_has_the_api_say_that_they_may_read(
    both: Both, waiters: Waiters
) -> None:
    held = HeldBack()
    with both.front.telling(held), ThreadPoolExecutor(2) as pool:
        first = pool.submit(both.ask, both.stage.owner)
        assert held.came.wait(PATIENCE)
        second = pool.submit(both.ask, both.reader)
        wait_until(lambda: waiters.now == 1)
        held.go.set()
        assert first.result().json()["count"] == second.result().json()["count"] == 1
    assert asked_by(both.front, both.stage.owner) == ["pages"]
    assert asked_by(both.front, both.reader) == ["manifest"]


def test_who_may_not_read_any_more_gets_nothing_by_waiting_for_another(
    both: Both, waiters: Waiters
) -> None:
    held = HeldBack()
    reader = both.reader

    def refuse(asked: Asked, reply: Reply) -> Reply:
        if asked.headers.get("Authorization") == reader.auth and is_for_data(asked):
            return REFUSED
        return held(asked, reply)

    with both.front.telling(refuse), ThreadPoolExecutor(2) as pool:
        first = pool.submit(both.ask, both.stage.owner)
        assert held.came.wait(PATIENCE)
        second = pool.submit(both.ask, reader)
        wait_until(lambda: waiters.now == 1)
        held.go.set()
        assert first.result().status == 200
        assert second.result().status == 404


def test_who_may_read_is_answered_though_the_one_they_waited_for_was_refused(
    both: Both, waiters: Waiters
) -> None:
    held = HeldBack(spoil=lambda _reply: REFUSED)
    with both.front.telling(held), ThreadPoolExecutor(2) as pool:
        first = pool.submit(both.ask, both.reader)
        assert held.came.wait(PATIENCE)
        second = pool.submit(both.ask, both.stage.owner)
        wait_until(lambda: waiters.now == 1)
        held.go.set()
        assert first.result().status == 404
        assert second.result().json()["count"] == 1
    assert asked_by(both.front, both.stage.owner)[0] == "pages"


# --- logins of one user -------------------------------------------------------------------------


def test_logins_that_come_while_the_log_is_read_are_confirmed_at_the_same_time(
    both: Both, waiters: Waiters
) -> None:
    owner = both.stage.owner
    logins = [replace(owner, auth=owner.log_in()) for _ in range(4)]
    both.forget(owner)
    began, go = Event(), Event()
    together = Barrier(len(logins) - 1)

    def hold(asked: Asked, reply: Reply) -> Reply:
        if is_for_data(asked) and asked.headers.get("Authorization") == logins[0].auth:
            began.set()
            assert go.wait(PATIENCE)
        elif is_for_data(asked):
            together.wait(PATIENCE)
        return reply

    with both.front.telling(hold), ThreadPoolExecutor(len(logins)) as pool:
        first = pool.submit(both.ask, logins[0])
        assert began.wait(PATIENCE)
        others = [pool.submit(both.ask, login) for login in logins[1:]]
        wait_until(lambda: waiters.now == len(others))
        go.set()
        assert [one.result().json()["count"] for one in (first, *others)] == [1] * len(logins)
    # Each has shown the API its own credentials.
    assert all(asked_by(both.front, login) for login in logins)

"""Two users of one proxy whose questions need the same pages at once: one waits for the other's
fetch, and each is told what the API says of them alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Barrier, Event

import pytest

from encrypted_records.model import ids
from tests.roles.people import Person
from tests.roles.shared_stage import SharedStage, set_up
from tests.support.eventually import eventually
from tests.support.front import Asked, Front, Reply, running_front
from tests.support.held_back import PATIENCE, HeldBack, Waiters, is_for_data, waiters
from tests.support.proxies import Proxy, running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import Answer, Service, call

__all__ = ["waiters"]

REFUSED = Reply(
    404,
    {"Content-Type": "application/problem+json"},
    json.dumps({"code": "not_found", "title": "Not found", "status": 404}).encode(),
)


@dataclass
class Both:
    """A proxy that has nothing, of an owner and a reader of one schema."""

    stage: SharedStage
    front: Front
    proxy: Proxy

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
        eventually(lambda: waiters.now == 1)
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
        eventually(lambda: waiters.now == 1)
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
        eventually(lambda: waiters.now == 1)
        held.go.set()
        assert first.result().status == 404
        assert second.result().json()["count"] == 1
    assert asked_by(both.front, both.stage.owner)[0] == "pages"


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
        eventually(lambda: waiters.now == len(others))
        go.set()
        assert [one.result().json()["count"] for one in (first, *others)] == [1] * len(logins)
    # Each has shown the API its own credentials.
    assert all(asked_by(both.front, login) for login in logins)

"""While all records are sealed again others store, change, delete and merge; proxies are killed;
and the API lies. Whatever happens is made to happen at one place of the job."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from encrypted_records.http import problem
from encrypted_records.model import wire
from encrypted_records.model.ids import from_text
from encrypted_records.model.records import RowRef
from encrypted_records.proxy.jobs import chunking, resealing
from tests.e2e.database import database_of
from tests.proxy.test_altered import row_of
from tests.proxy.test_reseal import DEFINITION, LONG, ROWS, answers, begin, groups, resealed
from tests.support import jobs
from tests.support.front import Asked, Front, Reply, honest, nothing, running_front
from tests.support.proxies import Proxy, running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import Service, clean_environment, free_ports
from tests.support.sides import running_side
from tests.support.store import Store, new_store

# Nothing here is the database's affair.
pytestmark = pytest.mark.parametrize("service", ["sqlite"], indirect=True)


NO_ROW = b'{"status": 404, "code": "row_gone", "title": "gone", "detail": "gone"}'


@pytest.fixture(scope="module")
def running(service: Service) -> Iterator[Front]:
    with running_front(service.base_url) as front:
        yield front


@pytest.fixture
def front(running: Front) -> Iterator[Front]:
    yield running
    running.invent, running.lie = nothing, honest


@pytest.fixture(scope="module")
def first(service: Service) -> Store:
    made = new_store(service, DEFINITION)
    made.ingest(ROWS[:1])  # the keyring is made
    return made


@pytest.fixture
def store(first: Store) -> Store:
    return first.another_schema(DEFINITION)


@pytest.fixture(scope="module")
def proxy(
    first: Store, running: Front, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    """Another one with the account's keyring, behind the front."""
    folder = with_keyrings(first.service, tmp_path_factory.mktemp("beside"))
    with running_proxy(running.url, folder) as other:
        yield other


@pytest.fixture
def beside(store: Store, front: Front, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store with its records by way of the other proxy, that takes few rows at once."""
    assert front.invent is nothing
    monkeypatch.setattr(chunking, "LIMITS", replace(chunking.LIMITS, records=64))
    monkeypatch.setattr(resealing, "FEW_ROWS", 2)
    for _ in range(5):
        store.ingest(ROWS)
    return replace(store, service=replace(store.service, proxy_url=proxy.url))


def at(front: Front, end: str, *acts: Callable[[], object]) -> None:
    """Do one thing after another: each before a request to a path that ends so is passed on."""
    left = iter(acts)

    def invent(asked: Asked) -> Reply | None:
        if asked.path.endswith(end) and asked.method == "POST":
            next(left, lambda: None)()
        return None

    front.invent = invent


def whole(store: Store) -> dict[str, Any]:
    return {one["id"]: one for one in store.everything()}


def test_what_comes_changes_and_goes_meanwhile_is_there_as_if_nothing_was(
    store: Store, beside: Store, front: Front
) -> None:
    named = [one["id"] for one in store.everything()]
    gone = itertools.count()

    def others(count: int) -> None:
        """By another proxy: some come, one changes, one goes, and segments are merged."""
        store.ingest([{"name": "later", "n": n, "note": f"{LONG}1"} for n in range(count)])
        one, other = named[3 + 2 * next(gone)], named[90 + next(gone)]
        assert store.proxy("DELETE", f"/api/records/{one}/").status == 204
        body = {"data": {"name": "changed"}}
        assert store.proxy("PATCH", f"/api/records/{other}/", body).status == 200
        assert store.proxy("POST", f"{store.schema}merge/", {}).status == 200

    lay = groups(store)
    at(front, "/staging/", lambda: others(70), lambda: others(1))
    ways: list[str] = []

    def publish(asked: Asked) -> Reply | None:
        if asked.path.endswith("/publish/"):
            ways.append(asked.path)
            if len(ways) < 4:
                others(len(ways))
        return None

    staging = front.invent

    def invent(asked: Asked) -> Reply | None:
        return staging(asked) or publish(asked)

    front.invent = invent
    resealed(beside)
    front.invent = nothing
    assert len(ways) == 4, "each commit before lost against another proxy's"
    assert not {one for one, _ in groups(store)} & {one for one, _ in lay}
    found = whole(store)
    assert len(found) == 150 + 70 + 1 + 1 + 2 + 3 - 5
    assert list(found) == [one["id"] for one in beside.everything()]
    assert [one["id"] for one in store.everything() if one["data"]["name"] == "changed"] != []
    assert sum(one["data"]["name"] == "changed" for one in found.values()) == 5
    assert answers(beside) == answers(store)


def test_of_two_the_second_is_refused_by_name(store: Store, beside: Store, front: Front) -> None:
    refused: list[Any] = []
    at(front, "/staging/", lambda: refused.append(begin(beside)))
    resealed(beside)
    (answer,) = refused
    assert (answer.status, answer.json()["code"]) == (409, "reseal_under_way")
    resealed(beside)


def test_of_two_proxies_the_later_one_gives_up_by_name(
    store: Store, beside: Store, front: Front
) -> None:
    before = answers(store)
    at(front, "/publish/", lambda: resealed(store))
    path = begin(beside).headers["X-Job-Status-URL"]
    ended = jobs.ended(beside, path)
    assert ended["status"] == "failed"
    assert "resealed_meanwhile" in ended["error"]
    assert answers(beside) == answers(store) == before


def test_one_that_could_not_begin_is_in_nobodys_way(
    store: Store, beside: Store, front: Front
) -> None:
    """The API gives the job its first token, and not the one for the time after an upload."""
    asked_for: list[str] = []

    def refuse(asked: Asked) -> Reply | None:
        if asked.path.startswith("/api/jobs/") and asked.path.endswith("/token/"):
            asked_for.append(asked.path)
            if len(asked_for) == 2:
                return Reply(500, {"Content-Type": "text/html"}, b"")
        return None

    front.invent = refuse
    assert begin(beside).status == 502
    assert len(asked_for) == 2
    front.invent = nothing
    resealed(beside)


@pytest.mark.parametrize("times", [1, 6])
def test_rows_that_go_and_come_under_the_lock_are_no_broken_log(
    store: Store, beside: Store, front: Front, times: int
) -> None:
    """One row is left, is sealed under the lock, and is not found while others come.

    Args:
        times: how often; a row is asked for five times before the job waits.
    """
    left = [{"name": "later", "n": n} for n in range(times + 1)]

    def come(asked: Asked) -> Reply | None:
        if asked.path.endswith("/staging/") and len(left) > times:
            store.ingest([left.pop()])
        elif asked.path.endswith("/rows/") and 0 < len(left) <= times:
            if len(wire.decode_all(asked.body, RowRef)) > 1:
                return None
            store.ingest([left.pop()])
            return Reply(404, {"Content-Type": problem.MEDIA_TYPE}, NO_ROW)
        return None

    front.invent = come
    resealed(beside)
    assert not left
    assert len(whole(store)) == 150 + times + 1
    assert answers(beside) == answers(store)


def test_what_a_job_stored_is_not_called_deleted_where_it_was_sealed_again_before(
    store: Store, beside: Store, front: Front
) -> None:
    path = jobs.started(beside, jobs.as_json(beside, ROWS))
    jobs.completed(beside, path)
    read: list[str] = []

    def overtake(asked: Asked) -> Reply | None:
        """Between the count of what is to be deleted and the deletion."""
        if asked.path.partition("?")[0].endswith("/manifest/"):
            read.append(asked.path)
            if len(read) == 2:
                resealed(store)
        return None

    front.invent = overtake
    answer = beside.proxy("DELETE", f"{path}records/?confirm={len(ROWS)}")
    front.invent = nothing
    assert len(read) >= 2
    assert (answer.status, answer.json()["code"]) == (409, "job_resealed")
    assert len(whole(store)) == 150 + len(ROWS)


def test_one_that_is_cancelled_leaves_nothing(store: Store, beside: Store, front: Front) -> None:
    lay, before = groups(store), answers(store)
    path: list[str] = []
    begun, told = threading.Event(), threading.Event()
    done: list[int] = []

    def cancel() -> None:
        assert begun.wait(60)
        done.append(beside.proxy("DELETE", path[0]).status)
        told.set()

    at(front, "/publish/", cancel)
    path.append(begin(beside).headers["X-Job-Status-URL"])
    begun.set()
    ended = jobs.ended(beside, path[0])
    assert told.wait(60)
    front.invent = nothing
    assert done == [204]
    assert "job_cancelled" in ended["error"]
    assert groups(store) == lay
    assert answers(store) == before
    resealed(beside)
    assert answers(store) == before


def test_a_row_that_somebody_with_the_key_altered_stops_it(store: Store, beside: Store) -> None:
    lay, named = groups(store), [one["id"] for one in store.everything()]
    with database_of(store.service) as database:
        row = row_of(database, from_text(named[70]))
        other = row_of(database, from_text(named[71]))
        fields = msgspec.msgpack.decode(row["sealed"], type=list[bytes])
        assert len(fields) == len(msgspec.msgpack.decode(other["sealed"], type=list[bytes]))
        database.change("record_row", row, sealed=other["sealed"])
    ended = jobs.ended(beside, begin(beside).headers["X-Job-Status-URL"])
    assert ended["status"] == "failed"
    assert "altered" in ended["error"]
    assert groups(store) == lay


@pytest.mark.parametrize("lies", ["others", "fewer"])
def test_an_api_that_gives_other_rows_than_asked_for_changes_nothing(
    store: Store, beside: Store, front: Front, lies: str
) -> None:
    lay = groups(store)
    kept: list[bytes] = []

    def lie(asked: Asked, reply: Reply) -> Reply:
        if asked.path.endswith("/rows/"):
            kept.append(reply.body)
            return reply.with_body(kept[0] if lies == "others" else reply.body[:4])
        return reply

    with front.telling(lie):
        ended = jobs.ended(beside, begin(beside).headers["X-Job-Status-URL"])
    assert ended["status"] == "failed"
    assert "does_not_open" in ended["error"]
    assert groups(store) == lay


def test_a_kill_anywhere_ends_in_the_same_records(
    store: Store, front: Front, tmp_path: Path
) -> None:
    """Of a proxy of its own, right before and right after the API did what it was asked for."""
    store.ingest(ROWS)
    before, lay = answers(store), groups(store)
    own, settings = proxy_of_its_own(store, front, tmp_path, of=store.service)
    path = ""
    for end, when in (
        ("/staging/", "after"),
        ("/publish/", "before"),
        ("/publish/", "after"),
        ("", ""),
    ):
        with running_side("proxy", settings, own.service.proxy_url, tmp_path / "log") as process:
            killing = Killing(process, end, when)
            front.invent, front.lie = killing.before, killing.after
            if not path:
                path = begin(own).headers["X-Job-Status-URL"]
            if end:
                process.wait(60)
                assert killing.done
                continue
            jobs.completed(own, path)
            assert answers(own) == answers(store) == before
            assert not groups(store) & lay
            assert len(groups(store)) == 1


def proxy_of_its_own(
    store: Store, front: Front, folder: Path, *, of: Service
) -> tuple[Store, dict[str, str]]:
    """The store by way of a proxy with its keyrings that a test starts, and that one's settings.

    Args:
        of: has been started from the command line, so that its folder says its format.
    """
    data = with_keyrings(store.service, folder / "own")
    shutil.copy(of.data_dir / "format", data)
    (port,) = free_ports(1)
    settings = {
        "ERS_DATA_DIR": str(data),
        "ERS_PROXY_PORT": str(port),
        "ERS_BASE_URL": front.url,
        "ERS_ACCESS": "api",
        "XDG_STATE_HOME": clean_environment().get("XDG_STATE_HOME", str(folder)),
    }
    service = replace(store.service, proxy_url=f"http://127.0.0.1:{port}")
    return replace(store, service=service), settings


@dataclass
class Killing:
    """Kills a process at the first request to a path that ends so, or at its answer."""

    process: subprocess.Popen[bytes]
    end: str
    when: str
    done: bool = False

    def is_meant(self, asked: Asked) -> bool:
        return asked.path.endswith(self.end)

    def before(self, asked: Asked) -> Reply | None:
        return Reply(503, {}, b"") if self._is_time(asked, "before") else None

    def after(self, asked: Asked, reply: Reply) -> Reply:
        self._is_time(asked, "after")
        return reply

    def _is_time(self, asked: Asked, when: str) -> bool:
        if self.done or when != self.when or not self.is_meant(asked):
            return False
        self.done = True
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        return True

"""While all records are sealed again others store, change, delete and merge; proxies are killed;
and the API lies. Whatever happens is made to happen at one place of the job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from encrypted_records.http import problem
from encrypted_records.model import wire
from encrypted_records.model.ids import from_text
from encrypted_records.model.records import RowRef
from encrypted_records.proxy.jobs import resealing
from tests.e2e.database import database_of
from tests.proxy.beside import first, front, proxy, running, store
from tests.proxy.test_altered import row_of
from tests.proxy.test_reseal import DEFINITION, ROWS, answers, begin, groups, resealed
from tests.support import jobs
from tests.support.fixtures import at as at_proxy
from tests.support.front import Asked, Front, Reply, nothing
from tests.support.proxies import Proxy
from tests.support.store import Store

__all__ = ["DEFINITION", "first", "front", "proxy", "running", "store"]

NO_ROW = b'{"status": 404, "code": "row_gone", "title": "gone", "detail": "gone"}'


@pytest.fixture
def beside(store: Store, front: Front, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store with its records by way of the other proxy, that takes few rows at once."""
    assert front.invent is nothing
    monkeypatch.setattr(resealing, "LIMITS", replace(resealing.LIMITS, records=64))
    monkeypatch.setattr(resealing, "FEW_ROWS", 2)
    for _ in range(5):
        store.ingest(ROWS)
    return at_proxy(store, proxy)


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

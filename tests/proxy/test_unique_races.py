"""Who races for values of unique fields: jobs, requests, late answers, restarts. Kills are in
``tests/faults``."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.model import wire
from tests.proxy.beside import first, front, other, proxy, running, store
from tests.proxy.test_reseal import resealed
from tests.support.fixtures import at
from tests.support.front import Asked, Front, Reply, nothing
from tests.support.jobs import as_json, completed, ended, flaws, started
from tests.support.proxies import running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import Answer, Service, call
from tests.support.store import Store

__all__ = ["first", "front", "other", "proxy", "running", "store"]

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "key": {"type": "string"},
        "n": {"type": "integer", "minimum": 0, "maximum": 10_000},
    },
    "unique": [["key"]],
}
WRITERS = 16
FAILURE = Reply(500, {"Content-Type": "text/html"}, b"")
Row = dict[str, Any]


@pytest.fixture
def folder(first: Store, service: Service, tmp_path: Path) -> Path:
    """The data folder of another proxy, with the account's keyring."""
    assert first.schema
    return with_keyrings(service, tmp_path / "other")


def replacing(store: Store, rows: Sequence[Row]) -> str:
    return started(store, as_json(store, rows), X_On_Conflict="replace")


def numbers(store: Store) -> dict[str, int]:
    """Of each key its record's number; each key is of one record."""
    found = [one["data"] for one in store.everything()]
    keys = [data.get("key", "") for data in found]
    assert len(set(keys)) == len(keys)
    return {data.get("key", ""): data.get("n", 0) for data in found}


def by_key(store: Store) -> dict[str, tuple[int, int]]:
    """Of each key its record's version and number."""
    every = numbers(store)
    versions: dict[str, int] = {}
    for one in store.everything():
        read = store.proxy("GET", f"/api/records/{one['id']}/")
        versions[one["data"].get("key", "")] = int(read.headers["ETag"].strip('"'))
    return {key: (versions[key], number) for key, number in every.items()}


def write_at_once(stores: Sequence[Store], rows: Sequence[Row]) -> list[Answer]:
    """Each row by a writer of its own, all at once, through the stores in turn."""
    start = threading.Barrier(len(rows))

    def write(number: int) -> Answer:
        start.wait()
        return stores[number % len(stores)].send([rows[number]])

    with ThreadPoolExecutor(len(rows)) as pool:
        return list(pool.map(write, range(len(rows))))


def test_of_many_writers_through_two_proxies_one_wins_and_others_do_not_disturb(
    store: Store, other: Store
) -> None:
    rows: list[Row] = [{"key": "wanted", "n": n} for n in range(WRITERS)]
    answers = write_at_once((store, other), rows)
    assert sorted(answer.status for answer in answers) == [201] + (WRITERS - 1) * [409]
    (winner,) = next(answer.json() for answer in answers if answer.status == 201)
    for answer in answers:
        if answer.status == 409:
            assert winner["url"] in answer.json()["errors"][0]["detail"]
    different: list[Row] = [{"key": f"{n}", "n": n} for n in range(WRITERS)]
    assert {one.status for one in write_at_once((store, other), different)} == {201}
    assert len(numbers(store)) == WRITERS + 1


def test_a_proxy_that_has_not_heard_that_fields_became_unique_looks_before_it_stores(
    first: Store, other: Store
) -> None:
    free = {name: rule for name, rule in DEFINITION.items() if name != "unique"}
    mine = first.another_schema(free)
    theirs = replace(other, schema=mine.schema)
    theirs.ingest([{"key": "a", "n": 1}])
    changed = mine.proxy("POST", f"{mine.schema}change/", {"schema": DEFINITION})
    assert changed.json()["applied"], changed.body
    assert theirs.send([{"key": "a", "n": 2}]).status == 409
    assert theirs.send([{"key": "b", "n": 3}]).status == 201
    assert numbers(mine) == {"a": 1, "b": 3}


def test_of_two_jobs_with_equal_values_one_is_stored(store: Store, other: Store) -> None:
    rows: list[Row] = [{"key": f"{n}", "n": n} for n in range(100)]
    mine, theirs = (started(one, as_json(one, rows)) for one in (store, other))
    ends = [ended(store, mine), ended(other, theirs)]
    assert sorted(end["status"] for end in ends) == ["completed", "failed"]
    lost = (store, mine) if ends[0]["status"] == "failed" else (other, theirs)
    assert len(flaws(*lost)) == 100
    assert numbers(store) == {f"{n}": n for n in range(100)}


def test_jobs_that_replace_and_requests_at_once_leave_one_record_for_each_key(
    store: Store, other: Store
) -> None:
    rows: list[Row] = [{"key": f"{n}", "n": n} for n in range(20)]
    paths = [(one, replacing(one, rows)) for one in (store, other) for _ in range(2)]
    answers = write_at_once((store, other), rows)
    for one, path in paths:
        completed(one, path)
    assert {answer.status for answer in answers} <= {201, 409}
    found = by_key(store)
    assert {key: n for key, (_, n) in found.items()} == {f"{n}": n for n in range(20)}
    # Each job replaced what was there, but for the first one where no request had come before.
    stored = {f"{n}" for n, one in enumerate(answers) if one.status == 201}
    assert {key: version for key, (version, _) in found.items()} == {
        key: 5 if key in stored else 4 for key in found
    }


@pytest.mark.parametrize("sealed_again", [False, True])
def test_a_publication_whose_answer_is_lost_replaces_once(
    store: Store, other: Store, front: Front, sealed_again: bool
) -> None:
    """Also where nothing is left of the job's groups when it looks."""
    store.ingest([{"key": "a", "n": 1}])
    lost: list[int] = []

    def lose(asked: Asked, reply: Reply) -> Reply | None:
        if asked.path.endswith("/publish/") and not lost:
            lost.append(reply.status)
            if not sealed_again:
                return None  # the same request is repeated then
            resealed(store)
            return FAILURE
        return reply

    with front.telling(lose):
        completed(other, replacing(other, [{"key": "a", "n": 2}, {"key": "b", "n": 3}]))
    assert lost[0] in (200, 201)
    assert by_key(store) == {"a": (2, 2), "b": (1, 3)}


def test_a_publication_that_lands_after_others_stored_its_values_adds_no_second_copy(
    store: Store, other: Store, front: Front
) -> None:
    """It was sent, nobody knows what became of it, and it lands when the job is withdrawn."""
    store.ingest([{"key": "a", "n": 1}])
    late: list[Asked] = []
    landed: list[int] = []

    def invent(asked: Asked) -> Reply | None:
        if asked.path.endswith("/publish/") and not late:
            store.ingest([{"key": "b", "n": 1}])
            late.append(asked)
            return FAILURE
        if late and not landed and asked.path.endswith("/parts/"):
            url = f"{store.service.base_url}{late[0].path}"
            sent = {"Content-Type": wire.MEDIA_TYPE}
            auth = store.account.auth
            landed.append(call("POST", url, late[0].body, auth=auth, headers=sent).status)
        return None

    front.invent = invent
    completed(other, replacing(other, [{"key": "a", "n": 2}, {"key": "b", "n": 3}]))
    assert landed == [409]
    assert by_key(store) == {"a": (2, 2), "b": (2, 3)}


def test_a_publication_that_lands_while_the_next_process_looks_does_not_collide_with_itself(
    store: Store, front: Front, folder: Path
) -> None:
    late: list[Asked] = []

    def keep(asked: Asked) -> Reply | None:
        if not asked.path.endswith("/publish/"):
            return None
        late.append(asked)
        sent.set()
        return FAILURE

    def land(asked: Asked) -> Reply | None:
        """Once the log was read, which did not have it."""
        if asked.path.partition("?")[0].endswith(f"{store.schema}manifest/"):
            read.append(asked.path)
            if len(read) == 2:
                url = f"{store.service.base_url}{late[-1].path}"
                kind = {"Content-Type": wire.MEDIA_TYPE}
                answer = call("POST", url, late[-1].body, auth=store.account.auth, headers=kind)
                assert answer.status == 201
        return None

    sent = threading.Event()
    read: list[str] = []
    front.invent = keep
    with running_proxy(front.url, folder) as proxy:
        path = started(at(store, proxy), as_json(store, [{"key": "a", "n": 1}]))
        assert sent.wait(60)
    front.invent = land
    with running_proxy(front.url, folder) as proxy:
        completed(at(store, proxy), path)
    assert len(read) >= 2
    assert by_key(store) == {"a": (1, 1)}


def test_a_job_whose_fields_are_unique_no_longer_replaces_nothing(
    store: Store, front: Front, folder: Path
) -> None:
    """It was sealed to replace a record, and goes on in the next process."""
    store.ingest([{"key": "a", "n": 1}])
    sent = threading.Event()

    def hold(asked: Asked) -> Reply | None:
        if not asked.path.endswith("/publish/"):
            return None
        sent.set()
        return FAILURE

    front.invent = hold
    with running_proxy(front.url, folder) as proxy:
        path = replacing(at(store, proxy), [{"key": "a", "n": 2}])
        assert sent.wait(60)
    front.invent = nothing
    loose = {name: one for name, one in DEFINITION.items() if name != "unique"}
    assert store.proxy("PATCH", store.schema, {"schema": loose}).status == 200
    with running_proxy(front.url, folder) as proxy:
        job = ended(at(store, proxy), path)
    assert (job["status"], "(invalid_parameter)" in job["error"]) == ("failed", True)
    assert by_key(store) == {"a": (1, 1)}


@pytest.mark.parametrize("changed", [False, True])
def test_a_job_goes_on_after_a_restart_and_looks_again(
    store: Store, front: Front, folder: Path, changed: bool
) -> None:
    store.ingest([{"key": "a", "n": 1}])
    asked_to = threading.Event()

    def hold(asked: Asked) -> Reply | None:
        if not asked.path.endswith("/publish/"):
            return None
        asked_to.set()
        return FAILURE

    front.invent = hold
    with running_proxy(front.url, folder) as proxy:
        path = replacing(at(store, proxy), [{"key": "a", "n": 2}, {"key": "b", "n": 3}])
        assert asked_to.wait(60)
    if changed:
        store.ingest([{"key": "b", "n": 1}])
    front.invent = nothing
    with running_proxy(front.url, folder) as proxy:
        completed(at(store, proxy), path)
    assert by_key(store) == {"a": (2, 2), "b": (2 if changed else 1, 3)}

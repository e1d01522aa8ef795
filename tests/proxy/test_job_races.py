"""Jobs and what may happen beside them: late requests, another proxy, a locked keyring."""

from __future__ import annotations

import itertools
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.model import ids, strict_json, wire
from encrypted_records.model.records import ATTEMPT_HEADER, Commit
from encrypted_records.proxy.jobs import runner as job_runner
from encrypted_records.proxy.process import JOB_SWEEP, JOBS, UPLOAD_SWEEP
from encrypted_records.proxy.uploads.service import UploadService
from tests.proxy.tus.test_clock_jumps import append, begin, create
from tests.support import jobs
from tests.support.eventually import eventually
from tests.support.fixtures import at
from tests.support.front import Asked, Front, Reply, nothing
from tests.support.older import make_older
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Answer, Service, call
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 10_000}},
}
ROWS = [{"n": n} for n in range(200)]
FAILURE = Reply(500, {"Content-Type": "text/html"}, b"")


def stored(store: Store) -> list[dict[str, int]]:
    return sorted((one["data"] for one in store.everything()), key=lambda one: one["n"])


@pytest.mark.parametrize(
    ("moment", "outcome"), [(("DELETE", "/parts/"), 201), (("POST", "/staging/"), 404)]
)
def test_a_publication_that_lands_after_the_keyring_was_rotated_adds_no_second_copy(
    store: Store, front: Front, moment: tuple[str, str], outcome: int
) -> None:
    # There a rotated keyring seals at once; a roster follows it later.
    make_older(store.service, store.account)
    late: list[Asked] = []
    landed: list[int] = []

    def invent(asked: Asked) -> Reply | None:
        if asked.path.endswith("/publish/") and not landed:
            if not late:
                assert store.proxy("POST", "/api/keyring/rotate/").status == 201
            late.append(asked)
            return FAILURE
        if late and not landed and asked.method == moment[0] and asked.path.endswith(moment[1]):
            landed.append(
                call(
                    "POST",
                    f"{store.service.base_url}{late[0].path}",
                    late[0].body,
                    auth=store.account.auth,
                    headers={"Content-Type": wire.MEDIA_TYPE},
                ).status
            )
        return None

    front.invent = invent
    jobs.completed(store, jobs.started(store, jobs.as_json(store, ROWS)))
    assert landed == [outcome]
    assert stored(store) == ROWS


@pytest.mark.parametrize(("status", "code"), [(400, b"invalid_body"), (404, b"not_found")])
def test_a_job_that_the_api_publishes_and_claims_to_have_refused_ends_by_name(
    store: Store, front: Front, status: int, code: bytes
) -> None:
    def refuse(asked: Asked, reply: Reply) -> Reply:
        if not asked.path.endswith("/publish/"):
            return reply
        body = b'{"code": "%s", "detail": "x"}' % code
        return Reply(status, {"Content-Type": "application/problem+json"}, body)

    with front.telling(refuse):
        job = jobs.ended(store, jobs.started(store, jobs.as_json(store, ROWS)))
    assert job["status"] == "failed"
    assert "has stored a change that it said it had refused" in job["error"]
    assert stored(store) == ROWS


def lose_first_part(front: Front, store: Store, publish: Callable[[Asked], None]) -> list[Asked]:
    """Have the first request with a part be late: it arrives when ``publish`` has it arrive, which
    is told of the first publication before the API has it."""
    late: list[Asked] = []
    published: list[Asked] = []

    def invent(asked: Asked) -> Reply | None:
        if asked.path.endswith("/staging/") and not late:
            late.append(asked)
            return FAILURE
        if asked.path.endswith("/publish/") and not published:
            published.append(asked)
            publish(late[0])
        return None

    front.invent = invent
    return late


def arrive(store: Store, asked: Asked) -> Answer:
    return call(
        asked.method,
        store.service.base_url + asked.path,
        asked.body,
        auth=store.account.auth,
        headers={
            name: value
            for name, value in asked.headers.items()
            if name.lower() in ("content-type", ATTEMPT_HEADER.lower())
        },
    )


def test_a_part_that_arrives_after_its_chunk_was_sealed_again_changes_nothing(
    store: Store, front: Front
) -> None:
    answers: list[Answer] = []
    lose_first_part(front, store, lambda late: answers.append(arrive(store, late)))

    jobs.completed(store, jobs.started(store, jobs.as_json(store, ROWS)))

    assert [(answer.status, answer.json()["code"]) for answer in answers] == [
        (409, "part_overtaken")
    ]
    assert stored(store) == ROWS
    # Once is enough: the chunk was sealed again after the lost answer, and not after that.
    assert len([one for one in front.asked if one.path.endswith("/staging/")]) == 2


def test_a_job_whose_parts_are_not_there_when_it_publishes_seals_them_again(
    store: Store, front: Front
) -> None:
    """A late request of an earlier attempt drops them, and another one brings what is old."""
    answers: list[int] = []

    def publish(late: Asked) -> None:
        (part,) = {one.path for one in front.asked if one.path.endswith("/publish/")}
        parts = Asked("DELETE", part.replace("/publish/", "/parts/"), b"")
        answers.extend(arrive(store, one).status for one in (parts, late))

    lose_first_part(front, store, publish)

    jobs.completed(store, jobs.started(store, jobs.as_json(store, ROWS)))

    assert answers == [204, 201]
    assert stored(store) == ROWS


def test_a_job_that_meets_a_bug_is_tried_again_before_it_fails(
    store: Store, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    once, ever = iter([1]), itertools.count()
    proxy.services.jobs.runner.waits = (0.05,)
    workers = proxy.services.workers
    original = workers.run

    async def run(*arguments: Any) -> Any:
        if next(bugs, None) is not None:
            raise KeyError("no such key")
        return await original(*arguments)

    monkeypatch.setattr(workers, "run", run)
    bugs: Iterator[int] = once
    jobs.completed(store, jobs.started(store, jobs.as_json(store, ROWS)))
    assert caplog.text.count("unexpected KeyError in a job") == 1
    bugs = ever
    failed = jobs.ended(store, jobs.started(store, jobs.as_json(store, ROWS)))
    assert failed["error"].endswith("(internal_error)")
    assert caplog.text.count("unexpected KeyError in a job") == 2 + job_runner.STRIKES
    assert stored(store) == ROWS


def test_what_ended_long_ago_is_forgotten_while_the_proxy_runs_and_orphans_are_deleted(
    service: Service, tmp_path: Path
) -> None:
    spool = tmp_path / "data" / "proxy" / "spool"
    spool.mkdir(parents=True)
    orphan = spool / f"{ids.to_text(ids.new_id())}.spool"
    orphan.touch()
    with running_proxy(service.base_url, tmp_path / "data") as proxy:
        proxy.settle(UPLOAD_SWEEP)
        assert not orphan.exists()
        store = at(new_store(service, DEFINITION), proxy)
        old, young = (jobs.started(store, jobs.as_json(store, ROWS[:1])) for _ in range(2))
        for path in (old, young):
            jobs.completed(store, path)
        # A job that has completed still deletes what it has left, and is not forgotten before.
        proxy.settle(JOBS)
        month = 30 * 86_400
        with sqlite3.connect(tmp_path / "data" / "proxy" / "jobs.sqlite3", timeout=30) as database:
            for path, age in ((old, month + 60), (young, month - 60)):
                database.execute(
                    "UPDATE job SET finished = ? WHERE id = ?",
                    (time.time() - age, uuid.UUID(path.split("/")[-2]).bytes),
                )
        proxy.settle(JOB_SWEEP)
        assert store.proxy("GET", old).status == 404
        assert store.proxy("GET", young).status == 200
        assert list(spool.iterdir()) == []


def test_the_first_sweep_of_uploads_fails_jobs_that_lost_theirs_and_none_that_begins_meanwhile(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter = UploadService._enter

    def die(*_: Any) -> Any:
        raise SystemError

    with running_proxy(service.base_url, tmp_path / "data") as proxy:
        store = at(new_store(service, DEFINITION), proxy)
        monkeypatch.setattr(UploadService, "_enter", die)
        assert create(store, 1000).status == 500
        (lost,) = store.proxy("GET", "/api/jobs/").json()["results"]
    assert lost["status"] == "uploading"
    with running_proxy(service.base_url, tmp_path / "data") as proxy:
        store = at(store, proxy)
        data = jobs.as_json(store, ROWS)

        def sweep_first(*arguments: Any) -> Any:
            proxy.settle(UPLOAD_SWEEP)
            return enter(*arguments)

        monkeypatch.setattr(UploadService, "_enter", sweep_first)
        upload, job = begin(store, data)
        assert jobs.status(store, f"/api/jobs/{lost['job_id']}/")["status"] == "failed"
        assert append(store, upload, 10, data[10:]).status == 204
        jobs.completed(store, job)


def test_a_job_waits_for_its_keyring_to_be_unlocked(
    service: Service,
    front: Front,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    account = new_store(service, DEFINITION)
    front.invent = lambda asked: FAILURE if asked.path.endswith("/staging/") else None
    with monkeypatch.context() as environment:
        environment.setenv("ERS_KEYRING_PASSPHRASE", "open sesame")
        with running_proxy(front.url, tmp_path / "sealed") as proxy:
            store = at(account, proxy)
            path = jobs.started(store, jobs.as_json(store, ROWS))
            eventually(lambda: " waits " in caplog.text)
    caplog.clear()
    front.invent = nothing
    with running_proxy(front.url, tmp_path / "sealed") as proxy:
        store = at(account, proxy)
        eventually(lambda: "is protected by a passphrase" in caplog.text)
        assert jobs.status(store, path)["status"] == "processing"
        unlocked = store.proxy("POST", "/api/keyring/unlock/", {"passphrase": "open sesame"})
        assert unlocked.status == 200, unlocked.body
        jobs.completed(store, path)
        assert stored(store) == ROWS


def test_a_job_that_the_api_publishes_in_one_of_its_schemas_alone_fails_and_is_not_cancelled(
    store: Store, front: Front
) -> None:
    """It keeps the records of the other schema."""
    other = store.another_schema(DEFINITION)
    answers: list[int] = []

    def invent(asked: Asked) -> Reply | None:
        if not asked.path.endswith("/publish/"):
            return None
        if not answers:
            half = wire.encode(wire.decode_all(asked.body, Commit)[:1])
            sent = {
                "Content-Type": wire.MEDIA_TYPE,
                "Authorization": asked.headers["Authorization"],
            }
            url = f"{store.service.base_url}{asked.path}"
            answers.append(call("POST", url, half, headers=sent).status)
        reached.set()
        assert go_on.wait(60)
        return FAILURE

    reached, go_on = threading.Event(), threading.Event()
    front.invent = invent
    rows = [{"schema": one.schema, "data": row} for row in ROWS for one in (store, other)]
    path = jobs.started(store, strict_json.encode(rows))
    assert reached.wait(60)
    assert store.proxy("DELETE", path).status == 422
    go_on.set()
    found = jobs.ended(store, path)
    assert answers == [201]
    assert found["status"] == "failed"
    assert "(log_broken)" in found["error"]
    assert sorted(len(one.everything()) for one in (store, other)) == [0, len(ROWS)]

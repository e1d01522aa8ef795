"""The bulk store in a real S3 server: OpenStack Swift on loopback."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from encrypted_records.model import ids
from encrypted_records.model.records import sealed_rows
from tests.server.api import Account, running_api
from tests.server.staged import Job
from tests.server.test_bulk import found, pages_of, published, rows_of
from tests.server.test_bulk_kills import ran
from tests.server.writer import Writer, person
from tests.support.doctor import Look, looked_at
from tests.support.front import Asked, Reply, honest, running_front
from tests.support.service import ANSWER_SECONDS
from tests.support.swift import NODES, Swift

BUCKET, PREFIX = "staged", "of/ours"
MANY = 150


@dataclass(frozen=True)
class Stored:
    """An API whose parts all lie in the bucket."""

    swift: Swift
    account: Account

    def url(self, prefix: str) -> str:
        """Without a cache: what is asked is how the store itself is read."""
        return f"s3://{BUCKET}/{prefix}?endpoint={self.swift.endpoint}&least=0&cache=0"

    def bucket(self) -> S3Store:
        return self.swift.bucket(BUCKET, PREFIX)

    def names(self) -> list[str]:
        return sorted(one["path"] for some in obstore.list(self.bucket()) for one in some)


@pytest.fixture(scope="module")
def stored(swift: Swift, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    plain = Stored(swift, Account(None, "", "", "", ""))  # type: ignore[arg-type]
    swift.make_bucket(BUCKET)
    environment = {"ERS_BULK_URL": plain.url(PREFIX), **swift.credentials}
    with running_api(tmp_path_factory.mktemp("api"), environment=environment) as api:
        yield Stored(swift, api.new_account())


@pytest.fixture
def job(stored: Stored) -> Job:
    writer = Writer(stored.account, stored.account.new_schema())
    return published(writer, [person() for _ in range(MANY)])


def test_parts_lie_in_the_bucket_in_three_copies_and_are_read_from_there(
    stored: Stored, job: Job
) -> None:
    places = (0, 63, 64, MANY - 1)
    [batch] = job.parts[0].rows
    assert found(rows_of(job, *places)) == [sealed_rows(batch)[at] for at in places]
    assert pages_of(job).status == 200
    row = batch.rows[100]
    assert row is not None
    one = f"/api/records/{ids.to_text(row.record_id)}/"
    assert job.writer.account.call("GET", one).status == 200
    names = stored.names()
    assert len(names) >= 2
    assert all(len(stored.swift.files_of(name)) == 3 for name in names)


def test_an_object_that_is_altered_short_or_gone_is_named(stored: Stored) -> None:
    before = set(stored.names())
    writer = Writer(stored.account, stored.account.new_schema())
    job = published(writer, [person() for _ in range(MANY)])
    bucket = stored.bucket()
    whole = {
        name: bytes(obstore.get(bucket, name).bytes()) for name in set(stored.names()) - before
    }
    [name] = [one for one, data in whole.items() if data.startswith(b"ersrows1")]
    data = whole[name]
    obstore.put(bucket, name, data[:-1] + bytes([data[-1] ^ 1]))
    said = [rows_of(job, MANY - 1)]
    obstore.put(bucket, name, data[:-1])
    said.append(rows_of(job, MANY - 1))
    obstore.delete(bucket, name)
    said.append(rows_of(job, MANY - 1))
    assert [one.code for one in said] == ["object_altered", "object_lost", "object_lost"]
    assert all(name in one.json()["detail"] for one in said)
    obstore.put(bucket, name, data)
    assert rows_of(job, MANY - 1).status == 200


def test_a_store_that_is_away_stores_nothing_and_is_named_and_comes_back(
    stored: Stored, job: Job
) -> None:
    more = Job(job.writer)
    part = more.adding(0, [person() for _ in range(3)])
    stored.swift.kill("proxy")
    try:
        read, staged = rows_of(job, 0), more.post(part)
    finally:
        stored.swift.start("proxy")
    assert (read.status, read.code) == (503, "bulk_store_unavailable")
    assert (staged.status, staged.code) == (503, "bulk_store_unavailable")
    assert rows_of(job, 0).status == 200
    more.stage(part)
    commit = more.commit()
    assert more.publish(commit).status == 201


def test_the_doctor_says_whether_the_bucket_can_be_used(stored: Stored, tmp_path: Path) -> None:
    """Of an API of its own: the doctor looks at all objects where there are as few as here."""
    bucket = stored.swift.bucket(BUCKET, "looked/at")
    credentials = stored.swift.credentials
    url = f"{stored.url('looked/at')}&patience=1"
    with running_api(tmp_path, environment={"ERS_BULK_URL": url, **credentials}) as api:
        account = api.new_account()
        published(Writer(account, account.new_schema()), [person()])

        def look(**instead: str) -> Look:
            own = {"ERS_DATA_DIR": str(api.data_dir), "ERS_BULK_URL": url}
            return looked_at("bulk store", **own | credentials | instead)

        def names() -> list[str]:
            return sorted(one["path"] for some in obstore.list(bucket) for one in some)

        before = names()
        well = [look()]
        wrong = {name: f"wrong{value}" for name, value in credentials.items()}
        said = [look(**wrong)]
        stored.swift.kill("proxy")
        try:
            said.append(look())
        finally:
            stored.swift.start("proxy")
        for name in before:
            held = bytes(obstore.get(bucket, name).bytes())
            obstore.delete(bucket, name)
            said.append(look())
            obstore.put(bucket, name, held)
            assert name in said[-1].found
        well.append(look())
        assert {(one.state, one.status) for one in well} == {("ok", 0)}, well
        assert {(one.state, one.status) for one in said} == {("failed", 1)}, said
        printed = "".join(one.everything for one in well + said)
        assert not [
            credential
            for credential in (*credentials.values(), *wrong.values())
            if credential in printed
        ]
        assert names() == before


def test_a_storage_node_that_is_killed_is_nobodys_trouble(stored: Stored, job: Job) -> None:
    more = Job(job.writer)
    part = more.adding(0, [person() for _ in range(3)])
    stored.swift.kill(NODES[0])
    try:
        read = rows_of(job, 0, MANY - 1)
        staged = more.post(part)
    finally:
        stored.swift.start(NODES[0])
    assert read.status == 200, read.body
    assert staged.status == 201, staged.body


def test_a_store_that_answers_503_breaks_off_or_cuts_short_is_asked_again_or_named(
    stored: Stored, tmp_path: Path
) -> None:
    with running_front(stored.swift.endpoint) as front:
        url = stored.url("lies").replace(stored.swift.endpoint, front.url)
        environment = {"ERS_BULK_URL": url, **stored.swift.credentials}
        with running_api(tmp_path, environment=environment) as api:
            account = api.new_account()
            writer = Writer(account, account.new_schema())
            rows = [person() for _ in range(3)]
            failures = [away, broken_off, away]

            def at_first(asked: Asked, reply: Reply) -> Reply | None:
                return failures.pop()(asked, reply) if failures else reply

            front.lie = at_first
            job = published(writer, rows)
            assert failures == []
            # It is the same for readers; and what never gets better is named.
            failures += [away, broken_off]
            assert found(rows_of(job, 0, 2)) == [rows[0], rows[2]]
            assert failures == []
            for lie, codes in (
                (away, {"bulk_store_unavailable"}),
                (short, {"bulk_store_unavailable", "object_lost", "object_altered"}),
            ):
                front.lie = lie
                answer = rows_of(job, 0)
                assert answer.code in codes, answer.body
            front.lie = away
            more = Job(writer)
            refused = more.post(more.adding(0, [person()]))
            assert (refused.status, refused.code) == (503, "bulk_store_unavailable")
            front.lie = honest
            assert found(rows_of(job, 0, 2)) == [rows[0], rows[2]]
            assert published(writer, [person()])


def test_a_store_that_does_not_answer_is_named_before_anybody_gives_the_api_up(
    stored: Stored, tmp_path: Path
) -> None:
    released = threading.Event()

    def silent(_asked: Asked, reply: Reply) -> Reply:
        released.wait(ANSWER_SECONDS)
        return reply

    def slow(_asked: Asked, reply: Reply) -> Reply:
        time.sleep(0.2)
        return reply

    with running_front(stored.swift.endpoint) as front:
        url = stored.url("slow").replace(stored.swift.endpoint, front.url) + "&patience=1"
        environment = {"ERS_BULK_URL": url, **stored.swift.credentials}
        with running_api(tmp_path, environment=environment) as api:
            account = api.new_account()
            writer = Writer(account, account.new_schema())
            rows = [person() for _ in range(3)]
            # One that is slow is waited for.
            front.lie = slow
            job = published(writer, rows)
            assert found(rows_of(job, 0, 2)) == [rows[0], rows[2]]
            front.lie = silent
            front.forget()
            try:
                said = [rows_of(job, 0), pages_of(job)]
                # One more try each, and the question is not put again on another way.
                assert len(front.asked) <= 2 * len(said)
                staged = Job(writer)
                said.append(staged.post(staged.adding(0, [person()])))
            finally:
                released.set()
            assert {(one.status, one.code) for one in said} == {(503, "bulk_store_unavailable")}
            front.lie = honest
            assert found(rows_of(job, 0, 2)) == [rows[0], rows[2]]


def away(_asked: Asked, _reply: Reply) -> Reply:
    return Reply(503, {"Content-Type": "application/xml"}, b"<Error><Code>SlowDown</Code></Error>")


def broken_off(_asked: Asked, _reply: Reply) -> None:
    return None


def short(_asked: Asked, reply: Reply) -> Reply:
    """Half of what there is, as if it were all."""
    return reply.with_body(reply.body[: len(reply.body) // 2])


def test_a_move_from_files_to_s3_that_is_killed_at_any_step_goes_on(
    stored: Stored, tmp_path: Path
) -> None:
    with running_api(tmp_path) as api:
        account = api.new_account()
    program = ["tests.server.moving_life", tmp_path / "data", stored.url("moved")]
    seen = ran(program, account, tmp_path, stored.swift.credentials)
    # Each goes on from where the one before died, a step further.
    assert json.loads(seen)["steps"] > 5

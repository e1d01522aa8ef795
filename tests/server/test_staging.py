"""What is stored ahead of its commit: invisible until it is published, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import msgspec
import psycopg
import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model.records import ATTEMPT_HEADER, Page, PageRef, Receipt, RowBatch, RowRef
from tests.server.api import Account, Answer, Api
from tests.server.overtaking import until_one_waits
from tests.server.staged import Job
from tests.server.writer import FRAMES, Writer, body_of, group_of, pages_of, person, segment_over


def nobody_at(api: Api) -> Account:
    """Calls that bring credentials of their own."""
    return Account(api, "", "", "", "")


@pytest.fixture
def writer(ada: Account) -> Writer:
    return Writer(ada, ada.new_schema())


@pytest.fixture
def job(writer: Writer) -> Job:
    return Job(writer)


#: Of what may lie in the table or in objects.
_COUNTS = {
    "record_row": "(SELECT count(*) FROM record_row)"
    " + (SELECT COALESCE(sum(count), 0) FROM row_part)",
    "index_page": "(SELECT count(*) FROM index_page)"
    " + (SELECT COALESCE(sum(count), 0) FROM page_part)",
}


def stored(api: Api, table: str) -> int:
    """Rows of a table, from behind."""
    question = f"SELECT {_COUNTS.get(table, f'(SELECT count(*) FROM {table})')}"
    if api.database_url is None:
        with closing(sqlite3.connect(api.data_dir / "api" / "db.sqlite3")) as sqlite:
            return int(sqlite.execute(question).fetchone()[0])
    with psycopg.connect(api.database_url) as postgresql:
        row = postgresql.execute(question.encode()).fetchone()
        assert row is not None
        return int(row[0])


def everything(api: Api) -> list[int]:
    tables = ["record_group", "record_row", "index_segment", "index_page", "staging", "staged_part"]
    return [stored(api, table) for table in tables]


def records(writer: Writer) -> list[str]:
    answer = writer.account.call("GET", f"/api/records/?schema={writer.schema['id']}")
    return [result["id"] for result in answer.json()["results"]]


@pytest.mark.both_databases
def test_staged_rows_are_seen_by_nobody_and_published_at_once(job: Job) -> None:
    first, second = [person(), person()], [person()]
    job.stage(job.adding(0, first))
    job.stage(job.adding(1, second))
    writer = job.writer
    assert records(writer) == []
    assert writer.manifest()[0].version == 0
    [group, _], [segment, _] = list(job.groups), list(job.segments)
    one = f"/api/records/{ids.to_text(first[0].record_id)}/"
    assert writer.account.call("GET", one).status == 404
    rows, pages = f"{writer.schema['url']}rows/", f"{writer.schema['url']}pages/"
    asked = wire.encode([RowRef(group, 0)])
    assert writer.account.call("POST", rows, asked, **FRAMES).code == "row_gone"
    asked = wire.encode([PageRef(segment, 0)])
    assert writer.account.call("POST", pages, asked, **FRAMES).code == "segment_gone"

    answer = job.publish(job.commit())

    assert answer.status == 201
    assert wire.decode_single(answer.body, Receipt).version == 1
    assert records(writer) == [ids.to_text(row.record_id) for row in [*first, *second]]
    assert writer.account.call("GET", one).status == 200


def test_a_repeated_publish_gets_the_same_receipt(job: Job) -> None:
    job.stage(job.adding(0, [person()]))
    commit = job.commit()
    first, again = job.publish(commit), job.publish(commit)
    assert (first.status, again.status) == (201, 200)
    assert first.body == again.body
    job.writer.follow(commit)
    assert job.publish(job.commit()).code == "staging_gone"


def test_a_repeated_part_changes_nothing(api: Api, job: Job) -> None:
    upload = job.adding(0, [person(), person()])
    assert job.post(upload).status == 201
    before = everything(api)
    assert job.post(upload).status == 200
    assert everything(api) == before


@pytest.mark.both_databases
def test_another_part_of_the_same_number_takes_its_place(api: Api, job: Job) -> None:
    job.stage(job.adding(0, [person()]))
    before = everything(api)
    assert job.post(job.adding(1, [person(), person()])).status == 201
    rows = [person(), person()]
    job.stage(job.adding(1, rows))
    grown = [now - then for then, now in zip(before, everything(api), strict=True)]
    assert grown == [1, 2, 1, 1, 0, 1]
    assert job.publish(job.commit()).status == 201
    assert records(job.writer)[1:] == [ids.to_text(row.record_id) for row in rows]


def test_rows_and_pages_of_a_group_and_segment_may_be_spread_over_parts(job: Job) -> None:
    rows = [person() for _ in range(67)]
    group = group_of(rows)
    segment = segment_over([(group.uid, 67)], "paged", pages=3)
    pages = pages_of(segment)
    job.stage(job.part(0, [group], [], [RowBatch(group.uid, 0, rows[:64])]))
    job.stage(job.part(7, [], [segment], [], pages[1:]))
    incomplete = job.publish(job.commit())
    assert (incomplete.status, incomplete.code) == (404, "staging_gone")
    job.stage(job.part(8, [group], [segment], [RowBatch(group.uid, 64, rows[64:])], pages[:1]))
    assert job.publish(job.commit()).status == 201
    assert records(job.writer) == [ids.to_text(row.record_id) for row in rows]


@pytest.mark.both_databases
def test_a_part_that_arrives_after_a_later_attempt_takes_the_place_of_none(
    api: Api, job: Job
) -> None:
    late, present = job.adding(0, [person()]), [person(), person()]
    job.stage(job.adding(0, present), attempt=7)
    before = everything(api)
    for attempt in (0, 6):
        refused = job.post(late, attempt=attempt)
        assert (refused.status, refused.code) == (409, "part_overtaken")
    assert everything(api) == before
    # What is there already is there, whatever the number.
    assert job.post(job.parts[0], attempt=6).status == 200
    assert job.publish(job.commit()).status == 201
    assert records(job.writer) == [ids.to_text(row.record_id) for row in present]


def test_a_part_is_made_again_under_a_higher_number(job: Job) -> None:
    job.stage(job.adding(0, [person()]), attempt=7)
    job.groups.clear()
    job.segments.clear()
    row = person()
    job.stage(job.adding(0, [row]), attempt=8)
    assert job.publish(job.commit()).status == 201
    assert records(job.writer) == [ids.to_text(row.record_id)]


@pytest.mark.parametrize("attempt", ["-1", "x", "1" * 20, ""])
def test_what_is_no_number_of_an_attempt_is_refused(job: Job, attempt: str) -> None:
    refused = job.post(job.adding(0, [person()]), attempt=attempt)
    assert (refused.status, refused.json()["errors"][0]["header"]) == (400, ATTEMPT_HEADER)


def test_a_commit_of_parts_that_are_not_there_is_told_to_store_them_again(job: Job) -> None:
    job.stage(job.adding(0, [person()]))
    commit = job.commit()
    assert job.post(job.adding(0, [person()])).status == 201
    refused = job.publish(commit)
    assert (refused.status, refused.code) == (404, "staging_gone")


def test_what_the_commit_does_not_name_is_dropped(api: Api, job: Job) -> None:
    before = everything(api)
    job.stage(job.adding(0, [person()]))
    assert job.post(job.adding(1, [person(), person()])).status == 201
    assert job.publish(job.commit()).status == 201
    grown = [now - then for then, now in zip(before, everything(api), strict=True)]
    assert grown == [1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"groups": []},
        {"segments": []},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_commit_of_other_parts_is_refused_and_can_be_mended(
    job: Job, change: dict[str, Any]
) -> None:
    job.stage(job.adding(0, [person()]))
    refused = job.publish(job.commit(**change))
    assert (refused.status, refused.code) == (400, "invalid_commit")
    assert records(job.writer) == []
    assert job.publish(job.commit()).status == 201


def test_a_group_must_be_published_as_it_was_described(job: Job) -> None:
    job.stage(job.adding(0, [person()]))
    [group] = job.groups.values()
    other = msgspec.structs.replace(group, fields=group.fields[::-1])
    assert job.publish(job.commit(groups=[other])).code == "invalid_commit"


def test_a_publish_that_loses_a_race_is_made_anew_without_its_parts(job: Job) -> None:
    job.stage(job.adding(0, [person()]))
    late = job.commit()
    job.writer.send(job.writer.adding([person()]))
    refused = job.publish(late)
    assert (refused.status, refused.code) == (409, "writer_conflict")
    assert job.publish(job.commit()).status == 201


@pytest.mark.both_databases
def test_several_schemas_are_published_together_or_not_at_all(ada: Account, job: Job) -> None:
    other = Job(Writer(ada, ada.new_schema()))
    other.id = job.id
    job.stage(job.adding(0, [person()]))
    other.stage(other.adding(0, [person()]))
    refused = job.publish(job.commit(), other.commit(segments=[]))
    assert (refused.status, refused.code) == (400, "invalid_commit")
    assert records(job.writer) == records(other.writer) == []
    assert job.publish(job.commit(), other.commit()).status == 201
    assert len(records(job.writer)) == len(records(other.writer)) == 1


def test_what_is_not_sealed_is_refused_ahead_as_well(job: Job) -> None:
    plain = msgspec.structs.replace(person(), fields=[b"Ada Lovelace", b"36"])
    assert job.post(job.adding(0, [plain])).code == "not_sealed"
    assert job.post(job.adding(0, [person(version=0)])).code == "invalid_commit"
    rows = [person()]
    group = group_of(rows)
    stranger = job.part(0, [], [], [RowBatch(group.uid, 0, rows)])
    assert job.post(stranger).code == "invalid_commit"
    beyond = job.part(0, [group], [], [RowBatch(group.uid, 1, rows)])
    assert job.post(beyond).code == "invalid_commit"
    segment = segment_over([(group.uid, 1)], "paged")
    short = job.part(0, [], [segment], [], [Page(segment.uid, 0, b"\x01" + os.urandom(99))])
    assert job.post(short).code == "invalid_commit"
    assert records(job.writer) == []


def test_parts_of_another_definition_are_refused(job: Job) -> None:
    upload = job.adding(0, [person()])
    stale = msgspec.structs.replace(upload.part, definition=bytes(32))
    refused = job.post(replace(upload, part=stale))
    assert (refused.status, refused.code) == (409, "stale_definition")


@pytest.mark.both_databases
def test_a_dropped_staging_leaves_nothing(api: Api, job: Job) -> None:
    before = everything(api)
    job.stage(job.adding(0, [person()]))
    job.stage(job.adding(1, [person()]))
    assert job.drop().status == 204
    assert everything(api) == before
    assert job.drop().status == 204
    assert job.publish(job.commit()).code == "staging_gone"


def test_deleting_the_schema_takes_what_is_staged_along(api: Api, job: Job) -> None:
    before = everything(api)
    job.stage(job.adding(0, [person()]))
    assert job.writer.account.call("DELETE", job.writer.schema["url"]).status == 204
    assert everything(api) == before


def test_strangers_neither_add_to_a_staging_nor_publish_nor_drop_it(job: Job, bob: Account) -> None:
    job.stage(job.adding(0, [person()]))
    assert job.post(job.adding(1, [person()]), auth=bob).status == 404
    body = wire.encode([job.commit().commit])
    assert bob.call("POST", f"/api/jobs/{job.id}/publish/", body, **FRAMES).status == 404
    assert bob.call("DELETE", f"/api/jobs/{job.id}/").status == 204
    assert job.publish(job.commit()).status == 201


def test_a_publication_may_bring_more_segments_than_may_be_live_but_only_one(job: Job) -> None:
    writer = job.writer
    people = [person() for _ in range(257)]
    groups = [group_of([one]) for one in people]
    segments = [segment_over([(group.uid, 1)]) for group in groups]
    rows = [RowBatch(group.uid, 0, [one]) for group, one in zip(groups, people, strict=True)]
    pages = [page for segment in segments for page in pages_of(segment)]
    job.stage(job.part(0, groups, segments, rows, pages))
    commit = job.commit()
    assert job.publish(commit).status == 201
    writer.follow(commit)
    assert writer.refused(writer.adding([person()])) == (429, "merge_first")
    more = Job(writer)
    more.stage(more.adding(0, [person()]))
    assert more.publish(more.commit()).code == "merge_first"


# --- the token of a job ---------------------------------------------------------------------


def test_a_job_token_does_all_that_its_job_needs(api: Api, job: Job) -> None:
    token, nobody = job.token(), nobody_at(api)
    writer = job.writer
    assert nobody.call("GET", writer.schema["url"], Authorization=token).status == 200
    manifest = f"{writer.schema['url']}manifest/"
    assert nobody.call("GET", manifest, Authorization=token).status == 200
    upload = job.adding(0, [person()])
    for _ in range(2):
        # What was dropped can be stored anew: the token outlives it.
        assert job.post(upload, auth=nobody, Authorization=token).status == 201
        parts = f"/api/jobs/{job.id}/parts/"
        assert nobody.call("DELETE", parts, Authorization=token).status == 204
    assert job.post(upload, auth=nobody, Authorization=token).status == 201
    job.stage(upload)
    assert job.publish(job.commit(), Authorization=token).status == 201
    assert nobody.call("DELETE", f"/api/jobs/{job.id}/", Authorization=token).status == 204
    assert nobody.call("GET", manifest, Authorization=token).code == "bad_token"


def test_what_comes_while_its_job_ends_is_not_left_behind(
    apis: Callable[[str], Api],
) -> None:
    """The request has passed the check of its token, and the job ends before it stores anything."""
    api = apis("postgresql")
    account = api.new_account()
    job = Job(Writer(account, account.new_schema()))
    token, before = job.token(), everything(api)
    assert api.database_url is not None
    with psycopg.connect(api.database_url) as ending, ThreadPoolExecutor(1) as pool:
        ending.execute("DELETE FROM job_grant WHERE job = %s", (job.id.bytes,))
        late = pool.submit(
            job.post, job.adding(0, [person()]), auth=nobody_at(api), Authorization=token
        )
        until_one_waits(api.database_url, late.done)
        ending.commit()
        assert (late.result().status, late.result().code) == (401, "bad_token")
    assert everything(api) == before


def test_a_job_token_does_nothing_else(api: Api, job: Job) -> None:
    token, nobody = job.token(), nobody_at(api)
    other = Job(job.writer)
    refused = other.post(other.adding(0, [person()]), auth=nobody, Authorization=token)
    assert (refused.status, refused.code) == (403, "not_allowed")
    for path in (f"/api/jobs/{other.id}/", f"/api/jobs/{other.id}/parts/"):
        drop = nobody.call("DELETE", path, Authorization=token)
        assert (drop.status, drop.code) == (403, "not_allowed")
    for upload in (job.writer.adding([person()]), job.writer.make()):  # records, a definition
        body = b"".join(wire.encode_uploads([upload]))
        added = nobody.call("POST", "/api/commits/", body, **FRAMES, Authorization=token)
        assert (added.status, added.code) == (403, "not_allowed")
    for method, path in (
        ("GET", "/api/schemas/"),
        ("PATCH", job.writer.schema["url"]),
        ("DELETE", job.writer.schema["url"]),
        ("GET", f"/api/records/?schema={job.writer.schema['id']}"),
        ("GET", "/api/organizations/"),
        ("POST", f"/api/jobs/{job.id}/token/"),
    ):
        assert nobody.call(method, path, Authorization=token).status == 401, path
    # Who founds an organization states an address, and a job may have to.
    assert nobody.call("GET", "/api/users/self/", Authorization=token).status == 200
    assert nobody.call("PATCH", "/api/users/self/", Authorization=token).status == 405


def test_a_job_token_makes_room_in_the_index(api: Api, job: Job) -> None:
    writer = job.writer
    segments = []
    for _ in range(2):
        upload = writer.adding([person()])
        writer.send(upload)
        segments += body_of(upload).segments
    body = b"".join(wire.encode_uploads([writer.merging(segments, [1, 1])]))
    nobody = nobody_at(api)
    merged = nobody.call("POST", "/api/commits/", body, **FRAMES, Authorization=job.token())
    assert merged.status == 201


def test_a_new_token_voids_the_old_and_a_new_password_all(api: Api) -> None:
    account = api.new_account()
    job = Job(Writer(account, account.new_schema()))
    manifest = f"{job.writer.schema['url']}manifest/"
    nobody = nobody_at(api)
    old, new = job.token(), job.token()
    assert nobody.call("GET", manifest, Authorization=old).status == 401
    assert nobody.call("GET", manifest, Authorization=new).status == 200
    changed = account.call(
        "POST",
        "/api/accounts/change-password/",
        {
            "old_password": account.password,
            "password": "another long passphrase",
            "password_confirm": "another long passphrase",
        },
    )
    assert changed.status == 200
    assert nobody.call("GET", manifest, Authorization=new).code == "job_revoked"


def entered(job: Job, secret: str) -> Answer:
    """A token that its proxy made; it is of this test, as other tests use the database."""
    body = {"digest": hashlib.sha256(secret.encode()).hexdigest()}
    return job.writer.account.call("POST", f"/api/jobs/{job.id}/token/", body)


def test_a_token_that_its_proxy_made_is_entered_as_often_and_as_late_as_it_comes(
    api: Api, job: Job
) -> None:
    manifest, nobody = f"{job.writer.schema['url']}manifest/", nobody_at(api)
    assert nobody.call("GET", manifest, Authorization=f"Job mine {job.id}").code == "bad_token"
    for _ in range(3):
        answer = entered(job, f"mine {job.id}")
        assert (answer.status, answer.body) == (204, b"")
        assert nobody.call("GET", manifest, Authorization=f"Job mine {job.id}").status == 200
    assert entered(job, f"another {job.id}").status == 204
    assert nobody.call("GET", manifest, Authorization=f"Job mine {job.id}").code == "bad_token"
    assert nobody.call("GET", manifest, Authorization=f"Job another {job.id}").status == 200


def test_a_token_of_one_job_is_no_token_of_another(api: Api, job: Job) -> None:
    secret, other = f"of {job.id}", Job(job.writer)
    assert entered(job, secret).status == 204
    refused = entered(other, secret)
    assert (refused.status, refused.code) == (400, "invalid")
    upload = job.adding(0, [person()])
    assert job.post(upload, auth=nobody_at(api), Authorization=f"Job {secret}").status == 201


def test_what_is_no_digest_is_refused(job: Job) -> None:
    for body in ({"digest": "mine"}, {"digest": "A" * 64}, {"digest": None}, {"token": "mine"}):
        path = f"/api/jobs/{job.id}/token/"
        assert job.writer.account.call("POST", path, body).status == 400, body


@pytest.mark.parametrize("changed", ["secret key", "password"])
def test_a_token_from_before_a_new_secret_key_or_password_never_counts_again(
    api: Api, job: Job, changed: str
) -> None:
    """Another secret key, as after a restore, changes the seal alone; a password changes both."""
    manifest, nobody = f"{job.writer.schema['url']}manifest/", nobody_at(api)
    assert entered(job, f"old {job.id}").status == 204
    owner = f"SELECT id FROM accounts_user WHERE email = '{job.writer.account.email}'"
    where = f"WHERE user_id IN ({owner})"
    api.execute(f"UPDATE job_grant SET seal = '' {where}")
    if changed == "password":
        api.execute(f"UPDATE job_grant SET password_digest = job {where}")
    unknown = nobody.call("GET", manifest, Authorization=f"Job old {job.id}")
    code = "bad_token" if changed == "secret key" else "job_revoked"
    assert (unknown.status, unknown.code) == (401, code)
    again = entered(job, f"old {job.id}")
    assert (again.status, again.code) == (409, "job_token_spent")
    assert nobody.call("GET", manifest, Authorization=f"Job old {job.id}").status == 401
    assert entered(job, f"new {job.id}").status == 204
    assert nobody.call("GET", manifest, Authorization=f"Job new {job.id}").status == 200


def test_a_revoked_api_token_revokes_its_jobs_for_good(api: Api) -> None:
    account = api.new_account()
    job = Job(Writer(account, account.new_schema()))
    sent = {"name": "nightly", "scope": "write", "password": account.password}
    made = account.call("POST", "/api/tokens/", sent).json()
    manifest, nobody = f"{job.writer.schema['url']}manifest/", nobody_at(api)
    body = {"digest": hashlib.sha256(f"its {job.id}".encode()).hexdigest()}
    path, bearer = f"/api/jobs/{job.id}/token/", f"Bearer {made['token']}"
    assert nobody.call("POST", path, body, Authorization=bearer).status == 204
    # Its user renews it within the limits of the API token, and does not lift them.
    assert entered(job, f"its {job.id}").status == 204
    assert nobody.call("GET", manifest, Authorization=f"Job its {job.id}").status == 200
    assert account.call("DELETE", made["url"]).status == 204
    assert nobody.call("GET", manifest, Authorization=f"Job its {job.id}").code == "job_revoked"
    for secret in ("its", "another"):
        assert entered(job, f"{secret} {job.id}").code == "job_revoked"
    assert nobody.call("GET", manifest, Authorization=f"Job its {job.id}").code == "job_revoked"

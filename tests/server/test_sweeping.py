"""What nobody can ask for any more goes by itself, whether or not anything else comes."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from typing import Any

import psycopg
import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model.records import Page, PageRef
from tests.server.api import Account, Api, running_api
from tests.server.conftest import Stopped
from tests.server.staged import Job
from tests.server.writer import FRAMES, Writer, body_of, person
from tests.support.eventually import eventually

#: Seconds for which pages of a replaced segment stay.
KEPT = 15 * 60
#: Pages of one segment, more than are deleted at once.
PAGES = 1207


@pytest.fixture
def writer(ada: Account) -> Writer:
    return Writer(ada, ada.new_schema())


def replaced(writer: Writer) -> PageRef:
    """The page of a segment that a merge has replaced just now."""
    upload = writer.adding([person()])
    writer.send(upload)
    [old] = body_of(upload).segments
    writer.send(writer.merging([old], [1]))
    return PageRef(old.uid, 0)


def asked(writer: Writer, ref: PageRef) -> tuple[int, str | None]:
    answer = writer.account.call(
        "POST", f"{writer.schema['url']}pages/", wire.encode([ref]), **FRAMES
    )
    if answer.status == 200:
        assert len(wire.decode_all(answer.body, Page)) == 1
        return 200, None
    return answer.status, answer.code


def count(api: Api, statement: str) -> int:
    if api.database_url is None:
        with closing(sqlite3.connect(api.data_dir / "api" / "db.sqlite3", timeout=30)) as database:
            return int(database.execute(statement).fetchone()[0])
    with psycopg.connect(api.database_url) as connection:
        row: Any = connection.execute(statement.encode()).fetchone()
        return int(row[0])


def literal(api: Api, uid: bytes) -> str:
    return f"X'{uid.hex()}'" if api.database_url is None else f"'\\x{uid.hex()}'"


def age(api: Api, uid: bytes, seconds: float) -> None:
    """Have a segment be replaced so long ago."""
    when = time.strftime("%Y-%m-%d %H:%M:%S+00:00", time.gmtime(time.time() - seconds))
    api.execute(
        f"UPDATE index_segment SET superseded_at = '{when}' WHERE uid = {literal(api, uid)}"
    )


def with_more_pages(api: Api, uid: bytes, pages: int) -> str:
    """Give a segment so many pages; the question that counts them."""
    named = f"uid = {literal(api, uid)}"
    number = f"(SELECT id FROM index_segment WHERE {named})"
    api.execute(
        "WITH RECURSIVE more (number) AS"
        f" (SELECT 1 UNION ALL SELECT number + 1 FROM more WHERE number < {pages - 1})"
        " INSERT INTO index_page (segment_id, number, digest, data)"
        " SELECT segment_id, more.number, digest, data FROM more, index_page"
        f" WHERE index_page.number = 0 AND segment_id = {number}"
    )
    api.execute(f"UPDATE index_segment SET pages = {pages} WHERE {named}")
    return (
        "SELECT COUNT(*) FROM index_page JOIN index_segment ON segment_id = index_segment.id"
        f" WHERE {named}"
    )


def test_pages_of_replaced_segments_go_when_their_time_is_over_without_another_commit(
    writer: Writer, api: Api
) -> None:
    old, large, young = replaced(writer), replaced(writer), replaced(writer)
    of_large = with_more_pages(api, large.segment, PAGES)
    assert count(api, of_large) == PAGES
    for ref, seconds in ((old, KEPT + 60), (large, KEPT + 60), (young, KEPT - 120)):
        age(api, ref.segment, seconds)
    eventually(lambda: asked(writer, old) == (404, "segment_gone"))
    eventually(lambda: count(api, of_large) == 0)
    assert asked(writer, large) == (404, "segment_gone")
    assert asked(writer, young) == (200, None)
    kept = f"length(header) + length(salt) > 0 AND uid = {literal(api, young.segment)}"
    assert count(api, f"SELECT COUNT(*) FROM index_segment WHERE {kept}") == 1
    for gone in (old, large):
        left = f"length(header) + length(salt) > 0 AND uid = {literal(api, gone.segment)}"
        eventually(lambda: count(api, f"SELECT COUNT(*) FROM index_segment WHERE {left}") == 0)  # noqa: B023


def test_what_was_stored_ahead_and_left_alone_for_a_week_goes_by_itself(
    writer: Writer, api: Api
) -> None:
    job = Job(writer)
    job.stage(job.adding(0, [person()]))
    api.execute("UPDATE staging SET touched = '2020-01-01 00:00:00+00:00'")
    eventually(lambda: count(api, "SELECT COUNT(*) FROM staging") == 0)
    assert job.publish(job.commit()).code == "staging_gone"


@pytest.mark.both_databases
def test_ids_of_requests_that_nobody_may_send_again_go_and_those_of_late_stay(
    stopped: Stopped,
) -> None:
    def at(days: int) -> bytes:
        moment = int(time.time() * 1000) - days * 86_400_000
        return moment.to_bytes(6, "big") + ids.new_id()[6:]

    old, late, schema = at(31), at(29), ids.new_id()
    with closing(sqlite3.connect(stopped.database)) as database:
        database.executemany(
            "INSERT INTO commit_request (schema_id, request) VALUES (?, ?)",
            [(schema, old), (schema, late)],
        )
        database.commit()

    def left() -> list[bytes]:
        with closing(sqlite3.connect(stopped.database)) as database:
            rows = database.execute("SELECT request FROM commit_request").fetchall()
        return [bytes(request) for (request,) in rows]

    with running_api(stopped.folder):
        eventually(lambda: left() == [late])

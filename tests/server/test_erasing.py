"""What was deleted leaves the API's files, and what is left can still be proven and read."""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from encrypted_records.model import digests, ids, wire
from encrypted_records.model.records import Page, PageRef, RowDigests, RowRef, SealedRow, StoredRow
from tests.server.api import Account, Answer, Api
from tests.server.staged import Job
from tests.server.writer import FRAMES, Writer, body_of, person, salt_of
from tests.support import postgres
from tests.support.eventually import eventually

#: More than two blocks.
MANY = 150
#: Holds of one schema that one user may have at a time.
MOST_HOLDS = 10


@pytest.fixture
def writer(ada: Account) -> Writer:
    return Writer(ada, ada.new_schema())


def stored(writer: Writer, count: int) -> tuple[bytes, list[SealedRow]]:
    """Rows in the database."""
    rows = [person() for _ in range(count)]
    upload = writer.adding(rows)
    writer.send(upload)
    [group] = body_of(upload).groups
    return group.uid, rows


def staged(writer: Writer, count: int) -> tuple[bytes, list[SealedRow]]:
    """Rows in an object."""
    rows = [person() for _ in range(count)]
    job = Job(writer)
    job.stage(job.adding(0, rows))
    commit = job.commit()
    assert job.publish(commit).status == 201
    writer.follow(commit)
    [group] = job.groups
    return group, rows


def asked(writer: Writer, what: str, *refs: RowRef | PageRef) -> Answer:
    url = f"{writer.schema['url']}{what}/"
    return writer.account.call("POST", url, wire.encode(list(refs)), **FRAMES)


def rows_of(writer: Writer, group: bytes, *ordinals: int) -> Answer:
    return asked(writer, "rows", *(RowRef(group, at) for at in ordinals))


def found(answer: Answer) -> list[SealedRow]:
    assert answer.status == 200, answer.body
    return [one.row for one in wire.decode_all(answer.body, StoredRow)]


def kill(writer: Writer, group: bytes, *ordinals: int) -> None:
    writer.send(writer.make(killed=[RowRef(group, at) for at in ordinals]))


def erase(writer: Writer) -> None:
    """Ask for it, and wait until the API says that it is done."""
    answer = writer.account.call("POST", f"{writer.schema['url']}erasure/")
    assert answer.status == 202, answer.body
    version = answer.json()["asked"]
    eventually(lambda: bool(state(writer)["done"] >= version))


def state(writer: Writer) -> dict[str, Any]:
    answer = writer.account.call("GET", f"{writer.schema['url']}erasure/")
    assert answer.status == 200, answer.body
    said: dict[str, Any] = answer.json()
    return said


def hold(writer: Writer, version: int, **more: Any) -> Answer:
    body = {"id": str(uuid.uuid4()), "version": version, "reason": "export"} | more
    return writer.account.call("PUT", f"{writer.schema['url']}holds/", body)


def holding(api: Api, *needles: bytes) -> set[str]:
    """Names of the API's files that contain one of these."""
    vacuum(api)
    folders = [api.data_dir, api.data_dir.parent / "objects"]
    if api.database_url is not None:
        with psycopg.connect(api.database_url) as connection:
            row = connection.execute(
                "SELECT current_setting('data_directory'), oid FROM pg_database"
                " WHERE datname = current_database()"
            ).fetchone()
            assert row is not None
            folders.append(Path(row[0]) / "base" / str(row[1]))
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return {path.name for path in files if any(needle in path.read_bytes() for needle in needles)}


def no_dead_rows(api: Api, group: bytes) -> bool:
    """Whether no row of a table says that rows of a group are dead."""
    query = (
        "SELECT COUNT(*) FROM dead_row d JOIN record_group g ON g.id = d.group_id WHERE g.uid = {}"
    )
    if api.database_url is None:
        with closing(sqlite3.connect(api.data_dir / "api" / "db.sqlite3")) as database:
            row = database.execute(query.format("?"), (group,)).fetchone()
    else:
        with psycopg.connect(api.database_url) as connection:
            row = connection.execute(query.format("%s"), (group,)).fetchone()
    assert row is not None
    return int(row[0]) == 0


def vacuum(api: Api) -> None:
    """What an operator of PostgreSQL does."""
    if api.database_url is not None:
        with psycopg.connect(api.database_url, autocommit=True) as connection:
            postgres.vacuum(connection)


def analyze(api: Api) -> None:
    """What PostgreSQL does by itself at some time: its statistics hold samples of rows then."""
    if api.database_url is not None:
        with psycopg.connect(api.database_url, autocommit=True) as connection:
            connection.execute("ANALYZE")


def traces(row: SealedRow) -> list[bytes]:
    """What shows in a file that a row is there: its id, and the middle of its ciphertexts."""
    return [row.record_id, *(field[2:-2] for field in row.fields)]


@pytest.mark.both_databases
@pytest.mark.parametrize("store", [stored, staged])
def test_a_deleted_rows_bytes_and_id_are_in_no_file_once_the_api_says_so(
    api: Api, writer: Writer, store: Callable[[Writer, int], tuple[bytes, list[SealedRow]]]
) -> None:
    group, rows = store(writer, MANY)
    gone = [3, 64, MANY - 1]
    needles = [trace for at in gone for trace in traces(rows[at])]
    analyze(api)
    assert all(holding(api, trace) for trace in needles[:2])
    kill(writer, group, *gone)
    assert state(writer)["rows"] == len(gone)
    erase(writer)
    assert not holding(api, *needles)
    left = [at for at in range(MANY) if at not in gone]
    assert found(rows_of(writer, group, *left)) == [rows[at] for at in left]
    for at in gone:
        answer = rows_of(writer, group, at)
        assert (answer.status, answer.code) == (404, "row_gone")
    said = state(writer)
    assert (said["rows"], said["segments"], said["since"]) == (0, 0, None)


@pytest.mark.parametrize("store", [stored, staged])
def test_rows_beside_one_that_is_gone_are_proven_and_altered_ones_found(
    writer: Writer, store: Callable[[Writer, int], tuple[bytes, list[SealedRow]]]
) -> None:
    group, rows = store(writer, MANY)
    named = digests.digest_rows(salt_of(group).salt, rows)
    kill(writer, group, 65)
    erase(writer)
    ref = RowRef(group, 66)
    [told] = wire.decode_all(asked(writer, "digests", ref).body, RowDigests)
    digests.check_row(ref, rows[66], named, told)
    with pytest.raises(Exception, match="not as it was stored"):
        digests.check_row(ref, rows[67], named, told)
    answer = asked(writer, "digests", RowRef(group, 65))
    assert (answer.status, answer.code) == (404, "row_gone")


@pytest.mark.both_databases
def test_salt_and_digests_go_with_the_last_row_of_a_group(api: Api, writer: Writer) -> None:
    for store in (stored, staged):
        group, rows = store(writer, 3)
        kill(writer, group, 0)
        erase(writer)
        assert holding(api, salt_of(group).salt)
        own = digests.row_digest(
            salt_of(group).salt, rows[0].record_id, 1, digests.pack_fields(rows[0].fields)
        )
        kill(writer, group, 1, 2)
        erase(writer)
        vacuum(api)
        assert not holding(api, salt_of(group).salt, own)
        answer = rows_of(writer, group, 2)
        assert (answer.status, answer.code) == (404, "row_gone")
        # The rows that say which are dead go with them, and each is dead all the same.
        eventually(partial(no_dead_rows, api, group))
        again = writer.post(writer.make(killed=[RowRef(group, 2)]))
        assert (again.status, again.code) == (409, "row_not_live")


@pytest.mark.both_databases
def test_pages_and_header_of_a_segment_that_was_merged_away_are_in_no_file(
    api: Api, writer: Writer
) -> None:
    upload = writer.adding([person(), person()])
    writer.send(upload)
    [old] = body_of(upload).segments
    [page] = wire.decode_all(asked(writer, "pages", PageRef(old.uid, 0)).body, Page)
    header = upload.headers[0].data
    assert holding(api, page.data[2:-2])
    assert holding(api, header[2:-2])
    writer.send(writer.merging([old], [2]))
    erase(writer)
    assert not holding(api, page.data[2:-2], header[2:-2])
    answer = asked(writer, "pages", PageRef(old.uid, 0))
    assert (answer.status, answer.code) == (404, "segment_gone")


@pytest.mark.both_databases
def test_small_rows_go_by_themselves_after_the_grace_time_and_few_in_an_object_a_month_later(
    api: Api, writer: Writer
) -> None:
    small, _ = stored(writer, 3)
    few, _ = staged(writer, MANY)
    many, _ = staged(writer, MANY)
    kill(writer, small, 1)
    kill(writer, few, 1)
    kill(writer, many, *range(20))
    assert state(writer)["rows"] == 22
    age(api, writer, minutes=16)
    eventually(lambda: bool(state(writer)["rows"] == 1))
    assert rows_of(writer, small, 1).code == rows_of(writer, many, 0).code == "row_gone"
    assert len(found(rows_of(writer, few, 1))) == 1
    age(api, writer, minutes=31 * 24 * 60)
    eventually(lambda: bool(state(writer)["rows"] == 0))
    assert rows_of(writer, few, 1).code == "row_gone"


def age(api: Api, writer: Writer, *, minutes: int) -> None:
    """Have all commits of a schema be as old as this."""
    when = time.strftime("%Y-%m-%d %H:%M:%S+00:00", time.gmtime(time.time() - 60 * minutes))
    uid = ids.from_text(writer.schema["id"]).hex()
    own = f"schema_id = X'{uid}'" if api.database_url is None else f"schema_id = '\\x{uid}'"
    api.execute(f"UPDATE commit_log SET created = '{when}' WHERE {own}")
    api.execute(f"UPDATE record_group SET erase_at = '{when}' WHERE {own} AND erase_at IS NOT NULL")


def test_a_hold_keeps_what_its_version_needs_and_erasure_says_whose_it_is(
    writer: Writer,
) -> None:
    group, rows = stored(writer, 3)
    version = state(writer)["version"]
    mine = str(uuid.uuid4())
    assert hold(writer, version, id=mine).status == 200
    kill(writer, group, 0)
    answer = writer.account.call("POST", f"{writer.schema['url']}erasure/")
    [seen] = answer.json()["holds"]
    assert (seen["version"], seen["reason"]) == (version, "export")
    assert "@" in seen["email"]
    assert found(rows_of(writer, group, 0)) == [rows[0]]
    assert state(writer)["done"] < answer.json()["asked"]
    ended = writer.account.call("DELETE", f"{writer.schema['url']}holds/?id={mine}")
    assert ended.status == 204
    erase(writer)
    assert rows_of(writer, group, 0).code == "row_gone"


def test_holds_that_cannot_be_are_refused_by_name(writer: Writer, bob: Account) -> None:
    stored(writer, 1)
    mine = str(uuid.uuid4())
    for wrong in (
        hold(writer, 99),
        hold(writer, -1),
        hold(writer, 1, reason="because"),
        hold(writer, 1, id="1"),
        writer.account.call("DELETE", f"{writer.schema['url']}holds/?id=7"),
    ):
        assert wrong.status == 400, wrong.body
    assert hold(writer, 1, id=mine).status == 200
    assert hold(writer, 1, id=mine).status == 200
    assert hold(writer, 0, id=mine).code == "hold_over"
    for method in ("GET", "PUT", "DELETE"):
        assert bob.call(method, f"{writer.schema['url']}holds/?id={mine}").status == 404
    for method in ("GET", "POST"):
        assert bob.call(method, f"{writer.schema['url']}erasure/").status == 404


def test_parameters_that_cannot_be_are_refused_in_the_same_words(writer: Writer) -> None:
    stored(writer, 1)
    url = writer.schema["url"]
    for method, path, name in (
        ("GET", f"{url}erasure/?counts=perhaps", "counts"),
        ("DELETE", f"{url}holds/?id=7", "id"),
        ("GET", f"{url}manifest/?since=soon", "since"),
        ("GET", f"/api/records/?schema={url}&dead=perhaps", "dead"),
        ("POST", "/api/commits/?because=boredom", "because"),
    ):
        refused = writer.account.call(method, path)
        assert refused.status == 400, refused.body
        assert refused.json()["detail"] == f"the parameter {name} is not valid"
        (flaw,) = refused.json()["errors"]
        assert (flaw["code"], flaw["parameter"]) == ("invalid_parameter", name)


def test_no_hold_begins_below_an_erasure_that_was_asked_for(writer: Writer) -> None:
    group, _ = stored(writer, 3)
    version = state(writer)["version"]
    mine = str(uuid.uuid4())
    assert hold(writer, version, id=mine).status == 200
    kill(writer, group, 0)
    assert hold(writer, version).status == 200
    writer.account.call("POST", f"{writer.schema['url']}erasure/")

    for old in (1, version):
        refused = hold(writer, old)
        assert (refused.status, refused.code) == (409, "hold_over")
    # Who reads already goes on, and who begins now reads the present version.
    assert hold(writer, version, id=mine).status == 200
    assert hold(writer, version + 1).status == 200


@pytest.mark.both_databases
def test_no_row_is_held_for_more_than_a_day_after_it_died(api: Api, writer: Writer) -> None:
    group, _ = stored(writer, 3)
    version = state(writer)["version"]
    mine = str(uuid.uuid4())
    assert hold(writer, version, id=mine).status == 200
    kill(writer, group, 0)
    assert hold(writer, version).status == 200
    age(api, writer, minutes=24 * 60 + 1)

    for refused in (hold(writer, version), hold(writer, version, id=mine)):
        assert (refused.status, refused.code) == (409, "hold_over")
    assert hold(writer, version + 1).status == 200


def test_one_user_leaves_places_for_the_holds_of_others(writer: Writer) -> None:
    stored(writer, 1)
    version = state(writer)["version"]
    mine = [str(uuid.uuid4()) for _ in range(MOST_HOLDS)]
    assert {hold(writer, version, id=one).status for one in mine} == {200}
    assert hold(writer, version).status == 413
    # Those that count go on, and one that ends makes room.
    assert hold(writer, version, id=mine[0]).status == 200
    writer.account.call("DELETE", f"{writer.schema['url']}holds/?id={mine[0]}")
    assert hold(writer, version).status == 200


def test_a_record_is_neither_found_nor_ended_once_its_row_is_gone(writer: Writer) -> None:
    for store in (stored, staged):
        group, rows = store(writer, 2)
        kill(writer, group, 0)
        erase(writer)
        one = f"/api/records/{ids.to_text(rows[0].record_id)}/"
        assert writer.account.call("GET", one).status == 404
        again = writer.post(writer.make(killed=[RowRef(group, 0)]))
        assert (again.status, again.code) == (409, "row_not_live")
        listed = writer.account.call("GET", f"/api/records/?schema={writer.schema['id']}&dead=true")
        assert ids.to_text(rows[0].record_id) not in listed.body.decode()
        assert ids.to_text(rows[1].record_id) in listed.body.decode()


def test_an_object_that_is_lost_keeps_no_other_from_being_erased(
    api: Api, writer: Writer, ada: Account
) -> None:
    group, _ = staged(writer, 3)
    folder = api.data_dir.parent / "objects"
    files = (path for path in folder.rglob("*") if path.is_file())
    [own] = [path for path in files if path.read_bytes()[8:24] == group]
    whole = own.read_bytes()
    kill(writer, group, 0)
    own.unlink()
    writer.account.call("POST", f"{writer.schema['url']}erasure/")
    other = Writer(ada, ada.new_schema())
    rows, _ = stored(other, 2)
    kill(other, rows, 1)
    erase(other)
    assert state(writer)["rows"] == 1
    own.write_bytes(whole)
    api.execute(
        "UPDATE record_group SET erase_at = '2020-01-01 00:00:00+00:00' WHERE erase_at IS NOT NULL"
    )
    eventually(lambda: bool(state(writer)["rows"] == 0))


def test_a_group_of_which_nothing_fits_keeps_no_other_from_being_erased(
    api: Api, writer: Writer, ada: Account
) -> None:
    """One of which the database has lost the commits, as whoever runs it can have it."""
    group, _ = stored(writer, 3)
    kill(writer, group, 0)
    uid = ids.from_text(writer.schema["id"]).hex()
    own = f"schema_id = X'{uid}'" if api.database_url is None else f"schema_id = '\\x{uid}'"
    api.execute(f"DELETE FROM commit_log WHERE {own}")
    api.execute(f"UPDATE record_group SET erase_at = '2020-01-01 00:00:00+00:00' WHERE {own}")
    other = Writer(ada, ada.new_schema())
    rows, _ = stored(other, 2)
    kill(other, rows, 1)
    erase(other)
    assert state(writer)["rows"] == 1


@pytest.mark.both_databases
def test_a_read_finds_rows_again_that_were_written_to_another_object_meanwhile(
    writer: Writer,
) -> None:
    group, rows = staged(writer, MANY)
    places = [at for at in range(MANY) if at != 9]
    kill(writer, group, 9)
    with ThreadPoolExecutor(2) as pool:
        erasing = pool.submit(erase, writer)
        while not erasing.done():
            assert found(rows_of(writer, group, *places)) == [rows[at] for at in places]
        erasing.result()

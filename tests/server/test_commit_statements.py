"""A commit costs few statements, and nobody stores what they may not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model.records import CommitUpload
from tests.server.api import Account, Answer, Api, running_api
from tests.server.standing_model import Model
from tests.server.test_compactions import compact, merge
from tests.server.test_data_plane import user_of
from tests.server.writer import FRAMES, Writer, person

pytestmark = pytest.mark.both_databases

Trace = Callable[[], list[str]]
#: Within which who does not wait for a lock is answered.
MOST_SECONDS = 60
#: Has SQLite, or the driver of PostgreSQL, write each statement that requests of the API make into
#: the file of ``ERS_TRACE``. Sweeps have threads of their own.
_TRACING = """
import os
import sqlite3
import sqlite3.dbapi2
import threading

import psycopg

_execute = psycopg.Cursor.execute


def execute(cursor, query, *arguments, **options):
    note(query if isinstance(query, str) else query.decode())
    return _execute(cursor, query, *arguments, **options)


psycopg.Cursor.execute = execute
_connect = sqlite3.connect


def connect(*arguments, **options):
    database = _connect(*arguments, **options)
    database.set_trace_callback(note)
    return database


def note(statement):
    if not threading.current_thread().name.startswith("request-"):
        return
    with open(os.environ["ERS_TRACE"], "a") as trace:
        trace.write(" ".join(statement[:200].split()) + "\\n")


sqlite3.connect = sqlite3.dbapi2.connect = connect
"""


def new_writer(account: Account) -> Writer:
    """Of a schema that has its first commit."""
    writer = Writer(account, account.new_schema())
    writer.send(writer.adding([person()]))
    return writer


def post(account: Account, body: bytes) -> Answer:
    return account.call("POST", "/api/commits/", body, **FRAMES)


def send(account: Account, upload: CommitUpload) -> Answer:
    return post(account, b"".join(wire.encode_uploads([upload])))


@pytest.mark.parametrize("body", [b"", b"\x00", b"nonsense" * 1000, b"\xff" * 100_000])
def test_bodies_that_are_no_commits_are_refused(ada: Account, body: bytes) -> None:
    assert post(ada, body).status in (400, 413, 415)


def test_one_in_the_log_is_known_again_after_the_definition_has_changed(ada: Account) -> None:
    writer = new_writer(ada)
    upload = writer.adding([person()])
    receipt = send(ada, upload).body
    writer.follow(upload)
    changed = {**writer.schema["schema"], "required": []}
    writer.send(writer.changing(changed))
    answer = send(ada, upload)
    assert (answer.status, answer.body) == (200, receipt)


def test_nobody_stores_what_is_not_theirs(ada: Account, bob: Account) -> None:
    upload = new_writer(ada).adding([person()])
    answer = send(bob, upload)
    assert (answer.status, answer.code) == (404, "not_found")


def login_of(account: Account) -> Account:
    """Another one of the same user."""
    credentials = {"email": account.email, "password": account.password}
    token = account.api.call("POST", "/api/token/", credentials).json()["access"]
    return replace(account, token=token)


def login_that_is_over(account: Account) -> Account:
    other = login_of(account)
    assert other.call("POST", "/api/accounts/logout/").status in (200, 204)
    return other


def test_a_login_that_is_over_stores_nothing(ada: Account) -> None:
    upload, other = new_writer(ada).adding([person()]), login_that_is_over(ada)
    answer = send(other, upload)
    assert (answer.status, answer.code) == (401, "bad_token")


def test_an_api_token_that_only_reads_stores_nothing(ada: Account) -> None:
    upload = new_writer(ada).adding([person()])
    wanted = {"name": "reads", "scope": "read", "password": ada.password}
    limited = replace(ada, token=ada.post("/api/tokens/", wanted)["token"])
    answer = send(limited, upload)
    assert (answer.status, answer.code) == (403, "token_limited")


def test_a_member_who_may_only_read_stores_nothing(api: Api) -> None:
    account = api.new_account()
    writer = new_writer(account)
    user = user_of(account)

    def sql(url: str) -> str:
        own = ids.from_text(url.rstrip("/").rpartition("/")[2]).hex()
        return f"X'{own}'" if api.database_url is None else f"'\\x{own}'"

    def said() -> set[tuple[int, str]]:
        upload = writer.adding([person()])
        answer = send(account, upload)
        return {(answer.status, answer.code)}

    organization = sql(account.organization)
    api.execute(
        f"UPDATE organizations_organization SET roster_number = 1 WHERE id = {organization}"
    )
    api.execute(f"UPDATE organizations_membership SET all_data = false WHERE user_id = {user}")
    assert said() == {(404, "not_found")}
    api.execute(
        'INSERT INTO roster_shared (organization_id, member, dataset, "schema", writes)'
        f" SELECT {organization}, {user}, {sql(writer.schema['dataset'])}, NULL, false"
    )
    assert said() == {(403, "not_writer")}
    # A writer gets as far as the commit, which is of no roster.
    api.execute(f"UPDATE roster_shared SET writes = true WHERE member = {user}")
    assert {code for _, code in said()} == {"roster_moved"}


@contextmanager
def traced_api(tmp_path: Path, database_url: str | None = None) -> Iterator[tuple[Api, Trace]]:
    """An API, and what gives the statements since it was last asked."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(_TRACING)
    trace = tmp_path / "trace"
    trace.touch()
    traced = {"PYTHONPATH": str(tmp_path / "site"), "ERS_TRACE": str(trace)}
    told = 0

    def statements() -> list[str]:
        nonlocal told
        every = trace.read_text().splitlines()
        new, told = every[told:], len(every)
        return new

    with running_api(tmp_path, environment=traced, database_url=database_url) as api:
        yield api, statements


def traced_commit(api: Api, trace: Trace, requests: Sequence[bytes] = ()) -> list[str]:
    """The statements by which a commit of one record is stored, asked often enough before."""
    writer = new_writer(api.new_account())
    for _ in range(8):
        writer.send(writer.adding([person()]))
    upload = writer.adding([person()], requests=requests)
    trace()
    assert send(writer.account, upload).status == 201
    return trace()


@pytest.mark.skipif(sys.platform == "win32", reason="the trace is of a process of its own")
def test_a_commit_of_one_record_is_one_transaction_of_few_statements(tmp_path: Path) -> None:
    """Each of them costs time, and one of the transactions a write to disk."""
    with traced_api(tmp_path) as (api, trace):
        statements = traced_commit(api, trace)
    words = [statement.split()[0] for statement in statements]
    assert words.count("BEGIN") == words.count("COMMIT") == 1
    assert words[2] == "BEGIN", "the login and the right to write are asked for before"
    assert tables(statements, "INSERT") == [
        *("index_segment", "index_page", "record_group", "row_run", "record_row"),
        *("commit_log", "organizations_auditentry"),
    ]
    assert len(statements) <= 16, statements


@pytest.mark.skipif(sys.platform == "win32", reason="the trace is of a process of its own")
def test_on_postgresql_it_is_as_few_and_looks_for_ids_in_the_table_first(
    tmp_path: Path, postgresql_url: str
) -> None:
    with traced_api(tmp_path, postgresql_url) as (api, trace):
        statements = traced_commit(api, trace)
        with_request = traced_commit(api, trace, requests=[ids.new_id()])
    assert len(statements) <= 16, statements
    # Rows move to objects: whoever looks in the table last may find them in neither.
    in_table, in_objects = statements[3], statements[4]
    assert "FROM record_row" in in_table
    assert in_objects.startswith("SELECT o.roster_number"), in_objects
    # That of its client is looked for beside.
    assert len(with_request) == len(statements) + 2


@pytest.mark.skipif(sys.platform == "win32", reason="the trace is of a process of its own")
def test_many_groups_become_one_by_statements_that_do_not_grow_with_them(tmp_path: Path) -> None:
    counts = []
    with traced_api(tmp_path) as (api, trace):
        for groups in (8, 32):
            model = Model(new_writer(api.new_account()))
            for _ in range(groups):
                model.add([person()])
            merge(model)
            trace()
            compact(model, 0, groups)
            own = trace()
            assert tables(own, "INSERT").count("record_row") == groups
            counts.append(len(own) - groups)
    assert counts[0] == counts[1] < 30, counts


def test_who_loses_the_right_while_a_commit_waits_for_its_turn_stores_nothing(
    tmp_path: Path, postgresql_url: str
) -> None:
    with running_api(tmp_path, database_url=postgresql_url) as api:
        account = api.new_account()
        writer = new_writer(account)
        organization, schema = (
            ids.from_text(one.rstrip("/").rpartition("/")[2])
            for one in (account.organization, writer.schema["url"])
        )
        api.execute("UPDATE organizations_organization SET roster_number = 1")
        with (
            psycopg.connect(postgresql_url) as before,
            psycopg.connect(postgresql_url, autocommit=True) as beside,
            ThreadPoolExecutor(1) as threads,
        ):
            before.execute(
                "SELECT 1 FROM datasets_schema WHERE id = %s FOR NO KEY UPDATE", [schema]
            )
            sent = threads.submit(send, account, writer.adding([person()]))
            while not beside.execute(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND datname = current_database()"
            ).fetchall():
                assert not sent.done(), sent.result()
            beside.execute(
                "UPDATE organizations_membership SET all_data = false WHERE organization_id = %s",
                [organization],
            )
            before.rollback()
            answer = sent.result()
    assert (answer.status, answer.code) in {(403, "not_writer"), (404, "not_found")}


def test_who_may_not_write_a_schema_does_not_wait_for_its_lock(
    tmp_path: Path, postgresql_url: str
) -> None:
    """Nor has it: any holder of a token could keep all others from writing."""
    with running_api(tmp_path, database_url=postgresql_url) as api:
        account, stranger = api.new_account(), api.new_account()
        writer = new_writer(account)
        over = login_that_is_over(account)
        schema = ids.from_text(writer.schema["url"].rstrip("/").rpartition("/")[2])
        with ThreadPoolExecutor(1) as threads, psycopg.connect(postgresql_url) as before:

            def sent(one: Account) -> Answer:
                upload = writer.adding([person()])
                return threads.submit(send, one, upload).result(timeout=MOST_SECONDS)

            before.execute(
                "SELECT 1 FROM datasets_schema WHERE id = %s FOR NO KEY UPDATE", [schema]
            )
            answers = [sent(one) for one in (stranger, over)]
            for ended in ("login SET expires = now()", "user SET is_active = false"):
                kept = login_of(account)
                api.execute(f"UPDATE accounts_{ended}")
                answers.append(sent(kept))
                api.execute("UPDATE accounts_user SET is_active = true")
    assert [(answer.status, answer.code) for answer in answers] == [
        (404, "not_found"),
        *[(401, "bad_token")] * 3,
    ]


def tables(statements: Sequence[str], word: str) -> list[str]:
    own = [statement for statement in statements if statement.startswith(word)]
    return [one.split()[2].strip('"') for one in own]

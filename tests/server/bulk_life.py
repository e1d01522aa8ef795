"""The life of objects under SIGKILL at each of its steps, as a program of its own.

The client is this process; each request to the API runs in a child that has Django and the client's
bytes, and dies at a chosen step: before and after each end of a transaction, before each statement
that changes the row of an object, and before each call that syncs, renames or deletes a file; of a
store that speaks S3, before and after each request that writes or deletes. A request that died is
sent again and dies one step later, on what is left of the one before, until it lives. After each
death the sweep must leave exactly the objects that parts point to. Each step has a name, by which
:mod:`.test_bulk_kills` lists those that there are.

Arguments: data folder, URL of the database or nothing, URL of a bulk store or nothing, path of a
file with the members of an account. What was seen goes to stdout, as JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from encrypted_records.model import ids, wire
from encrypted_records.model.records import Page, PageRef, RowRef, SealedRow, StoredRow
from tests.server.api import Account, Answer
from tests.server.staged import Job
from tests.server.writer import FRAMES, Writer, person, segment_over
from tests.support.eventually import eventually

#: More than a block holds.
MANY = 70
#: The ordinal of the row that is erased.
GONE = 5
_OLD = "2001-01-01 00:00:00"
_STATES = ("writing", "stored", "named", "doomed")
_OF_FILES = {"fsync": "synced", "rename": "named", "unlink": "deleted"}
_OF_REQUESTS = ("put", "delete")


class Killed(Exception):
    """A child died of SIGKILL, at the step that this names."""


@dataclass
class Forks:
    """The API, a process for each request."""

    objects: Path
    #: the step at which the next request dies; 0 is none
    dies_at: int = 0
    #: by request, the steps before or after which it died
    deaths: dict[str, list[str]] = field(default_factory=dict)

    def call(self, method: str, path: str, body: Any = None, *, headers: dict[str, str]) -> Answer:
        def ask() -> Answer:
            from django.test import Client

            data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
            given = {
                f"HTTP_{name.replace('-', '_').upper()}": value for name, value in headers.items()
            }
            kind = given.pop("HTTP_CONTENT_TYPE", "application/json")
            client: Any = Client(SERVER_NAME="127.0.0.1")
            got = client.generic(
                method, path, data if method != "GET" else b"", content_type=kind, **given
            )
            return Answer(got.status_code, got.headers, got.getvalue())

        what = "job" if method == "DELETE" else path.split("/")[-2]
        answer: Answer = self.live_through(method, what, ask)
        return answer

    def live_through(self, *what: Any) -> Any:
        """Have a function die at each of its steps, and then return what it gives."""
        *names, function = what
        name = " ".join(names)
        while True:
            try:
                # A sweep goes on with what the one that died has left.
                answer = self.fork(function, self.dies_at, checks=names != ["sweep"])
            except Killed as death:
                self.deaths.setdefault(name, []).append(str(death))
                self.dies_at += 1
                continue
            self.dies_at = min(self.dies_at, 1)
            return answer

    def fork(self, function: Callable[[], Any], dies_at: int = 0, *, checks: bool = True) -> Any:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            answer: Any = None
            try:
                if dies_at > 1 and checks:
                    self.check()  # what the one that died has left
                _arm(self.objects, dies_at, writing)
                answer = function()
            except BaseException as error:
                answer = AssertionError("".join(traceback.format_exception(error)))
            with os.fdopen(writing, "wb") as stream:
                pickle.dump(answer, stream)
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as stream:
            data = stream.read()
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            _wait_until_alone()
            raise Killed(data.decode())
        answer = pickle.loads(data)
        if isinstance(answer, AssertionError):
            raise answer
        return answer

    def check(self) -> dict[str, int]:
        """Sweep as if all time had passed; what is left, by state."""
        sweep_all()
        return left(self.objects)


def _arm(objects: Path, dies_at: int, telling: int) -> None:
    """Have this process die at its ``dies_at``-th step, of which it tells the name."""
    if not dies_at:
        return
    from django.db import connection

    count = 0
    write = os.write

    def step(name: str) -> None:
        nonlocal count
        count += 1
        if count == dies_at:
            write(telling, name.encode())
            os.kill(os.getpid(), signal.SIGKILL)

    def write_in_halves(descriptor: int, data: Any) -> int:
        half = len(data) // 2
        step("before a file is written")
        write(descriptor, data[:half])
        step("when a file is half written")
        return half + write(descriptor, data[half:])

    def with_step(verb: str, original: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            # Files of the store; a descriptor that is synced is of one of them.
            of = arguments[0]
            path = Path(f"/proc/self/fd/{of}").resolve() if isinstance(of, int) else Path(of)
            if isinstance(of, int) or path.is_relative_to(objects):
                step(f"before a {'folder' if path.is_dir() else 'file'} is {verb}")
            return original(*arguments, **options)

        return call

    def around_request(verb: str, original: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            step(f"before the store is asked to {verb}")
            answer = original(*arguments, **options)
            step(f"after the store was asked to {verb}")
            return answer

        return call

    os.write = write_in_halves  # which here nothing but the store of files uses
    for name, verb in _OF_FILES.items():
        setattr(os, name, with_step(verb, getattr(os, name)))
    if obstore := sys.modules.get("obstore"):
        for name in _OF_REQUESTS:
            setattr(obstore, name, around_request(name, getattr(obstore, name)))

    def around(execute: Any, sql: str, parameters: Any, *rest: Any) -> Any:
        # Of those that end by themselves, in a transaction or not.
        if "bulk_object" in sql and not sql.startswith("SELECT"):
            step(f"before its row says {_said(sql, parameters)}")
        return execute(sql, parameters, *rest)

    connection.ensure_connection()
    connection.execute_wrappers.append(around)
    this: Any = connection
    original = this.commit

    def commit() -> None:
        step("before a transaction ends")
        original()
        step("after a transaction ended")

    this.commit = commit


def _said(sql: str, parameters: Any) -> str:
    """What a statement makes of the rows of objects."""
    if sql.startswith("DELETE"):
        return "nothing any more"
    # What is set stands before what is asked for; of several rows PostgreSQL gets it as a list.
    each = (
        parameter[0] if isinstance(parameter, list) else parameter for parameter in parameters or ()
    )
    return next((str(one) for one in each if one in _STATES), "since when")


def _wait_until_alone() -> None:
    """PostgreSQL notices a moment later that a process is gone, and until then holds its locks."""
    url = os.environ.get("ERS_DATABASE_URL")
    if not url:
        return
    import psycopg

    others = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
        " AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        eventually(lambda: not connection.execute(others).fetchall(), "no other is there")


def age() -> None:
    """Everything that waits has waited long enough."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("UPDATE bulk_object SET since = %s WHERE state <> 'named'", [_OLD])
        cursor.execute(
            "UPDATE index_segment SET superseded_at = %s WHERE superseded_at IS NOT NULL", [_OLD]
        )


def sweep_all() -> None:
    from encrypted_records.server.erasure import sweeping
    from encrypted_records.server.objects import objects
    from encrypted_records.server.records import store

    age()
    while sweeping.sweep() | sweeping.sweep_rows():
        pass
    objects.sweep(store.kept_for())
    age()  # what was given up just now
    objects.sweep(store.kept_for())


def erase_all() -> None:
    """As if all that died had been dead for long."""
    from django.db import connection

    from encrypted_records.server.erasure import erasing

    with connection.cursor() as cursor:
        cursor.execute("UPDATE commit_log SET created = %s", [_OLD])
        cursor.execute("UPDATE record_group SET erase_at = %s WHERE erase_at IS NOT NULL", [_OLD])
    while erasing.sweep():
        pass


def left(folder: Path) -> dict[str, int]:
    """How many objects are in each state, once each was found in the store and in one part."""
    from encrypted_records.server.inventory import walk
    from encrypted_records.server.objects import choice
    from encrypted_records.server.objects.stores import DRAFT
    from encrypted_records.server.records.models import BulkObject, PagePart, RowPart

    assert list(walk.strangers()) == []
    rows = list(BulkObject.objects.all())
    store = choice.chosen().store
    assert store is not None
    assert dict(store.listing()) == {row.name: row.size for row in rows}
    assert list(folder.rglob(f"*{DRAFT}")) == []
    used = [
        number
        for parts in (RowPart, PagePart)
        for number in parts._default_manager.values_list("object_id", flat=True)
    ]
    assert sorted(used) == sorted(row.pk for row in rows)
    counted: dict[str, int] = {}
    for row in rows:
        counted[row.state] = counted.get(row.state, 0) + 1
    return counted


def live(account: Account, forks: Forks) -> dict[str, Any]:
    writer = Writer(account, account.new_schema())
    rows = [person() for _ in range(MANY)]
    job = Job(writer)
    assert job.post(job.adding(0, [person()])).status == 201
    forks.dies_at = 1
    # In the place of that one, which it dooms.
    job.stage(job.adding(0, rows))
    commit = job.commit()
    assert job.publish(commit).status in (200, 201)
    writer.follow(commit)
    published = forks.fork(forks.check)
    # A merge.
    groups = {uid: group.count for uid, group in job.groups.items()}
    merge = Job(writer)
    merged = segment_over(groups.items(), "paged", pages=3)
    pages = [Page(merged.uid, number, b"\x01" + os.urandom((16 << 10) - 1)) for number in range(3)]
    merge.stage(merge.part(0, [], [merged], [], pages))
    commit = merge.commit(replaced=list(job.segments))
    answer = merge.publish(commit)
    assert answer.status in (200, 201), answer.body
    writer.follow(commit)
    # And what is given up.
    gone = Job(writer)
    forks.dies_at = 0
    gone.stage(gone.adding(0, [person()]))
    forks.dies_at = 1
    assert gone.drop().status == 204
    # The looks after each death have swept all of that; this is for the sweep that dies.
    forks.dies_at = 0
    last = Job(writer)
    last.stage(last.adding(0, [person()]))
    assert last.drop().status == 204
    forks.dies_at = 1
    forks.live_through("sweep", sweep_all)
    forks.dies_at = 0
    group = next(iter(job.groups))
    read_all(writer, group, rows, merged.uid, pages)
    # A row that is erased: its object is written again without it.
    assert writer.post(writer.make(killed=[RowRef(group, GONE)])).status == 201
    forks.dies_at = 1
    forks.live_through("erase", erase_all)
    forks.dies_at = 0
    read_others(writer, group, rows)
    return {"published": published, "left": forks.fork(forks.check), "deaths": forks.deaths}


def read_all(
    writer: Writer, group: bytes, rows: list[SealedRow], segment: bytes, pages: list[Page]
) -> None:
    """Everything that was acknowledged is there, by place and by id."""
    wanted = [RowRef(group, ordinal) for ordinal in range(len(rows))]
    url = writer.schema["url"]
    answer = writer.account.call("POST", f"{url}rows/", wire.encode(wanted), **FRAMES)
    assert answer.status == 200, answer.body
    got = wire.decode_all(answer.body, StoredRow)
    assert [one.row for one in got] == rows
    refs = [PageRef(segment, number) for number in range(len(pages))]
    answer = writer.account.call("POST", f"{url}pages/", wire.encode(refs), **FRAMES)
    assert wire.decode_all(answer.body, Page) == pages
    for row in (rows[0], rows[-1]):
        answer = writer.account.call("GET", f"/api/records/{ids.to_text(row.record_id)}/")
        assert answer.status == 200, answer.body


def read_others(writer: Writer, group: bytes, rows: list[SealedRow]) -> None:
    """All rows but the one that is erased are there, and that one is named."""
    url = f"{writer.schema['url']}rows/"
    others = [at for at in range(len(rows)) if at != GONE]
    wanted = wire.encode([RowRef(group, at) for at in others])
    answer = writer.account.call("POST", url, wanted, **FRAMES)
    assert answer.status == 200, answer.body
    got = wire.decode_all(answer.body, StoredRow)
    assert [one.row for one in got] == [rows[at] for at in others]
    gone = writer.account.call("POST", url, wire.encode([RowRef(group, GONE)]), **FRAMES)
    assert (gone.status, gone.code) == (404, "row_gone")


def main(data_dir: str, database_url: str, bulk_url: str, credentials: str) -> None:
    objects = Path(data_dir).parent / "objects"
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "encrypted_records.server.settings",
        "ERS_DATA_DIR": data_dir,
        "ERS_BULK_URL": bulk_url or f"file://{objects}?least=0",
    }
    if database_url:
        os.environ["ERS_DATABASE_URL"] = database_url
    if bulk_url:
        import obstore  # noqa: F401  its threads are started by the first request, in a child
    import django
    from django.db import connections

    django.setup()
    from django.test import Client

    # So that no child has to load what all of them need.
    assert Client(SERVER_NAME="127.0.0.1").get("/api/status/").status_code == 200
    connections.close_all()
    forks = Forks(objects)
    api: Any = forks
    account = Account(api, **json.loads(Path(credentials).read_text()))
    sys.stdout.write(json.dumps(live(account, forks)))


if __name__ == "__main__":
    main(*sys.argv[1:])

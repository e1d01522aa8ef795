"""``ers storage move`` and ``ers verify --stored``, beside an API that runs."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.server.api import Api, running_api
from tests.server.test_bulk import flipped, found, object_of, pages_of, published, rows_of
from tests.server.test_bulk_kills import ran
from tests.server.writer import Writer, person
from tests.support import forked
from tests.support.postgres import NewDatabase
from tests.support.service import ANSWER_SECONDS, ERS, clean_environment, free_ports

MANY = 150


def test_a_move_that_is_killed_at_any_step_loses_nothing_and_can_be_repeated(
    tmp_path: Path,
) -> None:
    with running_api(tmp_path) as api:
        account = api.new_account()
    seen = ran(["tests.server.moving_life", tmp_path / "data", ""], account, tmp_path, None)

    # Of objects between stores, of rows, and of pages.
    assert json.loads(seen)["steps"] > 30


@dataclass(frozen=True)
class Operator:
    """Who runs an API on PostgreSQL, and may move what it has."""

    api: Api
    objects: Path

    def run(
        self, *arguments: str, least: int = 0, bulk_url: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return forked.run(
            [*ERS, *arguments],
            clean_environment(
                ERS_DATA_DIR=str(self.api.data_dir),
                ERS_DATABASE_URL=self.api.database_url or "",
                ERS_BULK_URL=bulk_url or f"file://{self.objects}?least={least}",
            ),
        )

    def count(self, table: str) -> int:
        assert self.api.database_url
        with closing(psycopg.connect(self.api.database_url)) as connection:
            row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture(scope="module")
def operator(
    tmp_path_factory: pytest.TempPathFactory, postgresql: NewDatabase
) -> Iterator[Operator]:
    folder = tmp_path_factory.mktemp("moving")
    objects = folder / "objects"
    # What these tests stage is small for an object.
    environment = {"ERS_BULK_URL": f"file://{objects}"}
    with running_api(folder, database_url=postgresql.with_tables(), environment=environment) as api:
        yield Operator(api, objects)


def test_rows_and_pages_move_to_objects_while_they_are_read_and_every_flaw_is_named(
    operator: Operator,
) -> None:
    account = operator.api.new_account()
    writer = Writer(account, account.new_schema())
    jobs = [published(writer, [person() for _ in range(MANY)]) for _ in range(2)]
    every = [job.parts[0].rows[0].present for job in jobs]
    assert not operator.objects.exists()
    reads: list[bool] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            for job, rows in zip(jobs, every, strict=True):
                answer = rows_of(job, 0, 64, MANY - 1)
                reads.append(found(answer) == [rows[0], rows[64], rows[-1]])
                reads.append(pages_of(job).status == 200)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        moved = operator.run("storage", "move")
    finally:
        stop.set()
        reader.join()
    assert (moved.returncode, moved.stdout) == (
        0,
        f"0 objects, {2 * MANY} rows and 2 pages were moved; 0 are damaged\n",
    )
    assert reads and all(reads)
    assert (operator.count("record_row"), operator.count("index_page")) == (0, 0)
    # Without --bulk-before, a move finds nothing to move, and the old store is not to be removed.
    elsewhere = operator.run("storage", "move", bulk_url=f"file://{operator.objects}-new")
    assert elsewhere.returncode == 1
    assert elsewhere.stdout.splitlines() == [
        "0 objects, 0 rows and 0 pages were moved; 0 are damaged",
        "4 objects are not in the configured stores; if they are in another one, name it with"
        " --bulk-before and move again, otherwise run ers verify --stored",
    ]
    # What comes now is small and stays in the database.
    small = published(writer, [person() for _ in range(MANY)])
    whole = operator.run("verify", "--stored")
    assert (whole.returncode, whole.stdout) == (
        0,
        f"{3 * MANY} rows, 3 pages and 4 objects were checked; 0 are damaged\n",
    )

    rows, pages = (
        object_of(operator.api, next(iter(one))) for one in (jobs[0].groups, jobs[1].segments)
    )
    rows.write_bytes(flipped(rows, rows.stat().st_size - 1))
    pages.unlink()
    (operator.objects / "stray").write_bytes(b"?")
    [group], [segment] = small.groups, small.segments
    operator.api.execute(
        "UPDATE record_row SET sealed = set_byte(sealed, 9, 255 - get_byte(sealed, 9))"
        " WHERE ordinal = 70"
    )
    operator.api.execute("DELETE FROM record_row WHERE ordinal = 3")
    operator.api.execute("UPDATE index_page SET data = set_byte(data, 9, 255 - get_byte(data, 9))")
    said = operator.run("verify", "--stored")
    assert said.returncode == 1
    assert set(said.stdout.splitlines()) == {
        f"lost: object {pages.name}",
        f"lost: object {pages.name}: of pages of segment {next(iter(jobs[1].segments)).hex()}",
        f"altered: object {rows.name}: of rows of group {next(iter(jobs[0].groups)).hex()}",
        f"altered: rows from 0 of group {group.hex()} in the database",
        f"altered: rows from 64 of group {group.hex()} in the database",
        f"altered: page 0 of segment {segment.hex()} in the database",
        "unknown: object stray",
        said.stdout.splitlines()[-1],
    }
    assert said.stdout.endswith("; 6 are damaged\n")
    # What is damaged does not move, so that nothing hides it.
    left = operator.run("storage", "move")
    assert left.returncode == 1
    assert f"rows from 0 of group {group.hex()}" in left.stdout
    assert f"pages of segment {segment.hex()}" in left.stdout
    assert (operator.count("record_row"), operator.count("index_page")) == (MANY - 1, 1)


@pytest.fixture
def moving(operator: Operator) -> Iterator[Callable[[int], forked.Forked]]:
    """A move from a bucket at a port of this machine."""
    begun: list[forked.Forked] = []

    def move(port: int) -> forked.Forked:
        before = f"s3://records/all?endpoint=http://127.0.0.1:{port}"
        told = clean_environment(
            ERS_DATA_DIR=str(operator.api.data_dir),
            ERS_DATABASE_URL=operator.api.database_url or "",
            ERS_BULK_URL=f"file://{operator.objects}",
            AWS_ACCESS_KEY_ID="a",
            AWS_SECRET_ACCESS_KEY="b",
        )
        words = [*ERS, "storage", "move", "--bulk-before", before]
        begun.append(forked.Forked(words, env=told, stderr=subprocess.PIPE, text=True))
        return begun[-1]

    yield move
    for process in begun:
        process.kill()
        process.wait()


def test_ctrl_c_ends_a_move_whose_store_is_silent(
    moving: Callable[[int], forked.Forked],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        move = moving(silent.getsockname()[1])
        connection, _ = silent.accept()
        with connection:
            move.send_signal(signal.SIGINT)
            assert move.wait(ANSWER_SECONDS) == -signal.SIGINT


def test_a_store_that_cannot_be_reached_is_named_by_its_setting(
    moving: Callable[[int], forked.Forked],
) -> None:
    (port,) = free_ports(1)
    _, err = moving(port).communicate()
    assert "the bulk store of ERS_BULK_BEFORE does not answer, or fails" in err

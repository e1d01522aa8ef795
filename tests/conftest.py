"""Fixtures that tests of several rooms share."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres import NewDatabase, postgresql, postgresql_url
from tests.support.service import Service, running_service

__all__ = ["postgresql", "postgresql_url"]


def pytest_configure() -> None:
    """Whoever runs the tests in the background has them ignore Ctrl-C, and what is ignored is
    inherited: the commands that tests interrupt would not notice."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def services(
    tmp_path_factory: pytest.TempPathFactory, postgresql: NewDatabase
) -> Iterator[Callable[[str], Service]]:
    """A service on a kind of database, running from when it is first asked for to the last test.

    A fixture with parameters would end one service whenever a file asks for the other, and a start
    takes seconds.
    """
    with ExitStack() as stack:

        @cache
        def of(kind: str) -> Service:
            folder = tmp_path_factory.mktemp(kind) / "data"
            url = postgresql() if kind == "postgresql" else None
            return stack.enter_context(running_service(folder, database_url=url))

        yield of


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def service(request: pytest.FixtureRequest, services: Callable[[str], Service]) -> Service:
    """A real service, once on each database."""
    return services(request.param)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The URL of a fresh database for a service of the test's own; None for the embedded one."""
    if request.param == "sqlite":
        return None
    new_database: NewDatabase = request.getfixturevalue("postgresql")
    return new_database()


@pytest.fixture(scope="module")
def database_folder(database: str | None) -> Path | None:
    """Where PostgreSQL keeps its files, the write-ahead log among them."""
    if database is None:
        return None
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CHECKPOINT")
        row = connection.execute("SHOW data_directory").fetchone()
    assert row is not None
    return Path(row[0])

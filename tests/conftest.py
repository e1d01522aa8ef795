"""Fixtures that tests of several rooms share."""

from __future__ import annotations

import signal
from collections.abc import Iterator
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


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A real service, once on each database."""
    database_url = None
    if request.param == "postgresql":
        new_database: NewDatabase = request.getfixturevalue("postgresql")
        database_url = new_database()
    with running_service(
        tmp_path_factory.mktemp(request.param) / "data", database_url=database_url
    ) as running:
        yield running


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

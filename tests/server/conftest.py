"""The API as a process of its own, over PostgreSQL; and over SQLite too where a test is marked
``both_databases``: where what it says rests on SQL that the two need not understand alike, such as
locks, unique names, conditions on bytes, or what stays in files. With a proxy before it the API
runs over SQLite in nearly all other tests."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from tests.server.api import Account, Api, running_api
from tests.support import children
from tests.support.postgres import NewDatabase


@pytest.fixture(scope="session")
def apis(in_memory: Path, postgresql: NewDatabase) -> Iterator[Callable[[str], Api]]:
    """As ``services``: an API for each kind of database, to the last test."""
    with ExitStack() as stack:

        @cache
        def of(kind: str) -> Api:
            url = postgresql.with_tables() if kind == "postgresql" else None
            (folder := in_memory / f"api-{kind}").mkdir()
            # Whatever is staged lies in objects, however small; what is not, does not.
            environment = {"ERS_BULK_URL": f"file://{folder}/objects?least=0"}
            with children.lasting():
                started = running_api(folder, database_url=url, environment=environment)
                return replace(stack.enter_context(started), ready=[])

        yield of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "api" in metafunc.fixturenames:
        kinds = ["postgresql"]
        if metafunc.definition.get_closest_marker("both_databases"):
            kinds.insert(0, "sqlite")
        metafunc.parametrize("api", kinds, indirect=True, scope="session")


@pytest.fixture(scope="session")
def api(request: pytest.FixtureRequest, apis: Callable[[str], Api]) -> Api:
    return apis(request.param)


# Of a module, as a token counts for a quarter of an hour.
@pytest.fixture(scope="module")
def ada(api: Api) -> Account:
    """A user who owns an organization."""
    return api.new_account()


@pytest.fixture(scope="module")
def bob(api: Api) -> Account:
    """A user of another organization."""
    return api.new_account()


@pytest.fixture(scope="module")
def guests(api: Api) -> list[Account]:
    """Three users for organizations of others; each test makes an organization of its own."""
    return [api.new_account() for _ in range(3)]


@dataclass(frozen=True)
class Stopped:
    """What an API over SQLite left behind that has ended, all of it in the database's file."""

    folder: Path
    account: Account

    @property
    def api_folder(self) -> Path:
        return self.folder / "data" / "api"

    @property
    def database(self) -> Path:
        return self.api_folder / "db.sqlite3"


@pytest.fixture(scope="module")
def _ended(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    folder = tmp_path_factory.mktemp("ended")
    with running_api(folder) as api:
        account = api.new_account()
        account.new_dataset()
    (folder / "log").unlink()
    ended = Stopped(folder, account)
    with closing(sqlite3.connect(ended.database)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return ended


@pytest.fixture
def stopped(_ended: Stopped, tmp_path: Path) -> Stopped:
    """One to do with what one likes."""
    folder = tmp_path / "stopped"
    shutil.copytree(_ended.folder, folder)
    return Stopped(folder, _ended.account)

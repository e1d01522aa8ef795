"""The API as a process of its own, once over SQLite and once over PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.api import Account, Api, running_api
from tests.support.postgres import NewDatabase


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    database_url = None
    if request.param == "postgresql":
        new_database: NewDatabase = request.getfixturevalue("postgresql")
        database_url = new_database()
    with running_api(tmp_path_factory.mktemp("api"), database_url=database_url) as running:
        yield running


@pytest.fixture(scope="session")
def ada(api: Api) -> Account:
    """A user who owns an organization."""
    return api.new_account()


@pytest.fixture(scope="session")
def bob(api: Api) -> Account:
    """A user of another organization."""
    return api.new_account()

"""The API as a process of its own, once over SQLite and once over PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from tests.server.api import Account, Api, running_api
from tests.support.postgres import NewDatabase


@pytest.fixture(scope="session")
def apis(
    tmp_path_factory: pytest.TempPathFactory, postgresql: NewDatabase
) -> Iterator[Callable[[str], Api]]:
    """As ``services``: an API for each kind of database, to the last test."""
    with ExitStack() as stack:

        @cache
        def of(kind: str) -> Api:
            url = postgresql() if kind == "postgresql" else None
            return stack.enter_context(
                running_api(tmp_path_factory.mktemp("api"), database_url=url)
            )

        yield of


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def api(request: pytest.FixtureRequest, apis: Callable[[str], Api]) -> Api:
    return apis(request.param)


@pytest.fixture(scope="session")
def ada(api: Api) -> Account:
    """A user who owns an organization."""
    return api.new_account()


@pytest.fixture(scope="session")
def bob(api: Api) -> Account:
    """A user of another organization."""
    return api.new_account()

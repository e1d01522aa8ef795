"""An API that the tests of this folder share, and a new organization for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.proxy.sharing.alone import Alone, one_alone
from tests.proxy.sharing.people import Person, Team, new_person
from tests.proxy.sharing.shared import Shared
from tests.support.service import Service


@pytest.fixture(scope="module")
def api(request: pytest.FixtureRequest, services: Callable[[str], Service]) -> Service:
    return services(getattr(request, "param", "sqlite"))


@pytest.fixture
def ada(api: Service, tmp_path: Path) -> Person:
    return new_person(api, tmp_path)


@pytest.fixture
def team(ada: Person, tmp_path: Path) -> Team:
    return Team(ada, tmp_path)


@pytest.fixture
def alone(api: Service, tmp_path: Path) -> Iterator[Alone]:
    with one_alone(api, tmp_path) as one:
        yield one


@pytest.fixture
def shared(api: Service, tmp_path: Path) -> Iterator[Shared]:
    ada = Person(api, api.new_account(), tmp_path / "ada" / "proxy")
    team = Team(ada, tmp_path)
    assert team.made
    with ExitStack() as stack:
        one = Shared(team, tmp_path, stack)
        one.schema = one.new_schema()
        yield one

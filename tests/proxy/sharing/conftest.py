"""An API that the tests of this folder share, and a new organization for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.proxy.sharing.alone import Alone, one_alone
from tests.proxy.sharing.people import Person, Team, new_person
from tests.proxy.sharing.shared import Shared, new_shared
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
    with new_shared(api, tmp_path) as one:
        yield one


@pytest.fixture(scope="module")
def lasting(api: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """The same for all tests of a file: to let somebody in and start their proxy takes longer than
    most tests."""
    with new_shared(api, tmp_path_factory.mktemp("lasting")) as one:
        yield one

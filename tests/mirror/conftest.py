"""A store with records of every life, and mirrors of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.mirror.copies import Place
from tests.proxy.sharing.people import Person, Team
from tests.proxy.sharing.shared import Shared
from tests.support.fixtures import at
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "note": {"type": "string", "x-index": ["words"]},
    },
    "required": ["name"],
}


@pytest.fixture(scope="session")
def service(services: Callable[[str], Service]) -> Service:
    return services("sqlite")


@pytest.fixture
def proxy(service: Service, tmp_path: Path) -> Iterator[Proxy]:
    """A proxy of the API, on a data folder of this test's."""
    with running_proxy(service.base_url, tmp_path / "data") as running:
        yield running


@pytest.fixture
def store(service: Service, proxy: Proxy) -> Store:
    return at(new_store(service, DEFINITION), proxy)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "mirror", tmp_path / "data")


@pytest.fixture
def shared(service: Service, tmp_path: Path) -> Iterator[Shared]:
    """A team that has one member, and a schema of it."""
    ada = Person(service, service.new_account(), tmp_path / "ada" / "proxy")
    team = Team(ada, tmp_path)
    assert team.made
    with ExitStack() as stack:
        made = Shared(team, tmp_path, stack)
        made.schema = made.new_schema()
        yield made

"""An API behind a front that can lie, and two people who may not read each other's records."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.proxy.access.people import Person, new_person
from tests.support.front import Front, running_front
from tests.support.service import Service


@pytest.fixture(scope="module")
def service(services: Callable[[str], Service]) -> Service:
    """Which database the API has does not matter to who gets in."""
    return services("sqlite")


@pytest.fixture(scope="module")
def front(service: Service) -> Iterator[Front]:
    with running_front(service.base_url) as one:
        yield one


@pytest.fixture
def people(service: Service) -> tuple[Person, Person]:
    """Two members of one organization of each other's proxy; each has a schema."""
    return new_person(service), new_person(service)

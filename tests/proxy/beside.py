"""Fixtures of modules whose tests have one account, and two proxies with its keyring.

A module has a ``DEFINITION``, by which each test has a schema of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fixtures import at
from tests.support.front import Front, honest, nothing, running_front
from tests.support.proxies import Proxy, running_proxy
from tests.support.second_proxy import with_keyrings
from tests.support.service import Service
from tests.support.store import Store, new_store


@pytest.fixture(scope="module")
def first(service: Service, request: pytest.FixtureRequest) -> Store:
    made = new_store(service, request.module.DEFINITION)
    made.ingest([{}])  # the keyring is made
    return made


@pytest.fixture
def store(first: Store, request: pytest.FixtureRequest) -> Store:
    return first.another_schema(request.module.DEFINITION)


@pytest.fixture(scope="module")
def running(service: Service) -> Iterator[Front]:
    with running_front(service.base_url) as front:
        yield front


@pytest.fixture
def front(running: Front) -> Iterator[Front]:
    yield running
    running.invent, running.lie = nothing, honest


@pytest.fixture(scope="module")
def proxy(
    first: Store, running: Front, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    """Another one with the account's keyring, behind the front."""
    folder = with_keyrings(first.service, tmp_path_factory.mktemp("beside"))
    with running_proxy(running.url, folder) as other:
        yield other


@pytest.fixture
def other(store: Store, proxy: Proxy) -> Store:
    """The same schema through the other proxy."""
    return at(store, proxy)

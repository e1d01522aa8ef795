"""One service for all clients, and an account for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.service import Account, Service, running_service


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    # Further names would mean a device for each request; these come through a port of a test's own.
    told = {"ERS_ALLOWED_HOSTS": "127.0.0.1", "ERS_ACCESS": "api"}
    with running_service(tmp_path_factory.mktemp("client") / "data", environment=told) as service:
        yield service


@pytest.fixture(scope="module")
def account(running: Service) -> Account:
    return running.new_account()

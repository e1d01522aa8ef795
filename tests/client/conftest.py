"""One service for all clients, and an account for each file of tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.service import Account, Service


@pytest.fixture(scope="session")
def running(services: Callable[[str], Service]) -> Service:
    return services("loopback")


@pytest.fixture(scope="module")
def account(running: Service) -> Account:
    return running.new_account()

"""One service for all clients, and an account for each file of tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.fixtures import quick_passphrases
from tests.support.service import Account, Service

__all__ = ["quick_passphrases"]


@pytest.fixture(scope="session")
def running(services: Callable[[str], Service]) -> Service:
    return services("loopback")


@pytest.fixture(scope="module")
def account(running: Service) -> Account:
    return running.new_account()

"""One service for all tests of SQL, and an account for each file of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from encrypted_records import Client
from encrypted_records.client.proxy.client import ProxyClient
from tests.support.service import Account, Service


@pytest.fixture(scope="session")
def running(services: Callable[[str], Service]) -> Service:
    return services("loopback")


@pytest.fixture(scope="module")
def account(running: Service) -> Account:
    return running.new_account()


@pytest.fixture(scope="module")
def client(running: Service, account: Account) -> Iterator[Client]:
    with Client(running.proxy_url, email=account.email, password=account.password) as client:
        yield client


@pytest.fixture(scope="module")
def proxy(running: Service, account: Account) -> Callable[[], ProxyClient]:
    """Makes clients of the proxy, used by the account."""

    def make() -> ProxyClient:
        return ProxyClient(running.proxy_url, email=account.email, password=account.password)

    return make

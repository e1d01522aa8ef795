"""Fixtures of tests that stand between a proxy of their own, in this process, and the API.

``tests/proxy/conftest.py`` has them. A module says with a fixture ``overrides`` what its proxy has
other than every proxy, and with a constant ``DEFINITION`` what its schema is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.crypto.recovery import KdfCost, Passphrase
from encrypted_records.proxy.settings import Overrides
from tests.support.front import Front, running_front
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Service
from tests.support.store import Store, new_store


@pytest.fixture(scope="module", autouse=True)
def quick_passphrases() -> Iterator[None]:
    """Keyrings under passphrases are written at the least cost; tests/crypto holds the usual one.
    Processes have this of tests/support/startup."""
    defaults = Passphrase.__init__.__kwdefaults__
    assert defaults is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(defaults, "cost", KdfCost(8192, 1, 1))
        yield


@pytest.fixture
def front(service: Service) -> Iterator[Front]:
    """What the module's proxy takes for its API."""
    with running_front(service.base_url) as running:
        yield running


@pytest.fixture
def overrides() -> Overrides:
    return Overrides()


@pytest.fixture
def definition(request: pytest.FixtureRequest) -> Any:
    return request.module.DEFINITION


@pytest.fixture
def proxy(front: Front, overrides: Overrides, tmp_path: Path) -> Iterator[Proxy]:
    """One that only this test has, behind the front."""
    with running_proxy(front.url, tmp_path / "own", overrides=overrides) as running:
        yield running


@pytest.fixture
def store(service: Service, proxy: Proxy, definition: dict[str, Any]) -> Store:
    """A new schema of a new account, by way of that proxy."""
    return at(new_store(service, definition), proxy)


def at(store: Store, proxy: Proxy) -> Store:
    """The same, by way of another proxy."""
    return replace(store, service=replace(store.service, proxy_url=proxy.url))

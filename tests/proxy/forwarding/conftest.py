"""One proxy for all that is forwarded; each test begins with nothing asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.proxy.forwarding.place import Place
from tests.support.front import running_front
from tests.support.proxies import running_proxy
from tests.support.service import Service


@pytest.fixture(scope="module")
def place(
    services: Callable[[str], Service], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    service = services("sqlite")  # which database the API has makes no difference here
    folder = tmp_path_factory.mktemp("forwarding")
    account = service.new_account()
    with running_front(service.base_url) as front, running_proxy(front.url, folder) as proxy:
        yield Place(front, proxy.url, account)


@pytest.fixture(autouse=True)
def forgetful(place: Place) -> None:
    place.front.forget()

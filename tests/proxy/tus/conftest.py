"""A proxy to upload to; the API's database makes no difference to uploads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proxy.tus.client import Client
from tests.support.service import Service, running_service


@pytest.fixture(scope="session")
def uploading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running_service(tmp_path_factory.mktemp("uploading") / "data") as service:
        yield service


@pytest.fixture(scope="session")
def tus(uploading: Service) -> Client:
    return Client(uploading, uploading.new_account())


@pytest.fixture(scope="session")
def stranger(uploading: Service) -> Client:
    return Client(uploading, uploading.new_account())

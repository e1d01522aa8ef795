"""A proxy to upload to; the API's database makes no difference to uploads."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.proxy.tus.client import Client
from tests.support.service import Service


@pytest.fixture(scope="session")
def uploading(services: Callable[[str], Service]) -> Service:
    return services("sqlite")


@pytest.fixture(scope="session")
def tus(uploading: Service) -> Client:
    return Client(uploading, uploading.new_account())


@pytest.fixture(scope="session")
def stranger(uploading: Service) -> Client:
    return Client(uploading, uploading.new_account())

"""What a proxy does is the same whatever database the API has, so most tests use one.

Those that look into the database run on both, as tests/e2e and tests/server do.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.fixtures import front, overrides, proxy, store
from tests.support.service import Service

__all__ = ["front", "overrides", "proxy", "store"]


@pytest.fixture(scope="session")
def service(request: pytest.FixtureRequest, services: Callable[[str], Service]) -> Service:
    return services(getattr(request, "param", "sqlite"))

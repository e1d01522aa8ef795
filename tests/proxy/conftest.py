"""What a proxy does is the same whatever database the API has, so most tests use one.

Those that look into the database run on both, as tests/e2e and tests/server do.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.service import Service


@pytest.fixture(scope="session")
def service(request: pytest.FixtureRequest, services: Callable[[str], Service]) -> Service:
    return services(getattr(request, "param", "sqlite"))

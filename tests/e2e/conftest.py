"""What a whole service answers is the same whatever database the API has, so most tests use one.

Those in which its transactions meet run on both, and the main job on PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.fixtures import quick_passphrases
from tests.support.service import Service

__all__ = ["quick_passphrases"]


@pytest.fixture(scope="session")
def service(request: pytest.FixtureRequest, services: Callable[[str], Service]) -> Service:
    return services(getattr(request, "param", "sqlite"))

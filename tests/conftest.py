"""Fixtures that tests of several rooms share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.service import Service, running_service


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A real service, once on each database."""
    database_url = None
    if request.param == "postgresql":
        database_url = request.getfixturevalue("postgresql_url")
    with running_service(
        tmp_path_factory.mktemp(request.param) / "data", database_url=database_url
    ) as running:
        yield running

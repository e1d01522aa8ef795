"""A path without identifiers is found by a table, and is the one that trying all routes finds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from starlette.routing import BaseRoute, Match

from encrypted_records.proxy.api import ROUTES
from encrypted_records.proxy.api.endpoint import FixedPaths, PathRoute

FIXED = [route.path for route in ROUTES if isinstance(route, PathRoute) and "{" not in route.path]
TABLE = FixedPaths(ROUTES)


def scope_of(path: str, kind: str = "http") -> dict[str, Any]:
    return {"type": kind, "path": path, "root_path": "", "method": "POST", "headers": []}


def find(routes: Iterable[BaseRoute], scope: dict[str, Any]) -> tuple[BaseRoute, Any]:
    for route in routes:
        match, found = route.matches(scope)
        if match is Match.FULL:
            return route, found
    raise AssertionError(scope["path"])


@pytest.mark.parametrize("path", FIXED)
def test_the_table_finds_what_trying_all_routes_finds(path: str) -> None:
    by_table, found = find([TABLE], scope_of(path))
    by_trying, expected = find(ROUTES, scope_of(path))
    assert by_table is TABLE
    assert found == expected
    assert isinstance(by_trying, PathRoute) and by_trying.path == path


@pytest.mark.parametrize(
    "path", ["/", "/api/", "/api/records/search", "/api/records/search//", "/api/records/x/"]
)
def test_the_table_leaves_every_other_path_to_the_routes(path: str) -> None:
    assert TABLE.matches(scope_of(path))[0] is Match.NONE


def test_the_table_has_no_sockets() -> None:
    assert TABLE.matches(scope_of(FIXED[0], "websocket"))[0] is Match.NONE

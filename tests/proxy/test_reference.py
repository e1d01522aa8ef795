"""The proxy's document: the API's endpoints that it forwards, and all of its own."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.routing import Route

from encrypted_records.proxy.routes import keyring, records, schemas
from encrypted_records.proxy.routes.reference import BODIES
from tests.support.service import Account, Service, call


@pytest.fixture(scope="module")
def account(service: Service) -> Account:
    return service.new_account()


@pytest.fixture(scope="module")
def document(service: Service, account: Account) -> dict[str, Any]:
    found = call("GET", f"{service.proxy_url}/api/openapi.json", auth=account.auth)
    assert found.status == 200, found.body
    described: dict[str, Any] = found.json()
    return described


def test_it_describes_what_the_proxy_has_and_forwards(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    for route in [*records.routes, *schemas.routes, *keyring.routes]:
        assert isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}:
            operation = document["paths"][route.path][method.lower()]
            assert operation["summary"]
            assert {"401", "422", "502"} <= set(operation["responses"])
    assert "post" in document["paths"]["/api/datasets/"]
    for ends_here in ("/api/commits/", "/api/token/session/"):
        assert ends_here not in document["paths"]


def test_bodies_are_described_of_endpoints_that_exist(document: dict[str, Any]) -> None:
    for method, path in BODIES:
        assert method.lower() in document["paths"][path], path


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for link in set(re.findall(r"'\$ref': '#/([\w/.-]+)'", repr(document))):
        place: Any = document
        for step in link.split("/"):
            place = place[step]


def test_it_can_be_read_without_script_or_other_hosts(service: Service, account: Account) -> None:
    page = call("GET", f"{service.proxy_url}/api/docs/", auth=account.auth)
    assert page.status == 200
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert b"POST /api/records/search/" in page.body
    assert b"<script" not in page.body
    assert call("GET", f"{service.proxy_url}/api/docs/").status == 401

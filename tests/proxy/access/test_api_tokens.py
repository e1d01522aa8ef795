"""API tokens at a proxy whose API lies: by their form alone it knows what they never do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.model import credentials
from encrypted_records.proxy.api import ROUTES
from encrypted_records.proxy.api.endpoint import (
    FOR_READING,
    FOR_WRITING,
    WRITING_PATHS,
    operations_of,
)
from tests.proxy.access.people import SECRET_WORD, Person, code_of
from tests.support.front import Asked, Front, Reply
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Answer, Service, call


@pytest.fixture
def proxy(front: Front, tmp_path: Path) -> Iterator[Proxy]:
    with running_proxy(front.url, tmp_path / "proxy") as one:
        yield one


def new_token(service: Service, person: Person, **members: Any) -> str:
    body = {"name": "nightly"} | members
    made = call("POST", f"{service.base_url}/api/tokens/", body, auth=person.account.auth)
    assert made.status == 201, made.body
    return str(made.json()["token"])


def believing(person: Person) -> Any:
    """An API that takes every token for a login of this person's, and every change for done."""

    def lie(asked: Asked, reply: Reply) -> Reply:
        if reply.status in (401, 403):
            return Reply(200, {"Content-Type": "application/json"}, b'{"id": "%s", "token": "x"}'
                         % person.user.encode())  # fmt: skip
        return reply

    return lie


def test_an_api_that_believes_every_token_has_no_reading_one_write(
    front: Front, proxy: Proxy, service: Service, people: tuple[Person, Person]
) -> None:
    person = people[0]
    assert person.ingest(proxy).status == 201
    schema = f"/api/schemas/{person.schema}/"
    auth = f"Bearer {credentials.generate_api_token(writes=False).text}"  # which no API has made
    rows = [{"schema": schema, "data": {"name": "more"}}]
    with front.telling(believing(person)):
        for method, path, body in (
            ("POST", "/api/records/ingest/", rows),
            ("POST", "/api/jobs/upload/", rows),
            ("POST", "/api/records/delete/?confirm=1", {"schema": schema}),
            ("PATCH", schema, {"schema": {"type": "object", "properties": {}}}),
            ("POST", f"{schema}merge/", {}),
            ("POST", f"{schema}accept-log/", {"version": 0, "digest": "0" * 64}),
            ("GET", "/api/keyring/", None),
            ("POST", "/api/keyring/backup/", {}),
            ("POST", "/api/devices/", {"create": True}),
            ("POST", "/api/files/", b""),
        ):
            front.forget()
            refused: Answer = call(method, proxy.url + path, body, auth=auth)
            assert (refused.status, code_of(refused)) == (403, "token_limited"), (method, path)
            assert front.asked == [], "it is refused before anybody is asked"
        strong = f"Bearer {credentials.generate_api_token(writes=True).text}"
        for path in ("backup/", "rotate/", "backup/file/", "passphrase/", "restore/"):
            refused = call("POST", f"{proxy.url}/api/keyring/{path}", {}, auth=strong)
            assert (refused.status, code_of(refused)) == (403, "token_limited"), path


def test_a_reading_token_makes_no_keyring(
    proxy: Proxy, service: Service, people: tuple[Person, Person], tmp_path: Path
) -> None:
    person = people[0]
    auth = f"Bearer {new_token(service, person)}"
    asked = {"schema": f"/api/schemas/{person.schema}/"}
    refused = call("POST", f"{proxy.url}/api/records/search/", asked, auth=auth)
    assert (refused.status, code_of(refused)) == (403, "token_limited")
    assert list((tmp_path / "proxy" / "proxy" / "keyrings").glob("*")) == []
    # A writing one makes it, as every other credential does; then the reading one reads.
    writing = f"Bearer {new_token(service, person, scope='write')}"
    rows = [{**asked, "data": {"name": SECRET_WORD}}]
    assert call("POST", f"{proxy.url}/api/records/ingest/", rows, auth=writing).status == 201
    found = call("POST", f"{proxy.url}/api/records/search/", asked, auth=auth)
    assert [result["data"]["name"] for result in found.json()["results"]] == [SECRET_WORD]


def test_a_token_needs_a_device_where_everybody_does(
    front: Front, service: Service, people: tuple[Person, Person], tmp_path: Path
) -> None:
    person, other = people
    asked = {"schema": f"/api/schemas/{person.schema}/"}
    auth = f"Bearer {new_token(service, person)}"
    with running_proxy(front.url, tmp_path / "strict", access="device") as strict:
        assert person.ingest(strict).status == 201
        assert other.ingest(strict).status == 201
        url = f"{strict.url}/api/records/search/"
        for headers, code in (
            ({}, "device_needed"),
            (other.headers(), "device_unknown"),
        ):
            refused = call("POST", url, asked, auth=auth, headers=headers)
            assert (refused.status, code_of(refused)) == (401, code)
        found = call("POST", url, asked, auth=auth, headers=person.headers())
        assert [result["data"]["name"] for result in found.json()["results"]] == [SECRET_WORD]


def test_what_tokens_may_ask_is_asked_by_routes_that_there_are() -> None:
    declared = {(operation.method, operation.path) for operation in operations_of(ROUTES)}
    known = {one for one in FOR_READING | FOR_WRITING if one != ("GET", "/api/status/")}
    assert known <= declared
    assert {path for _, path in declared if path.startswith("/api/files")} <= WRITING_PATHS

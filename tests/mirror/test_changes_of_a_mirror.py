"""A mirror is only read: each change is refused by name, at the proxy and at the mirror."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import ASGIApp, Message

from encrypted_records.mirror.layout import read_head
from encrypted_records.mirror.serving import create_app, serving_inline
from encrypted_records.model.forwarded import FORWARDED, NEVER
from tests.mirror.copies import Place, basic
from tests.mirror.test_reading_a_mirror import people
from tests.support.service import call
from tests.support.store import Store

#: What the API takes by POST and reads alone; a hold of a mirror holds nothing.
_READ_BY_BODY = ("pages", "rows", "names", "digests", "holds")


@pytest.fixture
def copied(store: Store, place: Place) -> Place:
    store.ingest(people(5))
    place.copy(store)
    return place


def test_a_proxy_refuses_every_change_and_says_where_to_make_it(
    copied: Place, store: Store
) -> None:
    record = store.found()[0]
    rows = [{"schema": store.schema, "data": {"name": "new"}}]
    before = {path: path.read_bytes() for path in copied.files()}
    organization = store.account.organization

    with copied.read(store) as mirrored:
        assert mirrored.ask().status == 200
        refused = [
            mirrored.proxy("POST", "/api/records/ingest/", rows),
            mirrored.proxy("POST", "/api/jobs/upload/", rows),
            mirrored.proxy("PATCH", f"/api/records/{record}/", {"data": {"age": 1}}),
            mirrored.proxy("PUT", f"/api/records/{record}/", rows[0]),
            mirrored.proxy("DELETE", f"/api/records/{record}/"),
            mirrored.proxy("POST", f"{store.schema}merge/", {}),
            mirrored.proxy("POST", f"{store.schema}erasure/", {}),
            mirrored.proxy("PATCH", store.schema, {"name": "another"}),
            mirrored.proxy("DELETE", store.schema),
            mirrored.proxy("POST", "/api/datasets/", {"name": "d", "organization": organization}),
            mirrored.proxy("POST", "/api/files/", {}),
            mirrored.proxy("POST", "/api/token/refresh/", {"refresh": "x"}),
            mirrored.proxy("POST", "/api/keyring/rotate/", {}),
        ]
    for answer in refused:
        assert (answer.status, answer.json()["code"]) == (403, "read_only_mirror")
        assert store.service.base_url in answer.json()["hint"]
    assert {path: path.read_bytes() for path in copied.files()} == before


def test_a_served_mirror_refuses_each_path_of_the_api_that_changes_anything(
    copied: Place,
) -> None:
    asked = [(one.method, one.template) for one in FORWARDED] + list(NEVER)
    changing = [
        (method, path)
        for method, path in asked
        if method != "GET" and path.rstrip("/").rpartition("/")[2] not in _READ_BY_BODY
    ]

    with serving_inline(copied.folder) as (url, secret):
        auth = basic(read_head(copied.folder).member, secret)
        for method, path in changing:
            answer = call(method, url + path.replace("{", "").replace("}", ""), {}, auth=auth)
            assert (answer.status, answer.json()["code"]) == (403, "read_only_mirror"), path
    assert len(changing) > 30


def test_a_served_mirror_answers_nobody_without_its_secret(copied: Place) -> None:
    member = read_head(copied.folder).member
    with serving_inline(copied.folder) as (url, secret):
        for auth in (None, basic(member, "wrong"), basic("nobody", secret), f"Bearer {secret}"):
            answer = call("GET", f"{url}/api/schemas/", auth=auth)
            assert (answer.status, answer.json()["code"]) == (401, "mirror_secret")
        status = call("GET", f"{url}/api/status/")
    assert status.status == 200
    assert status.json()["mirror"]["source"] == read_head(copied.folder).source


def test_a_mirror_without_a_secret_answers_to_names_of_its_machine_alone(copied: Place) -> None:
    own = ["localhost", "LOCALHOST:9000", "127.0.0.1:9000", "[::1]", "[::1]:9000"]
    others = [
        "",
        "[",
        "records.example.org",
        "localhost.example.org:80",
        "localhost/x",
        "a@localhost",
    ]
    app = create_app(copied.folder, None)

    assert {host: asked_as(app, host) for host in own} == dict.fromkeys(own, 200)
    assert {host: asked_as(app, host) for host in others} == dict.fromkeys(others, 421)


def test_a_query_that_is_no_text_is_answered(copied: Place) -> None:
    assert asked_as(create_app(copied.folder, None), "localhost", b"limit=\xff&\xfe") == 200


def asked_as(app: ASGIApp, host: str, query: bytes = b"") -> int:
    """The status of an answer to a request with this Host header."""
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    path = "/api/status/"
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query,
        "headers": [(b"host", host.encode())],
        "server": ("127.0.0.1", 9000),
        "scheme": "http",
    }

    async def run() -> None:
        await app(scope, receive, send)

    asyncio.run(run())
    status: int = sent[0]["status"]
    return status

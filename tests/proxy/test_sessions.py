"""A browser's session does at the proxy whatever other credentials do, and nothing without CSRF."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import pytest
from prometheus_client import CollectorRegistry
from starlette.types import Message, Receive, Scope, Send

from encrypted_records.metrics import Requests
from encrypted_records.proxy.http.guard import Guard, OwnNames
from tests.support.service import Account, Answer, Service, call
from tests.support.store import Store, new_store

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.fixture(scope="module")
def store(service: Service) -> Store:
    return new_store(service, DEFINITION)


@pytest.fixture
def session(service: Service, store: Store) -> dict[str, str]:
    return service.session_of(store.account)


def ask(
    store: Store, method: str, path: str, body: Any = None, *, headers: Mapping[str, str]
) -> Answer:
    return call(method, store.service.proxy_url + path, body, headers=headers)


def change_password(service: Service, account: Account, headers: Mapping[str, str]) -> Answer:
    new = "staple battery horse"
    body = {"old_password": account.password, "password": new, "password_confirm": new}
    url = f"{service.proxy_url}/api/accounts/change-password/"
    return call("POST", url, body, headers=headers)


def test_a_session_stores_searches_and_reads(store: Store, session: dict[str, str]) -> None:
    records = [{"schema": store.schema, "data": {"name": "by session"}}]
    stored = ask(store, "POST", "/api/records/ingest/", records, headers=session)
    assert stored.status == 201, stored.body
    where = {"field": "name", "op": "eq", "value": "by session"}
    question = {"schema": store.schema, "where": where}
    found = ask(store, "POST", "/api/records/search/", question, headers=session)
    assert [row["id"] for row in found.json()["results"]] == [stored.json()[0]["id"]]
    sealed = ask(store, "GET", f"{stored.json()[0]['url']}?sealed=true", headers=session)
    opened = ask(store, "POST", "/api/records/decrypt/", sealed.json(), headers=session)
    assert opened.json()["data"] == {"name": "by session"}
    assert ask(store, "GET", "/api/keyring/", headers=session).status == 200


def test_reading_by_session_needs_no_csrf_token(store: Store, session: dict[str, str]) -> None:
    (record_id,) = store.ingest([{"name": "to read"}])
    sessionid = re.search(r"sessionid=\w+", session["Cookie"])
    assert sessionid
    cookie = {"Cookie": sessionid.group()}
    for path in (f"/api/records/{record_id}/", f"/api/records/?schema={store.schema_id}"):
        assert ask(store, "GET", path, headers=cookie).status == 200


@pytest.mark.parametrize("token", [None, "x" * 64, "not a token;"])
def test_a_change_by_session_needs_the_token_of_its_own_cookie(
    store: Store, session: dict[str, str], token: str | None
) -> None:
    headers = {name: value for name, value in session.items() if name != "X-CSRFToken"}
    if token is not None:
        headers["X-CSRFToken"] = token
    # That a good token was taken before changes nothing.
    question = {"schema": store.schema}
    assert ask(store, "POST", "/api/records/search/", question, headers=session).status == 200
    for path in ("/api/records/search/", "/api/keyring/backup/"):
        refused = ask(store, "POST", path, question, headers=headers)
        assert (refused.status, refused.json()["code"]) == (403, "csrf_failed")


def test_a_session_of_another_site_is_stopped_before_its_token_is_looked_at(
    store: Store, session: dict[str, str]
) -> None:
    headers = session | {"Origin": "https://evil.example"}
    refused = ask(store, "POST", "/api/records/search/", {}, headers=headers)
    assert (refused.status, refused.json()["code"]) == (403, "cross_site")


def test_a_header_goes_before_a_cookie(store: Store, session: dict[str, str]) -> None:
    for header in ("Bearer x.y.z", "Digest x"):
        headers = session | {"Authorization": header}
        assert ask(store, "GET", "/api/keyring/", headers=headers).status == 401


@pytest.mark.parametrize("at", ["", "/~abcdefghijklmnop"])
def test_pages_know_nobody_by_a_session_that_another_port_may_have_planted(
    store: Store, session: dict[str, str], at: str
) -> None:
    """Browsers send the cookies of every port of a host: the visitor could be in the account of
    whoever planted them, and would type into it."""
    email = store.account.email.encode()
    for path in ("/", "/datasets/", "/account/", "/keyring/"):
        page = call("GET", store.service.proxy_url + at + path, headers=session)
        assert email not in page.body
        assert b'name="password"' in page.body
    form = {**session, "Content-Type": "application/x-www-form-urlencoded"}
    name = "made by somebody else"
    body = urlencode({"csrf": session["X-CSRFToken"], "name": name}).encode()
    call("POST", f"{store.service.proxy_url}{at}/datasets/new/", body, headers=form)
    datasets = ask(store, "GET", "/api/datasets/", headers=session).json()["results"]
    assert name not in [dataset["name"] for dataset in datasets]


@pytest.mark.parametrize(
    "cookie", ["sessionid=nobody", 'sessionid="a\\012b: c"', "sessionid=", "csrftoken=x"]
)
def test_an_unknown_or_odd_cookie_is_401(store: Store, cookie: str) -> None:
    refused = ask(store, "GET", "/api/keyring/", headers={"Cookie": cookie})
    assert refused.status == 401
    assert refused.json()["code"] in ("not_authenticated", "bad_token")


def test_logging_out_ends_what_the_proxy_does_for_the_session(
    store: Store, session: dict[str, str]
) -> None:
    question = {"schema": store.schema}
    assert ask(store, "POST", "/api/records/search/", question, headers=session).status == 200
    # These are answered without the API, which would know.
    of_the_proxy = ("/api/jobs/", "/api/keyring/")
    for path in of_the_proxy:
        assert ask(store, "GET", path, headers=session).status == 200
    assert ask(store, "POST", "/api/accounts/logout/", headers=session).status == 200
    assert ask(store, "POST", "/api/records/search/", question, headers=session).status == 401
    for path in of_the_proxy:
        assert ask(store, "GET", path, headers=session).status == 401


def test_a_change_of_password_ends_other_sessions_at_the_proxy(service: Service) -> None:
    store = new_store(service, DEFINITION)
    mine, other = service.session_of(store.account), service.session_of(store.account)
    question = {"schema": store.schema}
    for headers in (mine, other):
        assert ask(store, "POST", "/api/records/search/", question, headers=headers).status == 200

    assert change_password(service, store.account, mine).status == 200

    assert ask(store, "POST", "/api/records/search/", question, headers=other).status == 401
    assert store.ask().status == 401


def test_pages_cannot_trade_their_session_for_a_token(
    store: Store, session: dict[str, str]
) -> None:
    refused = ask(store, "POST", "/api/token/session/", headers=session)
    assert (refused.status, refused.json()["code"]) == (404, "not_forwarded")


def open_websocket(**headers: str) -> list[Message]:
    """What the guard sends for a WebSocket's upgrade before an endpoint that accepts it."""
    sent: list[Message] = []

    async def endpoint(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept"})

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "websocket", "path": "/api/ws/jobs/x/", "headers": raw}
    guard = Guard(endpoint, OwnNames("127.0.0.1", 8080), Requests(CollectorRegistry()))
    asyncio.run(guard(scope, receive, send))
    return sent


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"host": "127.0.0.1:8080", "origin": "https://evil.example"}, 403, "cross_site"),
        ({"host": "127.0.0.1:8080", "origin": "null"}, 403, "cross_site"),
        ({"host": "127.0.0.1:8080", "origin": "http://localhost:8080"}, 403, "cross_site"),
        ({"host": "127.0.0.1:8080", "sec-fetch-site": "same-site"}, 403, "cross_site"),
        ({"host": "evil.example"}, 421, "unknown_host"),
    ],
)
def test_a_websocket_of_another_site_is_refused_before_its_upgrade(
    headers: dict[str, str], status: int, code: str
) -> None:
    start, body = open_websocket(**headers)
    assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
    assert json.loads(body["body"])["code"] == code


def test_a_websocket_of_a_page_or_program_of_ours_goes_through() -> None:
    for origin in ({}, {"origin": "http://localhost:8080", "sec-fetch-site": "same-origin"}):
        (accepted,) = open_websocket(host="localhost:8080", **origin)
        assert accepted["type"] == "websocket.accept"

"""Answers of the API that lack members, or have others: errors with names, never a fault here."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from encrypted_records.client import transport
from encrypted_records.proxy.pages import page
from tests.support.front import Asked, Front, Lie, Reply, running_front
from tests.support.page_visits import Browser, logged_in
from tests.support.proxies import Proxy, running_proxy
from tests.support.service import Account, Answer, Service, call
from tests.support.store import new_schema

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "enum": ["ada", "grace"]},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
    },
}
SELF, TOKEN = "/api/users/self/", "/api/token/"
#: The same in all processes, which must collect the same tests.
ID = "2JZrJDyoRq79GsVSz23bp6"
#: No member of an answer is one of these.
WRONG: tuple[Any, ...] = ([[]], {"a": {}}, "\0")


@dataclass
class Place:
    front: Front
    proxy: Proxy
    account: Account
    schema: str
    dataset: str
    browser: Browser

    def get(self, path: str, auth: str = "") -> Answer:
        return call("GET", self.proxy.url + path, auth=auth or self.account.auth)

    def forget_callers(self) -> None:
        """Have the proxy ask the API again who the caller is."""
        self.proxy.services.access.forget_everyone()

    @property
    def organization_id(self) -> str:
        return self.account.organization.split("/")[-2]

    @property
    def pages(self) -> dict[str, str]:
        schema, dataset = (path.split("/")[-2] for path in (self.schema, self.dataset))
        return {
            "home": "/",
            "account": "/account/",
            "deletion": "/account/delete/",
            "tokens": "/account/tokens/",
            "second factor": "/account/second-factor/",
            "organization": f"/organizations/{self.organization_id}/",
            "audit log": f"/audit-log/{self.organization_id}/",
            "dataset": f"/datasets/{dataset}/",
            "search": f"/schemas/{schema}/search/",
            "fields": f"/schemas/{schema}/fields/",
        }


@pytest.fixture(scope="module")
def place(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    account = service.new_account()
    schema = new_schema(service, account, DEFINITION)
    dataset = call("GET", service.base_url + schema, auth=account.auth).json()["dataset"]
    sent = {"name": "some", "scope": "read"}
    assert call("POST", f"{service.base_url}/api/tokens/", sent, auth=account.auth).status == 201
    folder = tmp_path_factory.mktemp("malformed")
    with running_front(service.base_url) as front, running_proxy(front.url, folder) as proxy:
        site = cast("Service", SimpleNamespace(proxy_url=proxy.url))
        browser = logged_in(site, account)
        record = {"schema": schema, "data": {"name": "ada", "n": 1}}
        stored = call("POST", f"{proxy.url}/api/records/ingest/", [record], auth=account.auth)
        assert stored.status == 201
        yield Place(front, proxy, account, schema, dataset, browser)


def nodes(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Places in a JSON value, of lists only the first item."""
    if at:
        yield at
    if isinstance(value, dict):
        for name in value:
            yield from nodes(value[name], (*at, name))
    elif isinstance(value, list) and value:
        yield from nodes(value[0], (*at, 0))


def put(value: Any, at: tuple[Any, ...], wrong: Any) -> Any:
    changed = copy.deepcopy(value)
    inner = changed
    for part in at[:-1]:
        inner = inner[part]
    inner[at[-1]] = wrong
    return changed


def path_of(asked: Asked) -> str:
    return asked.path.partition("?")[0]


def instead(path: str, body: bytes) -> Lie:
    return lambda asked, reply: reply.with_body(body) if path_of(asked) == path else reply


@pytest.mark.parametrize(
    "name",
    [
        *("home", "account", "deletion", "tokens", "second factor"),
        *("organization", "audit log", "dataset", "search", "fields"),
    ],
)
def test_a_page_has_no_fault_under_an_answer_with_a_wrong_member(place: Place, name: str) -> None:
    heard: dict[str, Any] = {}

    def hear(asked: Asked, reply: Reply) -> Reply:
        if reply.headers["Content-Type"] == "application/json":
            heard[path_of(asked)] = json.loads(reply.body)
        return reply

    address = place.pages[name]
    with place.front.telling(hear):
        assert place.browser.visit(address).status == 200
    assert heard
    for path, answer in heard.items():
        for number, at in enumerate(nodes(answer)):
            wrong = put(answer, at, WRONG[number % len(WRONG)])
            with place.front.telling(instead(path, json.dumps(wrong).encode())):
                shown = place.browser.visit(address)
            assert shown.status in (200, 502), (path, at)
    assert place.browser.visit(address).status == 200


def test_a_list_without_an_end_is_refused_on_a_page(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MOST_LIST_PAGES", 3)
    asked_for: list[str] = []

    def go_on(asked: Asked, reply: Reply) -> Reply:
        if path_of(asked) != "/api/organizations/":
            return reply
        asked_for.append(asked.path)
        results = [honest["results"][0]]
        return reply.with_body(
            json.dumps({**honest, "next": "/api/organizations/", "results": results}).encode()
        )

    honest = place.get("/api/organizations/").json()
    with place.front.telling(go_on):
        shown = place.browser.visit("/account/")
    assert (shown.status, shown.headers["X-Error-Code"]) == (502, "api_failed")
    assert len(asked_for) == 3


def test_an_answer_without_an_end_is_refused_on_a_page(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MAX_JSON_BYTES", 1 << 20)
    long = b" " * (2 << 20)
    with place.front.telling(
        lambda asked, reply: reply.with_body(reply.body + long) if SELF in asked.path else reply
    ):
        shown = place.browser.visit("/account/")
    assert (shown.status, shown.headers["X-Error-Code"]) == (502, "api_failed")


@pytest.mark.parametrize("member", ["minimum", "maximum", "enum"])
@pytest.mark.parametrize("address", ["add", "fields", "search"])
def test_a_number_of_millions_of_digits_is_not_written_out_on_a_page(
    place: Place, member: str, address: str
) -> None:
    heard = place.get(place.schema).body
    given: dict[str, Any] = json.loads(heard)
    number = "-1e-20000000" if member == "minimum" else "1e-20000000"
    given["schema"]["properties"]["n"] |= {"type": "number", member: "HERE"}
    body = json.dumps(given).replace('"HERE"', f"[{number}]" if member == "enum" else number)
    with place.front.telling(instead(place.schema, body.encode())):
        shown = place.browser.visit(f"/schemas/{place.schema.split('/')[-2]}/{address}/")
    assert shown.status in (200, 502)
    assert len(shown.body) < 1 << 20


@pytest.mark.parametrize("token", ["a\r\nX-Other: b", "a b", "", "ä", "a\0"])
def test_a_token_that_is_none_is_the_fault_of_the_api(place: Place, token: str) -> None:
    place.forget_callers()
    pair = json.dumps({"access": token, "refresh": "r"}).encode()
    with place.front.telling(instead(TOKEN, pair)):
        answer = place.get("/api/jobs/")
    assert (answer.status, answer.json()["code"]) == (502, "api_failed")
    assert place.get("/api/jobs/").status == 200


@pytest.mark.parametrize("wrong", ["x", "", f"{ID}\n", f"/{ID}"])
def test_an_id_that_is_none_is_the_fault_of_the_api(place: Place, wrong: str) -> None:
    place.forget_callers()
    user = call("GET", place.front.url + SELF, auth=place.account.auth).json()
    with place.front.telling(instead(SELF, json.dumps({**user, "id": wrong}).encode())):
        answer = place.get("/api/jobs/")
    assert (answer.status, answer.json()["code"]) == (502, "api_failed")
    assert place.get("/api/jobs/").status == 200


@pytest.mark.parametrize("code", ["a\r\nX-Other: b", "<b>", "ä", "a b", "a\0", "x" * 10_000])
def test_a_code_of_an_error_that_is_none_is_left_out(place: Place, code: str) -> None:
    problem = json.dumps({"code": code, "detail": "no"}).encode()

    def refuse(asked: Asked, reply: Reply) -> Reply:
        is_list = path_of(asked) == "/api/tokens/"
        return replace(reply, status=409, body=problem) if is_list else reply

    with place.front.telling(refuse):
        shown, answer = place.browser.visit("/account/tokens/"), place.get("/api/tokens/")
    assert (shown.status, shown.headers["X-Error-Code"]) == (502, "api_answer")
    assert "X-Other" not in shown.headers
    assert (answer.status, answer.json()["code"]) == (502, "api_answer")


@pytest.mark.parametrize("wait", ["9" * 5000, "٣", "-1", "1e9", ""])
def test_a_wait_that_is_none_is_left_out(place: Place, wait: str) -> None:
    def refuse(asked: Asked, reply: Reply) -> Reply:
        if not asked.path.startswith("/api/schemas/"):
            return reply
        headers = {**reply.headers, "Retry-After": wait.encode().decode("latin-1")}
        return replace(reply, status=429, headers=headers, body=b'{"code": "throttled"}')

    with place.front.telling(refuse):
        answer = place.get("/api/keyring/schemas/")
    assert (answer.status, answer.json()["code"]) == (429, "throttled")
    assert answer.headers["Retry-After"] is None


def test_a_wait_of_the_api_is_an_hour_at_most(place: Place) -> None:
    def refuse(asked: Asked, reply: Reply) -> Reply:
        headers = {**reply.headers, "Retry-After": "999999"}
        if not asked.path.startswith("/api/schemas/"):
            return reply
        return replace(reply, status=429, headers=headers, body=b'{"code": "throttled"}')

    with place.front.telling(refuse):
        assert place.get("/api/keyring/schemas/").headers["Retry-After"] == "3600"


@pytest.mark.parametrize("tags", [[5], [None, "x"], [["x"]], 5])
def test_a_document_with_tags_that_are_none_is_refused(place: Place, tags: Any) -> None:
    document = place.get("/api/openapi.json").json()
    place.front.forget()
    assert place.get("/api/openapi.json").status == 200
    (asked,) = place.front.asked
    document = call("GET", place.front.url + asked.path).json()
    document["paths"][SELF]["get"]["tags"] = tags
    with place.front.telling(instead(asked.path, json.dumps(document).encode())):
        answer = place.get("/api/openapi.json")
    assert (answer.status, answer.json()["code"]) == (502, "api_answer")


@pytest.mark.parametrize(
    "address", ["/api/jobs/?limit={}", "/api/jobs/?offset={}", "/api/records/?limit={}&schema="]
)
def test_a_number_of_thousands_of_digits_is_refused_by_name(place: Place, address: str) -> None:
    path = address.format("9" * 5000) + (place.schema if "schema" in address else "")
    answer = place.get(path)
    assert (answer.status, answer.json()["code"]) == (400, "invalid_query")


def test_a_batch_size_of_thousands_of_digits_is_refused_by_name(place: Place) -> None:
    answer = call(
        "POST",
        f"{place.proxy.url}/api/jobs/upload/?schema={place.schema}",
        b"name,n\nada,1\n",
        auth=place.account.auth,
        headers={"Content-Type": "text/csv", "X-Batch-Size": "9" * 5000},
    )
    assert (answer.status, answer.json()["code"]) == (400, "invalid_header")


DEEP = b"[" * 200_000 + b"]" * 200_000


@pytest.mark.parametrize("body", [b'{"a": %s}' % DEEP, b'{"\xff": "%s"}' % (b"x" * 300_000)])
def test_a_long_answer_that_nothing_can_read_is_refused_by_name(place: Place, body: bytes) -> None:
    with place.front.telling(instead(place.dataset, body)):
        answer = place.get(place.dataset)
    assert (answer.status, answer.json()["code"]) == (502, "api_answer")


def test_a_token_with_deeply_nested_claims_is_used_as_any_other(place: Place) -> None:
    claims = base64.urlsafe_b64encode(b'{"a": %s}' % DEEP[150_000:250_000]).decode().rstrip("=")
    place.forget_callers()
    pair = json.dumps({"access": f"a.{claims}.b", "refresh": "r"}).encode()

    def answer_self(asked: Asked, reply: Reply) -> Reply:
        if path_of(asked) == TOKEN:
            return reply.with_body(pair)
        return replace(reply, status=200, body=honest) if path_of(asked) == SELF else reply

    honest = call("GET", place.front.url + SELF, auth=place.account.auth).body
    with place.front.telling(answer_self):
        assert place.get("/api/keyring/").status in (200, 502)
    place.forget_callers()

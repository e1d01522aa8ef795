"""Plaintext reaches the API under no spelling of a path, method or body."""

from __future__ import annotations

import asyncio
import random
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote_to_bytes, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import Message

from encrypted_records.model.forwarded import FORWARDED, NEVER, methods_of
from encrypted_records.model.ids import new_id, to_text
from encrypted_records.proxy.app import create_app
from encrypted_records.proxy.settings import ProxySettings
from tests.support.front import Front, running_front
from tests.support.proxies import running_proxy
from tests.support.service import ANSWER_SECONDS, Account, Service, call

CANARY = "Zq7Canary"
#: Spellings that are tried within the process, and by real connections.
MANY, BY_SOCKET = 5_000, 500
#: So often each path is tried as it is, with methods, bodies and parameters that are not.
UNCHANGED = 20
METHODS = (
    *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"),
    *("PROPFIND", "SEARCH", "REPORT", "LOCK", "MOVE", "post", "Get"),
)
BODIES = (
    (f'[{{"data": {{"name": "{CANARY}"}}}}]', "application/json"),
    (f'{{"name": "{CANARY}"}}\n{{"name": "{CANARY}"}}', "application/json"),
    (f"name\n{CANARY}\n", "text/csv"),
    (f'{{"data": {{"name": "{CANARY}"}}}}', "application/x-ndjson"),
    (f'{{"data": {{"name": "{CANARY}"}}}}', "application/problem+json"),
    (f"ERS1{CANARY}", "application/vnd.encrypted-records.frames"),
    (CANARY, "application/offset+octet-stream"),
    (f"name={CANARY}", "application/x-www-form-urlencoded"),
    (f"--x\r\n\r\n{CANARY}\r\n--x--", "multipart/form-data; boundary=x"),
    (f'{{"data": {{"name": "{CANARY}"}}}}', ""),
)
#: What does go to the API, but on its own paths.
OBJECT = f'{{"data": {{"name": "{CANARY}"}}}}'


@dataclass(frozen=True)
class Spelling:
    """A request with plaintext in its body, and maybe in its address."""

    method: str
    target: str
    body: str
    kind: str

    def would_be_right(self) -> bool:
        """Whether some other body of this request would be for the API: an object in JSON."""
        return self.method in methods_of(self.target.partition("?")[0])


Change = Callable[[random.Random, str], str]


def _at_slash(chance: random.Random, path: str, put: str) -> str:
    places = [place for place, letter in enumerate(path) if letter == "/"]
    if not places:  # an earlier change has written each of them as something else
        return put + path
    at = chance.choice(places)
    return path[:at] + put + path[at + 1 :]


def _at_letter(chance: random.Random, path: str, change: Callable[[str], str]) -> str:
    at = chance.randrange(len(path))
    return path[:at] + change(path[at]) + path[at + 1 :]


def _word(chance: random.Random, path: str, change: Callable[[str], str]) -> str:
    words = path.split("/")
    at = chance.choice([place for place, word in enumerate(words) if word] or [0])
    words[at] = change(words[at])
    return "/".join(words)


CHANGES: Sequence[Change] = (
    lambda _, path: path.rstrip("/"),
    lambda _, path: path + "/",
    lambda chance, path: _at_slash(chance, path, "//"),
    lambda chance, path: _at_slash(chance, path, "/./"),
    lambda chance, path: _at_slash(chance, path, "/x/../"),
    lambda chance, path: _at_slash(chance, path, "/%2e/"),
    lambda chance, path: _at_slash(chance, path, "/x/%2e%2e/"),
    lambda chance, path: _at_slash(chance, path, "/%252e%252e/"),
    lambda chance, path: _at_slash(chance, path, "%2f"),
    lambda chance, path: _at_slash(chance, path, "%252f"),
    lambda chance, path: _at_slash(chance, path, "%5c"),
    lambda chance, path: _at_slash(chance, path, "\\"),
    lambda chance, path: _at_slash(chance, path, ";x=1/"),
    lambda chance, path: _at_slash(chance, path, "%00/"),
    lambda chance, path: _at_slash(chance, path, "%0d%0a/"),
    lambda chance, path: _at_slash(chance, path, "%23/"),
    lambda chance, path: _at_slash(chance, path, "%3f/"),
    lambda chance, path: _at_slash(chance, path, "%20/"),
    lambda chance, path: _at_slash(chance, path, "/+"),
    lambda chance, path: _at_letter(chance, path, str.swapcase),
    lambda chance, path: _at_letter(chance, path, lambda letter: f"%{ord(letter):02x}"),
    lambda chance, path: _at_letter(chance, path, lambda letter: f"%25{ord(letter):02x}"),
    lambda chance, path: _at_letter(chance, path, lambda letter: letter * 2),
    lambda chance, path: _at_letter(chance, path, lambda _: ""),
    lambda chance, path: _word(chance, path, lambda word: word + "s"),
    lambda chance, path: _word(chance, path, lambda word: word.removesuffix("s")),
    lambda chance, path: _word(chance, path, str.title),
    lambda chance, path: _word(chance, path, str.upper),
    lambda chance, path: _word(chance, path, lambda word: f"{word}.json"),
    lambda chance, path: _word(chance, path, lambda word: f"{word};{CANARY}"),
    lambda chance, path: _word(chance, path, lambda word: f"{word}/{CANARY}"),
    lambda chance, path: _word(chance, path, lambda _: CANARY),
    lambda _, path: path.replace("/api/", "/api/v1/", 1),
    lambda _, path: path.replace("/api/", "/v1/api/", 1),
    lambda _, path: path.replace("/api/", "/api/api/", 1),
    lambda _, path: path.replace("/api/", "/API/", 1),
    lambda _, path: path.replace("/api/", "//api/", 1),
    lambda _, path: path.replace("/api/", "/./api/", 1),
    lambda _, path: path.replace("/api/", "/login/../api/", 1),
    lambda _, path: path + CANARY,
    lambda _, path: path + "%c3%a4",
    lambda _, path: path + "%ff",
)
QUERIES = ("", "", f"?q={CANARY}", f"?where={CANARY}&limit=1", f"?{CANARY}", f"?%6eame2={CANARY}")


def addresses(app: Starlette, some: str) -> list[str]:
    """Every path of both sides, with something for the identifiers."""
    own = {route.path for route in app.routes if isinstance(route, Route)}
    apis = {one.template for one in FORWARDED} | {path for _, path in NEVER}
    chosen = sorted(path for path in own | apis if path.startswith("/api/") and ":" not in path)
    return [
        "".join(some if part.endswith("}") else part for part in _parts(path)) for path in chosen
    ]


def _parts(path: str) -> Iterator[str]:
    yield from path.replace("{", "\0{").replace("}", "}\0").split("\0")


def spellings(app: Starlette, some: str, seed: int) -> Iterator[Spelling]:
    """Different ones, without end; the first of each path are unchanged."""
    chance = random.Random(seed)
    known: set[tuple[str, str]] = set()
    starts = addresses(app, some)
    rounds = 0
    while True:
        for start in starts:
            path = start
            for _ in range(0 if rounds < UNCHANGED else chance.choice((1, 1, 2, 3))):
                path = chance.choice(CHANGES)(chance, path) or "/"
            # Half of all by a method that the path has, if it is spelled right.
            right = [*methods_of(start)] or METHODS[:6]
            method = chance.choice(chance.choice((right, METHODS)))
            target = path + chance.choice(QUERIES)
            ends_login = (method, path) == ("POST", "/api/accounts/logout/")
            if not target.startswith("/") or ends_login or (method, target) in known:
                continue
            known.add((method, target))
            one = Spelling(method, target, *chance.choice(BODIES))
            if not one.would_be_right() and chance.random() < 0.5:
                one = replace(one, body=OBJECT, kind="application/json")
            yield one
        rounds += 1


@dataclass(frozen=True)
class Place:
    front: Front
    account: Account
    token: str


@pytest.fixture(scope="module")
def place(services: Callable[[str], Service]) -> Iterator[Place]:
    service = services("sqlite")  # which database the API has makes no difference here
    account = service.new_account()
    body = {"email": account.email, "password": account.password}
    token = call("POST", f"{service.base_url}/api/token/", body).json()["access"]
    with running_front(service.base_url) as front:
        yield Place(front, account, f"Bearer {token}")


#: A slug is for the API, whatever it says.
SLUG = re.compile(r"/(by-slug|dataset|schema)/[A-Za-z0-9_-]+/$")


def arrived(front: Front) -> list[str]:
    """What of the plaintext the API has seen, in whatever letters."""
    return [
        f"{asked.method} {asked.path}"
        for asked in front.asked
        if CANARY.lower() in f"{SLUG.sub('', asked.path)} {asked.headers} {asked.body!r}".lower()
    ]


async def send(app: Starlette, one: Spelling, token: str) -> int:
    """The status that the application answers with, as uvicorn would ask it."""
    raw, _, query = one.target.partition("?")
    body = one.body.encode()
    headers = {
        "host": "127.0.0.1:1",
        "authorization": token,
        "content-type": one.kind,
        "content-length": str(len(body)),
    }
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "server": ("127.0.0.1", 1),
        "client": ("127.0.0.1", 2),
        "scheme": "http",
        "root_path": "",
        "method": one.method,
        "path": unquote_to_bytes(raw).decode("utf-8", "replace"),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "headers": [(k.encode(), v.encode()) for k, v in headers.items() if v],
    }
    pending = [body]
    status = 0

    async def receive() -> Message:
        if pending:
            return {"type": "http.request", "body": pending.pop(), "more_body": False}
        return {"type": "http.disconnect"}

    async def answer(message: Message) -> None:
        nonlocal status
        status = message.get("status", status)

    await app(scope, receive, answer)
    return status


def test_nothing_of_what_is_spelled_wrong_arrives(
    place: Place, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place.front.forget()
    folder = tmp_path_factory.mktemp("spellings")
    app = create_app(ProxySettings(folder, "127.0.0.1", 1, place.front.url, access="api"))
    statuses: dict[int, int] = {}
    right = 0

    async def run() -> None:
        nonlocal right
        async with app.router.lifespan_context(app):
            made = spellings(app, to_text(new_id()), seed=1)
            for _, one in zip(range(MANY), made, strict=False):
                status = await send(app, one, place.token)
                statuses[status] = statuses.get(status, 0) + 1
                right += one.would_be_right()

    asyncio.run(run())
    assert arrived(place.front) == []
    assert sum(statuses.values()) == MANY
    assert not any(status >= 500 and status != 507 for status in statuses), statuses
    # It was no test of one refusal: paths that are handed on were among them, and our own.
    assert right > 50
    assert {200, 400, 404, 405, 415} <= set(statuses)
    assert place.front.asked


def test_nor_does_it_by_real_connections(
    place: Place, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place.front.forget()
    with running_proxy(place.front.url, tmp_path_factory.mktemp("sockets")) as proxy:
        app = create_app(
            ProxySettings(tmp_path_factory.mktemp("x"), "127.0.0.1", 1, "http://127.0.0.1:9")
        )
        address = urlsplit(proxy.url)
        for _, one in zip(range(BY_SOCKET), spellings(app, to_text(new_id()), 2), strict=False):
            ask(address.port or 0, one, place.token)
        for target in (
            f"http://{address.netloc}/api//records/ingest/",
            "*",
            "/api/records#/ingest/",
        ):
            for method in ("POST", "PUT"):
                ask(address.port or 0, Spelling(method, target, *BODIES[0]), place.token)
    assert arrived(place.front) == []
    assert place.front.asked


def ask(port: int, one: Spelling, token: str) -> bytes:
    """The first bytes of the answer."""
    body = one.body.encode()
    kind = f"Content-Type: {one.kind}\r\n" if one.kind else ""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as connection:
        connection.sendall(
            f"{one.method} {one.target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{kind}"
            f"Authorization: {token}\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        return connection.recv(65_536)

"""Sessions: the cookies of the API, the cookie of pages, and what the proxy keeps for a session.

Only the API's two cookies are sent to the API, if they have the form that Django gives them. Only
these two are returned, and not as the API wrote them: the value is checked and the cookie is
written by the proxy, so that the proxy decides what browsers keep for its address.

Pages live below a secret path, and so does their cookie. Browsers send a cookie to every port of
its host, but only to addresses below its Path (RFC 6265, sections 5.1.4 and 8.5). So each browser
has a separate path, ``/~<16 letters and digits>/``, that is derived from the secret of its device,
and one cookie of that path, which holds the secret, the session and the CSRF token. No other port
receives it. A cookie that another port has planted is ignored, because its path is not derived from
its secret. The path is removed before the request is routed or logged.

The state of a visitor's pages, such as filters, order and page number, is kept only in memory, on
the session's desk. Filters contain search terms. In a URL they would end up in the browser's
history, in bookmarks and in shared links. So a page's URL names at most the schema; the rest is
kept here until the user logs out, or for some hours after its last use. If a session ends in
another way, its state passes to the next session of the same user in the same browser.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from encrypted_records import runtime
from encrypted_records.model import credentials
from encrypted_records.model.credentials import DeviceSecret
from encrypted_records.model.forwarded import CSRF, SESSION
from encrypted_records.proxy.admission import SCOPE_DEVICE
from encrypted_records.proxy.auth import plain
from encrypted_records.proxy.process import Recent, SecretNames

T = TypeVar("T")


# --- the two cookies of a session at the API ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CookieKind:
    """``longest`` is the maximum lifetime in seconds."""

    longest: int
    hidden_from_scripts: bool


_DAY = 24 * 3600
_KINDS = {
    SESSION: _CookieKind(longest=14 * _DAY, hidden_from_scripts=True),
    CSRF: _CookieKind(longest=365 * _DAY, hidden_from_scripts=False),
}


def cookie_header(cookies: Mapping[str, str]) -> str:
    """The Cookie header for the API; empty if there is no cookie for it."""
    kept = ((name, plain(cookies.get(name))) for name in _KINDS)
    return "; ".join(f"{name}={value}" for name, value in kept if value)


def rewrite_cookies(lines: Iterable[str], names: Collection[str], *, secure: bool) -> list[str]:
    """The API's Set-Cookie headers, rewritten by the proxy: the last header for each of the two
    names.

    Args:
        names: of cookies that may be set.
        secure: whether the request came by https, so that the cookie is never sent over http.
    """
    written: dict[str, str] = {}
    for line in lines:
        first, *attributes = (part.strip() for part in line.split(";"))
        name, _, value = first.partition("=")
        if name not in names or name not in _KINDS:
            continue
        given = dict(_attribute(attribute) for attribute in attributes)
        seconds = _seconds(given.get("max-age"), _KINDS[name].longest)
        if seconds == 0:
            written[name] = _cookie_line(name, "", 0, secure=secure)
        elif plain(value):
            written[name] = _cookie_line(name, value, seconds, secure=secure)
    return list(written.values())


def _attribute(attribute: str) -> tuple[str, str]:
    name, _, value = attribute.partition("=")
    return name.strip().lower(), value.strip()


def _seconds(max_age: str | None, longest: int) -> int | None:
    """None for a cookie that ends with the browser session."""
    if max_age is None or not re.fullmatch(r"-?[0-9]{1,12}", max_age):
        return None
    return max(0, min(int(max_age), longest))


def _cookie_line(name: str, value: str, seconds: int | None, *, secure: bool) -> str:
    parts = [f"{name}={value}", "Path=/", "SameSite=Lax"]
    if seconds is not None:
        parts.append(f"Max-Age={seconds}")
    if _KINDS[name].hidden_from_scripts:
        parts.append("HttpOnly")
    if secure:
        parts.append("Secure")
    return "; ".join(parts)


# --- the cookie of pages --------------------------------------------------------------------------

#: Key in a scope: the path that was removed, such as ``/~abcdefghijklmnop``.
SCOPE_AT = "ers.at"
KEPT_SECONDS = 180 * 86_400
_BELOW = re.compile(rf"/~([a-z2-7]{{{credentials.PAGE_CHARACTERS}}})(/.*)?", re.DOTALL)
_MADE_BY_DJANGO = re.compile(r"[A-Za-z0-9]{0,64}")


@dataclass(frozen=True, slots=True)
class PageCookie:
    """The contents of a browser's cookie below its path. It must never be printed."""

    device: DeviceSecret
    session: str = field(repr=False, default="")
    csrf: str = field(repr=False, default="")

    @property
    def at(self) -> str:
        """The path below which it is valid."""
        return f"/~{self.device.page}"

    def put_into(self, response: Response, name: str, *, secure: bool) -> None:
        """Set this cookie in the browser, replacing the previous one below the same path."""
        response.set_cookie(
            name,
            ".".join((self.device.text, self.session, self.csrf)),
            max_age=KEPT_SECONDS,
            path=f"{self.at}/",
            secure=secure,
            httponly=True,
            samesite="strict",
        )


def cookie_name(port: int) -> str:
    return f"ers_{port}"


class PagePaths:
    """ASGI middleware: removes a secret path, and puts the content of its cookie into the scope.

    Below a secret path no other cookie counts. The session and the CSRF token of the page's cookie
    are put where the rest of the proxy reads them.
    """

    def __init__(self, app: ASGIApp, name: str) -> None:
        self._app = app
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = _BELOW.fullmatch(scope["path"]) if scope["type"] in ("http", "websocket") else None
        if match is None:
            await self._app(scope, receive, send)
            return
        at = f"/~{match[1]}"
        raw = scope.get("raw_path") or scope["path"].encode()
        inner = {
            **scope,
            SCOPE_AT: at,
            "path": match[2] or "/",
            "raw_path": raw[len(at) :] or b"/",
            "headers": [pair for pair in scope["headers"] if pair[0] != b"cookie"],
        }
        cookie = self._cookie(HTTPConnection(scope), match[1])
        if cookie is not None:
            inner[SCOPE_DEVICE] = cookie.device
            session = f"{SESSION}={cookie.session}; {CSRF}={cookie.csrf}"
            inner["headers"].append((b"cookie", session.encode("ascii")))
        await self._app(inner, receive, send)

    def _cookie(self, connection: HTTPConnection, page: str) -> PageCookie | None:
        """The cookie from which this path is derived, among the cookies with the proxy's name."""
        for value in _cookies_named(connection, self._name):
            secret, _, rest = value.partition(".")
            session, dot, csrf = rest.partition(".")
            device = credentials.parse_device_secret(secret)
            if (
                device is not None
                and device.page == page
                and dot
                and _MADE_BY_DJANGO.fullmatch(session)
                and _MADE_BY_DJANGO.fullmatch(csrf)
            ):
                return PageCookie(device, session, csrf)
        return None


def _cookies_named(connection: HTTPConnection, name: str) -> Iterator[str]:
    """Every cookie of this name: a browser may send several cookies, of several paths."""
    for header in connection.headers.getlist("cookie"):
        for pair in header.split(";"):
            given, _, value = pair.strip().partition("=")
            if given == name:
                yield value


def at_of(connection: HTTPConnection) -> str:
    """The secret path of a request; empty if it came without a secret path."""
    at: str = connection.scope.get(SCOPE_AT, "")
    return at


# --- desks ----------------------------------------------------------------------------------------

#: A desk is cleared after this many seconds without use.
IDLE_SECONDS = 8 * 3600.0
MAX_DESKS = 1000
#: Maximum numbers of questions and of schemas per session.
MAX_ITEMS = 200


@dataclass(slots=True)
class Desk:
    """Items of one session, with names such as ``("search", schema)``."""

    used: float = 0.0
    #: the session's user, once known
    user: bytes = b""
    #: when a form was last sent that may have changed the pages, by the monotonic clock
    changed_at: float = float("-inf")
    _items: Recent[tuple[str, ...], Any] = field(
        default_factory=lambda: Recent(MAX_ITEMS), repr=False
    )

    def item(self, name: tuple[str, ...], make: Callable[[], T]) -> T:
        """The item under ``name``; made if there is none."""
        item: T = self._items[name] if name in self._items else make()
        self.put(name, item)
        return item

    def find(self, name: tuple[str, ...], kind: type[T]) -> T | None:
        """The item under ``name``, if there is one."""
        item = self._items.get(name)
        return item if isinstance(item, kind) else None

    def take(self, name: tuple[str, ...], kind: type[T]) -> T | None:
        """Remove and return the item under ``name``."""
        item = self._items.pop(name, None)
        return item if isinstance(item, kind) else None

    def put(self, name: tuple[str, ...], item: object) -> None:
        self._items[name] = item

    def get(self, name: tuple[str, ...]) -> Any:
        """The item under ``name``; None if there is none."""
        return self._items.get(name)

    def __contains__(self, kind: str) -> bool:
        return any(name[0] == kind for name in self._items)


class Desks:
    """Desks by session; only an HMAC of a session's cookie is stored."""

    def __init__(self, clock: Callable[[], float] = runtime.monotonic) -> None:
        self._names = SecretNames()
        self._clock = clock
        self._desks: OrderedDict[bytes, Desk] = OrderedDict()

    def of(self, session: str) -> Desk:
        """The desk of a session; without a session, a new desk that is never returned again."""
        now = self._clock()
        if not session:
            return Desk(now)
        name = self._names.of([session])
        desk = self._desks.pop(name, Desk())
        if desk.used < now - IDLE_SECONDS:
            desk = Desk()
        while self._desks:
            oldest = next(iter(self._desks))
            if self._desks[oldest].used > now - IDLE_SECONDS and len(self._desks) < MAX_DESKS:
                break
            del self._desks[oldest]
        desk.used = now
        self._desks[name] = desk
        return desk

    def known(self, session: str) -> Desk | None:
        """The desk of a session if it exists; none is made."""
        desk = self._desks.get(self._names.of([session]))
        return None if desk is None or desk.used < self._clock() - IDLE_SECONDS else desk

    def hand_over(self, ended: str, session: str, user: bytes) -> None:
        """Pass the desk of an ended session to ``session``, if it was the same user's."""
        desk = self._desks.pop(self._names.of([ended]), None)
        if desk is not None and desk.user == user:
            self._desks[self._names.of([session])] = desk

    def clear(self, session: str) -> None:
        self._desks.pop(self._names.of([session]), None)

"""Pages live below a secret path, and so does their cookie.

Browsers send a cookie to every port of its host, but only to addresses below its Path (RFC 6265,
sections 5.1.4 and 8.5). So each browser has a path of its own, ``/~<16 letters and digits>/``, that
follows from the secret of its device, and one cookie of that path, which holds the secret, the
session and the CSRF token. No other port receives it. One that another port has planted for us
counts for nothing, since its path does not follow from it.

The path is taken off before anything routes or logs the request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from encrypted_records.model import device_secret
from encrypted_records.model.device_secret import DeviceSecret
from encrypted_records.model.forwarded import CSRF, SESSION
from encrypted_records.proxy.admission.admission import SCOPE_DEVICE

#: In a scope: the path that was taken off, such as ``/~abcdefghijklmnop``.
SCOPE_AT = "ers.at"
KEPT_SECONDS = 180 * 86_400
_BELOW = re.compile(rf"/~([a-z2-7]{{{device_secret.PAGE_CHARACTERS}}})(/.*)?", re.DOTALL)
_MADE_BY_DJANGO = re.compile(r"[A-Za-z0-9]{0,64}")


@dataclass(frozen=True, slots=True)
class PageCookie:
    """The contents of a browser's cookie below its path. None of it may print."""

    device: DeviceSecret
    session: str = field(repr=False, default="")
    csrf: str = field(repr=False, default="")

    @property
    def at(self) -> str:
        """The path below which it counts."""
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

    def without_session(self) -> PageCookie:
        """The cookie after a logout; the device stays."""
        return replace(self, session="", csrf="")


def cookie_name(port: int) -> str:
    return f"ers_{port}"


class PagePaths:
    """ASGI middleware: removes a secret path, and puts the content of its cookie into the scope.

    Below a secret path no other cookie counts, and the session and the CSRF token of the page's
    cookie stand where the rest of the proxy looks for them.
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
        """The cookie that this path follows from, among those of our name."""
        for value in _values(connection, self._name):
            secret, _, rest = value.partition(".")
            session, dot, csrf = rest.partition(".")
            device = device_secret.parse(secret)
            if (
                device is not None
                and device.page == page
                and dot
                and _MADE_BY_DJANGO.fullmatch(session)
                and _MADE_BY_DJANGO.fullmatch(csrf)
            ):
                return PageCookie(device, session, csrf)
        return None


def _values(connection: HTTPConnection, name: str) -> Iterator[str]:
    """Every cookie of this name: a browser may send several, of several paths."""
    for header in connection.headers.getlist("cookie"):
        for pair in header.split(";"):
            given, _, value = pair.strip().partition("=")
            if given == name:
                yield value


def at_of(connection: HTTPConnection) -> str:
    """The secret path of a request; empty where it came without one."""
    at: str = connection.scope.get(SCOPE_AT, "")
    return at

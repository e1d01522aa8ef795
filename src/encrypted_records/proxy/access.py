"""Credentials -> caller, through the API, which alone decides.

The proxy has no rights of its own: whatever it asks of the API, it asks with the caller's
credentials. Basic credentials and session cookies are traded for an access token, which is used
while it lasts, so that the rest of the proxy knows one kind of caller. Credentials are held only
as an HMAC under a key that this process made.

A change by session is traded under the request's own CSRF token, which the API judges. To read,
a session needs none; then the trade, which the API takes for a change, carries a pair of ours.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from cryptography.hazmat.primitives import hashes, hmac
from starlette.requests import HTTPConnection

from encrypted_records.client.api import Api
from encrypted_records.errors import NotAuthenticated
from encrypted_records.model import ids
from encrypted_records.model.tokens import expiry

#: Methods that change nothing.
READING = frozenset({"GET", "HEAD", "OPTIONS"})
#: How long a caller is remembered without asking again who it is.
KNOWN_SECONDS = 60.0
#: A traded token is replaced this long before it expires.
EARLY_SECONDS = 30.0
MAX_REMEMBERED = 10_000
_SESSION, _CSRF = "sessionid", "csrftoken"
_MADE_BY_DJANGO = re.compile(r"[A-Za-z0-9]{1,64}")


@dataclass(frozen=True, slots=True)
class Caller:
    """``auth`` is an Authorization value of the caller's; it must not print."""

    user: bytes
    auth: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request proves its sender with. None of it may print.

    Of ``session`` the secret is the cookie, and ``csrf`` the token's cookie and header; to read,
    there is none.
    """

    scheme: str
    secret: str = field(repr=False)
    csrf: tuple[str, str] | None = field(repr=False, default=None)


def credentials_of(connection: HTTPConnection) -> Credentials:
    """The credentials of a request or of a WebSocket's upgrade; a header goes before a cookie.

    Raises:
        NotAuthenticated: there are none, or of a scheme that is not spoken here.
    """
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    scheme, secret = scheme.lower(), secret.strip()
    if scheme in ("basic", "bearer") and secret:
        return Credentials(scheme, secret)
    session = _plain(connection.cookies.get(_SESSION))
    if scheme or not session:
        raise NotAuthenticated("this endpoint needs credentials")
    if connection.scope.get("method", "GET") in READING:
        return Credentials("session", session)
    csrf = _plain(connection.cookies.get(_CSRF)), _plain(connection.headers.get("x-csrftoken"))
    return Credentials("session", session, csrf)


def _plain(value: str | None) -> str:
    """A value as Django makes them, or nothing: others could break out of the header sent on."""
    return value if value is not None and _MADE_BY_DJANGO.fullmatch(value) else ""


@dataclass(slots=True)
class _Entry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    auth: str = field(repr=False, default="")
    auth_until: float = 0.0
    caller: Caller | None = None
    caller_until: float = 0.0


class Access:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._secret = os.urandom(32)
        self._known: OrderedDict[bytes, _Entry] = OrderedDict()

    async def caller(self, credentials: Credentials) -> Caller:
        """Who sends these credentials.

        Raises:
            NotAuthenticated: refused by the API.
            NotAllowed: a change by session without the CSRF token.
            Unavailable: the API cannot be asked.
        """
        entry = self._entry(credentials)
        # One exchange at a time per credential: each costs the API a password hash.
        async with entry.lock:
            if time.time() >= entry.auth_until:
                entry.auth, entry.auth_until = await self._trade(credentials)
                entry.caller = None
            if entry.caller is None or time.time() >= entry.caller_until:
                user = ids.from_text(await self._api.user_id(entry.auth))
                entry.caller = Caller(user, entry.auth)
                entry.caller_until = min(time.time() + KNOWN_SECONDS, entry.auth_until)
            return entry.caller

    def forget(self, credentials: Credentials) -> None:
        """Drop what is remembered: the API has refused the token behind these credentials."""
        self._known.pop(self._name(credentials), None)

    def forget_everyone(self) -> None:
        """Drop all that is remembered: a login may have ended, and whose is the API's to know."""
        self._known.clear()

    def _name(self, credentials: Credentials) -> bytes:
        state = hmac.HMAC(self._secret, hashes.SHA256())
        parts = (credentials.scheme, credentials.secret, *(credentials.csrf or ()))
        state.update(msgspec.msgpack.encode(parts))
        return state.finalize()

    def _entry(self, credentials: Credentials) -> _Entry:
        name = self._name(credentials)
        entry = self._known.setdefault(name, _Entry())
        self._known.move_to_end(name)
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return entry

    async def _trade(self, credentials: Credentials) -> tuple[str, float]:
        """The Authorization value for these credentials, and until when to use it."""
        match credentials.scheme:
            case "bearer":
                return f"Bearer {credentials.secret}", expiry(credentials.secret)
            case "basic":
                token = await self._api.access_token(*_pair(credentials.secret))
            case _:
                token = await self._api.session_token(_session_headers(credentials))
        return f"Bearer {token}", expiry(token) - EARLY_SECONDS


def _pair(basic: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(basic, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise NotAuthenticated("the Basic credentials are not Base64 of UTF-8") from None
    email, separator, password = text.partition(":")
    if not separator:
        raise NotAuthenticated("the Basic credentials are not e-mail:password")
    return email, password


def _session_headers(credentials: Credentials) -> Mapping[str, str]:
    """The cookies and the CSRF token, as a browser would send them to the API."""
    own = secrets.token_hex(16)  # what Django makes such a token of: 32 letters and digits
    cookie, header = credentials.csrf or (own, own)
    return {
        "Cookie": f"{_SESSION}={credentials.secret}; {_CSRF}={cookie}",
        "X-CSRFToken": header,
    }

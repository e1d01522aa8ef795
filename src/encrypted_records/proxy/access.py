"""Credentials -> caller, through the API, which alone decides.

The proxy has no rights of its own: whatever it asks of the API, it asks with the caller's
credentials. Basic credentials are traded for an access token once and the token is reused while
it lasts; credentials are held only as an HMAC under a key that this process made.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import time
from collections import OrderedDict
from dataclasses import dataclass, field

import msgspec
from cryptography.hazmat.primitives import hashes, hmac

from encrypted_records.client.api import Api
from encrypted_records.errors import NotAuthenticated
from encrypted_records.model import ids

#: How long an access token's owner is remembered without asking again.
TOKEN_SECONDS = 60.0
#: A Basic caller's token is replaced this long before it expires.
EARLY_SECONDS = 30.0
MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    """``auth`` is an Authorization value of the caller's; it must not print."""

    user: bytes
    auth: str = field(repr=False)


@dataclass(slots=True)
class _Entry:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    caller: Caller | None = None
    until: float = 0.0


class _Claims(msgspec.Struct):
    exp: float = 0.0


class Access:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._secret = os.urandom(32)
        self._known: OrderedDict[bytes, _Entry] = OrderedDict()

    async def caller(self, authorization: str | None) -> Caller:
        """Who sends these credentials.

        Raises:
            NotAuthenticated: none, of a scheme that is not spoken here, or refused by the API.
            Unavailable: the API cannot be asked.
        """
        scheme, _, credentials = (authorization or "").partition(" ")
        scheme = scheme.lower()
        if scheme not in ("basic", "bearer") or not credentials.strip():
            raise NotAuthenticated("this endpoint needs credentials")
        entry = self._entry(scheme, credentials.strip())
        # One exchange at a time per credential: each costs the API a password hash.
        async with entry.lock:
            if entry.caller is None or time.time() >= entry.until:
                exchange = self._basic if scheme == "basic" else self._bearer
                entry.caller, entry.until = await exchange(credentials.strip())
            return entry.caller

    def forget(self, authorization: str | None) -> None:
        """Drop what is remembered: the API has refused the token behind these credentials."""
        scheme, _, credentials = (authorization or "").partition(" ")
        self._known.pop(self._name(scheme.lower(), credentials.strip()), None)

    def _name(self, scheme: str, credentials: str) -> bytes:
        state = hmac.HMAC(self._secret, hashes.SHA256())
        state.update(f"{scheme} {credentials}".encode())
        return state.finalize()

    def _entry(self, scheme: str, credentials: str) -> _Entry:
        name = self._name(scheme, credentials)
        entry = self._known.setdefault(name, _Entry())
        self._known.move_to_end(name)
        while len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
        return entry

    async def _basic(self, credentials: str) -> tuple[Caller, float]:
        try:
            text = base64.b64decode(credentials, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise NotAuthenticated("the Basic credentials are not Base64 of UTF-8") from None
        email, separator, password = text.partition(":")
        if not separator:
            raise NotAuthenticated("the Basic credentials are not e-mail:password")
        token = await self._api.access_token(email, password)
        auth = f"Bearer {token}"
        return await self._identify(auth), _expiry(token) - EARLY_SECONDS

    async def _bearer(self, credentials: str) -> tuple[Caller, float]:
        caller = await self._identify(f"Bearer {credentials}")
        return caller, min(time.time() + TOKEN_SECONDS, _expiry(credentials))

    async def _identify(self, auth: str) -> Caller:
        return Caller(ids.from_text(await self._api.user_id(auth)), auth)


def _expiry(token: str) -> float:
    """When a token that the API has just accepted expires; 0 where it does not say.

    Only a hint for when to ask again. The signature is for the API to check.
    """
    try:
        payload = token.split(".")[1]
        claims = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
        return msgspec.json.decode(claims, type=_Claims).exp
    except (IndexError, binascii.Error, msgspec.DecodeError):
        return 0.0

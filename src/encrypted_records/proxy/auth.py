"""Credentials -> caller, through the API, which alone identifies users.

The API does not decide whether that person's keys are used for the request (:mod:`.admission`).

The proxy has no rights of its own: every request to the API has the caller's credentials. Basic
credentials and session cookies are exchanged for an access token, which is used until it expires,
so that the rest of the proxy handles one kind of caller. Credentials are stored only as an HMAC
under a key that this process made.

For a change by session, the exchange uses the request's own CSRF token, which the API checks. A
session needs no CSRF token for reading; then the exchange, which the API treats as a change,
carries a token pair made by the proxy.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from encrypted_records import runtime
from encrypted_records.client.api import Api
from encrypted_records.client.transport import renewal
from encrypted_records.crypto.keys import RootKey
from encrypted_records.errors import Malformed, NotAuthenticated
from encrypted_records.model import ids
from encrypted_records.model.credentials import (
    BearerToken,
    DeviceSecret,
    ServiceKey,
    authorization,
    looks_like_service_key,
    parse_api_token,
    parse_service_key,
    split_password,
    token_lifetime,
)
from encrypted_records.model.forwarded import CSRF, SESSION
from encrypted_records.proxy.process import Gathering, Lines, Recent, SecretNames, WaitingLine

#: whether a token is being exchanged again for this request
_renewing: ContextVar[bool] = ContextVar("renewing", default=False)
#: Session keys and CSRF tokens are letters and digits; tokens in a header are twice as long.
_MADE_BY_DJANGO = re.compile(r"[A-Za-z0-9]{1,64}")
#: Methods that change nothing (RFC 9110, section 9.2.1).
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
#: Seconds for which a caller's identity is cached.
KNOWN_SECONDS = 10.0
#: An exchanged token is replaced this many seconds before it expires.
EARLY_SECONDS = 30.0
MAX_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Caller:
    """``auth`` is the caller's Authorization value; it must not be printed. ``token`` is the
    caller's API token, if any, and ``service`` is the service that the caller is, if any.
    """

    user: bytes
    auth: str = field(repr=False)
    token: BearerToken | None = None
    service: ServiceKey | None = None


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """Credentials of a request. They must not be printed.

    The secret of ``session`` is the cookie, and ``csrf`` has the token's cookie and header; read
    requests have no ``csrf``. ``device`` is the secret after the password of ``basic``, which is
    never sent to the API.
    """

    scheme: str
    secret: str = field(repr=False)
    csrf: tuple[str, str] | None = field(repr=False, default=None)
    device: DeviceSecret | None = None

    @property
    def token(self) -> BearerToken | None:
        """The API token in the credentials, if any."""
        return parse_api_token(self.secret) if self.scheme == "bearer" else None

    @property
    def service(self) -> ServiceKey | None:
        """The service whose secret key the credentials contain, if any.

        Raises:
            NotAuthenticated: a malformed secret key, or the key does not match its id.
        """
        if self.scheme != "bearer" or not looks_like_service_key(self.secret):
            return None
        try:
            service = parse_service_key(self.secret)
        except Malformed as error:
            raise NotAuthenticated(error.message, code="bad_token", hint=error.hint) from None
        # Without this check, an accomplice of the API could come as any user here, and see that
        # user's unlocked data.
        if RootKey(service.secret).service_id != service.id:
            raise NotAuthenticated("the secret key does not belong to a service", code="bad_token")
        return service


def credentials_of(connection: HTTPConnection) -> RequestCredentials:
    """The credentials of a request or of a WebSocket's upgrade; a header takes precedence over a
    cookie.

    Raises:
        NotAuthenticated: there are none, or their scheme is not supported.
    """
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    scheme, secret = scheme.lower(), secret.strip()
    if scheme == "basic" and secret:
        return _basic(secret)
    if scheme == "bearer" and secret:
        return RequestCredentials(scheme, secret)
    session = plain(connection.cookies.get(SESSION))
    if scheme or not session:
        raise NotAuthenticated("this endpoint needs credentials")
    if connection.scope.get("method", "GET") in SAFE_METHODS:
        return RequestCredentials("session", session)
    csrf = plain(connection.cookies.get(CSRF)), plain(connection.headers.get("x-csrftoken"))
    return RequestCredentials("session", session, csrf)


def _basic(secret: str) -> RequestCredentials:
    """E-mail and password, and the device secret that may follow it."""
    try:
        text = base64.b64decode(secret, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise NotAuthenticated("the Basic credentials are not Base64 of UTF-8") from None
    email, separator, password = text.partition(":")
    if not separator:
        raise NotAuthenticated("the Basic credentials are not e-mail:password")
    password, device = split_password(password)
    refuse_service_string(email, password)
    return RequestCredentials("basic", f"{email}:{password}", device=device)


def refuse_service_string(*shown: str) -> None:
    """
    Raises:
        NotAuthenticated: one of these values is a service's secret key, which the API would
            receive.
    """
    if any(looks_like_service_key(text) for text in shown):
        raise NotAuthenticated(
            "a service's secret key was sent as a password",
            code="bad_token",
            hint="set ERS_SERVICE, or send it as Authorization: Bearer; nothing was sent on",
        )


def refuse_in_basic(value: str) -> None:
    """Refuse an Authorization value of Basic credentials that contain a service's secret key.

    Raises:
        NotAuthenticated: they do.
    """
    scheme, _, secret = value.partition(" ")
    if scheme.lower() == "basic":
        try:
            email, _, password = base64.b64decode(secret.strip()).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return
        refuse_service_string(email, password)


def plain(value: str | None) -> str:
    """A value in Django's format, or an empty value: other values could break out of the forwarded
    header.
    """
    return value if value is not None and _MADE_BY_DJANGO.fullmatch(value) else ""


@dataclass(slots=True)
class _KnownLogin:
    auth: str = field(repr=False, default="")
    auth_until: float = 0.0
    caller: Caller | None = None
    caller_until: float = 0.0

    def remembered(self) -> Caller | None:
        """The cached caller, if no request to the API is needed."""
        now = runtime.monotonic()
        return self.caller if now < self.auth_until and now < self.caller_until else None


class Access:
    """
    Args:
        mirror: the secret of the mirror that replaces the API; None without a mirror.

    Attributes:
        lines: queues for the long work of each user.
    """

    def __init__(self, api: Api, mirror: str | None = None) -> None:
        self._api = api
        self._mirror = mirror
        self.lines = Lines()
        self._names = SecretNames()
        self._known: Recent[bytes, _KnownLogin] = Recent(MAX_REMEMBERED)
        self._asking: Gathering[bytes, tuple[RequestCredentials, bool], Caller] = Gathering(
            self._serve
        )

    async def caller(self, credentials: RequestCredentials, *, refresh: bool = False) -> Caller:
        """The caller with these credentials.

        Args:
            refresh: ask the API now, even if the caller is cached.

        Raises:
            NotAuthenticated: refused by the API.
            NotAllowed: a change by session without the CSRF token.
            Unavailable: the API cannot be reached.
        """
        if self.over_mirror:
            return self._over_mirror(credentials)
        token = credentials.token
        if token is not None:
            # Not cached: the token may be revoked anywhere, and must stop working at once.
            auth = f"Bearer {token.text}"
            caller = Caller(ids.from_text(await self._api.user_id(auth)), auth, token)
            self.lines.enter(caller.user)
            return caller
        service = credentials.service
        if service is not None:
            return await self._service(service)
        known = None if refresh else self._entry(credentials).remembered()
        if known is None:
            # One exchange at a time per credential: each costs the API a password hash. All waiting
            # requests continue together: a lock would release one request per step of the event
            # loop, and the last request would wait for as many steps.
            known = await self._asking.ask(self._name(credentials), (credentials, refresh))
        self.lines.enter(known.user)
        self._offer_renewal(credentials, known)
        return known

    @property
    def over_mirror(self) -> bool:
        """Whether the proxy reads from a mirror, which knows no logins."""
        return self._mirror is not None

    def known_here(self, user: bytes, service: ServiceKey | None = None) -> Caller:
        """A user whom this proxy identifies without the API, as a reader of the mirror."""
        self.lines.enter(user)
        shown = f"{ids.to_text(user)}:{self._mirror or ''}"
        return Caller(user, f"Basic {base64.b64encode(shown.encode()).decode()}", service=service)

    def _over_mirror(self, credentials: RequestCredentials) -> Caller:
        """
        Raises:
            NotAuthenticated: the credentials are not a service's secret key, which identifies its
                service without the API.
        """
        service = credentials.service
        if service is None:
            raise NotAuthenticated(
                "a mirror knows no passwords, sessions and tokens",
                code="device_needed",
                hint="use a device that is registered at this proxy (ers device list), or the"
                " secret key of a service",
            )
        return self.known_here(service.id, service)

    def _offer_renewal(self, credentials: RequestCredentials, caller: Caller) -> None:
        """Let this request repeat its calls to the API under another token, if the API no longer
        knows the exchanged token.
        """
        known = renewal.get()
        if known is None or credentials.scheme not in ("basic", "session") or _renewing.get():
            return
        turn = asyncio.Lock()

        async def renew(refused: str) -> str | None:
            if refused != caller.auth or _renewing.get():
                return None
            async with turn:
                before = _renewing.set(True)
                try:
                    renewed = self._entry(credentials).remembered()
                    if renewed is None or renewed.auth == refused:
                        renewed = await self.caller(credentials, refresh=True)
                finally:
                    _renewing.reset(before)
            return renewed.auth if renewed.user == caller.user else None

        known.renew = renew

    async def _serve(self, line: WaitingLine[tuple[RequestCredentials, bool], Caller]) -> None:
        together = line.take()
        if not together:
            return
        # The error applies to all waiting requests: they sent the same credentials.
        credentials, _ = together[0].item
        refresh = any(refresh for _, refresh in (waiter.item for waiter in together))
        caller = await self._identify(credentials, refresh=refresh)
        for waiting in together:
            waiting.settle(caller)

    async def _identify(self, credentials: RequestCredentials, *, refresh: bool) -> Caller:
        entry = self._entry(credentials)
        now = runtime.monotonic()
        fresh = refresh or now >= entry.auth_until
        if fresh:
            await self._trade_into(entry, credentials)
        if entry.caller is None or now >= entry.caller_until:
            try:
                user = await self._api.user_id(entry.auth)
            except NotAuthenticated:
                if fresh:
                    raise
                # The API has had another database, secret key or clock since the exchange: this is
                # why the token is refused, and not because of the password or session behind it.
                await self._trade_into(entry, credentials)
                user = await self._api.user_id(entry.auth)
            entry.caller = Caller(ids.from_text(user), entry.auth)
            entry.caller_until = now + KNOWN_SECONDS
        return entry.caller

    async def _trade_into(self, entry: _KnownLogin, credentials: RequestCredentials) -> None:
        began = runtime.monotonic()
        entry.caller, entry.auth_until = None, 0.0
        entry.auth, seconds = await self._trade(credentials)
        entry.auth_until = began + seconds

    async def _service(self, service: ServiceKey) -> Caller:
        """A service, which the API checks each time: it may be removed anywhere, and must stop
        working at once. The API receives the token that is derived from the secret key.

        Raises:
            NotAuthenticated: the API does not know the service, or returns a different service.
        """
        auth = authorization_of(service)
        if ids.from_text(await self._api.user_id(auth)) != service.id:
            raise NotAuthenticated("the API names another user", code="bad_token")
        self.lines.enter(service.id)
        return Caller(service.id, auth, service=service)

    def forget(self, credentials: RequestCredentials) -> None:
        """Drop the cached caller: the API has refused the token for these credentials."""
        self._known.pop(self._name(credentials), None)

    def forget_everyone(self) -> None:
        """Drop all cached callers: a login may have ended, and only the API knows whose."""
        self._known.clear()

    def _name(self, credentials: RequestCredentials) -> bytes:
        return self._names.of((credentials.scheme, credentials.secret, *(credentials.csrf or ())))

    def _entry(self, credentials: RequestCredentials) -> _KnownLogin:
        name = self._name(credentials)
        entry = self._known[name] = self._known.get(name) or _KnownLogin()
        return entry

    async def _trade(self, credentials: RequestCredentials) -> tuple[str, float]:
        """The Authorization value for these credentials, and how many seconds it may be used."""
        match credentials.scheme:
            case "bearer":
                # The API checks the token with each request, and nothing was exchanged for it.
                return f"Bearer {credentials.secret}", KNOWN_SECONDS
            case "basic":
                email, _, password = credentials.secret.partition(":")
                token = await self._api.access_token(email, password)
            case _:
                token = await self._api.session_token(_session_headers(credentials))
        # By a monotonic clock, and not by the API's clock: if that is ahead of this machine's
        # clock, an exchange would be needed for each request.
        return f"Bearer {token}", max(token_lifetime(token) - EARLY_SECONDS, KNOWN_SECONDS)


def authorization_of(service: ServiceKey) -> str:
    """The Authorization header of a service for the API: its token, from which its secret key
    cannot be derived.
    """
    return authorization(RootKey(service.secret).token(service.id))


def _session_headers(credentials: RequestCredentials) -> Mapping[str, str]:
    """The cookies and the CSRF token, as a browser would send them to the API."""
    csrf_token = runtime.random_hex(16)  # Django's form: 32 letters and digits
    cookie, header = credentials.csrf or (csrf_token, csrf_token)
    return {
        "Cookie": f"{SESSION}={credentials.secret}; {CSRF}={cookie}",
        "X-CSRFToken": header,
    }

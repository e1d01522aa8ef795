"""Three ways in which people prove who is asking: Bearer token, Basic, session cookie. Services
have one of their own (:mod:`.tokens`).

A Bearer token is of a login, or an API token (:mod:`.api_tokens`), which limits what follows.

Checking a password is slow on purpose, so a Basic credential that was right is remembered for a
minute: not the credential but its HMAC under a key that lives as long as this process, beside
the HMAC of the address and password hash it was right for. The user is read again for every
request, so a changed address or password or a deactivated account ends the memory at once. To which
login a token belongs is remembered likewise, beside the digest of the secret that it shows, which
spares reading it; the login is asked each time.
"""

from __future__ import annotations

import hmac
import secrets
import time
from typing import Any

from django.contrib.sessions.middleware import SessionMiddleware
from django.core.cache import cache
from django.http import HttpResponse
from rest_framework import authentication, exceptions
from rest_framework.request import Request

from encrypted_records.errors import NotAllowed
from encrypted_records.server.accounts import api_tokens, credentials, logins, sessions, tokens
from encrypted_records.server.accounts.digests import digest
from encrypted_records.server.accounts.models import ApiToken, Login, User
from encrypted_records.server.accounts.tokens import refuse_key
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action

REMEMBER_SECONDS = 60
_process_key = secrets.token_bytes(32)
_sessions = SessionMiddleware(lambda _: HttpResponse())


def _fingerprint(secret: str) -> str:
    return hmac.digest(_process_key, secret.encode(), "sha256").hex()


def _seal(user: User) -> str:
    """What a Basic credential was right for: another address or password ends the memory."""
    return _fingerprint(f"{user.email}:{user.password}")


class Basic(authentication.BasicAuthentication):
    def authenticate_credentials(
        self, userid: str, password: str, request: Any = None
    ) -> tuple[User, None]:
        refuse_key(userid, password)
        # An address holds no colon, so the pair cannot be read in two ways.
        name = _fingerprint(f"{userid}:{password}")
        known = cache.get(name)
        if known is not None:
            user_id, seal = known
            user = logins.active_user(user_id)
            same = user is not None and hmac.compare_digest(seal, _seal(user))
            if user is not None and same and not user.has_second_factor:
                return user, None
        user = credentials.check(request, userid, password)
        audit.note_for_all(user, Action.LOGGED_IN)
        cache.set(name, (user.pk, _seal(user)), REMEMBER_SECONDS)
        return user, None


class Bearer(authentication.BaseAuthentication):
    """An access token, of a login; or an API token."""

    def authenticate(self, request: Request) -> tuple[User, Login | ApiToken] | None:
        header = authentication.get_authorization_header(request).decode("latin-1")
        scheme, _, shown = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        text = shown.strip()
        refuse_key(text)
        row = api_tokens.find(text)
        if row is not None:
            return row.user, row
        login = tokens.living(*_claims(text))
        return login.user, login


def _claims(token: str) -> tuple[str, bytes]:
    """The id of a token's login, and the digest of the secret that it shows for it."""
    name = _fingerprint(token)
    known: tuple[str, bytes] | None = cache.get(name)
    if known is None:
        login_id, shown, expires = tokens.read_access(token)
        known = login_id, shown
        cache.set(name, known, min(REMEMBER_SECONDS, expires - time.time()))
    return known


class Session(authentication.SessionAuthentication):
    """A browser's cookie. The session names the login, which is asked as it is for a token; the
    login's secret follows from the cookie."""

    def authenticate(self, request: Request) -> tuple[User, Login] | None:
        if not hasattr(request, "session"):  # outside of the framework's views
            _sessions.process_request(request)
        session = request.session
        login = logins.find(session.get(tokens.LOGIN), digest(sessions.login_secret(session)))
        if login is None:
            return None
        self.enforce_csrf(request)
        return login.user, login

    def enforce_csrf(self, request: Request) -> None:
        try:
            super().enforce_csrf(request)
        except exceptions.PermissionDenied:
            raise NotAllowed(
                "a change by session cookie came without a valid CSRF token",
                code="csrf_failed",
                hint="get one at /api/csrf/ and send it as X-CSRFToken",
            ) from None

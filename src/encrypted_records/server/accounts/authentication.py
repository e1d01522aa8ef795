"""Three ways of proving who is asking: Bearer token, Basic, session cookie.

Checking a password is slow on purpose, so a Basic credential that was right is remembered for a
minute: not the credential but its HMAC under a key that lives as long as this process, beside
the HMAC of the password hash it was right for. The user is read anew for every request, so a
changed password or a deactivated account ends the memory at once. To which login a token belongs
is remembered likewise, which spares reading it; the login is asked each time.
"""

from __future__ import annotations

import hmac
import secrets
import time
from typing import Any

from django.core.cache import cache
from rest_framework import authentication, exceptions
from rest_framework.request import Request

from encrypted_records.errors import NotAllowed
from encrypted_records.server.accounts import credentials, logins, tokens
from encrypted_records.server.accounts.models import Login, User
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action

REMEMBER_SECONDS = 60
_process_key = secrets.token_bytes(32)


def _fingerprint(secret: str) -> str:
    return hmac.digest(_process_key, secret.encode(), "sha256").hex()


class Basic(authentication.BasicAuthentication):
    def authenticate_credentials(
        self, userid: str, password: str, request: Any = None
    ) -> tuple[User, None]:
        # An address holds no colon, so the pair cannot be read in two ways.
        name = _fingerprint(f"{userid}:{password}")
        known = cache.get(name)
        if known is not None:
            user_id, seal = known
            user = logins.active_user(user_id)
            if user is not None and hmac.compare_digest(seal, _fingerprint(user.password)):
                return user, None
        user = credentials.check(request._request, userid, password)
        audit.note_for_all(user, Action.LOGGED_IN)
        cache.set(name, (user.pk, _fingerprint(user.password)), REMEMBER_SECONDS)
        return user, None


class Bearer(authentication.BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, Login] | None:
        scheme, _, token = authentication.get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        login = tokens.living(_login_id(token.strip().decode("latin-1")))
        return login.user, login


def _login_id(token: str) -> str:
    name = _fingerprint(token)
    known: str | None = cache.get(name)
    if known is None:
        known, expires = tokens.read_access(token)
        cache.set(name, known, min(REMEMBER_SECONDS, expires - time.time()))
    return known


class Session(authentication.SessionAuthentication):
    """A browser's cookie. The session names the login, which is asked as it is for a token."""

    def authenticate(self, request: Request) -> tuple[User, Login] | None:
        login = logins.find(request._request.session.get(tokens.LOGIN))
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

"""Tokens: their claims, and what each kind may be used for.

Every token names its login (claim ``login``), carries that login's secret (claim ``secret``), and
is void without either. An access token is shown with each request, for fifteen minutes; a refresh
token is traded once, for a pair that takes its place. Within half a minute it may come again, as
where the answer was lost: it is traded for the same refresh token then, which follows from it and
from the moment of the first trade. One that is traded again later was copied: its login ends, and
with it the tokens of thief and owner.

The signature says that we made a token, and nothing more: anyone who has the key that signs can
make tokens, but does not know the secret of any login.

Tokens of services: programs that have a standing in a roster, and no password.

A service's proxy derives its token from the string that its owner was shown; the string itself
never belongs here, and a caller who sends it is told that it is exposed. The database holds the
SHA-256 of the token. A token works from when it is made until it expires or the roster removes the
service; what it reaches, the roster says.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone
from rest_framework import authentication
from rest_framework.request import Request
from rest_framework_simplejwt import tokens as jwt
from rest_framework_simplejwt.exceptions import TokenError
from rest_framework_simplejwt.settings import api_settings

from encrypted_records.errors import NotAuthenticated
from encrypted_records.model import credentials
from encrypted_records.server.accounts import logins
from encrypted_records.server.accounts.digests import digest, new_secret
from encrypted_records.server.accounts.models import Login, User
from encrypted_records.server.db.fields import as_stored, new_id

LOGIN = "login"
SECRET = "secret"  # noqa: S105 - the name of the claim
#: For how long a refresh token may come again after it was used: its answer may have been lost.
GRACE = timedelta(seconds=30)


def pair(user: User) -> dict[str, str]:
    """An access and a refresh token, of a login of their own."""
    login_id, secret = new_id(), new_secret()
    refresh = _sign(_read(jwt.RefreshToken, None), login_id, secret)
    lifetime = api_settings.REFRESH_TOKEN_LIFETIME
    login = logins.begin(user, lifetime, secret, login_id=login_id, refresh=refresh)
    return {"access": access(login, secret), "refresh": refresh}


def access(login: Login, secret: str) -> str:
    """An access token that ends with its login, if not earlier."""
    return _sign(_read(jwt.AccessToken, None), login.pk, secret)


def rotate(text: str) -> dict[str, str]:
    """A new pair for a refresh token, which is used up.

    Raises:
        NotAuthenticated: it is not a token of ours, expired, or its login ended. A login ends
            here when its refresh token comes again after more than :data:`GRACE`.
    """
    old = _read(jwt.RefreshToken, text)
    secret = old.get(SECRET)
    # Whole seconds, as claims have them: the same token is made again from what the login keeps.
    now = timezone.now().replace(microsecond=0)
    with transaction.atomic():
        # The user's row is the lock of all that begins, ends and rotates.
        User.objects.select_for_update().filter(logins__pk=as_stored(str(old.get(LOGIN)))).first()
        login = logins.find(old.get(LOGIN), digest(secret))
        if login is not None and _is_next(text, login):
            refresh = _following(text, login, secret, now)
            login.refresh_before, login.refresh = login.refresh, digest(refresh)
            login.refreshed = now
            login.expires = now + api_settings.REFRESH_TOKEN_LIFETIME
            login.save(update_fields=["refresh", "refresh_before", "refreshed", "expires"])
            return {"access": access(login, secret), "refresh": refresh}
        first = None if login is None else login.refreshed
        if login is not None and first is not None and _was_before(text, login):
            # A clock may have gone back.
            refresh = _following(text, login, secret, first)
            if abs(now - first) <= GRACE and _is_next(refresh, login):
                return {"access": access(login, secret), "refresh": refresh}
        if login is not None:
            login.delete()
    raise revoked()


def _following(text: str, login: Login, secret: str, moment: datetime) -> str:
    """The refresh token that replaces ``text``, traded at that moment; always the same.

    It can only be made with the secret of the login and the signing key.
    """
    token = _read(jwt.RefreshToken, None)
    token.set_exp(from_time=moment)
    token.set_iat(at_time=moment)
    token[api_settings.JTI_CLAIM] = digest(text).hex()
    return _sign(token, login.pk, secret)


def read_access(text: str) -> tuple[str, bytes, float]:
    """The login that an access token names, and the end of its time.

    Returns:
        The id of the login, which may have ended; the digest of the secret shown for it; and
        seconds since 1970.

    Raises:
        NotAuthenticated: it is not a token of ours, or expired.
    """
    token = _read(jwt.AccessToken, text)
    return str(token.get(LOGIN)), digest(token.get(SECRET)), float(token["exp"])


def verify(text: str) -> None:
    """
    Raises:
        NotAuthenticated: an access token could not be used now; a refresh token is not the one
            that is to be used next.
    """
    token = _read(jwt.UntypedToken, text)
    login = living(token.get(LOGIN), digest(token.get(SECRET)))
    kind = token.get(api_settings.TOKEN_TYPE_CLAIM)
    if kind == jwt.RefreshToken.token_type and not _is_next(text, login):
        raise revoked()


def revoked() -> NotAuthenticated:
    return NotAuthenticated(
        "the token is not valid, or no longer valid",
        code="bad_token",
        hint="get a new access token at /api/token/refresh/, or a new pair at /api/token/",
    )


def _read(kind: Any, text: str | None) -> jwt.Token:
    """A token of that kind: the one in ``text``, or a new one."""
    try:
        token: jwt.Token = kind(text)
    except (TokenError, OverflowError, ValueError):  # the latter of times that no calendar has
        raise revoked() from None
    return token


def living(login_id: object, shown: bytes) -> Login:
    """
    Raises:
        NotAuthenticated: there is no login of that id and secret, or it ended.
    """
    login = logins.find(login_id, shown)
    if login is None:
        raise revoked()
    return login


def _is_next(refresh: str, login: Login) -> bool:
    return hmac.compare_digest(bytes(login.refresh), digest(refresh))


def _was_before(refresh: str, login: Login) -> bool:
    return hmac.compare_digest(bytes(login.refresh_before), digest(refresh))


def _sign(token: jwt.Token, login_id: str, secret: str) -> str:
    token[LOGIN], token[SECRET] = login_id, secret
    return str(token)


#: Between two times that a service's use is noted.
NOTED_EVERY = timedelta(minutes=1)


def digest_of(token: bytes) -> bytes:
    """The digest that the database holds of a token of 32 bytes."""
    return hashlib.sha256(token).digest()


def refuse_key(*shown: str) -> None:
    """
    Raises:
        NotAuthenticated: ``service_key_exposed``; one of these begins as a service's string.
    """
    if any(text.lower().startswith(credentials.SERVICE_PREFIX) for text in shown):
        raise NotAuthenticated(
            "a service's secret key was sent to the API, which must never see it",
            code="service_key_exposed",
            hint=(
                "delete the service, create another, and give its secret key only to ers or a proxy"
            ),
        )


def has_expired(user: User) -> bool:
    """Whether a user is a service whose time is over."""
    service = getattr(user, "service", None)
    return service is not None and service.expires is not None and service.expires <= timezone.now()


class ServiceToken(authentication.BaseAuthentication):
    """``Authorization: Service <token>``."""

    def authenticate(self, request: Request) -> tuple[User, None] | None:
        header = request.headers.get("Authorization", "")
        scheme, _, shown = header.partition(" ")
        if scheme.lower() != credentials.SERVICE_SCHEME.lower():
            return None
        refuse_key(shown.strip())
        token = credentials.service_token_of(header)
        user = None if token is None else _find(token)
        if user is None or not user.is_active or has_expired(user):
            raise NotAuthenticated(
                "the service's token is not valid, or no longer valid",
                code="bad_token",
                hint="ask an owner of the organization to create a new service",
            )
        _note_use(user)
        return user, None

    def authenticate_header(self, request: Request) -> str:
        return credentials.SERVICE_SCHEME


def _note_use(user: User) -> None:
    """At most once a minute: a service in a hurry must not write a row for each request."""
    service, now = user.service, timezone.now()
    if service.last_used is None or service.last_used <= now - NOTED_EVERY:
        service.last_used = now
        service.save(update_fields=["last_used"])


def _find(token: bytes) -> User | None:
    digest = digest_of(token)
    return User.objects.select_related("service").filter(service__digest=digest).first()

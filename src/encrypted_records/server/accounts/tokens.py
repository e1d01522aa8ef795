"""Tokens: what they say, and what each kind is good for.

Every token names its login (claim ``login``) and is void without it. An access token is shown with
each request, for fifteen minutes; a refresh token is traded once, for a pair that takes its place.
One that is traded again was copied: its login ends, and with it the tokens of thief and owner.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from rest_framework_simplejwt import tokens as jwt
from rest_framework_simplejwt.exceptions import TokenError
from rest_framework_simplejwt.settings import api_settings

from encrypted_records.errors import NotAuthenticated
from encrypted_records.server.accounts import logins
from encrypted_records.server.accounts.models import Login, User

LOGIN = "login"


def pair(user: User) -> dict[str, str]:
    """An access and a refresh token, of a login of their own."""
    refresh = _read(jwt.RefreshToken, None)
    login = logins.begin(user, api_settings.REFRESH_TOKEN_LIFETIME, refresh=refresh["jti"])
    return {"access": access(login), "refresh": _signed(refresh, login)}


def access(login: Login) -> str:
    """An access token that ends with its login, if not earlier."""
    return _signed(_read(jwt.AccessToken, None), login)


def rotate(text: str) -> dict[str, str]:
    """A new pair for a refresh token, which is used up.

    Raises:
        NotAuthenticated: it is none, expired, or its login ended. A login ends here when its
            refresh token comes a second time.
    """
    old, new = _read(jwt.RefreshToken, text), _read(jwt.RefreshToken, None)
    with transaction.atomic():
        # The user's row is the lock of all that begins, ends and rotates.
        User.objects.select_for_update().filter(logins__pk=old.get(LOGIN)).first()
        login = logins.find(old.get(LOGIN))
        if login is not None and login.refresh == old["jti"]:
            login.refresh = new["jti"]
            login.expires = new.current_time + api_settings.REFRESH_TOKEN_LIFETIME
            login.save(update_fields=["refresh", "expires"])
            return {"access": access(login), "refresh": _signed(new, login)}
        if login is not None:
            login.delete()
    raise revoked()


def read_access(text: str) -> tuple[str, float]:
    """The id of an access token's login, which may have ended; and when it expires, since 1970.

    Raises:
        NotAuthenticated: it is none, or expired.
    """
    token = _read(jwt.AccessToken, text)
    return str(token.get(LOGIN)), float(token["exp"])


def verify(text: str) -> None:
    """
    Raises:
        NotAuthenticated: the token, of either kind, could not be used now.
    """
    token = _read(jwt.UntypedToken, text)
    login = living(token.get(LOGIN))
    kind = token.get(api_settings.TOKEN_TYPE_CLAIM)
    if kind == jwt.RefreshToken.token_type and login.refresh != token["jti"]:
        raise revoked()


def revoked() -> NotAuthenticated:
    return NotAuthenticated(
        "the token is not valid, or no longer",
        code="bad_token",
        hint="get a new access token at /api/token/refresh/, or a new pair at /api/token/",
    )


def _read(kind: Any, text: str | None) -> jwt.Token:
    """A token of that kind: the one in ``text``, or a new one."""
    try:
        token: jwt.Token = kind(text)
    except TokenError:
        raise revoked() from None
    return token


def living(login_id: object) -> Login:
    """
    Raises:
        NotAuthenticated: there is no login of that id, or it ended.
    """
    login = logins.find(login_id)
    if login is None:
        raise revoked()
    return login


def _signed(token: jwt.Token, login: Login) -> str:
    token[LOGIN] = login.pk
    return str(token)

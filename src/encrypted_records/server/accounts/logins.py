"""Logins: their life cycle, and their tokens and sessions.

Ending a login ends its session or tokens in every process at once, because each request looks up
the login. Changing the address or password and deactivating the account end all logins of the user;
a change of the password may keep the login that requests it.

A login is identified by its id, which is not secret, and authenticated by a secret, of which the
table has the SHA-256. So a reader of the database, or of a copy, can check a presented secret, but
cannot produce one, not even together with the key that signs tokens: secrets are random and too
long to be guessed. Therefore a plain hash is sufficient here, whereas a password needs a slow hash.

Every token names its login (claim ``login``), carries that login's secret (claim ``secret``), and
is void without either. An access token is sent with each request, for fifteen minutes; a refresh
token is traded once, for a pair that replaces it. If the answer is lost, it may be traded again
within half a minute, for the same refresh token, which is derived from it and from the moment of
the first trade. A token that is traded again later was copied: its login ends, and with it the
tokens of thief and owner.

The signature only proves that we made a token: anyone who has the signing key can make tokens, but
does not know the secret of any login.

A browser's session is stored under the SHA-256 of its cookie: Django's engine with that change. In
memory and in the cookie, a session has its key, which is a secret. The secret of the session's
login is derived from the cookie by another function: neither can be derived from the other, nor
from the content of a table.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from datetime import datetime, timedelta
from typing import Any

from django.contrib.sessions.backends import db
from django.contrib.sessions.backends.base import SessionBase, UpdateError
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import transaction
from django.utils import timezone
from rest_framework_simplejwt import tokens as jwt
from rest_framework_simplejwt.exceptions import TokenError
from rest_framework_simplejwt.settings import api_settings

from encrypted_records.errors import NotAuthenticated
from encrypted_records.model.resources import Tokens
from encrypted_records.server import sql
from encrypted_records.server.accounts.models import Login, User
from encrypted_records.server.db.fields import as_stored, new_id
from encrypted_records.server.db.statements import ModelColumns, Statement

SECRET_BYTES = 32


def new_secret() -> str:
    """32 random bytes, as 43 letters, digits, ``-`` and ``_``."""
    return secrets.token_urlsafe(SECRET_BYTES)


def digest(secret: object) -> bytes:
    """The SHA-256 of a secret, 32 bytes, as the database stores it. For text that UTF-8 cannot
    encode, a digest that is never stored.
    """
    if not isinstance(secret, str) or not secret:
        return b""
    # Text from a client may have lone surrogates, which UTF-8 cannot encode.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def begin(
    user: User, lifetime: timedelta, secret: str, *, login_id: str = "", refresh: str = ""
) -> Login:
    """Begin a login of a user whose password was just verified.

    Args:
        secret: an unguessable secret that authenticates the login, together with its id.
        login_id: its id, if known already.
        refresh: the refresh token that may be used next, if any.

    Raises:
        NotAuthenticated: the address or password was changed, a second factor was set up, or the
            account was deactivated, just now.
    """
    now = timezone.now()
    with transaction.atomic():
        # Locked as a change of password locks it: either this sees the new one, or that change
        # sees this login and ends it.
        same = User.objects.unchanged(user).select_for_update().filter(is_active=True)
        if not same.exists():
            raise NotAuthenticated("the account was just changed", code="bad_credentials")
        user.logins.filter(expires__lte=now).delete()
        return Login.objects.create(
            pk=login_id or new_id(),
            user=user,
            digest=digest(secret),
            expires=now + lifetime,
            refresh=digest(refresh),
        )


#: Columns that no request needs are deferred.
_LATER = {
    "last_login",
    "date_joined",
    "deleted",
    "created",
    "refresh",
    "refresh_before",
    "refreshed",
}
_ACCOUNT = ModelColumns(
    User, [field.attname for field in User._meta.fields if field.name not in _LATER]
)
_LOGIN = ModelColumns(
    Login, [field.attname for field in Login._meta.fields if field.name not in _LATER]
)
_by_id = Statement(sql.LOGIN, {"login": _LOGIN, "account": _ACCOUNT})
_user_by_id = Statement(sql.ACCOUNT, {"account": _ACCOUNT})


def find(login_id: object, shown: bytes) -> Login | None:
    """The login with this id with its user, if both are valid.

    Args:
        shown: the digest of the secret that was sent with the id.
    """
    if login_id is None or not shown:
        return None
    row: list[Any] | None = _by_id.row(login=as_stored(str(login_id)))
    if row is None:
        return None
    login: Login = row[0]
    login.user = row[1]
    known = hmac.compare_digest(bytes(login.digest), shown)
    usable = known and login.expires > timezone.now() and login.user.is_active
    return login if usable else None


def active_user(user_id: str) -> User | None:
    row: list[Any] | None = _user_by_id.row(account=as_stored(user_id))
    return row[0] if row is not None and row[0].is_active else None


def change_secret(login: Login, secret: str) -> None:
    """Replace the secret of the login; tokens with the old secret end."""
    # Not by saving the row, which a logout may delete at this moment.
    Login.objects.filter(pk=login.pk).update(digest=digest(secret))


def set_password(user: User, password: str, *, keep: Login | None = None) -> None:
    """Change a password, and end every link, API token and login of its user except ``keep``."""
    user.set_password(password)
    with transaction.atomic():
        user.save(update_fields=["password"])
        user.links.all().delete()
        end_all(user, keep=keep)


def end_all(user: User, *, keep: Login | None = None) -> None:
    """End every login of a user except ``keep``, and every API token."""
    user.api_tokens.all().delete()
    ended = user.logins.all()
    if keep is not None:
        ended = ended.exclude(pk=keep.pk)
    ended.delete()


def drop_expired() -> None:
    Login.objects.filter(expires__lte=timezone.now()).delete()


LOGIN_CLAIM = "login"
SECRET_CLAIM = "secret"  # noqa: S105 - the name of the claim
#: How long a refresh token may be sent again after its use: the answer may have been lost.
GRACE = timedelta(seconds=30)


def token_pair(user: User) -> Tokens:
    """An access and a refresh token, of a new login."""
    login_id, secret = new_id(), new_secret()
    refresh = _sign(_read_token(jwt.RefreshToken, None), login_id, secret)
    lifetime = api_settings.REFRESH_TOKEN_LIFETIME
    login = begin(user, lifetime, secret, login_id=login_id, refresh=refresh)
    return Tokens(access_token(login, secret), refresh)


def access_token(login: Login, secret: str) -> str:
    """An access token that ends with its login, if not earlier."""
    return _sign(_read_token(jwt.AccessToken, None), login.pk, secret)


def rotate_refresh(text: str) -> Tokens:
    """A new pair for a refresh token, which is then used up.

    Raises:
        NotAuthenticated: it is not a token of ours, expired, or its login ended. A login ends
            here when its refresh token comes again after more than :data:`GRACE`.
    """
    old = _read_token(jwt.RefreshToken, text)
    secret = old.get(SECRET_CLAIM)
    # Whole seconds, as in claims, so that the same token can be derived from the login's columns.
    now = timezone.now().replace(microsecond=0)
    with transaction.atomic():
        # The lock on the user's row serializes beginning, ending and rotating.
        User.objects.select_for_update().filter(
            logins__pk=as_stored(str(old.get(LOGIN_CLAIM)))
        ).first()
        login = find(old.get(LOGIN_CLAIM), digest(secret))
        if login is not None and _is_next(text, login):
            refresh = _following(text, login, secret, now)
            login.refresh_before, login.refresh = login.refresh, digest(refresh)
            login.refreshed = now
            login.expires = now + api_settings.REFRESH_TOKEN_LIFETIME
            login.save(update_fields=["refresh", "refresh_before", "refreshed", "expires"])
            return Tokens(access_token(login, secret), refresh)
        first = None if login is None else login.refreshed
        if login is not None and first is not None and _was_before(text, login):
            # abs() below: the clock may have gone back.
            refresh = _following(text, login, secret, first)
            if abs(now - first) <= GRACE and _is_next(refresh, login):
                return Tokens(access_token(login, secret), refresh)
        if login is not None:
            login.delete()
    raise token_revoked()


def _following(text: str, login: Login, secret: str, moment: datetime) -> str:
    """The refresh token that replaces ``text``, traded at that moment; always the same.

    It can only be made with the secret of the login and the signing key.
    """
    token = _read_token(jwt.RefreshToken, None)
    token.set_exp(from_time=moment)
    token.set_iat(at_time=moment)
    token[api_settings.JTI_CLAIM] = digest(text).hex()
    return _sign(token, login.pk, secret)


def read_access_token(text: str) -> tuple[str, bytes, float]:
    """The login that an access token names, and when the token expires.

    Returns:
        The id of the login, which may have ended; the digest of the secret in the token; and
        seconds since 1970.

    Raises:
        NotAuthenticated: it is not a token of ours, or expired.
    """
    token = _read_token(jwt.AccessToken, text)
    return str(token.get(LOGIN_CLAIM)), digest(token.get(SECRET_CLAIM)), float(token["exp"])


def verify_token(text: str) -> None:
    """
    Raises:
        NotAuthenticated: an access token is not valid now; a refresh token is not the login's
            next.
    """
    token = _read_token(jwt.UntypedToken, text)
    login = living_login(token.get(LOGIN_CLAIM), digest(token.get(SECRET_CLAIM)))
    kind = token.get(api_settings.TOKEN_TYPE_CLAIM)
    if kind == jwt.RefreshToken.token_type and not _is_next(text, login):
        raise token_revoked()


def token_revoked() -> NotAuthenticated:
    return NotAuthenticated(
        "the token is not valid, or no longer valid",
        code="bad_token",
        hint="get a new access token at /api/token/refresh/, or a new pair at /api/token/",
    )


def _read_token(kind: Any, text: str | None) -> jwt.Token:
    """A token of this kind: parsed from ``text``, or new."""
    try:
        token: jwt.Token = kind(text)
    except (TokenError, OverflowError, ValueError):  # the latter for times out of range
        raise token_revoked() from None
    return token


def living_login(login_id: object, shown: bytes) -> Login:
    """
    Raises:
        NotAuthenticated: there is no login with this id and secret, or it ended.
    """
    login = find(login_id, shown)
    if login is None:
        raise token_revoked()
    return login


def _is_next(refresh: str, login: Login) -> bool:
    return hmac.compare_digest(bytes(login.refresh), digest(refresh))


def _was_before(refresh: str, login: Login) -> bool:
    return hmac.compare_digest(bytes(login.refresh_before), digest(refresh))


def _sign(token: jwt.Token, login_id: str, secret: str) -> str:
    token[LOGIN_CLAIM], token[SECRET_CLAIM] = login_id, secret
    return str(token)


_OF_A_LOGIN = b"encrypted_records.sessions.login"


def login_secret(session: SessionBase) -> str:
    """The secret of this session's login; empty while the session has no cookie."""
    key = session.session_key
    if key is None:
        return ""
    derived = hmac.digest(key.encode(), _OF_A_LOGIN, "sha256")
    return base64.urlsafe_b64encode(derived).rstrip(b"=").decode()


def session_key_of(key: str) -> str:
    """A session's key as its table stores it: in base 85, because the column has room for 40
    characters.
    """
    return base64.b85encode(digest(key)).decode()


class SessionStore(db.SessionStore):
    """The sync methods that pass a session key to the database; nothing in the API calls the async
    ones, which would pass the key itself.
    """

    def load(self) -> dict[str, Any]:
        key = self.session_key
        session = self.model.objects.filter(
            session_key=session_key_of(key or ""), expire_date__gt=timezone.now()
        ).first()
        if session is None:
            self._session_key = None
            return {}
        return self.decode(session.session_data)

    def exists(self, session_key: str) -> bool:
        return super().exists(session_key_of(session_key))

    def create_model_instance(self, data: dict[str, Any]) -> AbstractBaseSession:
        row = super().create_model_instance(data)
        row.session_key = session_key_of(row.session_key)
        return row

    def save(self, must_create: bool = False) -> None:
        try:
            super().save(must_create)
        except UpdateError as error:
            # The engine raises this for every failure. Only a missing row means that the session
            # ended; a database failure, which has a cause, is raised as such.
            failure = error.__context__
            if failure is not None and failure.__cause__ is not None:
                raise failure from failure.__cause__
            raise

    def delete(self, session_key: str | None = None) -> None:
        key = session_key or self.session_key
        if key is not None:
            super().delete(session_key_of(key))

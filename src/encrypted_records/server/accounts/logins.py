"""The life of a login: begin, find, end.

Ending a login ends its session or tokens in every process at once, because each request looks up
the login. Changing the address or password and deactivating the account end all logins of the user;
a change of the password may keep the login that asks for it.

A login is identified by its id, which is not secret, and authenticated by a secret, of which the
table has the SHA-256 (:mod:`.digests`). The content of the table is not sufficient to log in, not
even together with the key that signs tokens.
"""

from __future__ import annotations

import hmac
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from encrypted_records.errors import NotAuthenticated
from encrypted_records.server import sql
from encrypted_records.server.accounts.digests import digest
from encrypted_records.server.accounts.models import Login, User
from encrypted_records.server.db.fields import as_stored, new_id
from encrypted_records.server.db.statements import ModelColumns, Statement


def begin(
    user: User, lifetime: timedelta, secret: str, *, login_id: str = "", refresh: str = ""
) -> Login:
    """Begin a login of a user whose password was just verified.

    Args:
        secret: an unguessable secret that authenticates the login, together with its id.
        login_id: its id, if known already.
        refresh: the refresh token that may be used next, if any.

    Raises:
        NotAuthenticated: the address or password was changed, a second factor set up, or the
            account shut, at this moment.
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


#: What no request is judged by is read when it is needed.
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
    """The login of that id with its user, while both may be used.

    Args:
        shown: the digest of the secret that came with the id.
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
    login.digest = digest(secret)
    login.save(update_fields=["digest"])


def set_password(user: User, password: str, *, keep: Login | None = None) -> None:
    """Change a password, and end every link, API token and login of its user but ``keep``."""
    user.set_password(password)
    with transaction.atomic():
        user.save(update_fields=["password"])
        user.links.all().delete()
        end_all(user, keep=keep)


def end_all(user: User, *, keep: Login | None = None) -> None:
    """End every login of a user but ``keep``, and every API token."""
    user.api_tokens.all().delete()
    ended = user.logins.all()
    if keep is not None:
        ended = ended.exclude(pk=keep.pk)
    ended.delete()


def drop_expired() -> None:
    Login.objects.filter(expires__lte=timezone.now()).delete()

"""The life of a login: begin, find, end.

Ending a login ends the session or the tokens that hang on it, in every process at once, since each
request looks it up. Whatever makes a password worthless ends its user's logins: a new password,
and shutting the account.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import connection, transaction
from django.utils import timezone

from encrypted_records.errors import NotAuthenticated
from encrypted_records.server.accounts.models import Login, User
from encrypted_records.server.fields import as_stored
from encrypted_records.server.prepared import Prepared


def begin(user: User, lifetime: timedelta, *, refresh: str = "") -> Login:
    """A login of a user whose password was just found right.

    Raises:
        NotAuthenticated: the password was changed, or the account shut, at this moment.
    """
    now = timezone.now()
    with transaction.atomic():
        # Locked as a change of password locks it: either this sees the new one, or that change
        # sees this login and ends it.
        same = User.objects.select_for_update().filter(
            pk=user.pk, password=user.password, is_active=True
        )
        if not same.exists():
            raise NotAuthenticated("the password was changed just now", code="bad_credentials")
        user.logins.filter(expires__lte=now).delete()
        return Login.objects.create(user=user, expires=now + lifetime, refresh=refresh)


_USER = [field.attname for field in User._meta.concrete_fields]
_LOGIN = [field.attname for field in Login._meta.concrete_fields]
_by_id = Prepared(
    lambda: Login.objects.values_list(*_LOGIN, *(f"user__{name}" for name in _USER)),
    "accounts_login.id",
)
_user_by_id = Prepared(lambda: User.objects.values_list(*_USER), "accounts_user.id")


def find(login_id: object) -> Login | None:
    """The login of that id with its user, while both may be used."""
    if login_id is None:
        return None
    for row in _by_id.rows(as_stored(str(login_id))):
        login = Login.from_db(connection.alias, _LOGIN, row[: len(_LOGIN)])
        login.user = User.from_db(connection.alias, _USER, row[len(_LOGIN) :])
        if login.expires > timezone.now() and login.user.is_active:
            return login
    return None


def active_user(user_id: str) -> User | None:
    for row in _user_by_id.rows(as_stored(user_id)):
        user = User.from_db(connection.alias, _USER, row)
        if user.is_active:
            return user
    return None


def set_password(user: User, password: str, *, keep: Login | None = None) -> None:
    """Change a password, and end every login of its user but ``keep``."""
    user.set_password(password)
    with transaction.atomic():
        user.save(update_fields=["password"])
        end_all(user, keep=keep)


def end_all(user: User, *, keep: Login | None = None) -> None:
    ended = user.logins.all()
    if keep is not None:
        ended = ended.exclude(pk=keep.pk)
    ended.delete()


def drop_expired() -> None:
    Login.objects.filter(expires__lte=timezone.now()).delete()

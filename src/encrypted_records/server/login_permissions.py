"""What the user of a login may reach, asked with the login itself: one question instead of two.

:mod:`.permissions` says what that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now

from encrypted_records.server import permissions
from encrypted_records.server.accounts import logins
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets import rows
from encrypted_records.server.datasets.models import Schema
from encrypted_records.server.db.compiled_queries import Pair, Prepared
from encrypted_records.server.db.fields import as_stored
from encrypted_records.server.organizations.models import Membership


def _membership_of_login(**more: object) -> QuerySet[Membership, Any]:
    """That by which the login of :data:`_reached_by_login` reaches its schema, if it does.

    Args:
        more: what must be true of what is shared with the member.
    """
    schema, dataset, organization, user = (
        RawSQL(column, ())  # noqa: S611  no input
        for column in (
            "first.id",
            "first.dataset_id",
            "first.dataset__organization_id",
            "second.user_id",
        )
    )
    return Membership.objects.filter(
        Q(all_data=True)
        | Q(Exists(permissions.grants(schema, dataset, OuterRef("user_id")).filter(**more))),
        user_id=user,
        organization_id=organization,
    ).values_list("pk")


_reached_by_login = Pair(
    Prepared(
        lambda: Schema.objects.values_list(
            *permissions.DATA, *(f"dataset__{name}" for name in permissions.DATASET)
        ),
        "datasets_schema.id",
    ),
    logins.by_id,
    _membership_of_login,
)
_written_by_login = Pair(
    Prepared(lambda: Schema.objects.values_list(*rows.COLUMNS), "datasets_schema.id"),
    logins.by_id,
    lambda: _membership_of_login(writes=True),
)
_USER = f"{permissions.MEMBERS}__user"
#: Of a schema and a login that may be used, whose user may store into it, both; the schema's row is
#: locked, and where one of these does not hold, none is. For PostgreSQL, which keeps its plan.
_locked_by_login = Prepared(
    lambda: Schema.objects.filter(
        permissions.shared(writes=True),
        **{f"{_USER}__is_active": True, f"{_USER}__logins__expires__gt": Now()},
    ).values_list(
        *rows.COLUMNS,
        *(f"{_USER}__logins__{name}" for name in logins.COLUMNS),
        *(f"{_USER}__{name}" for name in logins.USER_COLUMNS),
    ),
    "datasets_schema.id",
    "accounts_login.id",
    "accounts_login.digest",
    locks="datasets_schema",
)


def data_of_login(login_id: str, shown: bytes, schema_id: str) -> tuple[User, Schema] | None:
    """Whose login it is, and a schema as :func:`.permissions.data_of` has it; None where the login
    may not be used, or its user reaches no such thing.

    Args:
        shown: the digest of the secret that came with the login's id.
    """
    found = _reached_by_login.row(as_stored(schema_id), as_stored(login_id))
    if found is None:
        return None
    login = logins.login_of(found[1], shown)
    return None if login is None else (login.user, permissions.as_data(found[0]))


def written_by_login(login_id: str, shown: bytes, schema_id: str) -> tuple[User, Schema] | None:
    """Whose login it is, and a schema as :func:`.permissions.to_store_into` has it; None where the
    login may not be used, or its user does not reach or write such a thing.

    Args:
        shown: the digest of the secret that came with the login's id.
    """
    found = _written_by_login.row(as_stored(schema_id), as_stored(login_id))
    if found is None:
        return None
    login = logins.login_of(found[1], shown)
    return None if login is None else (login.user, rows.schema_of(found[0]))


def lock_by_login(
    login_id: str, shown: bytes, schema_id: str
) -> Callable[[], tuple[User, Schema] | None]:
    """Ask for the same as :func:`written_by_login` in a transaction, and lock the schema's row.

    Returns:
        What waits for the answer. Where that is None, no row is locked, and none was waited for.
    """
    asked = _locked_by_login.ask(as_stored(schema_id), as_stored(login_id), shown)

    def take() -> tuple[User, Schema] | None:
        for row in asked.rows():
            end = len(rows.COLUMNS)
            login = logins.login_of(row[end:], shown)
            return None if login is None else (login.user, rows.schema_of(row[:end]))
        return None

    return take

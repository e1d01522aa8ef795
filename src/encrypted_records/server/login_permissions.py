"""What the user of a login may reach, asked with the login itself: one question instead of two.

:mod:`.permissions` says what that is.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.expressions import RawSQL

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

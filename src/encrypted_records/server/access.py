"""The one place that says what a user may reach.

Whatever belongs to an organization is reached through a membership; what is not reached does not
exist, so a stranger's and a missing resource get the same answer.
"""

from __future__ import annotations

from typing import TypeVar

from django.db import connection
from django.db.models import Model, QuerySet
from django.utils import timezone

from encrypted_records.errors import Malformed, NotAllowed, NotFound
from encrypted_records.model import ids
from encrypted_records.server.accounts.models import User, of_address
from encrypted_records.server.datasets.models import Dataset, Schema
from encrypted_records.server.fields import as_stored
from encrypted_records.server.organizations.models import Invitation, Membership, Organization
from encrypted_records.server.prepared import Prepared

M = TypeVar("M", bound=Model)

_DATASET = ["id", "organization_id"]
#: All but the definition, which may be a thousand times as long.
_DATA = [one.attname for one in Schema._meta.concrete_fields if one.name != "definition"]
_reached = Prepared(
    lambda: Schema.objects.filter(
        dataset__organization__memberships__user__isnull=False
    ).values_list(*_DATA, *(f"dataset__{name}" for name in _DATASET)),
    "datasets_schema.id",
    "organizations_membership.user_id",
)


def organizations(user: User) -> QuerySet[Organization]:
    return Organization.objects.filter(memberships__user=user).order_by("pk")


def owned(user: User, organization_id: str) -> Organization:
    """The organization of that id, for what only its owners may do.

    Raises:
        NotFound: there is none that the user reaches.
        NotAllowed: the user is a member only.
    """
    organization = find(organizations(user), organization_id)
    require_owner(user, organization)
    return organization


def members(user: User, organization_id: str) -> QuerySet[Membership]:
    """The memberships of an organization, for its members.

    Raises:
        NotFound: there is none that the user reaches.
    """
    organization = find(organizations(user), organization_id)
    reached = organization.memberships.select_related("user", "organization")
    return reached.order_by("user_id")


def invitations(user: User) -> QuerySet[Invitation]:
    """Those that wait for the user's address, which was verified."""
    waiting = of_address(Invitation.objects.filter(expires__gt=timezone.now()), user.email)
    return waiting.select_related("organization", "invited_by").order_by("pk")


def datasets(user: User) -> QuerySet[Dataset]:
    return Dataset.objects.filter(organization__memberships__user=user).order_by("pk")


def schemas(user: User) -> QuerySet[Schema]:
    """With their datasets, since a schema names its organization through it."""
    reached = Schema.objects.filter(dataset__organization__memberships__user=user)
    return reached.select_related("dataset").order_by("pk")


def data_of(user: User, schema_id: str) -> Schema:
    """A schema for whoever reads what is stored under it: the definition is not read with it.

    Raises:
        NotFound: there is none that the user reaches.
    """
    for row in _reached.rows(as_stored(schema_id), as_stored(user.pk)):
        schema = Schema.from_db(connection.alias, _DATA, row[: len(_DATA)])
        schema.dataset = Dataset.from_db(connection.alias, _DATASET, row[len(_DATA) :])
        return schema
    raise _unreachable()


def find(reachable: QuerySet[M], identifier: str, *, by: str = "pk") -> M:
    """The resource of that id, or of which another column is that id.

    Raises:
        NotFound: there is none that the user reaches.
    """
    try:
        found = reachable.filter(**{by: ids.from_text(identifier)}).first()
    except Malformed:
        found = None
    if found is None:
        raise _unreachable()
    return found


def _unreachable() -> NotFound:
    return NotFound("there is nothing here, or nothing that you can reach")


def require_owner(user: User, organization: Organization) -> None:
    """
    Raises:
        NotAllowed: the user is a member only.
    """
    owned = Membership.objects.filter(
        user=user, organization=organization, role=Membership.Role.OWNER
    )
    if not owned.exists():
        raise NotAllowed("only owners of the organization may do this", code="owners_only")

"""The one place that says what a user may reach.

Whatever belongs to an organization is reached through a membership; what is not reached does not
exist, so a stranger's and a missing resource get the same answer.
"""

from __future__ import annotations

from typing import TypeVar

from django.db.models import Model, QuerySet
from django.utils import timezone

from encrypted_records.errors import Malformed, NotAllowed, NotFound
from encrypted_records.model import ids
from encrypted_records.server.accounts.models import User, of_address
from encrypted_records.server.datasets.models import Dataset, Schema
from encrypted_records.server.organizations.models import Invitation, Membership, Organization

M = TypeVar("M", bound=Model)


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
        raise NotFound("there is nothing here, or nothing that you can reach")
    return found


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

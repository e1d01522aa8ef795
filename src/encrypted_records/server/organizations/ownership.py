"""Operators' help for an organization whose last owner was lost."""

from __future__ import annotations

from django.db import transaction

from encrypted_records.errors import NotFound
from encrypted_records.server.accounts.models import User
from encrypted_records.server.organizations import audit, members
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.models import Membership, Organization


def make_owner(email: str, slug: str) -> None:
    """Make an account an owner of an organization at the API.

    Where the organization has a roster, that alone reaches nothing: only somebody who has the
    lost owner's words too can sign themselves in.

    Raises:
        NotFound: there is no such account, or organization.
    """
    user = User.objects.with_email(email).filter(is_active=True).first()
    organization = Organization.objects.filter(slug=slug).first()
    if user is None or organization is None:
        raise NotFound(
            "there is no such account" if user is None else "there is no such organization",
            hint="the account is named by its address, the organization by its slug",
        )
    with transaction.atomic():
        locked = members.lock(organization)
        Membership.objects.update_or_create(
            organization=locked,
            user=user,
            defaults={"role": Membership.Role.OWNER},
            create_defaults={
                "role": Membership.Role.OWNER,
                "all_data": not locked.has_roster,
            },
        )
        audit.note(user, Action.MEMBER_CHANGED, locked.pk, user.url)

"""Who belongs to an organization: invite, join, change roles, leave.

Every change locks the organization first, so that two of them cannot between them take away its
last owner.
"""

from __future__ import annotations

from django.conf import settings
from django.db import transaction

from encrypted_records.errors import Conflict
from encrypted_records.server.accounts import mail
from encrypted_records.server.accounts.models import User, of_address
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.models import Invitation, Membership, Organization


def invite(by: User, organization: Organization, email: str, role: str) -> Invitation:
    """Invite an address, whether it has an account or not; an earlier invitation goes.

    Raises:
        Conflict: ``already_member``.
    """
    with transaction.atomic():
        _lock(organization)
        if organization.memberships.filter(user__in=User.objects.with_email(email)).exists():
            raise Conflict("the address is a member's already", code="already_member")
        of_address(organization.invitations.all(), email).delete()
        invitation = Invitation.objects.create(
            organization=organization, email=email, role=role, invited_by=by
        )
        audit.note(by, Action.MEMBER_INVITED, organization.pk, organization.url)
    mail.later(_send_invitation, invitation)
    return invitation


def _send_invitation(invitation: Invitation) -> None:
    context = {"invitation": invitation, "public_url": settings.PUBLIC_URL}
    subject = "An invitation to an organization"
    mail.send(invitation.email, subject, "organizations/invitation", context)


def accept(user: User, invitation: Invitation) -> Membership:
    """Make the user a member, as the invitation says."""
    organization = invitation.organization
    with transaction.atomic():
        _lock(organization)
        membership, _ = Membership.objects.get_or_create(
            organization=organization, user=user, defaults={"role": invitation.role}
        )
        invitation.delete()
        audit.note(user, Action.MEMBER_JOINED, organization.pk, user.url)
    return membership


def change_role(by: User, membership: Membership, role: str) -> None:
    """
    Raises:
        Conflict: ``last_owner``.
    """
    with transaction.atomic():
        _lock(membership.organization)
        if role != Membership.Role.OWNER:
            _keep_an_owner(membership)
        membership.role = role
        membership.save(update_fields=["role"])
        audit.note(by, Action.MEMBER_CHANGED, membership.organization_id, membership.user.url)


def remove(by: User, membership: Membership) -> None:
    """
    Raises:
        Conflict: ``last_owner``.
    """
    with transaction.atomic():
        _lock(membership.organization)
        _keep_an_owner(membership)
        membership.delete()
        audit.note(by, Action.MEMBER_REMOVED, membership.organization_id, membership.user.url)


def _lock(organization: Organization) -> None:
    Organization.objects.select_for_update().get(pk=organization.pk)


def _keep_an_owner(leaving: Membership) -> None:
    owners = Membership.objects.filter(
        organization=leaving.organization_id, role=Membership.Role.OWNER
    )
    if not owners.exclude(pk=leaving.pk).exists():
        raise Conflict(
            "an organization keeps at least one owner",
            code="last_owner",
            hint="make another member an owner first",
        )

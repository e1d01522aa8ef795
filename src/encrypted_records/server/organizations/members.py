"""Members of an organization: invite, join, change roles, leave.

Every change locks the organization first, so that two of them cannot between them take away its
last owner.

Operators' help for an organization whose last owner was lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction

from encrypted_records.errors import Conflict, NotAuthenticated, NotFound
from encrypted_records.server.accounts import mail
from encrypted_records.server.accounts.models import User, of_address
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.models import Invitation, Membership, Organization

_THIS_MACHINE = {"localhost", "127.0.0.1", "::1"}


def invite(by: User, organization: Organization, email: str, role: str) -> Invitation:
    """Invite an address, whether it has an account or not; an earlier invitation goes.

    Raises:
        Conflict: ``already_member``, ``through_a_proxy``.
    """
    with transaction.atomic():
        _through_a_proxy_alone(
            lock(organization), "ers share invite EMAIL --dataset DATASET --role reader"
        )
        if organization.memberships.filter(user__in=User.objects.with_email(email)).exists():
            raise Conflict("the address already belongs to a member", code="already_member")
        of_address(organization.invitations.all(), email).delete()
        invitation = Invitation.objects.create(
            organization=organization, email=email, role=role, invited_by=by
        )
        audit.note(by, Action.MEMBER_INVITED, organization.pk, organization.url)
    write_to([invitation])
    return invitation


def write_to(invitations: Iterable[Invitation]) -> None:
    """Send the messages of invitations that are stored."""
    for invitation in invitations:
        mail.later(_send_invitation, invitation)


def _send_invitation(invitation: Invitation) -> None:
    url = settings.PUBLIC_URL
    # An address of this machine is of no use to somebody else.
    server = "ADDRESS" if urlsplit(url).hostname in _THIS_MACHINE else url
    context = {"invitation": invitation, "public_url": url, "server": server}
    subject = "An invitation to an organization"
    mail.send(invitation.email, subject, "organizations/invitation", context)


def accept(user: User, invitation: Invitation) -> Membership:
    """Make the user a member, as the invitation says.

    Raises:
        Conflict: ``through_a_proxy``.
        NotAuthenticated: the account was deleted at this moment.
    """
    organization = invitation.organization
    with transaction.atomic():
        _through_a_proxy_alone(
            lock(organization), "ers share accept ID, with the twelve words that you were told"
        )
        require_existing(user.pk)
        membership, _ = Membership.objects.get_or_create(
            organization=organization,
            user=user,
            defaults={"role": invitation.role, "all_data": True},
        )
        invitation.delete()
        audit.note(user, Action.MEMBER_JOINED, organization.pk, user.url)
    return membership


def change_role(by: User, membership: Membership, role: str) -> None:
    """
    Raises:
        Conflict: ``last_owner``, ``through_a_proxy``.
    """
    with transaction.atomic():
        _through_a_proxy_alone(
            lock(membership.organization), "ers organization member update EMAIL --role ROLE"
        )
        if role != Membership.Role.OWNER:
            _keep_an_owner(membership)
        membership.role = role
        membership.save(update_fields=["role"])
        audit.note(by, Action.MEMBER_CHANGED, membership.organization_id, membership.user.url)


def remove(by: User, membership: Membership) -> None:
    """
    Raises:
        Conflict: ``last_owner``, ``through_a_proxy``.
    """
    with transaction.atomic():
        organization = lock(membership.organization)
        standing = organization.standings.filter(member=membership.user_id, present=True)
        if standing.exists():
            _through_a_proxy_alone(organization, "ers organization member delete EMAIL")
        _keep_an_owner(membership)
        membership.delete()
        audit.note(by, Action.MEMBER_REMOVED, membership.organization_id, membership.user.url)


def withdraw(by: User, invitation: Invitation) -> None:
    """
    Raises:
        Conflict: ``through_a_proxy``.
    """
    with transaction.atomic():
        organization = lock(invitation.organization)
        _through_a_proxy_alone(organization, "ers share withdraw ID")
        invitation.delete()
        audit.note(by, Action.INVITATION_WITHDRAWN, organization.pk, organization.url)


def lock(organization: Organization) -> Organization:
    """Reload and lock the organization; it cannot be changed by other transactions until this one
    ends.
    """
    # What merely names it, as a commit's audit entry does, need not wait.
    return Organization.objects.select_for_update(no_key=True).get(pk=organization.pk)


def require_existing(user_id: str) -> None:
    """Lock an account, which is not deleted then before this transaction ends. Organizations are
    locked before.

    Raises:
        NotAuthenticated: ``bad_credentials``; it was deleted.
    """
    if not lock_existing(user_id):
        raise NotAuthenticated("the account was deleted", code="bad_credentials")


def lock_existing(user_id: str) -> bool:
    """Lock an account as :func:`require_existing`; whether it exists."""
    accounts = User.objects.select_for_update(no_key=True)
    return accounts.filter(pk=user_id, deleted=None).first() is not None


def _through_a_proxy_alone(organization: Organization, command: str) -> None:
    """
    Args:
        command: has a proxy do the same.

    Raises:
        Conflict: ``through_a_proxy``; who belongs is in the roster, which members sign.
    """
    if organization.has_roster:
        raise Conflict(
            "the members of this organization are in its roster, which only signed"
            " entries can change",
            code="through_a_proxy",
            hint=(
                f"{command}, with which a proxy signs the change; or its path"
                " /api/organizations/<id>/people/"
            ),
        )


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


def make_owner(email: str, slug: str) -> None:
    """Make an account an owner of an organization at the API.

    If the organization has a roster, that alone gives no access: only a user who also has the lost
    owner's recovery words can sign themselves in.

    Raises:
        NotFound: there is no such account, or organization.
    """
    user = User.objects.with_email(email).filter(is_active=True).first()
    organization = Organization.objects.filter(slug=slug).first()
    if user is None or organization is None:
        raise NotFound(
            "there is no such account" if user is None else "there is no such organization",
            hint="name the account by its address and the organization by its slug",
        )
    with transaction.atomic():
        locked = lock(organization)
        require_existing(user.pk)
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

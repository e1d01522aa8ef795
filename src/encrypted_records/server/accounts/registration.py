"""Accounts from their registration to their deletion.

Neither answers nor durations reveal whether an address has an account: both cases do the same work,
and the mail thread does the work that differs afterwards. Signed links (:mod:`.mail`) work once. A
registration link also needs an address that was never verified, and a reset link is signed over the
password hash that it replaces, so that each ends the others of its kind.

Each registration makes a separate user with a separate link. If a second registration of an address
reused the first, an attacker who registered the address earlier would own the account that its
holder then confirms.

A deletion removes address, names, password, second factor, logins, tokens and links. The row stays
under its id, with an address that cannot exist: signed entries, commits and the audit log name the
id, and a user who registers the address later gets another id. Grants of jobs stay until they
expire, so that the proxy of a job learns that it is revoked, and ends it.

An account is not deleted while others would lose something by it: an organization with other people
keeps an owner, and data keeps a person who has its keys. If the user is an organization's only
person, the organization is deleted with the account, if it has no datasets. If a signed roster has
the person, only an entry signed by the person says that they leave; the deletion waits for it,
unless the keys for it are lost.

Organizations are locked first, in the order of their ids, and then the account, in the same order
as for an admission.
"""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from rest_registration.settings import registration_settings

from encrypted_records.errors import Conflict
from encrypted_records.model.resources import AffectedOrganization, Outcome
from encrypted_records.server.accounts import limits, logins, mail, passwords
from encrypted_records.server.accounts.models import User, of_address
from encrypted_records.server.accounts.passwords import check_new_password
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.models import (
    Invitation,
    Membership,
    Organization,
    Seat,
    create_organization,
)


def register(email: str, password: str, organization_name: str) -> None:
    """Create a user, who owns a new organization if ``organization_name`` is given, and send the
    link that activates both. Invited users need no organization of their own.

    If the address has an account, its holder is notified instead. The same rows are stored in that
    case, to take the same time; without a link they are unusable, and are deleted when they expire.
    """
    with transaction.atomic():
        user = User.objects.create_user(email, password)
        if organization_name:
            create_organization(organization_name, user.pk)
    mail.later(_send_register_message, user)


def _send_register_message(user: User) -> None:
    holder = User.objects.with_email(user.email).filter(verified__isnull=False).first()
    if holder is not None and holder != user:
        mail.send_already_registered(holder)
    elif user.verified is None and mail.may_write_to(user.email):
        mail.send_link(user, mail.VerificationLink)


def send_reset_link(email: str) -> None:
    """Send a reset link to the address, if it has an account; the lookup is left to the mail
    thread, too.
    """
    mail.later(_send_reset_message, email)


def _send_reset_message(email: str) -> None:
    user = User.objects.with_email(email).filter(verified__isnull=False, is_active=True).first()
    # Services have no password, and no mailbox.
    if user is not None and user.has_usable_password() and mail.may_write_to(user.email):
        mail.send_link(user, mail.ResetLink)


def verify(signed: dict[str, Any]) -> None:
    """Activate the account that a registration link names, and drop other registrations of its
    address.

    Raises:
        BadInput: the link is forged, too old, or was used before, or another registration of the
            address was confirmed already.
    """
    try:
        with transaction.atomic():
            _lock_address(signed["user_id"])
            user = mail.use_link(signed, mail.VerificationLink).user
            if user.verified is not None:
                raise mail.invalid_link()
            user.verified = timezone.now()
            user.is_active = True
            user.save(update_fields=["verified", "is_active"])
            _drop(User.objects.with_email(user.email).filter(verified=None))
    except IntegrityError:  # another registration, made after the lock, was confirmed as well
        raise mail.invalid_link() from None


def _lock_address(user_id: str) -> None:
    """Lock all registrations of a user's address, in a fixed order: each link ends the others."""
    try:
        user = User.objects.filter(pk=user_id).first()
    except ValueError:
        return
    if user is not None:
        _lock_registrations(user.email)


def _lock_registrations(email: str) -> None:
    list(User.objects.with_email(email).order_by("pk").select_for_update())


def drop_expired() -> None:
    """Delete registrations whose links have expired."""
    limit = timezone.now() - registration_settings.REGISTER_VERIFICATION_PERIOD
    with transaction.atomic():
        _drop(User.objects.filter(verified=None, date_joined__lt=limit))


def _drop(unverified: QuerySet[User]) -> None:
    """Delete users who were never verified, with the organizations that they created."""
    Organization.objects.filter(memberships__user__in=unverified).delete()
    unverified.delete()


def reset_password(signed: dict[str, Any], password: str) -> None:
    """Set the password of the account that a reset link names.

    Raises:
        BadInput: the link is forged, too old, or was used before.
        ValidationError: the password is not good enough; the link can be used again.
    """
    with transaction.atomic():
        user = mail.use_link(signed, mail.ResetLink).user
        check_new_password(password, user)
        logins.set_password(user, password)
        audit.note_for_all(user, audit.Action.PASSWORD_RESET)


def ask_for_address(user: User, email: str) -> None:
    """Send a link to a new address of an account, and notify the current address.

    If the new address has an account, its holder is notified instead of getting a link.

    Raises:
        Throttled: ``throttled``; the account has sent too many requests.
    """
    limits.throttle_account("addresses", user.pk)
    mail.later(_send_address_messages, (user, email))


def _send_address_messages(recipient: tuple[User, str]) -> None:
    user, email = recipient
    # If the password or address was changed since the request, the request ends, like its link.
    if not User.objects.unchanged(user).exists():
        return
    mail.send_address_notice(user.email, is_done=False)
    holder = User.objects.with_email(email).filter(verified__isnull=False).first()
    if holder is not None and holder != user:
        mail.send_already_registered(holder)
    elif mail.may_write_to(email):
        mail.send_link(user, mail.NewAddressLink, email)


def change_address(signed: dict[str, Any]) -> None:
    """Give an account the address that a link proves, and notify the former address.

    All other links of the account end: they may be in the mailbox of the former address. So do its
    logins, which began with that address, and registrations of the new address, as when one of them
    is confirmed.

    Raises:
        BadInput: the link is forged, too old, or was used before, or the address has an account
            meanwhile.
    """
    try:
        with transaction.atomic():
            link = mail.use_link(signed, mail.NewAddressLink)
            user, former = link.user, link.user.email
            if not user.is_active:
                raise mail.invalid_link()
            # Lock before changing the address: the confirmation of a registration uses the same
            # order.
            _lock_registrations(link.new_address)
            user.email = User.objects.normalize_email(link.new_address)
            user.save(update_fields=["email"])
            user.links.all().delete()
            user.logins.all().delete()
            _drop(User.objects.with_email(user.email).filter(verified=None))
            audit.note_for_all(user, audit.Action.EMAIL_CHANGED)
    except IntegrityError:  # another account has the address
        raise mail.invalid_link() from None
    mail.later(_send_changed_notice, former)


def _send_changed_notice(former: str) -> None:
    mail.send_address_notice(former, is_done=True)


def affected_by_deletion(user: User) -> list[AffectedOrganization]:
    """The effect of deleting the account on each of its organizations, including obstacles."""
    organizations = Organization.objects.filter(memberships__user=user) | _of_roster(user)
    return [
        _affected(user, organization) for organization in organizations.distinct().order_by("pk")
    ]


def _of_roster(user: User) -> QuerySet[Organization]:
    return Organization.objects.filter(standings__member=user.pk, standings__present=True)


def _affected(user: User, organization: Organization) -> AffectedOrganization:
    others = organization.memberships.exclude(user=user)
    standings = organization.standings.filter(present=True)
    standing = standings.filter(member=user.pk).first()
    people = set(others.values_list("user_id", flat=True))
    signed = set(standings.exclude(member=user.pk).values_list("member", flat=True))
    people |= set(
        User.objects.filter(pk__in=signed, service=None, deleted=None).values_list("pk", flat=True)
    )
    if not people:
        outcome: Outcome = "has_datasets" if organization.datasets.exists() else "delete"
    else:
        owners = others.filter(role=Membership.Role.OWNER)
        # An account that was deleted unsigned is still in the roster, but cannot sign any more.
        signing = standings.filter(is_owner=True, member__in=people)
        is_last = not owners.exists() or (
            standing is not None and standing.is_owner and not signing.exists()
        )
        outcome = "last_owner" if is_last else "leave"
    return AffectedOrganization(
        organization=organization.url,
        slug=organization.slug,
        name=organization.name,
        outcome=outcome,
        signed=bool(people) and standing is not None,
    )


def delete_account(user: User, *, unsigned: bool) -> None:
    """Delete the account.

    Args:
        unsigned: delete it even if a roster has the person, who then stays there until an owner
            removes them.

    Raises:
        Conflict: ``last_owner``, ``has_datasets``, ``in_roster``, each naming the organizations;
            ``account_moved``; it joined an organization just now.
    """
    with transaction.atomic():
        locked = _lock_organizations(user)
        user = User.objects.select_for_update(no_key=True).get(pk=user.pk)
        affected = affected_by_deletion(user)
        if any(membership.organization not in locked for membership in affected):
            raise Conflict(
                "the account joined an organization at this moment",
                code="account_moved",
                hint="repeat the request",
            )
        _require_free(affected, unsigned=unsigned)
        audit.note_for_all(user, audit.Action.ACCOUNT_DELETED)
        for membership in affected:
            if membership.outcome == "delete":
                organization = locked[membership.organization]
                User.objects.filter(service__organization=organization).update(is_active=False)
                organization.delete()
        _end_invitations(user)
        user.memberships.all().delete()
        address = user.email
        _clear(user)
    mail.later(mail.send_deleted, address)


def _lock_organizations(user: User) -> dict[str, Organization]:
    """Lock all organizations that the account belongs to, that invite it, or to which it has
    invited others; returns them by path.
    """
    inviting = Invitation.objects.filter(_invited(user)).values("organization")
    concerned = (
        Q(memberships__user=user) | Q(pk__in=_of_roster(user).values("pk")) | Q(pk__in=inviting)
    )
    named = set(Organization.objects.filter(concerned).values_list("pk", flat=True))
    organizations = Organization.objects.filter(pk__in=named).order_by("pk")
    locked = organizations.select_for_update(no_key=True)
    return {organization.url: organization for organization in locked}


def _invited(user: User) -> Q:
    """Invitations to the account's address, and those that it has sent."""
    named = of_address(Invitation.objects.all(), user.email).values("pk")
    return Q(pk__in=named) | Q(invited_by=user)


def _require_free(affected: list[AffectedOrganization], *, unsigned: bool) -> None:
    def named(outcome: Outcome) -> str:
        return ", ".join(
            membership.slug for membership in affected if membership.outcome == outcome
        )

    if names := named("last_owner"):
        raise Conflict(
            f"you are the only owner of {names}, and others belong to it",
            code="last_owner",
            hint="make another member an owner first, or remove the others",
        )
    if names := named("has_datasets"):
        raise Conflict(
            f"nobody else belongs to {names}, and it has datasets",
            code="has_datasets",
            hint="delete its datasets first, or invite somebody and make them an owner",
        )
    names = ", ".join(membership.slug for membership in affected if membership.signed)
    if names and not unsigned:
        raise Conflict(
            f"the signed roster of {names} has you as a member",
            code="in_roster",
            hint="leave it first, by a request to your proxy, which signs that: DELETE"
            " /api/organizations/<id>/people/<your id>/; if your keys are lost, send"
            ' "unsigned": true',
        )


def _end_invitations(user: User) -> None:
    ended = Invitation.objects.filter(_invited(user))
    Seat.objects.filter(pk__in=list(ended.values_list("pk", flat=True))).update(
        over=True, answer=None
    )
    ended.delete()


def _clear(user: User) -> None:
    """Remove all personal data and all credentials of the account."""
    logins.end_all(user)
    passwords.forget_second_factor(user)
    user.links.all().delete()
    user.email = f"{user.pk}@deleted.invalid"
    user.first_name = user.last_name = ""
    user.set_unusable_password()
    user.last_login = None
    user.is_active = user.has_second_factor = False
    user.deleted = timezone.now()
    user.save()

"""Create accounts, verify their addresses, change these.

Neither answers nor durations reveal whether an address has an account: both cases do the same work,
and the mail thread does what differs afterwards. Signed links (:mod:`.links`) work once. The first
also needs an address that was never verified, and the second is signed over the password hash that
it replaces, so that either ends the others of its kind.

Each registration makes a separate user with a separate link. If a second registration of an address
reused the first, an attacker who registered the address earlier would own the account that its
holder then confirms.
"""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone
from rest_registration.settings import registration_settings

from encrypted_records.server.accounts import limits, links, logins, mail
from encrypted_records.server.accounts.models import User
from encrypted_records.server.accounts.serializers import check_new_password
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.models import Organization, create_organization


def register(email: str, password: str, organization_name: str) -> None:
    """Make a user, who owns a new organization if it has a name, and send the link that activates
    both. Users who were invited to an organization need no organization of their own.

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
        links.send(user, links.Verification)


def send_reset_link(email: str) -> None:
    """Write to anyone who could log in with this address; to look is left to the courier, too."""
    mail.later(_send_reset_message, email)


def _send_reset_message(email: str) -> None:
    user = User.objects.with_email(email).filter(verified__isnull=False, is_active=True).first()
    # Services have no password, and nobody reads their mail.
    if user is not None and user.has_usable_password() and mail.may_write_to(user.email):
        links.send(user, links.Reset)


def verify(signed: dict[str, Any]) -> None:
    """Make the account usable that a registration link names, and drop others for its address.

    Raises:
        BadInput: the link is forged, too old, or was used before, or another registration of the
            address was confirmed already.
    """
    try:
        with transaction.atomic():
            _lock_address(signed["user_id"])
            user = links.use(signed, links.Verification).user
            if user.verified is not None:
                raise links.invalid()
            user.verified = timezone.now()
            user.is_active = True
            user.save(update_fields=["verified", "is_active"])
            _drop(User.objects.with_email(user.email).filter(verified=None))
    except IntegrityError:  # another registration, made since the lock, was confirmed as well
        raise links.invalid() from None


def _lock_address(user_id: str) -> None:
    """Lock all registrations of a user's address, in one order: each link ends the others."""
    try:
        user = User.objects.filter(pk=user_id).first()
    except ValueError:
        return
    if user is not None:
        _lock_registrations(user.email)


def _lock_registrations(email: str) -> None:
    list(User.objects.with_email(email).order_by("pk").select_for_update())


def drop_expired() -> None:
    """Drop registrations whose links have expired."""
    limit = timezone.now() - registration_settings.REGISTER_VERIFICATION_PERIOD
    with transaction.atomic():
        _drop(User.objects.filter(verified=None, date_joined__lt=limit))


def _drop(unverified: QuerySet[User]) -> None:
    """Delete users who were never verified, with the organizations that they founded."""
    Organization.objects.filter(memberships__user__in=unverified).delete()
    unverified.delete()


def reset_password(signed: dict[str, Any], password: str) -> None:
    """Set the password of the account that a reset link names.

    Raises:
        BadInput: the link is forged, too old, or was used before.
        ValidationError: the password is not good enough; the link can be used again.
    """
    with transaction.atomic():
        user = links.use(signed, links.Reset).user
        check_new_password(password, user)
        logins.set_password(user, password)
        audit.note_for_all(user, Action.PASSWORD_RESET)


def ask_for_address(user: User, email: str) -> None:
    """Send a link to a new address of an account, and notify the present one.

    If the address has an account, its holder is notified instead of getting a link.

    Raises:
        Throttled: ``throttled``; the account has asked too often.
    """
    limits.throttle_account("addresses", user.pk)
    mail.later(_send_address_messages, (user, email))


def _send_address_messages(asked: tuple[User, str]) -> None:
    user, email = asked
    # A password or address that came since it was asked ends the request, as it ends the link.
    if not User.objects.unchanged(user).exists():
        return
    mail.send_address_notice(user.email, is_done=False)
    holder = User.objects.with_email(email).filter(verified__isnull=False).first()
    if holder is not None and holder != user:
        mail.send_already_registered(holder)
    elif mail.may_write_to(email):
        links.send(user, links.NewAddress, email)


def change_address(signed: dict[str, Any]) -> None:
    """Give an account the address that a link proves, and notify the former address.

    All other links of the account end: they may be in the mailbox of the former address. So do its
    logins, which began with that address, and registrations of the new one, as when one of them is
    confirmed.

    Raises:
        BadInput: the link is forged, too old, or was used before, or the address has an account
            meanwhile.
    """
    try:
        with transaction.atomic():
            link = links.use(signed, links.NewAddress)
            user, former = link.user, link.user.email
            if not user.is_active:
                raise links.invalid()
            # Before this takes the address: who confirms a registration locks in this order.
            _lock_registrations(link.new_address)
            user.email = User.objects.normalize_email(link.new_address)
            user.save(update_fields=["email"])
            user.links.all().delete()
            user.logins.all().delete()
            _drop(User.objects.with_email(user.email).filter(verified=None))
            audit.note_for_all(user, Action.EMAIL_CHANGED)
    except IntegrityError:  # somebody else's account has it
        raise links.invalid() from None
    mail.later(_send_changed_notice, former)


def _send_changed_notice(former: str) -> None:
    mail.send_address_notice(former, is_done=True)

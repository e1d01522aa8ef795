"""Deletion of an account by its holder.

Address, names, password, second factor, logins, tokens and links go. The row stays under its id,
with an address that nobody can have: signed entries, commits and the audit log name the id, and who
registers the address later is somebody else under another id. Grants of jobs stay until they
expire, so that the proxy of a job learns that it is revoked, and ends it.

An account is not deleted while others would lose something by it: an organization with other people
keeps an owner, and data keeps somebody who has its keys. An organization of the account alone,
without datasets, is deleted with it. Where a signed roster has the person, only the person's own
entry says that they leave; the deletion waits for it, unless the keys for it are lost.

Organizations are locked first, in the order of their ids, and the account after them, as an
admission locks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from encrypted_records.errors import Conflict
from encrypted_records.server.accounts import logins, mail, second_factor
from encrypted_records.server.accounts.models import User, of_address
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.models import Invitation, Membership, Organization
from encrypted_records.server.organizations.roster_tables import Seat


class OrganizationOutcome(StrEnum):
    """What becomes of an organization of the account: it is left, or goes with the account, or is
    in the way of the deletion.
    """

    LEAVE = "leave"
    DELETE = "delete"
    LAST_OWNER = "last_owner"
    HAS_DATASETS = "has_datasets"


@dataclass(frozen=True, slots=True)
class Affected:
    """An organization of the account. ``signed``: its roster has the person, until they sign that
    they leave."""

    organization: Organization
    outcome: OrganizationOutcome
    signed: bool


def look(user: User) -> list[Affected]:
    """What a deletion of the account would do to each of its organizations, or what hinders it."""
    own = Organization.objects.filter(memberships__user=user) | _of_roster(user)
    return [_affected(user, organization) for organization in own.distinct().order_by("pk")]


def _of_roster(user: User) -> QuerySet[Organization]:
    return Organization.objects.filter(standings__member=user.pk, standings__present=True)


def _affected(user: User, organization: Organization) -> Affected:
    others = organization.memberships.exclude(user=user)
    standings = organization.standings.filter(present=True)
    own = standings.filter(member=user.pk).first()
    people = set(others.values_list("user_id", flat=True))
    signed = set(standings.exclude(member=user.pk).values_list("member", flat=True))
    people |= set(
        User.objects.filter(pk__in=signed, service=None, deleted=None).values_list("pk", flat=True)
    )
    if not people:
        has_data = organization.datasets.exists()
        return Affected(
            organization,
            OrganizationOutcome.HAS_DATASETS if has_data else OrganizationOutcome.DELETE,
            False,
        )
    owners = others.filter(role=Membership.Role.OWNER)
    # An account that was deleted unsigned is still in the roster, and signs nothing more.
    signing = standings.filter(is_owner=True, member__in=people)
    is_last = not owners.exists() or (own is not None and own.is_owner and not signing.exists())
    outcome = OrganizationOutcome.LAST_OWNER if is_last else OrganizationOutcome.LEAVE
    return Affected(organization, outcome, own is not None)


def delete(user: User, *, unsigned: bool) -> None:
    """Delete the account.

    Args:
        unsigned: delete it also where a roster has the person, who then stays there until an owner
            removes them.

    Raises:
        Conflict: ``last_owner``, ``has_datasets``, ``in_roster``, each naming the organizations;
            ``account_moved``; it joined an organization at this moment.
    """
    with transaction.atomic():
        locked = _lock_organizations(user)
        user = User.objects.select_for_update(no_key=True).get(pk=user.pk)
        affected = look(user)
        if any(membership.organization.pk not in locked for membership in affected):
            raise Conflict(
                "the account joined an organization at this moment",
                code="account_moved",
                hint="repeat the request",
            )
        _require_free(affected, unsigned=unsigned)
        audit.note_for_all(user, Action.ACCOUNT_DELETED)
        for membership in affected:
            if membership.outcome is OrganizationOutcome.DELETE:
                User.objects.filter(service__organization=membership.organization).update(
                    is_active=False
                )
                membership.organization.delete()
        _end_invitations(user)
        user.memberships.all().delete()
        address = user.email
        _clear(user)
    mail.later(mail.send_deleted, address)


def _lock_organizations(user: User) -> set[str]:
    """Lock all organizations that have something of the account's: it belongs to them, or they
    invite it."""
    inviting = Invitation.objects.filter(_invited(user)).values("organization")
    concerned = (
        Q(memberships__user=user) | Q(pk__in=_of_roster(user).values("pk")) | Q(pk__in=inviting)
    )
    named = set(Organization.objects.filter(concerned).values_list("pk", flat=True))
    own = Organization.objects.filter(pk__in=named).order_by("pk")
    return {organization.pk for organization in own.select_for_update(no_key=True)}


def _invited(user: User) -> Q:
    """Invitations to the account's address, and those that it has sent."""
    named = of_address(Invitation.objects.all(), user.email).values("pk")
    return Q(pk__in=named) | Q(invited_by=user)


def _require_free(affected: list[Affected], *, unsigned: bool) -> None:
    def named(outcome: OrganizationOutcome) -> str:
        return ", ".join(
            membership.organization.slug for membership in affected if membership.outcome is outcome
        )

    if names := named(OrganizationOutcome.LAST_OWNER):
        raise Conflict(
            f"you are the only owner of {names}, and others belong to it",
            code="last_owner",
            hint="make another member an owner first, or remove the others",
        )
    if names := named(OrganizationOutcome.HAS_DATASETS):
        raise Conflict(
            f"nobody else belongs to {names}, and it has datasets",
            code="has_datasets",
            hint="delete its datasets first, or invite somebody and make them an owner",
        )
    names = ", ".join(membership.organization.slug for membership in affected if membership.signed)
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
    """Remove all personal data of the account, and everything that lets somebody in as it."""
    logins.end_all(user)
    second_factor.forget(user)
    user.links.all().delete()
    user.email = f"{user.pk}@deleted.invalid"
    user.first_name = user.last_name = ""
    user.set_unusable_password()
    user.last_login = None
    user.is_active = user.has_second_factor = False
    user.deleted = timezone.now()
    user.save()

"""One request to change a roster, as far as it is applied, under the lock of its organization."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from encrypted_records.errors import BadInput, Conflict, NotAllowed
from encrypted_records.model import ids, public_keys
from encrypted_records.model.roster import EntryBody
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Dataset, Schema
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.models import Invitation, Membership, Organization
from encrypted_records.server.organizations.roster_tables import (
    DatasetKey,
    Seat,
    Shared,
    Standing,
    UsedKey,
)

#: The last second that a date can have here.
_LAST_SECOND = 253_402_300_799


def invalid(detail: str) -> BadInput:
    """An entry, a grant or an answer that no reader would let count."""
    return BadInput(detail, code="invalid_entry")


def require(holds: bool, detail: str) -> None:
    """
    Raises:
        BadInput: ``invalid_entry``.
    """
    if not holds:
        raise invalid(detail)


def moment(seconds: int) -> datetime:
    """
    Raises:
        BadInput: ``invalid_entry``; no date is so late.
    """
    require(seconds <= _LAST_SECOND, "a time is later than any date")
    return datetime.fromtimestamp(seconds, UTC)


def plain(name: str, longest: int) -> str:
    """A name that the database can hold.

    Raises:
        BadInput: ``invalid_entry``.
    """
    require("\0" not in name and len(name) <= longest, "a name is too long, or holds NUL")
    return name


@dataclass
class Change:
    """What the entries of one request act on, and what they have brought about so far."""

    caller: User
    organization: Organization
    #: locked, by id: those whose heads or names the request states
    schemas: dict[str, Schema]
    #: of entry 1
    found: bytes
    #: (dataset, member) that must come with a grant
    concerned: set[tuple[str, str]] = field(default_factory=set)
    #: datasets of which an epoch begins
    begun: set[str] = field(default_factory=set)
    #: to be written to once all is stored
    invited: list[Invitation] = field(default_factory=list)

    def note(self, action: Action, subject: str) -> None:
        audit.note(self.caller, action, self.organization.pk, subject)

    def standing(self, member: str) -> Standing | None:
        """What the roster said last of somebody who is in, or was."""
        return self.organization.standings.filter(member=member).first()

    def present(self, member: str) -> Standing | None:
        standing = self.standing(member)
        return standing if standing is not None and standing.present else None

    def is_owner(self, member: str) -> bool:
        standing = self.present(member)
        return standing is not None and standing.is_owner

    def require_owner(self, body: EntryBody) -> None:
        """
        Raises:
            NotAllowed: ``owners_only``.
        """
        if not self.is_owner(ids.to_text(body.actor)):
            raise NotAllowed("only an owner may sign such an entry", code="owners_only")

    def keep_an_owner(self, leaving: str) -> None:
        """
        Raises:
            Conflict: ``last_owner``.
        """
        others = self.organization.standings.filter(present=True, is_owner=True)
        if not others.exclude(member=leaving).exists():
            raise Conflict(
                "an organization keeps at least one owner",
                code="last_owner",
                hint="make another member an owner first",
            )

    def claim_keys(self, member: str, keys: bytes) -> None:
        """Check that keys are nobody else's and never were, and keep them for this member.

        Raises:
            BadInput: ``invalid_entry``.
        """
        parts = public_keys.split(keys)
        if parts is None or not public_keys.signs_alone(parts.sign):
            raise invalid("these public keys cannot be used")
        digests = [hashlib.sha256(part).digest() for part in parts]
        used = UsedKey.objects.filter(organization=self.organization, digest__in=digests)
        by = {bytes(digest): whose for digest, whose in used.values_list("digest", "member")}
        require(set(by.values()) <= {member}, "these public keys are another member's")
        UsedKey.objects.bulk_create(
            UsedKey(organization=self.organization, digest=digest, member=member)
            for digest in digests
            if digest not in by
        )

    def give_access(self, member: str, *, is_owner: bool) -> None:
        """Make the account of a member one that belongs to the organization."""
        role = Membership.Role.OWNER if is_owner else Membership.Role.MEMBER
        if User.objects.filter(pk=member).exists():
            Membership.objects.update_or_create(
                organization=self.organization,
                user_id=member,
                defaults={"role": role, "all_data": is_owner},
            )

    def take_access(self, member: str) -> None:
        Membership.objects.filter(organization=self.organization, user=member).delete()

    def shares_of(self, member: str) -> set[tuple[str, str | None]]:
        """(dataset, schema or None for all of them) that a member who is no owner reads."""
        shared = Shared.objects.filter(organization=self.organization, member=member)
        return set(shared.values_list("dataset", "schema"))

    def datasets_with_keys(self) -> set[str]:
        """Those that the roster has a key of and that are still there."""
        own = Dataset.objects.filter(organization=self.organization).values("pk")
        keys = DatasetKey.objects.filter(organization=self.organization, dataset__in=own)
        return set(keys.values_list("dataset", flat=True))

    def require_dataset(self, dataset: str) -> Dataset:
        """
        Raises:
            BadInput: ``invalid_entry``; it is not the organization's.
        """
        found = self.organization.datasets.filter(pk=dataset).first()
        if found is None:
            raise invalid("an entry names a dataset that the organization does not have")
        return found

    def end_invitations(self, seats: Iterable[Seat], *, by_entry: bool) -> None:
        """Nobody is admitted by these any more."""
        numbers = [seat.pk for seat in seats]
        ended = {"over": True, "answer": None} | ({"ended": True} if by_entry else {})
        Seat.objects.filter(pk__in=numbers).update(**ended)
        Invitation.objects.filter(pk__in=numbers).delete()

    def holders(self, dataset: str) -> set[str]:
        """Everybody who reads something of a dataset."""
        owners = self.organization.standings.filter(present=True, is_owner=True)
        shared = Shared.objects.filter(organization=self.organization, dataset=dataset)
        return {
            *owners.values_list("member", flat=True),
            *shared.values_list("member", flat=True),
        }

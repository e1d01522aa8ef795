"""One request to change a roster, as far as it was applied, under the lock of its organization."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from encrypted_records.errors import BadInput, Conflict, ErsError, NotAllowed
from encrypted_records.model import ids
from encrypted_records.rules.roster_judging import EntryFault
from encrypted_records.rules.roster_state import RosterState
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Dataset, Schema
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.models import Invitation, Membership, Organization
from encrypted_records.server.organizations.roster_tables import Seat

#: The last second that a date can have here.
_LAST_SECOND = 253_402_300_799

#: How entries are refused that no reader would let count: class, code and hint. All others, too,
#: are ``invalid_entry``.
_REFUSALS: dict[EntryFault, tuple[type[ErsError], str, str | None]] = {
    EntryFault.OWNERS_ONLY: (NotAllowed, "owners_only", None),
    EntryFault.NOT_WRITER: (NotAllowed, "not_writer", None),
    EntryFault.LAST_OWNER: (Conflict, "last_owner", "make another member an owner first"),
    EntryFault.INVITATION_OVER: (Conflict, "invitation_over", "create a new invitation"),
    EntryFault.MOVED: (
        Conflict,
        "schema_placed",
        "create a schema in the other dataset, and store the records there",
    ),
}


def refusal(reason: EntryFault) -> ErsError:
    """The error for an entry that would not count."""
    kind, code, hint = _REFUSALS.get(reason, (BadInput, "invalid_entry", None))
    return kind(reason.sentence, code=code, hint=hint)


def invalid(detail: str) -> BadInput:
    """An entry, a grant or an answer that no reader would let count."""
    return BadInput(detail, code="invalid_entry")


def moved(what: str = "sign the change") -> Conflict:
    """Something was signed behind another entry than the newest.

    Args:
        what: is to be done again.
    """
    return Conflict(
        "the roster has changed",
        code="roster_moved",
        hint=f"read the roster to its end, and {what} again if it still makes sense",
    )


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
    require("\0" not in name and len(name) <= longest, "a name is too long, or contains NUL")
    return name


@dataclass
class RosterChange:
    """The things that entries of one request act on, and what they have brought about so far."""

    caller: User
    organization: Organization
    #: locked, by id: those whose heads or names the request states
    schemas: dict[str, Schema]
    #: the roster without the request, and with what was applied of it
    before: RosterState
    state: RosterState
    #: (dataset, member) that must come with a grant
    concerned: set[tuple[str, str]] = field(default_factory=set)
    #: datasets of which an epoch begins
    begun: set[str] = field(default_factory=set)
    #: to be written to once all is stored
    invited: list[Invitation] = field(default_factory=list)

    def note(self, action: Action, subject: str) -> None:
        audit.note(self.caller, action, self.organization.pk, subject)

    def give_access(self, member: str, *, is_owner: bool) -> None:
        """Make the account of a member one that belongs to the organization."""
        role = Membership.Role.OWNER if is_owner else Membership.Role.MEMBER
        # An account that is deleted belongs nowhere, whatever is signed of it.
        if User.objects.select_for_update(no_key=True).filter(pk=member, deleted=None).first():
            Membership.objects.update_or_create(
                organization=self.organization,
                user_id=member,
                defaults={"role": role, "all_data": is_owner},
            )

    def take_access(self, member: str) -> None:
        Membership.objects.filter(organization=self.organization, user=member).delete()

    def datasets_with_keys(self) -> set[str]:
        """The existing datasets of which the roster has a key."""
        own = Dataset.objects.filter(organization=self.organization).values_list("pk", flat=True)
        return set(own) & set(map(ids.to_text, self.state.epochs))

    def require_dataset(self, dataset: str) -> Dataset:
        """
        Raises:
            BadInput: ``invalid_entry``; it is not the organization's.
        """
        found = self.organization.datasets.filter(pk=dataset).first()
        if found is None:
            raise invalid("an entry names a dataset that the organization does not have")
        return found

    def end_invitations(self, numbers: Iterable[str]) -> None:
        """End these invitations; they admit no member any more."""
        ended = list(numbers)
        Seat.objects.filter(pk__in=ended).update(over=True, answer=None)
        Invitation.objects.filter(pk__in=ended).delete()

    def holders(self, dataset: str) -> set[str]:
        """Everybody who reads something of a dataset."""
        named = ids.from_text(dataset)
        present = (self.state.member(member) for member in self.state.members_now)
        return {
            ids.to_text(member.member)
            for member in present
            if member is not None and member.reads(named)
        }

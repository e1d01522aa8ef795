"""The state of a roster after its entries, and a request that changes it.

An entry is judged by the state after the entries before it, with the same code as in its readers
(:mod:`encrypted_records.rules`). Its signatures were verified before it was stored, and are not
verified again here. A process caches these states, and continues from them with the entries that
other processes have stored since.

A state is identified by number and digest of its newest entry; the digest covers all entries before
it. So a state from a transaction that was rolled back, from a restored database, or from another
organization is never used for the stored roster.

A change is the state of one request so far, under the lock of its organization.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
from django.db import transaction

from encrypted_records.errors import BadInput, Conflict, DatabaseDamaged, ErsError, NotAllowed
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.rules import roster_judging
from encrypted_records.rules.roster_judging import EntryFault
from encrypted_records.rules.roster_state import RosterState
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Dataset, Schema
from encrypted_records.server.db.databases import reading_stored
from encrypted_records.server.organizations import audit
from encrypted_records.server.organizations.models import (
    Entry,
    Invitation,
    Membership,
    Organization,
    Seat,
)

#: Bytes of the cached states, with the bodies of their entries.
_MOST_BYTES = 32 << 20
#: Bytes of a state without entries.
_SUM_BYTES = 8 << 10
_AT_ONCE = 100
_ENTRY = "an entry of a roster"
_openings = msgspec.msgpack.Decoder(list[bytes])


@dataclass(frozen=True, slots=True)
class SizedState:
    """The state after a number of entries, and its approximate size in bytes. Do not change the
    state: copy it before applying further entries.
    """

    state: RosterState = field(default_factory=lambda: RosterState(historic=False))
    size: int = _SUM_BYTES

    def is_of(self, organization: Organization) -> bool:
        head = (organization.roster_number, bytes(organization.roster_digest))
        return (self.state.number, self.state.digest) == head


class RosterStates:
    """The states that a process caches: one per organization, the most recently used."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        """
        Args:
            most_bytes: of all states; the last used state is always kept.
        """
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, SizedState] = OrderedDict()
        self._lock = threading.Lock()

    def prepare(self, organization: Organization) -> None:
        """Compute in advance the state that :meth:`of` needs under the organization's lock.

        Raises:
            DatabaseDamaged: a stored entry is malformed.
        """
        kept = self._find(organization.pk)
        # A cached state may be newer than the caller's row; keep it for other requests.
        if kept is None or kept.state.number < organization.roster_number:
            self._keep(organization.pk, self._add_up(organization))

    def of(self, organization: Organization) -> SizedState:
        """The state after all entries of an organization, which is locked.

        Raises:
            DatabaseDamaged: the stored entries do not lead to the stored head, or are malformed.
        """
        found = self._add_up(organization)
        if not found.is_of(organization):
            raise DatabaseDamaged("the stored entries of a roster do not lead to its head")
        self._keep(organization.pk, found)
        return found

    def keep_when_stored(self, organization: Organization, newest: SizedState) -> None:
        """Cache this state once the transaction that stores its entries is committed."""
        transaction.on_commit(lambda: self._keep(organization.pk, newest))

    def _find(self, organization: str) -> SizedState | None:
        with self._lock:
            return self._kept.get(organization)

    def _keep(self, organization: str, newest: SizedState) -> None:
        with self._lock:
            self._kept[organization] = newest
            self._kept.move_to_end(organization)
            size = sum(kept.size for kept in self._kept.values())
            while size > self._most_bytes and len(self._kept) > 1:
                size -= self._kept.popitem(last=False)[1].size

    def _add_up(self, organization: Organization) -> SizedState:
        """The state after the stored entries up to the organization's head, as far as they are
        stored.
        """
        kept = self._find(organization.pk)
        if kept is not None and kept.is_of(organization):
            return kept
        if kept is not None and 0 < kept.state.number < organization.roster_number:
            further = _go_on(organization, kept)
            if further is not None:
                return further
        return _go_on(organization, SizedState()) or SizedState()


def _go_on(organization: Organization, since: SizedState) -> SizedState | None:
    """The state after the entries that follow ``since``; None if they do not continue it.

    Raises:
        DatabaseDamaged: a stored entry is malformed.
    """
    state, size = since.state.copy(), since.size
    organization_id = ids.from_text(organization.pk)
    for entry in stored_entries(organization, state.number, organization.roster_number):
        with reading_stored(_ENTRY):
            body = form.read_entry(entry)
        if not _follows(state, organization_id, body):
            return None
        size += len(entry.body)
        digest = form.entry_digest(entry)
        if roster_judging.judge(state, body, roster_judging.RIGHT) is None:
            state.apply(body, digest)
        else:
            state.pass_over(body, digest)
    return SizedState(state, size)


def _follows(state: RosterState, organization: bytes, body: form.EntryBody) -> bool:
    stated = (body.organization, body.number, body.previous)
    return stated == (organization, state.number + 1, state.digest)


def stored_entries(organization: Organization, after: int, last: int) -> Iterator[form.RosterEntry]:
    """The stored entries after number ``after``, up to ``last``.

    Raises:
        DatabaseDamaged: the openings of an entry are malformed.
    """
    # Entries may be long, so only a few are read at a time.
    for number in range(after, last, _AT_ONCE):
        rows = Entry.objects.filter(
            organization=organization,
            number__gt=number,
            number__lte=min(number + _AT_ONCE, last),
        ).order_by("number")
        batch = list(rows.values_list("body", "signature", "openings"))
        for body, signature, openings in batch:
            with reading_stored(_ENTRY):
                shown = _openings.decode(openings)
            yield form.RosterEntry(bytes(body), bytes(signature), shown)
        if len(batch) < _AT_ONCE:
            return


#: The states that this process caches.
STATES = RosterStates()


#: The last second that a datetime can represent.
_LAST_SECOND = 253_402_300_799

#: Class, code and hint of the error for entries that no reader would accept. All other faults are
#: ``invalid_entry``.
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
    """The error for an entry that readers would reject."""
    kind, code, hint = _REFUSALS.get(reason, (BadInput, "invalid_entry", None))
    return kind(reason.sentence, code=code, hint=hint)


def invalid(detail: str) -> BadInput:
    """The error for an entry, a grant or an answer that readers would reject."""
    return BadInput(detail, code="invalid_entry")


def moved(action: str = "sign the change") -> Conflict:
    """The error for a signature based on an entry that is not the newest.

    Args:
        action: the action to repeat.
    """
    return Conflict(
        "the roster has changed",
        code="roster_moved",
        hint=f"read the roster to its end, and {action} again if it still makes sense",
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
        BadInput: ``invalid_entry``; the time is too late for a datetime.
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
    """The resources that entries of one request act on, and the effects so far."""

    caller: User
    organization: Organization
    #: by id, locked: those whose heads or names the request states
    schemas: dict[str, Schema]
    #: the state without the request, and the state with the entries applied so far
    before: RosterState
    state: RosterState
    #: (dataset, member) pairs for which the request must have a grant
    concerned: set[tuple[str, str]] = field(default_factory=set)
    #: datasets that begin an epoch
    begun: set[str] = field(default_factory=set)
    #: invitations to send once everything is stored
    invited: list[Invitation] = field(default_factory=list)

    def note(self, action: audit.Action, subject: str) -> None:
        audit.note(self.caller, action, self.organization.pk, subject)

    def give_access(self, member: str, *, is_owner: bool) -> None:
        """Make the account of a member a member of the organization."""
        role = Membership.Role.OWNER if is_owner else Membership.Role.MEMBER
        # A deleted account has no memberships, whatever the roster says.
        if User.objects.lock_existing(member):
            Membership.objects.update_or_create(
                organization=self.organization,
                user_id=member,
                defaults={"role": role, "all_data": is_owner},
            )

    def take_access(self, member: str) -> None:
        Membership.objects.filter(organization=self.organization, user=member).delete()

    def datasets_with_keys(self) -> set[str]:
        """The existing datasets that have keys in the roster."""
        datasets = Dataset.objects.filter(organization=self.organization).values_list(
            "pk", flat=True
        )
        return set(datasets) & set(map(ids.to_text, self.state.epochs))

    def require_dataset(self, dataset: str) -> Dataset:
        """
        Raises:
            BadInput: ``invalid_entry``; the organization has no such dataset.
        """
        # Locked, like schemas: its name is compared with that in an entry.
        of_organization = self.organization.datasets.select_for_update(no_key=True)
        found = of_organization.filter(pk=dataset).first()
        if found is None:
            raise invalid("an entry names a dataset that the organization does not have")
        return found

    def end_invitations(self, numbers: Iterable[str]) -> None:
        """End these invitations; they admit no member any more."""
        ended = list(numbers)
        Seat.objects.filter(pk__in=ended).update(over=True, answer=None)
        Invitation.objects.filter(pk__in=ended).delete()

    def holders(self, dataset: str) -> set[str]:
        """All members who can read any part of a dataset."""
        named = ids.from_text(dataset)
        present = (self.state.member(member) for member in self.state.members_now)
        return {
            ids.to_text(member.member)
            for member in present
            if member is not None and member.reads(named)
        }

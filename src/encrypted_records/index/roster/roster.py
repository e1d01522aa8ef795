"""The roster: the signed member list of an organization, verified entry by entry.

The API is not trusted: every entry names the digest of the previous entry, and is valid only if it
was signed by a member with the right to do so at that point (docs/SPEC.md, section 15.4). The state
at earlier entries stays known, because commits and grants name the entry that their makers had
read. Only the signed bytes decide whether an entry is valid. Names are signed as commitments, and a
name without an opening is :class:`encrypted_records.model.signatures.Withheld`; nothing else
depends on it.

Checks of access refuse operations without the right to them, and unsigned data. Pending changes are
tasks that owners still have to do. They are not stored but derived from the entries, so that a
crash at any point leaves only more work (docs/SPEC.md, section 15.7).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from encrypted_records import errors
from encrypted_records.crypto.identity import Identity, MemberKeys
from encrypted_records.model import roster as form
from encrypted_records.model.signatures import require_shown
from encrypted_records.rules import roster_judging, roster_state
from encrypted_records.rules.roster_judging import RequestFault, Void
from encrypted_records.rules.roster_state import (
    DatasetEntry,
    Ending,
    Epoch,
    InvitationState,
    Member,
    RightLoss,
    RosterState,
    SchemaEntry,
    Scope,
)


@dataclass(frozen=True, slots=True)
class NewestEntry:
    """The newest entry of a roster: a proxy remembers it. ``time`` is stated by its actor."""

    number: int
    digest: bytes
    time: int


class Roster:
    """The verified part of an organization's roster. It only grows."""

    def __init__(self, organization: bytes, entries: Iterable[form.RosterEntry] = ()) -> None:
        """
        Args:
            organization: 16-byte identifier.

        Raises:
            RosterBroken, Unsupported: as :meth:`append`.
        """
        self.organization = organization
        #: the reasons why entries are void, by number
        self.voids: dict[int, Void] = {}
        self._state = RosterState()
        self._digests = [form.NO_DIGEST]
        self._times = [0]
        #: loaded public keys, by their bytes
        self._keys: dict[bytes, MemberKeys] = {}
        #: the first entry without one of its names; 0 if all names are known
        self.withheld = 0
        self.extend(entries)

    def extend(self, entries: Iterable[form.RosterEntry]) -> None:
        """Append entries in sequence; entries before a bad entry stay.

        Raises:
            RosterBroken, Unsupported: as :meth:`append`.
        """
        for entry in entries:
            self.append(entry)

    def copy(self) -> Roster:
        """A copy that can be extended independently, for example with drafted entries."""
        other = Roster(self.organization)
        other.voids = dict(self.voids)
        other._state = self._state.copy()
        other._digests = list(self._digests)
        other._times = list(self._times)
        other._keys = dict(self._keys)
        other.withheld = self.withheld
        return other

    def append(self, entry: form.RosterEntry) -> Void | None:
        """Append the next entry; return the reason why it is void, or None if it counts.

        Raises:
            RosterBroken: it breaks the form or the chain, or is not a foundation but must be. The
                roster is unchanged.
            Unsupported: it has a format or kind that this version does not know, or exceeds the
                maximum number of entries. The roster is unchanged.
        """
        try:
            body = form.read_entry(entry)
        except errors.Malformed:
            raise errors.RosterBroken(
                "an entry of the organization's roster is malformed, or has a name that was"
                " not signed"
            ) from None
        if body.organization != self.organization:
            raise errors.RosterBroken("an entry in the roster is of another organization")
        if body.number != self.number + 1 or body.previous != self._digests[-1]:
            raise errors.RosterBroken(
                "an entry of the organization's roster does not follow the earlier entries"
            )
        if body.number > form.MAX_ENTRIES:
            raise errors.Unsupported(
                f"the organization's roster has more than {form.MAX_ENTRIES} entries",
                hint="use the newest version of encrypted-records",
            )
        void = self.judge(entry, body)
        if body.number == 1 and void is not None:
            raise errors.RosterBroken(
                "the first entry of the roster does not found an organization"
            )
        digest = form.entry_digest(entry)
        if void is None:
            self._state.apply(body, digest)
        else:
            self._state.pass_over(body, digest)
            self.voids[body.number] = void
        if not body.whole and not self.withheld:
            self.withheld = body.number
        self._digests.append(digest)
        self._times.append(body.time)
        return void

    def judge(self, entry: form.RosterEntry, body: form.EntryBody) -> Void | None:
        """The result of :meth:`append` for the next entry, without the checks of form and chain."""
        verified = roster_judging.verify(self._state, entry, body, self._is_by)
        reason = roster_judging.judge(self._state, body, verified)
        return None if reason is None else reason.void

    def judge_request(
        self, request: form.AccessRequest, body: form.AccessRequestBody, now: int
    ) -> RequestFault | None:
        """The reason why a request for access is invalid in this roster; None if it is valid.

        Args:
            body: the request's statement.
            now: in seconds since 1970.
        """
        if body.organization != self.organization:
            return RequestFault.MEMBER
        digest = self.digest_at(body.number)
        return roster_judging.judge_request(
            self._state, request, body, digest=digest, is_by=self._is_by, now=now
        )

    def _is_by(self, keys: bytes, signature: bytes, message: bytes) -> bool:
        try:
            return self._load(keys).verifier.verify(signature, message)
        except errors.KeysRefused:
            return False

    def _load(self, keys: bytes) -> MemberKeys:
        loaded = self._keys.get(keys)
        if loaded is None:
            loaded = self._keys[keys] = MemberKeys(keys)
        return loaded

    def keys_of(self, member: Member) -> MemberKeys:
        """The loaded public keys of a standing."""
        return self._load(member.keys)

    @property
    def number(self) -> int:
        """The number of the newest entry; 0 if there is none."""
        return len(self._digests) - 1

    @property
    def head(self) -> NewestEntry:
        return NewestEntry(self.number, self._digests[-1], self._times[-1])

    @property
    def found(self) -> bytes:
        """The digest of entry 1, which names the organization; zero bytes without entries."""
        return self._state.found

    @property
    def founder(self) -> bytes:
        """The actor of entry 1."""
        return self._state.founder

    def digest_at(self, number: int) -> bytes | None:
        """The digest of an entry; None if the roster does not reach it."""
        return self._digests[number] if 0 <= number <= self.number else None

    def time_at(self, number: int) -> int:
        """The time of an entry as stated by its actor, in seconds since 1970. It is for display
        only and not trusted. 0 if the roster has no such entry.
        """
        return self._times[number] if 0 <= number <= self.number else 0

    def member(self, member: bytes, number: int | None = None) -> Member | None:
        """The state of a member at an entry, or now; None if the id was never a member. A removed
        member is not ``present``.
        """
        return roster_state.at(self._state.members.get(member, ()), number)

    def histories(self) -> Iterator[list[Member]]:
        """All members, including removed members, with all their standings, the newest last."""
        yield from self._state.members.values()

    def members(self, number: int | None = None) -> list[Member]:
        """The members of the organization at an entry, or now, in the order of their first
        admission.
        """
        found = (roster_state.at(member, number) for member in self._state.members.values())
        return [member for member in found if member is not None and member.present]

    def owners(self, number: int | None = None) -> list[Member]:
        return [member for member in self.members(number) if member.owns]

    def dataset(self, dataset: bytes, number: int | None = None) -> DatasetEntry | None:
        return roster_state.at(self._state.datasets.get(dataset, ()), number)

    def datasets(self) -> list[DatasetEntry]:
        """All datasets that were ever in the roster, in their current state and in the order of
        their first entries; the name of a dataset may have been freed.
        """
        return [dataset[-1] for dataset in self._state.datasets.values()]

    def epoch(self, dataset: bytes, number: int | None = None) -> Epoch | None:
        """The epoch of a dataset's keys at an entry, or now."""
        return roster_state.at(self._state.epochs.get(dataset, ()), number)

    def epochs(self, dataset: bytes) -> list[Epoch]:
        """All epochs of a dataset's keys, epoch 1 first."""
        return list(self._state.epochs.get(dataset, ()))

    def first(self, dataset: bytes, number: int | None = None) -> int:
        """The oldest epoch of a dataset's keys that is not forgotten, at an entry or now."""
        return self._state.first(dataset, number)

    def forgot_at(self, dataset: bytes) -> int:
        """The newest entry by which epochs of a dataset's keys were forgotten; 0 without such an
        entry."""
        forgotten = self._state.forgotten.get(dataset)
        return forgotten[-1].number if forgotten else 0

    def listed_at(self, dataset: bytes) -> int:
        """The entry that lets members request access to a dataset; 0 if they may not."""
        return self._state.listed_at(dataset)

    def schema(self, schema: bytes, number: int | None = None) -> SchemaEntry | None:
        return roster_state.at(self._state.schemas.get(schema, ()), number)

    def schemas(self, dataset: bytes) -> list[SchemaEntry]:
        """The schemas that were ever placed in a dataset, in their current state."""
        return [
            schema[-1] for schema in self._state.schemas.values() if schema[-1].dataset == dataset
        ]

    def every_schema(self) -> list[SchemaEntry]:
        """All schemas that were ever placed, in their current state."""
        return [schema[-1] for schema in self._state.schemas.values()]

    def ends(self, schema: bytes) -> list[Ending]:
        """The stated heads of this schema's log when epochs of its dataset's keys began, oldest
        first.
        """
        return list(self._state.endings.get(schema, ()))

    def open(self, dataset: bytes) -> list[SchemaEntry]:
        """The schemas of a dataset that are older than its newest epoch, which has not stated the
        heads of their logs yet, so that former writers could still commit to them."""
        found = (
            self._state.schemas[schema_id][-1] for schema_id in self._state.open.get(dataset, ())
        )
        return sorted((schema for schema in found if schema.slug), key=lambda schema: schema.schema)

    def invitation(self, invitation: bytes) -> InvitationState | None:
        return self._state.invitations.get(invitation)

    def invitations(self) -> list[InvitationState]:
        return list(self._state.invitations.values())

    def losses(self, dataset: bytes) -> list[RightLoss]:
        """The members who lost a right to a dataset, or were given other keys, since its newest
        epoch began.
        """
        return list(self._state.losses.get(dataset, ()))

    def is_of_another(self, member: bytes, keys: bytes) -> bool:
        """Whether one of these public keys belongs, or belonged, to another member."""
        return roster_judging.is_of_another(self._state, member, keys)

    def reads(self, member: bytes, dataset: bytes, number: int | None = None) -> Scope:
        """The schemas of a dataset that a member may read at an entry, or now."""
        standing = self.member(member, number)
        return roster_state.NOTHING if standing is None else standing.reads(dataset)

    def writes(self, member: bytes, dataset: bytes, number: int | None = None) -> Scope:
        """The schemas of a dataset that a member may write at an entry, or now."""
        standing = self.member(member, number)
        return roster_state.NOTHING if standing is None else standing.writes(dataset)

    def had_since(self, member: bytes, share: form.Share) -> int:
        """The entry since which a member has had at least this share without a break; 0 if the
        member does not have it.
        """
        scope = Scope(whole=not share.schemas, schemas=frozenset(share.schemas))
        since = 0
        for standing in reversed(self._state.members.get(member, ())):
            writes = share.right == form.WRITER
            has = standing.writes(share.dataset) if writes else standing.reads(share.dataset)
            if not has.contains(scope):
                break
            since = standing.number
        return since

    def owned_since(self, member: bytes) -> int:
        """The entry since which a member has been an owner without a break; 0 if not an owner."""
        since = 0
        for standing in reversed(self._state.members.get(member, ())):
            if not standing.owns:
                break
            since = standing.number
        return since

    def may_write(self, member: bytes, schema: bytes, number: int | None = None) -> bool:
        """Whether a member may commit to a schema at an entry, or now."""
        placed = self.schema(schema, number)
        return placed is not None and self.writes(member, placed.dataset, number).has(schema)

    def may_read(self, member: bytes, schema: bytes, number: int | None = None) -> bool:
        placed = self.schema(schema, number)
        return placed is not None and self.reads(member, placed.dataset, number).has(schema)


def require_owner(roster: Roster, member: bytes) -> None:
    """
    Raises:
        NotAllowed: ``owners_only``, or ``not_admitted``.
    """
    if not _require_present(roster, member).owns:
        raise errors.NotAllowed(
            "only owners of the organization may do that",
            code="owners_only",
            hint="ask one of them; ers share list shows who they are",
        )


def require_member(roster: Roster, member: bytes, dataset: bytes) -> Member:
    """The member, if it may read any part of the dataset.

    Raises:
        NotAllowed: ``not_shared``, or ``not_admitted``.
    """
    standing = _require_present(roster, member)
    if not standing.reads(dataset):
        raise errors.NotAllowed(
            "this dataset is not shared with that member",
            code="not_shared",
            hint="share it first: ers share set",
        )
    return standing


def require_reader(roster: Roster, member: bytes, schema: bytes) -> None:
    """
    Raises:
        NotAllowed: ``not_shared``, or ``not_admitted``.
    """
    _require_present(roster, member)
    if not roster.may_read(member, schema):
        raise errors.NotAllowed(
            "this schema is not shared with you",
            code="not_shared",
            hint="ask an owner of the organization to share it: ers share set",
        )


def require_writer(roster: Roster, member: bytes, schema: bytes) -> None:
    """
    Raises:
        NotAllowed: ``not_writer``, ``not_shared``, or ``not_admitted``.
    """
    require_reader(roster, member, schema)
    if not roster.may_write(member, schema):
        raise errors.NotAllowed(
            "you can read this schema, but not write to it",
            code="not_writer",
            hint="ask an owner of the organization to make you a writer: ers share set",
        )


def require_signed(roster: Roster, shown: form.Placement) -> None:
    """Check that the API's data of a schema equals the signed data. Its definition counts before
    the log's first commit; from then on, the log's definition counts.

    Raises:
        SchemaUnsigned: it was never placed, its name was freed, or something differs.
        RosterWithheld: the API does not show the signed data.
    """
    placed = roster.schema(shown.schema)
    if placed is None or not placed.slug:
        raise errors.SchemaUnsigned(
            "this schema was created at the API, and no owner has signed it"
        )
    require_shown(placed.slug)
    if placed.placement != shown:
        raise errors.SchemaUnsigned("the schema as the API shows it is not what was signed")


def _require_present(roster: Roster, member: bytes) -> Member:
    standing = roster.member(member)
    if standing is None or not standing.present:
        raise errors.NotAllowed(
            "you are not in this organization's roster",
            code="not_admitted",
            hint="enter the words of your invitation with ers share accept; an owner's proxy then"
            " admits you",
        )
    return standing


@dataclass(frozen=True, slots=True)
class DueDataset:
    """A dataset that needs a new epoch if there are ``losses`` since the newest epoch began, and
    statements of the heads of the logs of ``open`` schemas.
    """

    dataset: bytes
    epoch: int
    losses: tuple[RightLoss, ...]
    open: tuple[SchemaEntry, ...]


def due_datasets(roster: Roster) -> list[DueDataset]:
    """Datasets in which a member lost a right or was given other keys since the newest epoch began,
    or whose newest epoch has not stated the ends of all logs. A dataset whose name was freed needs
    no new key.
    """
    found = []
    for dataset in roster.datasets():
        losses = roster.losses(dataset.dataset)
        epoch, open_ = roster.epoch(dataset.dataset), roster.open(dataset.dataset)
        if (losses or open_) and epoch is not None and dataset.slug:
            found.append(DueDataset(dataset.dataset, epoch.epoch, tuple(losses), tuple(open_)))
    return found


def due_services(roster: Roster, now: int) -> list[Member]:
    """Services to be removed: they have expired, or their creator, who has seen their secret keys,
    is no longer an owner.

    Args:
        now: in seconds since 1970.
    """
    owners = {owner.member for owner in roster.owners()}
    return [
        member
        for member in roster.members()
        if member.type == form.SERVICE
        and (member.keyed_by not in owners or (member.expires and now >= member.expires))
    ]


def holders_of(roster: Roster, dataset: bytes) -> list[tuple[Member, Scope]]:
    """All members that need a grant of a dataset's newest epoch, with the schemas."""
    scopes = ((member, member.reads(dataset)) for member in roster.members())
    return [(member, scope) for member, scope in scopes if scope]


def sign_entry(
    roster: Roster, identity: Identity, actor: bytes, time: int, content: form.Content
) -> form.RosterEntry:
    """The signed next entry of the roster. It is not appended.

    Args:
        identity: that of ``actor``.
        time: in seconds since 1970.

    Raises:
        NotAllowed, Conflict, BadInput: the entry would be void; the code gives the reason.
        RosterWithheld: it states a name that is not known.
    """
    body = form.EntryBody(
        roster.organization, roster.number + 1, roster.head.digest, time, actor, content
    )
    encoded, openings = form.encode_entry_body(body)
    if len(encoded) > form.MAX_ENTRY_BYTES:
        raise errors.TooLarge(f"an entry of a roster has at most {form.MAX_ENTRY_BYTES} bytes")
    entry = form.RosterEntry(encoded, identity.sign("roster", encoded), openings)
    if body.number > 1:
        void = roster.judge(entry, body)
        if void is not None:
            raise _refusal(void)
    else:
        assert isinstance(content, form.FoundingEntry), "a roster begins with its foundation"
    return entry


def _refusal(void: Void) -> errors.ErsError:
    if void in (Void.RIGHT, Void.SIGNATURE):
        return errors.NotAllowed(
            "the organization's roster does not allow you to do that",
            code="owners_only",
            hint="ask an owner of the organization; ers share list shows who they are",
        )
    if void is Void.LAST_OWNER:
        return errors.Conflict(
            "the organization would be left without an owner",
            code="last_owner",
            hint="make another member an owner first",
        )
    if void is Void.INVITATION:
        return errors.InvitationOver("the invitation is over, or is for another account")
    if void in (Void.KEYS, Void.PROOF):
        return errors.KeysRefused("the member's public keys cannot be used")
    if void is Void.LIMIT:
        return errors.TooLarge("the organization has reached the limit for these entries")
    return errors.BadInput(f"the organization's roster cannot accept this: {void.value}")

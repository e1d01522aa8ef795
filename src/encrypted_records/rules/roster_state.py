"""The state of a roster after its entries, with the history that gives the state at each entry.

Nothing here judges: :mod:`.roster_judging` decides which entries count, and
:meth:`RosterState.apply` applies them (docs/SPEC.md, section 15.4).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from encrypted_records.model import roster as form
from encrypted_records.model import signatures


@dataclass(frozen=True, slots=True)
class Scope:
    """Schemas of one dataset: all, including later ones, or only the listed ones."""

    whole: bool = False
    schemas: frozenset[bytes] = frozenset()

    def __bool__(self) -> bool:
        return self.whole or bool(self.schemas)

    def has(self, schema: bytes) -> bool:
        return self.whole or schema in self.schemas

    def contains(self, other: Scope) -> bool:
        return self.whole or (not other.whole and other.schemas <= self.schemas)


EVERYTHING = Scope(whole=True)
NOTHING = Scope()


@dataclass(frozen=True, slots=True)
class Member:
    """The state of a member from entry ``number`` on, under public ``keys`` of 1,249 bytes.

    ``present`` is false after a removal: the keys stay known, and nothing else counts.
    ``joined`` is the entry that last admitted the member, and ``admitted_by`` its actor;
    ``keyed_by`` is the actor of the entry that named the keys.
    """

    number: int
    member: bytes
    type: int
    role: int
    name: str
    keys: bytes
    anchor: bytes
    shares: tuple[form.Share, ...]
    expires: int
    joined: int
    admitted_by: bytes
    keyed_by: bytes
    invitation: bytes
    present: bool = True

    @property
    def owns(self) -> bool:
        return self.present and self.role == form.OWNER

    def reads(self, dataset: bytes) -> Scope:
        """The schemas of a dataset that the member may read."""
        return self._scope(dataset, (form.WRITER, form.READER))

    def writes(self, dataset: bytes) -> Scope:
        """The schemas of a dataset that the member may write."""
        return self._scope(dataset, (form.WRITER,))

    def _scope(self, dataset: bytes, rights: tuple[int, ...]) -> Scope:
        if not self.present:
            return NOTHING
        if self.role == form.OWNER:
            return EVERYTHING
        found = [
            share for share in self.shares if share.dataset == dataset and share.right in rights
        ]
        if any(not share.schemas for share in found):
            return EVERYTHING
        return Scope(schemas=frozenset(schema for share in found for schema in share.schemas))


@dataclass(frozen=True, slots=True)
class DatasetEntry:
    """A dataset's name from entry ``number`` on; empty after it was freed."""

    number: int
    dataset: bytes
    slug: str
    name: str


@dataclass(frozen=True, slots=True)
class Epoch:
    """An epoch of a dataset's keys, which began with entry ``number``."""

    number: int
    epoch: int
    commitment: bytes


@dataclass(frozen=True, slots=True)
class Ending:
    """The head of a schema's log when ``epoch`` of its dataset's keys began, as stated by entry
    ``number``, which is the entry of the epoch or a later one.
    """

    number: int
    epoch: int
    version: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class ForgottenEpochs:
    """From entry ``number`` on, grants omit epochs of a dataset before ``first``."""

    number: int
    first: int


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """A schema's dataset, name and definition from entry ``number`` on."""

    number: int
    schema: bytes
    dataset: bytes
    slug: str
    name: str
    definition: bytes

    @property
    def placement(self) -> form.Placement:
        return form.Placement(self.schema, self.dataset, self.slug, self.name, self.definition)


@dataclass(frozen=True, slots=True)
class InvitationState:
    """An invitation, and the entry that ended it, if any."""

    number: int
    digest: bytes
    previous: bytes
    time: int
    inviter: bytes
    content: form.Invite[str]
    admitted: int | None = None
    withdrawn: int | None = None

    @property
    def open(self) -> bool:
        """Whether no entry has ended it. It may have expired."""
        return self.admitted is None and self.withdrawn is None


@dataclass(frozen=True, slots=True)
class RightLoss:
    """``member`` lost a right to a dataset, or was given other keys, by entry ``number``."""

    number: int
    member: bytes


class _Numbered(Protocol):
    @property
    def number(self) -> int: ...


_Item = TypeVar("_Item", bound=_Numbered)


def at(history: Sequence[_Item], number: int | None) -> _Item | None:
    """The last element of ``history`` made by entry ``number`` or an earlier one; without a number,
    the last element.
    """
    if number is None:
        return history[-1] if history else None
    place = bisect_right(history, number, key=lambda item: item.number)
    return history[place - 1] if place else None


@dataclass
class RosterState:
    """The state after all entries so far; histories have their newest element last."""

    #: the newest entry, and its digest
    number: int = 0
    digest: bytes = form.NO_DIGEST
    #: the digest of entry 1, which names the organization, and its actor
    found: bytes = form.NO_DIGEST
    founder: bytes = b""
    members: dict[bytes, list[Member]] = field(default_factory=dict)
    datasets: dict[bytes, list[DatasetEntry]] = field(default_factory=dict)
    #: of each dataset; epoch n has index n - 1
    epochs: dict[bytes, list[Epoch]] = field(default_factory=dict)
    #: the forgotten epochs of each dataset
    forgotten: dict[bytes, list[ForgottenEpochs]] = field(default_factory=dict)
    schemas: dict[bytes, list[SchemaEntry]] = field(default_factory=dict)
    #: datasets that members may request access to, each with the entry that listed it
    listings: dict[bytes, int] = field(default_factory=dict)
    invitations: dict[bytes, InvitationState] = field(default_factory=dict)
    #: since the newest epoch of each dataset began
    losses: dict[bytes, list[RightLoss]] = field(default_factory=dict)
    #: the member of each public key, present or former
    holders: dict[bytes, bytes] = field(default_factory=dict)
    #: for each schema, the heads of its log at which epochs began
    endings: dict[bytes, list[Ending]] = field(default_factory=dict)
    #: for each dataset, the schemas that are older than its newest epoch and have no ending for it
    open: dict[bytes, set[bytes]] = field(default_factory=dict)
    #: the members of the organization, and its owners among them
    members_now: set[bytes] = field(default_factory=set)
    owners_now: set[bytes] = field(default_factory=set)
    #: the dataset, or the schema of a dataset, with a slug
    _slugs: dict[tuple[bytes, str], bytes] = field(default_factory=dict)
    #: whether histories are kept; otherwise each keeps only its newest element, except that of
    #: epochs
    historic: bool = True

    def copy(self) -> RosterState:
        """A copy that changes independently."""
        return RosterState(
            self.number,
            self.digest,
            self.found,
            self.founder,
            {key: list(history) for key, history in self.members.items()},
            {key: list(history) for key, history in self.datasets.items()},
            {key: list(history) for key, history in self.epochs.items()},
            {key: list(history) for key, history in self.forgotten.items()},
            {key: list(history) for key, history in self.schemas.items()},
            dict(self.listings),
            dict(self.invitations),
            {key: list(history) for key, history in self.losses.items()},
            dict(self.holders),
            {key: list(history) for key, history in self.endings.items()},
            {key: set(schemas) for key, schemas in self.open.items()},
            set(self.members_now),
            set(self.owners_now),
            dict(self._slugs),
            self.historic,
        )

    def _follow(self, histories: dict[bytes, list[_Item]], key: bytes, newest: _Item) -> None:
        history = histories.setdefault(key, [])
        if not self.historic:
            history.clear()
        history.append(newest)

    def pass_over(self, body: form.EntryBody, digest: bytes) -> None:
        """Advance past an entry that does not count: it changes nothing else."""
        if body.number != self.number + 1 or body.previous != self.digest:
            raise ValueError("an entry does not follow the others")
        self.number, self.digest = body.number, digest

    def apply(self, body: form.EntryBody, digest: bytes) -> None:
        """Apply an entry that counts according to :func:`.roster_judging.judge`.

        Args:
            digest: the digest of the entry.
        """
        self.pass_over(body, digest)
        content, number = body.content, body.number
        match content:
            case form.FoundingEntry():
                self.found, self.founder = digest, body.actor
                self.stand(_founder(body.actor, content))
            case form.Invite():
                self.invitations[content.id] = InvitationState(
                    number, digest, body.previous, body.time, body.actor, content
                )
            case form.MemberStanding():
                self.stand(_standing(self.member(content.member), body, content))
                if content.invitation:
                    invitation = self.invitations[content.invitation]
                    self.invitations[content.invitation] = replace(invitation, admitted=number)
            case form.Remove():
                self._remove(number, content)
            case list():
                for placement in content:
                    self.place_schema(_placed(number, placement))
            case form.Forget():
                self._follow(
                    self.forgotten, content.dataset, ForgottenEpochs(number, content.first)
                )
            case form.Listing():
                self.listings.pop(content.dataset, None)
                if content.listed:
                    self.listings[content.dataset] = number
            case _:
                self.name_dataset(DatasetEntry(number, content.dataset, content.slug, content.name))
                if content.epoch > len(self.epochs.get(content.dataset, ())):
                    self.begin(content.dataset, Epoch(number, content.epoch, content.commitment))
                self.end(content.dataset, number, content.epoch, content.ends)

    def _remove(self, number: int, content: form.Remove) -> None:
        before = self.member(content.id)
        if before is not None:
            self.stand(replace(before, number=number, present=False))
        else:
            invitation = self.invitations[content.id]
            self.invitations[content.id] = replace(invitation, withdrawn=number)

    def member(self, member: bytes) -> Member | None:
        """The newest state of a member; for a removed member, the last one with ``present``
        false.
        """
        return at(self.members.get(member, ()), None)

    def epoch(self, dataset: bytes) -> Epoch | None:
        """The newest epoch of a dataset; None without one."""
        return at(self.epochs.get(dataset, ()), None)

    def first(self, dataset: bytes, number: int | None = None) -> int:
        """The oldest epoch of a dataset that is not forgotten, at an entry or now."""
        forgotten = at(self.forgotten.get(dataset, ()), number)
        return 1 if forgotten is None else forgotten.first

    def listed_at(self, dataset: bytes) -> int:
        """The entry that lets members request access to a dataset; 0 if they may not, for example
        because the dataset's name was freed.
        """
        named = at(self.datasets.get(dataset, ()), None)
        return self.listings.get(dataset, 0) if named is not None and named.slug else 0

    def stand(self, standing: Member) -> None:
        """Apply a new state of a member, with its effects on datasets and invitations."""
        before = self.member(standing.member)
        self._follow(self.members, standing.member, standing)
        for key in signatures.split_keys(standing.keys) or ():
            self.holders[key] = standing.member
        for which, so in ((self.members_now, standing.present), (self.owners_now, standing.owns)):
            (which.add if so else which.discard)(standing.member)
        if before is None:
            return
        lost = RightLoss(standing.number, standing.member)
        shared = dict.fromkeys(share.dataset for share in before.shares)
        for dataset in self.epochs if before.owns else shared:
            if takes_away(before, standing, dataset):
                self.losses.setdefault(dataset, []).append(lost)
        if before.owns and not standing.owns:
            self._withdraw(standing)

    def _withdraw(self, standing: Member) -> None:
        for name, invitation in self.invitations.items():
            if invitation.inviter == standing.member and invitation.open:
                self.invitations[name] = replace(invitation, withdrawn=standing.number)

    def begin(self, dataset: bytes, epoch: Epoch) -> None:
        """Begin an epoch of a dataset's keys, which settles earlier losses of rights."""
        self.epochs.setdefault(dataset, []).append(epoch)
        self.open[dataset] = {
            schema for schema, placed in self.schemas.items() if placed[-1].dataset == dataset
        }
        self.losses.pop(dataset, None)

    def end(self, dataset: bytes, number: int, epoch: int, ends: Sequence[form.End]) -> None:
        """Record the ends of logs at the newest epoch of a dataset's keys."""
        for end in ends:
            if self.ended_with(end.schema, epoch) is None:
                ending = Ending(number, epoch, end.version, end.digest)
                self._follow(self.endings, end.schema, ending)
            self.open[dataset].discard(end.schema)

    def ended_with(self, schema: bytes, epoch: int) -> Ending | None:
        """The head of a schema's log when the newest epoch began; None if no entry states it."""
        newest = at(self.endings.get(schema, ()), None)
        return newest if newest is not None and newest.epoch == epoch else None

    def name_dataset(self, dataset: DatasetEntry) -> None:
        """Name a dataset, or free its name; another dataset with its slug becomes unplaced."""
        before = at(self.datasets.get(dataset.dataset, ()), None)
        loser = self._give(b"", dataset.dataset, before.slug if before else "", dataset.slug)
        self._follow(self.datasets, dataset.dataset, dataset)
        if loser is not None:
            unnamed = replace(self.datasets[loser][-1], number=dataset.number, slug="", name="")
            self._follow(self.datasets, loser, unnamed)

    def place_schema(self, schema: SchemaEntry) -> None:
        """Place a schema, or free its name; another schema of the dataset with its slug becomes
        unplaced.
        """
        before = at(self.schemas.get(schema.schema, ()), None)
        loser = self._give(
            schema.dataset, schema.schema, before.slug if before else "", schema.slug
        )
        self._follow(self.schemas, schema.schema, schema)
        if loser is not None:
            unnamed = replace(self.schemas[loser][-1], number=schema.number, slug="", name="")
            self._follow(self.schemas, loser, unnamed)

    def _give(self, room: bytes, thing: bytes, before: str, slug: str) -> bytes | None:
        """Give ``slug`` to a thing; returns the thing that had it before, if another did."""
        if before:
            del self._slugs[room, before]
        if not slug:
            return None
        loser = self._slugs.get((room, slug))
        self._slugs[room, slug] = thing
        return loser


def _founder(member: bytes, content: form.FoundingEntry[str]) -> Member:
    return Member(
        number=1,
        member=member,
        type=form.PERSON,
        role=form.OWNER,
        name=content.name,
        keys=content.keys,
        anchor=b"",
        shares=(),
        expires=0,
        joined=1,
        admitted_by=member,
        keyed_by=member,
        invitation=b"",
    )


def _placed(number: int, content: form.Placement) -> SchemaEntry:
    return SchemaEntry(
        number, content.schema, content.dataset, content.slug, content.name, content.definition
    )


def _standing(
    before: Member | None, body: form.EntryBody, content: form.MemberStanding[str]
) -> Member:
    """The new state of a member after an entry; ``before`` is None for a new member."""
    stood = before if before is not None and before.present else None
    if content.keys:
        keys, keyed_by, anchor = content.keys, body.actor, content.anchor
    else:
        assert before is not None, "who never stood has to show keys"
        keys, keyed_by, anchor = before.keys, before.keyed_by, before.anchor
    return Member(
        number=body.number,
        member=content.member,
        type=content.type,
        role=content.role,
        name=content.name,
        keys=keys,
        anchor=anchor,
        shares=tuple(content.shares),
        expires=content.expires,
        joined=body.number if stood is None else stood.joined,
        admitted_by=body.actor if stood is None else stood.admitted_by,
        keyed_by=keyed_by,
        invitation=content.invitation or (b"" if stood is None else stood.invitation),
    )


def takes_away(before: Member, after: Member, dataset: bytes) -> bool:
    """Whether a change takes rights to a dataset away from a member, or replaces its keys."""
    reads, writes = before.reads(dataset), before.writes(dataset)
    if not reads:
        return False
    return (
        before.keys != after.keys
        or not after.reads(dataset).contains(reads)
        or not after.writes(dataset).contains(writes)
    )

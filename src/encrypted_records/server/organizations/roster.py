"""The roster of an organization: read it, and append the entries of a request atomically.

The roster is a chain of entries that its members sign. The API stores their bytes for proxies and
verifies what it can, so that entries cannot be added without a member's key. The tables of
:mod:`.models`, which are derived from the entries, change in the same transaction.

A request locks its organization, so that of two requests that continue the same head only one
succeeds. Then it locks the schemas whose names or heads it states, in the order of their ids, like
commits lock them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import assert_never

import msgspec
from django.db import transaction
from django.db.models import QuerySet

from encrypted_records.errors import Conflict, Flaw, NotAllowed, TooLarge
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.rules import roster_judging
from encrypted_records.rules.roster_judging import EntryFault
from encrypted_records.server import signatures
from encrypted_records.server.accounts import limits
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Dataset, Schema
from encrypted_records.server.db.databases import reading_stored
from encrypted_records.server.erasure import removing
from encrypted_records.server.organizations import (
    members,
    roster_change,
    roster_data,
    roster_members,
)
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.models import (
    DatasetKey,
    Entry,
    Membership,
    Organization,
    StoredGrant,
)
from encrypted_records.server.organizations.roster_change import (
    STATES,
    RosterChange,
    SizedState,
    moved,
    refusal,
    require,
)
from encrypted_records.server.records.models import CommitLog
from encrypted_records.server.records.store import cut

#: The most entries per request. They are applied one by one, which blocks all other writes to
#: SQLite.
MAX_NEW_ENTRIES = 100
MAX_GRANTS = 10_000


@dataclass(frozen=True, slots=True)
class _Read:
    entry: form.RosterEntry
    body: form.EntryBody
    digest: bytes


def entries_after(
    organization: Organization, number: int, among: QuerySet[Dataset] | None = None
) -> Iterator[form.RosterEntry]:
    """The first ``form.ENTRIES_AT_ONCE`` entries after a number.

    Args:
        among: datasets; names that concern none of them are left out. None includes all names.

    Raises:
        DatabaseDamaged: a stored entry is malformed.
    """
    concerned = (
        None if among is None else set(map(ids.from_text, among.values_list("pk", flat=True)))
    )
    for entry in roster_change.stored_entries(organization, number, number + form.ENTRIES_AT_ONCE):
        yield entry if concerned is None else _cut(entry, concerned)


def _cut(entry: form.RosterEntry, datasets: Set[bytes]) -> form.RosterEntry:
    with reading_stored("an entry of a roster"):
        return form.cut_entry(entry, datasets)


def append(
    user: User,
    organization: Organization,
    entries: Sequence[form.RosterEntry],
    grants: Sequence[form.Grant],
) -> bool:
    """Add entries and grants, all or none; returns whether anything was new.

    Raises:
        Malformed, Unsupported: the format of an entry or a grant is wrong.
        BadInput: ``invalid_entry``, ``grants_incomplete``.
        TooLarge: more than the limit per request, or per organization.
        NotAllowed: ``owners_only``, ``not_writer``.
        Conflict: ``roster_moved``, ``log_moved``, and conflicts of single entries.
    """
    if len(entries) > MAX_NEW_ENTRIES or len(grants) > MAX_GRANTS:
        raise TooLarge(f"a request has at most {MAX_NEW_ENTRIES} entries and {MAX_GRANTS} grants")
    read = [_Read(entry, form.read_entry(entry), form.entry_digest(entry)) for entry in entries]
    _require_chain(organization, [(entry.body, entry.digest) for entry in read])
    given = roster_data.verify_grants(organization, grants, [entry.body for entry in read])
    for entry in read:
        if isinstance(entry.body.content, form.Invite):
            limits.throttle("invite")
    if organization.has_roster:
        STATES.prepare(organization)
    with transaction.atomic():
        locked = members.lock(organization)
        new = _following(locked, read)
        if read and not new:
            return False
        is_owner = locked.memberships.filter(user=user, role=Membership.Role.OWNER).exists()
        roster_data.require_caller(user, given, is_owner=is_owner)
        known = STATES.of(locked)
        schemas = _lock_schemas(locked, new)
        change = RosterChange(user, locked, schemas, known.state, known.state.copy())
        for entry in new:
            _apply(change, entry, is_owner=is_owner)
        stored = roster_data.store_grants(change, given)
        size = sum(len(entry.entry.body) for entry in new)
        STATES.keep_when_stored(locked, SizedState(change.state, known.size + size))
    members.write_to(change.invited)
    return bool(new) or stored > 0


def _require_chain(
    organization: Organization, read: Sequence[tuple[form.EntryBody, bytes]]
) -> None:
    """
    Raises:
        BadInput: ``invalid_entry``; the entries do not follow each other.
    """
    organization_id = ids.from_text(organization.pk)
    before: tuple[int, bytes] | None = None
    for body, digest in read:
        require(body.organization == organization_id, "an entry is of another organization")
        follows = before is None or (body.number, body.previous) == (before[0] + 1, before[1])
        require(follows, "the entries do not follow each other")
        before = body.number, digest


def _following(organization: Organization, read: Sequence[_Read]) -> Sequence[_Read]:
    """The entries that are new, without those that the roster already has.

    Raises:
        Conflict: ``roster_moved``.
        TooLarge: the roster has its maximal length.
    """
    head = organization.roster_number
    old = [entry for entry in read if entry.body.number <= head]
    new = read[len(old) :]
    if old:
        numbers = [entry.body.number for entry in old]
        known = dict(
            Entry.objects.filter(organization=organization, number__in=numbers).values_list(
                "number", "digest"
            )
        )
        if any(bytes(known.get(entry.body.number, b"")) != entry.digest for entry in old):
            raise moved()
    if new:
        first = new[0].body
        expected = (head + 1, bytes(organization.roster_digest))
        if (first.number, first.previous) != expected:
            raise moved()
        if new[-1].body.number > form.MAX_ENTRIES:
            raise TooLarge(f"a roster has at most {form.MAX_ENTRIES} entries")
    return new


def _lock_schemas(organization: Organization, new: Iterable[_Read]) -> dict[str, Schema]:
    """Lock the organization's schemas whose names or heads the entries state."""
    named: set[str] = set()
    for entry in new:
        content = entry.body.content
        if isinstance(content, form.DatasetName):
            named |= {ids.to_text(end.schema) for end in content.ends}
        elif isinstance(content, list):
            named |= {ids.to_text(placement.schema) for placement in content}
        elif isinstance(content, form.Forget):
            dataset = ids.to_text(content.dataset)
            of_dataset = Schema.objects.filter(dataset=dataset, dataset__organization=organization)
            named |= set(of_dataset.values_list("pk", flat=True))
    names = sorted(named, key=ids.from_text)
    locked: dict[str, Schema] = {}
    for batch in cut(names):
        found = Schema.objects.select_for_update(of=("self",), no_key=True).filter(
            pk__in=batch, dataset__organization=organization
        )
        locked |= {schema.pk: schema for schema in found.select_related("dataset").order_by("pk")}
    return locked


def _apply(change: RosterChange, read: _Read, *, is_owner: bool) -> None:
    """Check an entry against the state before it, store it, and apply it."""
    body, content = read.body, read.body.content
    require(body.whole, "a name does not match its entry")
    actor = ids.to_text(body.actor)
    if actor != change.caller.pk and not is_owner:
        raise NotAllowed("only owners can send entries that others signed", code="owners_only")
    verified = roster_judging.verify(change.state, read.entry, body, signatures.is_by)
    reason = roster_judging.judge(change.state, body, verified)
    if reason is EntryFault.ENDS and isinstance(content, form.DatasetName):
        # If a log has moved on, this raises a more precise error, which names the log.
        roster_data.require_ends(change, content)
    if reason is not None:
        raise refusal(reason)
    _project(change, read)
    _keep(change.organization, read)


def _project(change: RosterChange, read: _Read) -> None:
    """Apply a valid entry to the tables, with the checks that only the API can make."""
    body, content = read.body, read.body.content
    before = (
        change.state.member(content.member) if isinstance(content, form.MemberStanding) else None
    )
    match content:
        case form.FoundingEntry():
            roster_members.found(change, body, content)
        case form.Invite():
            roster_members.invite(change, body, content, read.digest)
        case form.MemberStanding():
            roster_members.admit(change, body, content, before)
        case form.Remove():
            roster_members.remove(change, content)
        case form.DatasetName():
            roster_data.begin(change, content)
        case list():
            roster_data.place(change, content)
        case form.Forget():
            _forget(change, content)
        case form.Listing():
            _list(change, content)
        case _:
            assert_never(content)
    change.state.apply(body, read.digest)
    if isinstance(content, form.MemberStanding):
        roster_members.concern(change, before, content.member)
        members.end_requests_of_member(change, before, content.member)


def _list(change: RosterChange, content: form.Listing) -> None:
    """Let members request access to a dataset, or stop this.

    Raises:
        BadInput: ``invalid_entry``.
    """
    dataset = change.require_dataset(ids.to_text(content.dataset))
    members.end_requests_for_dataset(change, content.dataset)
    change.note(Action.DATASET_LISTED if content.listed else Action.DATASET_UNLISTED, dataset.url)


def _keep(organization: Organization, read: _Read) -> None:
    Entry.objects.create(
        organization=organization,
        number=read.body.number,
        digest=read.digest,
        body=read.entry.body,
        signature=read.entry.signature,
        openings=msgspec.msgpack.encode(read.entry.openings),
    )
    organization.roster_number, organization.roster_digest = read.body.number, read.digest
    organization.save(update_fields=["roster_number", "roster_digest"])


# An entry that forgets older keys of a dataset: no stored data may still need them.
#
# The API checks this under the locks of all schemas of the dataset, instead of trusting the signer.
# Obstacles are named.


def _forget(change: RosterChange, content: form.Forget) -> None:
    """Forget a dataset's epochs before the entry's; this request must replace all grants.

    Raises:
        BadInput: ``invalid_entry``.
        Conflict: ``epoch_in_use``, with the schemas.
    """
    name = ids.to_text(content.dataset)
    dataset = change.require_dataset(name)
    # Serializes with staging (removing.require_not_forgotten).
    DatasetKey.objects.select_for_update().get(dataset=name)
    _require_nothing(_schemas_of(change, name), content.first)
    DatasetKey.objects.filter(dataset=name).update(first=content.first)
    # Every current holder gets a new grant with this request; grants of former holders are gone.
    StoredGrant.objects.filter(organization=change.organization, dataset=name).delete()
    change.begun.add(name)
    change.note(Action.DATASET_FORGOT, dataset.url)


def _schemas_of(change: RosterChange, dataset: str) -> list[Schema]:
    """All schemas of the dataset, which are locked; first drops what outdated merges staged there.

    Raises:
        Conflict: ``roster_moved``; a schema was created meanwhile.
    """
    of_dataset = list(Schema.objects.filter(dataset=dataset).values_list("pk", flat=True))
    if not change.schemas.keys() >= set(of_dataset):
        raise Conflict(
            "a schema was created in the dataset in the meantime",
            code="roster_moved",
            hint="read the roster to its end, and sign the entry again",
        )
    schemas = [change.schemas[schema] for schema in of_dataset]
    for schema in schemas:
        sealed = CommitLog.objects.filter(schema=schema, version=schema.resealed_at).first()
        if sealed is not None:
            removing.drop_stale_merges(schema, sealed.created)
    return schemas


def _require_nothing(schemas: list[Schema], first: int) -> None:
    flaws = tuple(Flaw("epoch_in_use", text) for text in _obstacles(schemas, first))
    if flaws:
        raise Conflict(
            "older keys of the dataset are still needed",
            code="epoch_in_use",
            hint="re-encrypt the named schemas, and wait until their earlier data is erased; then"
            " repeat this",
            flaws=flaws,
        )


def _obstacles(schemas: list[Schema], first: int) -> Iterator[str]:
    for schema in schemas:
        for obstacle in removing.of_older_keys(schema, first):
            yield f"{schema.url} {obstacle}"

"""Datasets and schemas in a roster: entries that name and place them, and grants of their keys.

Names and slugs of placed datasets and schemas come only from entries.

A grant is the keys of a dataset, sealed to a member. The API stores the newest grant per dataset
and member, and cannot open it. It sees the actor, the receiver, the entry of the roster that the
actor had read, and the epoch, and refuses grants that the receiver would refuse because of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from encrypted_records.errors import BadInput, Conflict, Flaw, NotAllowed, StaleDefinition
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.server import signatures
from encrypted_records.server.accounts.models import User
from encrypted_records.server.datasets.models import Dataset, Schema
from encrypted_records.server.organizations.audit import Action
from encrypted_records.server.organizations.models import (
    DatasetKey,
    Entry,
    Organization,
    Place,
    StoredGrant,
)
from encrypted_records.server.organizations.roster_change import (
    RosterChange,
    invalid,
    plain,
    require,
)
from encrypted_records.server.records.models import CommitLog

MAX_API_NAME = 200


def begin(change: RosterChange, content: form.DatasetName) -> None:
    """Name a dataset, and begin the next epoch of its keys or end logs with the current epoch, if
    the entry says so.

    Raises:
        BadInput: ``invalid_entry``.
        Conflict: ``log_moved``, ``slug_taken``.
    """
    name = ids.to_text(content.dataset)
    named = _is_named(content.slug, content.name)
    epoch = len(change.state.epochs.get(content.dataset, ()))
    new = content.epoch != epoch
    # A deleted dataset is still named in the roster, and its name may be freed.
    dataset = change.require_dataset(name) if named or new else None
    if new:
        change.begun.add(name)
    require_ends(change, content)
    DatasetKey.objects.update_or_create(
        dataset=name,
        defaults={
            "organization": change.organization,
            "epoch": content.epoch,
            "placed": named,
        },
    )
    if named and dataset is not None:
        _rename(dataset, content.slug, content.name)
    url = ids.reference("datasets", content.dataset)
    change.note(Action.DATASET_KEY if new else Action.DATASET_CHANGED, url)


def _is_named(slug: str, name: str) -> bool:
    """
    Raises:
        BadInput: ``invalid_entry``; the name is too long.
    """
    plain(name, MAX_API_NAME)
    return bool(slug)


def require_ends(change: RosterChange, content: form.DatasetName) -> None:
    """Check the stated ends of logs when an epoch began; their schemas are locked. For an epoch
    that begins now, these are the current ends.

    Raises:
        Conflict: ``log_moved``, with the schemas.
    """
    dataset = ids.to_text(content.dataset)
    moved = []
    for end in content.ends:
        name = ids.to_text(end.schema)
        schema = change.schemas.get(name)
        if schema is None or schema.dataset_id != dataset:
            moved.append((name, "no longer exists"))
        elif (end.version, end.digest) != (stood := _stood(schema, content.epoch)):
            moved.append((name, f"has a log that now ends at version {stood[0]}"))
    if moved:
        raise Conflict(
            "records were stored after the stated ends of logs were read",
            code="log_moved",
            hint="read the logs of the named schemas, and sign the entry again",
            flaws=tuple(
                Flaw("log_moved", f"{ids.reference('schemas', name)} {reason}")
                for name, reason in moved
            ),
        )


def _stood(schema: Schema, epoch: int) -> tuple[int, bytes]:
    """Version and digest of a log after its last commit under an epoch before ``epoch``."""
    if schema.key_version is None or schema.key_version < epoch:
        return schema.version, bytes(schema.log_digest)
    version = schema.key_since - 1
    before = CommitLog.objects.filter(schema=schema, version=version).values_list("log_digest")
    return version, bytes(before.get()[0]) if version else form.NO_DIGEST


def place(change: RosterChange, content: list[form.Placement]) -> None:
    """Place schemas in their datasets under their names, or free their names.

    Raises:
        BadInput: ``invalid_entry``.
        StaleDefinition: the definition of a schema without records has changed.
        Conflict: ``slug_taken``.
    """
    for placement in content:
        _place(change, placement)


def _place(change: RosterChange, placement: form.Placement) -> None:
    name, dataset = ids.to_text(placement.schema), ids.to_text(placement.dataset)
    named = _is_named(placement.slug, placement.name)
    schema = change.schemas.get(name)
    if schema is None:
        # The schema was deleted; its name may still be freed.
        known = placement.schema in change.state.schemas
        require(known and not named, "an entry places a schema that does not exist")
    else:
        require(schema.dataset_id == dataset, "an entry places a schema of another organization")
        if named:
            _take_name(schema, placement)
        change.note(Action.SCHEMA_CHANGED, schema.url)
    Place.objects.update_or_create(
        schema=name,
        defaults={"organization": change.organization, "dataset": dataset, "placed": named},
    )


def _take_name(schema: Schema, placement: form.Placement) -> None:
    if schema.version == 0 and placement.definition != bytes(schema.definition_digest):
        raise StaleDefinition("the schema's definition is not the one that the entry states")
    _rename(schema, placement.slug, placement.name)


def placed_elsewhere() -> Conflict:
    return Conflict(
        "a schema that has records, or is in the roster, cannot change its dataset",
        code="schema_placed",
        hint="create a schema in the other dataset, and store the records there",
    )


def _rename(named: Dataset | Schema, slug: str, name: str) -> None:
    """
    Raises:
        Conflict: ``slug_taken``.
    """
    if (named.slug, named.name) == (slug, name):
        return
    named.slug, named.name, named.modified = slug, name, timezone.now()
    try:
        with transaction.atomic():
            named.save(update_fields=["slug", "name", "modified"])
    except IntegrityError:
        raise Conflict(
            "another one already has this slug",
            code="slug_taken",
            hint="choose another slug",
        ) from None


_GRANTS_AT_ONCE = 500
_FIELDS = ["epoch", "number", "body", "signature"]


@dataclass(frozen=True, slots=True)
class VerifiedGrant:
    """A grant of a request, and the actor's public keys that verified its signature."""

    grant: form.Grant
    body: form.GrantBody
    keys: bytes

    @property
    def place(self) -> tuple[str, str]:
        return ids.to_text(self.body.dataset), ids.to_text(self.body.member)


def newest_grants(
    organization: Organization, member: str, among: QuerySet[Dataset] | None = None
) -> Iterator[form.Grant]:
    """A member's grants, one per dataset.

    Args:
        among: datasets; None for all datasets of the organization.
    """
    stored = StoredGrant.objects.filter(organization=organization, member=member)
    if among is not None:
        stored = stored.filter(dataset__in=list(among.values_list("pk", flat=True)))
    for number in list(stored.order_by("dataset").values_list("pk", flat=True)):
        # Grants may be long, so they are not all in memory at once.
        for body, signature in stored.filter(pk=number).values_list("body", "signature"):
            yield form.Grant(bytes(body), bytes(signature))


def verify_grants(
    organization: Organization, grants: Sequence[form.Grant], entries: Iterable[form.EntryBody]
) -> list[VerifiedGrant]:
    """Check all that needs no lock: the format, and the signature by keys that the actor has, or
    gets by the entries of the same request. :func:`store_grants` checks under the lock whether
    these keys are right.

    Raises:
        Malformed, Unsupported: a grant is malformed.
        BadInput: ``invalid_entry``.
    """
    bodies = [form.read_grant(grant) for grant in grants]
    actors = {body.actor for body in bodies}
    keys: dict[bytes, list[bytes]] = {actor: [] for actor in actors}
    standing = organization.standings.filter(member__in=[ids.to_text(actor) for actor in actors])
    for stored in standing:
        keys[ids.from_text(stored.member)].append(bytes(stored.keys))
    for entry in entries:
        content = entry.content
        if isinstance(content, form.FoundingEntry) and entry.actor in actors:
            keys[entry.actor].append(content.keys)
        if isinstance(content, form.MemberStanding) and content.member in actors and content.keys:
            keys[content.member].append(content.keys)
    organization_id = ids.from_text(organization.pk)
    given = []
    for grant, body in zip(grants, bodies, strict=True):
        require(body.organization == organization_id, "a grant is of another organization")
        signed = form.grant_message(grant.body)
        by = next(
            (k for k in keys[body.actor] if signatures.is_by(k, grant.signature, signed)), b""
        )
        require(bool(by), "a grant's signature is wrong")
        given.append(VerifiedGrant(grant, body, by))
    return given


def require_caller(user: User, given: Iterable[VerifiedGrant], *, is_owner: bool) -> None:
    """
    Raises:
        NotAllowed: ``owners_only``; a caller who is not an owner sent a grant that another
            member signed.
    """
    if not is_owner and any(ids.to_text(entry.body.actor) != user.pk for entry in given):
        raise NotAllowed("only owners of the organization may do this", code="owners_only")


def store_grants(change: RosterChange, given: Sequence[VerifiedGrant]) -> int:
    """Store grants, under the lock and after the entries; returns the number of new grants.

    Raises:
        BadInput: ``invalid_entry``, ``grants_incomplete``.
        Conflict: ``roster_moved``; another epoch has begun.
    """
    _require_roster(change, given)
    allowed: dict[tuple[bytes, bytes], bool] = {}
    holders = cache(change.holders)
    kept: dict[tuple[str, str], VerifiedGrant] = {}
    for grant in given:
        signer = (grant.body.actor, grant.keys)
        if signer not in allowed:
            allowed[signer] = _may_seal(change, grant)
        require(allowed[signer], "a grant was not signed by an owner")
        dataset, member = grant.place
        epochs = change.state.epochs.get(grant.body.dataset)
        if epochs is None:
            raise invalid("a grant is of a dataset without keys")
        if grant.body.epoch < len(epochs) or grant.body.number < _since(change, grant.body.dataset):
            raise _moved("another epoch of the dataset's keys has begun")
        require(grant.body.epoch == len(epochs), "a grant is of an epoch that has not begun")
        require(member in holders(dataset), "a grant is for a person without access")
        before = kept.get(grant.place)
        if before is None or before.body.number <= grant.body.number:
            kept[grant.place] = grant
    _require_complete(change, kept, holders)
    return _write_grants(change, kept)


def _may_seal(change: RosterChange, given: VerifiedGrant) -> bool:
    """Whether the actor is, or was until this request, an owner with these keys."""
    standings = (state.member(given.body.actor) for state in (change.before, change.state))
    return any(actor is not None and actor.owns and actor.keys == given.keys for actor in standings)


def _since(change: RosterChange, dataset: bytes) -> int:
    """Number of the entry that began a dataset's current epoch, or that last forgot older
    epochs.
    """
    forgotten = change.state.forgotten.get(dataset, ())
    begun = change.state.epochs[dataset][-1].number
    return max(begun, forgotten[-1].number) if forgotten else begun


def _require_roster(change: RosterChange, given: Sequence[VerifiedGrant]) -> None:
    """Check that each grant's stated roster is a prefix of the organization's."""
    stated = {(entry.body.number, entry.body.digest) for entry in given}
    numbers = sorted({number for number, _ in stated})
    existing: set[tuple[int, bytes]] = set()
    for at in range(0, len(numbers), _GRANTS_AT_ONCE):
        entries = Entry.objects.filter(
            organization=change.organization, number__in=numbers[at : at + _GRANTS_AT_ONCE]
        )
        existing |= {
            (number, bytes(digest)) for number, digest in entries.values_list("number", "digest")
        }
    if not stated <= existing:
        raise _moved("a grant states a roster that is not a beginning of this one")


def _require_complete(
    change: RosterChange,
    kept: dict[tuple[str, str], VerifiedGrant],
    holders: Callable[[str], set[str]],
) -> None:
    """Check that this request has a grant for every member who needs one after it."""
    needed = {
        (dataset, member) for dataset, member in change.concerned if member in holders(dataset)
    } | {(dataset, member) for dataset in change.begun for member in holders(dataset)}
    missing = sorted(needed - kept.keys())
    if missing:
        raise BadInput(
            "the request gives keys or rights without a grant for every affected member",
            code="grants_incomplete",
            hint="create a grant of each named dataset for each named member",
            flaws=tuple(
                Flaw(
                    "grants_incomplete",
                    f"{ids.reference('datasets', dataset)} for {ids.reference('users', member)}",
                )
                for dataset, member in missing
            ),
        )


def _write_grants(change: RosterChange, kept: dict[tuple[str, str], VerifiedGrant]) -> int:
    stored = {
        (dataset, member): (number, bytes(signature))
        for dataset, member, number, signature in StoredGrant.objects.filter(
            Q(organization=change.organization),
            dataset__in={dataset for dataset, _ in kept},
        ).values_list("dataset", "member", "number", "signature")
    }
    fresh = [
        grant
        for place, grant in kept.items()
        if place not in stored
        or (stored[place][0] <= grant.body.number and stored[place][1] != grant.grant.signature)
    ]
    StoredGrant.objects.bulk_create(
        (
            StoredGrant(
                organization=change.organization,
                dataset=grant.place[0],
                member=grant.place[1],
                epoch=grant.body.epoch,
                number=grant.body.number,
                body=grant.grant.body,
                signature=grant.grant.signature,
            )
            for grant in fresh
        ),
        batch_size=_GRANTS_AT_ONCE,
        update_conflicts=True,
        unique_fields=["dataset", "member"],
        update_fields=_FIELDS,
    )
    return len(fresh)


def _moved(detail: str) -> Conflict:
    return Conflict(
        detail, code="roster_moved", hint="read the roster to its end, and create the grants again"
    )

"""Found an organization's roster, begin datasets' keys, place schemas in them, and sign names.

A share can be signed only after a roster exists, the dataset has keys, and its schemas are placed.
A single owner does not notice these steps: the request that shares a schema by name signs it as the
API shows it, if it was made at the API, has no records and was never placed (docs/LEAKAGE.md).

The API takes the name or slug of a placed object from roster entries alone, so an entry precedes
the caller's request. The definition of a placed schema without records is different: the API checks
an entry against the definition that it has. So the schema's name is freed, the caller's request is
sent, and the schema is placed again with what the caller sent; after an interruption, the next
owner who stores into it places it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from encrypted_records import errors, runtime
from encrypted_records.client.rosters import RosterApi
from encrypted_records.crypto.keys import DatasetKey
from encrypted_records.index.roster.belief import believe
from encrypted_records.index.roster.roster import Roster, holders_of, sign_entry
from encrypted_records.model import ids, resources
from encrypted_records.model import roster as form
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.sharing.changes import OwnGrants, RosterChanges, RosterDraft, no_roster
from encrypted_records.proxy.sharing.reading import RosterReader, View

#: The outcome of sending a first entry: stored; refused because another owner was first; refused
#: because the organization has records that are not signed.
_Outcome = Literal["stored", "moved", "has_records"]


@dataclass(eq=False, repr=False)
class Founding:
    _api: RosterApi
    _keyrings: Keyrings
    _reader: RosterReader
    _changes: RosterChanges
    _grants: OwnGrants

    async def found(self, holder: Holder, organization: bytes, name: str) -> View:
        """The organization as the user's proxy knows it, founded now if it has no roster.

        Args:
            name: the user's e-mail address.

        Raises:
            Closed: ``roster_missing``: it has no roster, and schemas with records.
            NotAllowed: ``not_admitted``: it has no roster, and the user does not own it at the API;
                or the user is not in its roster.
            ErsError: as :meth:`RosterReader.read`.
        """
        view = await self._reader.read(holder, organization)
        if view is None:
            view = await self._found(holder, organization, name)
        if view is None:
            raise roster_not_shown()
        if await runtime.in_thread(self._reader.rosters.founding, holder.user, organization):
            await self._drop(holder, organization)
        return view

    async def _found(self, holder: Holder, organization: bytes, name: str) -> View | None:
        rosters = self._reader.rosters
        kept = await runtime.in_thread(rosters.founding, holder.user, organization)
        outcome: _Outcome = "has_records"
        if kept is not None or not await self._has_records(holder, organization):
            entry = await self._kept(holder, organization, name)
            outcome = await self._send(holder, organization, [entry], [])
        # Records may exist because another proxy of the user has founded the organization
        # meanwhile.
        view = await self._reader.read(holder, organization)
        if view is None and outcome == "has_records":
            raise roster_missing()
        return view

    async def found_with(
        self,
        holder: Holder,
        organization: bytes,
        name: str,
        dataset: resources.DatasetResource,
        placement: form.Placement,
    ) -> bool:
        """Found the organization of a first record, create the keys of its dataset, and place its
        schema, in one atomic request.

        Args:
            name: the user's e-mail address.

        Returns:
            False if the organization already has records, and so continues without a roster. True
            also if another user was first; reading the roster shows its state then.

        Raises:
            NotAllowed: ``not_admitted``; the user does not own the organization at the API.
            Unavailable: unknown whether the organization was founded; the next attempt sends the
                same first entry.
            ErsError: as for the single steps.
        """
        async with self._changes.alone(organization):
            if self._reader.has_read(holder.user, organization):
                return True
            first = await self._kept(holder, organization, name)
            draft = await self._first_draft(holder, organization, first)
            key = DatasetKey.generate(organization, placement.dataset, 1)
            begin_dataset(draft, key, slug=dataset.slug, name=dataset.name)
            draft.sign([placement])
            entries = [first, *draft.entries]
            outcome = await self._send(holder, organization, entries, draft.grants)
            if outcome == "stored":
                await self._reader.take(holder, organization, entries)
                await self._grants.take(draft.view.identity, draft.roster, draft.grants[0])
            if outcome != "has_records":
                await self._drop(holder, organization)
        return outcome != "has_records"

    async def _first_draft(
        self, holder: Holder, organization: bytes, first: form.RosterEntry
    ) -> RosterDraft:
        """The entries after the first one, which only this proxy has so far."""
        roster = Roster(organization)
        roster.append(first)
        keyring = await runtime.in_thread(self._keyrings.of, holder)
        believed = await runtime.in_thread(believe, roster, holder.user, keyring, None)
        return RosterDraft(View(holder, organization, roster, believed, keyring))

    async def _kept(self, holder: Holder, organization: bytes, name: str) -> form.RosterEntry:
        """The first entry, signed only once."""
        rosters = self._reader.rosters
        kept = await runtime.in_thread(rosters.founding, holder.user, organization)
        keyring = await runtime.in_thread(self._keyrings.of, holder)
        version = keyring.newest
        identity = await runtime.in_thread(
            keyring.root(version).identity, organization, holder.user, version
        )
        if kept is not None:
            content = form.read_entry(kept).content
            if isinstance(content, form.FoundingEntry) and content.keys == identity.keys:
                return kept
            # The keyring has changed since; no other user has seen the old keyring's entry.
            await self._drop(holder, organization)
        entry = sign_entry(
            Roster(organization),
            identity,
            holder.user,
            int(runtime.wall()),
            form.FoundingEntry(identity.keys, name, runtime.random_bytes(32)),
        )
        return await runtime.in_thread(rosters.keep_founding, holder.user, organization, entry)

    async def _has_records(self, holder: Holder, organization: bytes) -> bool:
        # The API's list is unverified. Records that it denies belong to no log that the roster
        # signs, and are refused with a named error; if it invents records, sharing is refused as
        # ``roster_missing``.
        schemas = await self._api.schemas(organization, holder.auth)
        return any(schema.key_version is not None for schema in schemas)

    async def _drop(self, holder: Holder, organization: bytes) -> None:
        rosters = self._reader.rosters
        await runtime.in_thread(rosters.drop_founding, holder.user, organization)

    async def _send(
        self,
        holder: Holder,
        organization: bytes,
        entries: Sequence[form.RosterEntry],
        grants: Sequence[form.Grant],
    ) -> _Outcome:
        """Send a first entry and the entries after it."""
        try:
            await self._api.send(organization, entries, grants, holder.auth)
        except errors.NotAllowed as error:
            if error.reason != "owners_only":
                raise
            raise no_roster() from None
        except errors.Conflict as error:
            if error.reason == "has_records":
                # If the API's answer is false, the users share nothing, and store under their own
                # keys.
                await self._drop(holder, organization)
                return "has_records"
            # Another owner was first: reading shows whose roster it is, and whether it is trusted.
            if error.reason != "roster_moved":
                raise
            return "moved"
        return "stored"

    async def begin_dataset(
        self, holder: Holder, organization: bytes, dataset: bytes, *, slug: str, name: str
    ) -> None:
        """Begin the keys of a dataset, or give a dataset that has keys this slug and name. Nothing
        is signed if the roster says so already.

        Raises:
            NotAllowed: ``owners_only``, ``not_admitted``.
            ErsError: as :meth:`RosterChanges.change`.
        """
        key = DatasetKey.generate(organization, dataset, 1)

        async def plan(draft: RosterDraft) -> None:
            begin_dataset(draft, key, slug=slug, name=name)

        await self._changes.change(holder, organization, plan)

    async def place(
        self, holder: Holder, organization: bytes, placements: Sequence[form.Placement]
    ) -> None:
        """Sign the datasets of schemas, with the schemas' names and definitions; placements that
        are in the roster already are left out.

        Raises:
            NotAllowed: ``owners_only``: the user may not write all of the dataset;
                ``not_admitted``.
            ErsError: as :meth:`RosterChanges.change`.
        """

        async def plan(draft: RosterDraft) -> None:
            wanted = [
                placement for placement in placements if not is_placed(draft.roster, placement)
            ]
            for at in range(0, len(wanted), form.MAX_PLACES):
                draft.sign(wanted[at : at + form.MAX_PLACES])

        await self._changes.change(holder, organization, plan)


def begin_dataset(draft: RosterDraft, key: DatasetKey, *, slug: str, name: str) -> None:
    """Draft epoch 1 of a dataset's keys with grants for all owners, or the dataset's name."""
    draft.require_owner()
    if not slug or not name:
        raise errors.BadInput("a dataset has a slug and a name")
    dataset = key.dataset
    present, named = draft.roster.epoch(dataset), draft.roster.dataset(dataset)
    if present is not None:
        if named is None or (named.slug, named.name) != (slug, name):
            draft.sign(form.DatasetName(dataset, slug, name, present.epoch, present.commitment, []))
        return
    draft.sign(form.DatasetName(dataset, slug, name, 1, key.commitment, []))
    grant_holders(draft, dataset, {1: key})


def is_placed(roster: Roster, wanted: form.Placement) -> bool:
    placed = roster.schema(wanted.schema)
    return placed is not None and placed.placement == wanted


def grant_holders(draft: RosterDraft, dataset: bytes, keys: Mapping[int, DatasetKey]) -> None:
    """Encrypt a dataset's keys to all members who read part of it."""
    for member, _ in holders_of(draft.roster, dataset):
        draft.grant(member.member, dataset, keys)


async def placement_of(api: RosterApi, holder: Holder, schema: bytes) -> form.Placement:
    """A schema as the API shows it, unverified, because it was never signed.

    Raises:
        NotFound, Unavailable: the API does not show it.
        InvalidDefinition, ApiFailed: the API does not show a valid schema.
    """
    shown = await api.schema(schema, holder.auth)
    return form.Placement(
        schema,
        ids.from_reference(shown.dataset, "datasets", pointer="/dataset"),
        shown.slug,
        shown.name,
        parse_definition(bytes(shown.schema)).digest,
    )


def roster_not_shown() -> errors.Unavailable:
    return errors.Unavailable(
        "the API accepted the organization's first entry, but does not show it",
        hint="try again in a moment",
    )


def roster_missing() -> errors.Closed:
    return errors.Closed(
        "the organization has records, but the API shows no roster for it",
        code="roster_missing",
        hint="if nothing was ever shared, its records were stored before sharing: create a new"
        " organization, share there first, then store; otherwise the roster is hidden:"
        " restore the API's newest backup",
    )


async def prepare_shares(
    api: RosterApi,
    founding: Founding,
    holder: Holder,
    organization: bytes,
    name: str,
    shares: Sequence[form.Share],
) -> View:
    """Found the organization where it has no roster, begin keys, and place schemas.

    Args:
        name: the user's e-mail address.

    Raises:
        BadInput: a share names an object outside the organization.
        NotAllowed: ``owners_only``, ``not_admitted``.
        ErsError: as the steps raise.
    """
    view = await founding.found(holder, organization, name)
    for dataset in dict.fromkeys(share.dataset for share in shares):
        if view.roster.epoch(dataset) is not None:
            continue
        shown = await api.dataset(dataset, holder.auth)
        owner = ids.from_reference(shown.organization, "organizations", pointer="/organization")
        if owner != organization:
            raise errors.BadInput("a share names a dataset of another organization")
        await founding.begin_dataset(
            holder, organization, dataset, slug=shown.slug, name=shown.name
        )
    wanted: list[form.Placement] = []
    for share in shares:
        for schema in share.schemas:
            placed = view.roster.schema(schema)
            if placed is None:
                placement = await placement_of(api, holder, schema)
            elif placed.dataset != share.dataset:
                placement = None
            else:
                continue
            if placement is None or placement.dataset != share.dataset:
                raise errors.BadInput("a share names a schema of another dataset")
            wanted.append(placement)
    if wanted:
        await founding.place(holder, organization, wanted)
    return view


@dataclass(frozen=True, slots=True)
class WantedNames:
    """Names that a caller wants for an object; None leaves a name unchanged."""

    slug: str | None = None
    name: str | None = None


class Naming:
    def __init__(self, changes: RosterChanges) -> None:
        self._changes = changes

    async def name_dataset(
        self, holder: Holder, organization: bytes, dataset: bytes, wanted: WantedNames
    ) -> None:
        """Sign a dataset's new slug or name.

        Raises:
            NotAllowed: ``owners_only``, ``not_admitted``.
            Conflict: ``slug_taken``.
            ErsError: as :meth:`RosterChanges.change`.
        """

        async def plan(draft: RosterDraft) -> None:
            draft.require_owner()
            named, present = draft.roster.dataset(dataset), draft.roster.epoch(dataset)
            if named is None or present is None:
                return
            slug, name = _wanted(wanted, named.slug, named.name)
            if (slug, name) != (named.slug, named.name):
                epoch, commitment = present.epoch, present.commitment
                draft.sign(form.DatasetName(dataset, slug, name, epoch, commitment, []))

        await self._changes.change(holder, organization, plan)

    async def name_schema(
        self, holder: Holder, organization: bytes, schema: bytes, wanted: WantedNames
    ) -> None:
        """Sign a schema's new slug or name.

        Raises:
            NotAllowed: ``not_writer``, ``not_admitted``.
            Conflict: ``slug_taken``.
            ErsError: as :meth:`RosterChanges.change`.
        """

        async def plan(draft: RosterDraft) -> None:
            placed = draft.roster.schema(schema)
            if placed is None or not placed.slug:
                return
            slug, name = _wanted(wanted, placed.slug, placed.name)
            if (slug, name) != (placed.slug, placed.name):
                draft.sign([form.Placement(schema, placed.dataset, slug, name, placed.definition)])

        await self._changes.change(holder, organization, plan)

    async def free_schema(
        self, holder: Holder, organization: bytes, schema: bytes
    ) -> form.Placement | None:
        """Free the name of a schema without records, so that its definition can change; returns its
        placement.

        Raises:
            ErsError: as :meth:`name_schema`.
        """

        async def plan(draft: RosterDraft) -> form.Placement | None:
            placed = draft.roster.schema(schema)
            if placed is None or not placed.slug:
                return None
            draft.sign([form.Placement(schema, placed.dataset, "", "", placed.definition)])
            return placed.placement

        return await self._changes.change(holder, organization, plan)

    async def free_deleted(
        self, holder: Holder, organization: bytes, schemas: Sequence[bytes], dataset: bytes | None
    ) -> None:
        """Free the names of schemas that an owner deleted, and of their dataset if it was deleted.

        Raises:
            ErsError: as :meth:`name_dataset`.
        """

        async def plan(draft: RosterDraft) -> None:
            draft.require_owner()
            found = map(draft.roster.schema, schemas)
            freed = [
                form.Placement(schema.schema, schema.dataset, "", "", schema.definition)
                for schema in found
                if schema is not None and schema.slug
            ]
            for at in range(0, len(freed), form.MAX_PLACES):
                draft.sign(freed[at : at + form.MAX_PLACES])
            if dataset is None:
                return
            named, present = draft.roster.dataset(dataset), draft.roster.epoch(dataset)
            if named is not None and named.slug and present is not None:
                draft.sign(form.DatasetName(dataset, "", "", present.epoch, present.commitment, []))

        await self._changes.change(holder, organization, plan)


def _wanted(wanted: WantedNames, slug: str, name: str) -> tuple[str, str]:
    """
    Raises:
        SchemaUnsigned: slug or name would be empty, which frees a name.
    """
    both = (
        slug if wanted.slug is None else wanted.slug,
        name if wanted.name is None else wanted.name,
    )
    if not all(both):
        raise errors.SchemaUnsigned("without a slug and a name, it cannot be signed")
    return both

"""Sign the names, slugs and definitions that callers give what an organization's roster has.

The API takes a name or slug of what is placed from entries of the roster alone, so an entry comes
before the caller's own request. A definition that was placed, of a schema without records, is
different: the API holds an entry to the definition that it has. So the schema's name is freed, the
caller's request sent, and the schema placed again with what the caller sent; cut short, it is
placed by the next owner who stores into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from encrypted_records.errors import SchemaUnsigned
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Placement
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.sharing.changes import RosterChanges
from encrypted_records.proxy.sharing.drafts import RosterDraft


@dataclass(frozen=True, slots=True)
class WantedNames:
    """Names that a caller wants for something; None leaves one as it is."""

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
                draft.sign([Placement(schema, placed.dataset, slug, name, placed.definition)])

        await self._changes.change(holder, organization, plan)

    async def free_schema(
        self, holder: Holder, organization: bytes, schema: bytes
    ) -> Placement | None:
        """Free the name of a schema without records, so that its definition can be another; what
        it was placed as.

        Raises:
            ErsError: as :meth:`name_schema`.
        """

        async def plan(draft: RosterDraft) -> Placement | None:
            placed = draft.roster.schema(schema)
            if placed is None or not placed.slug:
                return None
            draft.sign([Placement(schema, placed.dataset, "", "", placed.definition)])
            return Placement(schema, placed.dataset, placed.slug, placed.name, placed.definition)

        return await self._changes.change(holder, organization, plan)

    async def free_deleted(
        self, holder: Holder, organization: bytes, schemas: Sequence[bytes], dataset: bytes | None
    ) -> None:
        """Free the names of what an owner deleted: of schemas, and of their dataset if that went.

        Raises:
            ErsError: as :meth:`name_dataset`.
        """

        async def plan(draft: RosterDraft) -> None:
            draft.require_owner()
            found = map(draft.roster.schema, schemas)
            freed = [
                Placement(schema.schema, schema.dataset, "", "", schema.definition)
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
        SchemaUnsigned: one of the two would be empty, which frees a name.
    """
    both = (
        slug if wanted.slug is None else wanted.slug,
        name if wanted.name is None else wanted.name,
    )
    if not all(both):
        raise SchemaUnsigned("without a slug and a name, it cannot be signed")
    return both

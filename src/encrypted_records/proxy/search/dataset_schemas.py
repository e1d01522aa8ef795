"""The schemas of a dataset: those in the signed roster, and unsigned ones.

If the API could omit a schema from its list, or swap names, a search or an erasure would treat that
schema as empty. So the signed schemas that the caller may read are included, whether the API lists
them or not, and only unsigned schemas have the names that the API reports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from encrypted_records.client.api import Api, SchemaResource
from encrypted_records.errors import ApiFailed, Malformed, SchemaUnsigned
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import ids
from encrypted_records.model.signatures import require_shown
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.schemas.state import read_shown
from encrypted_records.proxy.sharing.reading import FRESH, View
from encrypted_records.proxy.sharing.service import Sharing


@dataclass(frozen=True, slots=True)
class DatasetSchema:
    """A schema by the names that were signed; of one that is not ``signed``, by the API's."""

    id: bytes
    slug: str
    name: str
    signed: bool


class DatasetSchemas:
    def __init__(self, api: Api, sharing: Sharing) -> None:
        self._api = api
        self._datasets = sharing.api
        self._finder = sharing.finder

    async def of_dataset(
        self, caller: Holder, dataset: bytes, *, within: float = 0.0
    ) -> dict[bytes, DatasetSchema]:
        """The schemas of a dataset that the caller may read, by id.

        Args:
            within: as for :meth:`RosterFinder.of_dataset`.

        Raises:
            NotFound: the dataset does not exist, or the caller may not read it.
            ApiFailed: the API returned a malformed id.
            Refused: with a specific code: a roster was not accepted.
        """
        resource = await self._datasets.dataset(dataset, caller.auth)
        organization = _id_of(resource.organization)
        view = await self._finder.of_dataset(caller, dataset, shown=organization, within=within)
        return await self._list(caller, dataset, view)

    async def beside(self, caller: Holder, schema: bytes) -> dict[bytes, DatasetSchema]:
        """The schemas of the same dataset as ``schema``, including it.

        Raises:
            ErsError: as for :meth:`of_dataset`.
        """
        view = await self._finder.of_schema(caller, schema, within=FRESH)
        placed = None if view is None else view.roster.schema(schema)
        if placed is not None:
            return await self._list(caller, placed.dataset, view)
        shown = await read_shown(self._api, caller, schema)
        return await self.of_dataset(caller, shown.dataset, within=FRESH)

    async def _list(
        self, caller: Holder, dataset: bytes, view: View | None
    ) -> dict[bytes, DatasetSchema]:
        there = [_shown(schema) for schema in await self._api.schemas_of(dataset, caller.auth)]
        if view is None:
            return {schema.id: schema for schema in there}
        roster = view.roster
        signed = [
            schema
            for schema in roster.schemas(dataset)
            if schema.slug and roster.may_read(view.user, schema.schema)
        ]
        require_shown(*(schema.slug for schema in signed))
        found = {
            placed.schema: DatasetSchema(placed.schema, placed.slug, placed.name, signed=True)
            for placed in signed
        }
        is_placed = _placed_by(roster)
        return found | {schema.id: schema for schema in there if not is_placed(schema.id)}

    async def require_gone(self, caller: Holder, schema: DatasetSchema) -> None:
        """Require that a schema missing at the API is legitimately gone: it is unsigned, or its
        name was freed.

        Raises:
            SchemaUnsigned: the roster contains the schema, so the API hides it.
            ErsError: as for :meth:`of_dataset`.
        """
        if not schema.signed:
            return
        view = await self._finder.of_schema(caller, schema.id)
        if view is not None and view.roster.may_read(view.user, schema.id):
            raise SchemaUnsigned(
                f"the API does not show the schema {schema.slug}, which was signed in this dataset",
                hint="its records could not be searched; if it was deleted, an owner can free its"
                f" name: ers api DELETE {ids.reference('schemas', schema.id)}",
            )


def _placed_by(roster: Roster) -> Callable[[bytes], bool]:
    """Whether the roster has a schema in any dataset."""

    def is_placed(schema: bytes) -> bool:
        placed = roster.schema(schema)
        return placed is not None and bool(placed.slug)

    return is_placed


def _shown(resource: SchemaResource) -> DatasetSchema:
    return DatasetSchema(_id_of(resource.id), resource.slug, resource.name, signed=False)


def _id_of(text: str) -> bytes:
    """
    Raises:
        ApiFailed: it is not an id.
    """
    try:
        return ids.from_text(text.rstrip("/").rpartition("/")[2])
    except Malformed:
        raise ApiFailed("the API's answer names no schema") from None

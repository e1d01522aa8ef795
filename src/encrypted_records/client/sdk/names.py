"""Names, slugs, ids and paths -> the resource that is meant.

A schema is named by its slug or name, alone or after those of its dataset and organization
(``acme/medical/patient``), by its id, or by its path; datasets and organizations likewise. What
names several is refused with a list of them: nothing is ever guessed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from encrypted_records.client.proxy.connection import COLLECTIONS, Named, ShownDataset, ShownSchema
from encrypted_records.client.proxy.transport import explain
from encrypted_records.errors import Closed, Conflict, InvalidSetting, Malformed, NotFound
from encrypted_records.model import ids, strict_json
from encrypted_records.model.resources import OrganizationResource

if TYPE_CHECKING:
    from encrypted_records.client.proxy.client import ProxyClient

#: What is in an organization, or in a dataset.
Placed = TypeVar("Placed", ShownDataset, ShownSchema)

#: How many candidates an error lists.
_LISTED = 5


class Names:
    """
    Args:
        organization: where to look for what is not named with its organization; None is everywhere.
        dataset: where to look for schemas that are not named with their dataset; None is
            everywhere.
    """

    def __init__(
        self, client: ProxyClient, organization: str | None = None, dataset: str | None = None
    ) -> None:
        self._client = client
        self._organization = organization
        self._dataset = dataset

    def at(self, client: ProxyClient) -> Names:
        """The same by another client."""
        return Names(client, self._organization, self._dataset)

    async def organization(self, wanted: str | None = None) -> OrganizationResource:
        """The organization named, or else the only one there is.

        Raises:
            NotFound, InvalidSetting: none, or several.
        """
        wanted = wanted or self._organization
        if wanted is not None and (resource := await self._by_id(OrganizationResource, wanted)):
            return resource
        organizations = [entry async for entry in self._client.organizations()]
        if wanted is None:
            fitting = organizations
        else:
            fitting = [candidate for candidate in organizations if candidate.slug == wanted] or [
                candidate
                for candidate in organizations
                if candidate.name.casefold() == wanted.casefold()
            ]
        if wanted is None and len(fitting) > 1:
            raise InvalidSetting(
                "you belong to several organizations",
                hint="name one with organization (--organization): "
                + _join([entry.slug for entry in organizations]),
            )
        return await self._only("organization", wanted or "", fitting, organizations)

    async def dataset(self, wanted: str) -> ShownDataset:
        """
        Raises:
            NotFound, InvalidSetting: none of that name, or several.
        """
        if resource := await self._by_id(ShownDataset, wanted):
            return resource
        parent, _, name = wanted.rpartition("/")
        filters = await self.in_organization(parent or None)
        return await self._find(ShownDataset, name, filters)

    async def schema(self, wanted: str, dataset: str | None = None) -> ShownSchema:
        """
        Args:
            dataset: where to look; None is wherever ``wanted`` says, or else as of the class.

        Raises:
            NotFound, InvalidSetting: none of that name, or several.
        """
        if resource := await self._by_id(ShownSchema, wanted):
            return resource
        parent, _, name = wanted.rpartition("/")
        if parent and dataset:
            raise InvalidSetting(
                "the schema is named with a dataset, and --dataset names one as well",
                hint="leave one of them out",
            )
        within = parent or dataset or self._dataset
        if within:
            filters = {"dataset": (await self.dataset(within)).id}
        else:
            filters = await self.in_organization()
        return await self._find(ShownSchema, name, filters)

    async def in_organization(self, wanted: str | None = None) -> dict[str, str]:
        """The filter that leaves what belongs to an organization; none where none is named."""
        if wanted is None and self._organization is None:
            return {}
        return {"organization": (await self.organization(wanted)).id}

    async def organizations(self) -> list[str]:
        """The path of the organization where to look, or those of all."""
        if self._organization is not None:
            return [(await self.organization()).url]
        return [entry.url async for entry in self._client.organizations()]

    async def datasets(self) -> AsyncIterator[ShownDataset]:
        """The datasets where to look."""
        async for dataset in self._client.read_all(ShownDataset, **await self.in_organization()):
            yield dataset

    async def schemas(self, dataset: ShownDataset | None = None) -> AsyncIterator[ShownSchema]:
        """The schemas of a dataset, or else of the organization where to look."""
        filters = await self.in_organization() if dataset is None else {"dataset": dataset.id}
        async for schema in self._client.read_all(ShownSchema, **filters):
            yield schema

    async def create_dataset(
        self,
        name: str,
        organization: str | None = None,
        *,
        slug: str | None,
        description: str | None,
        get_or_create: bool,
    ) -> ShownDataset:
        """Create a dataset, or return the existing one with this slug or name if it is wanted.

        Args:
            slug: nothing else in the organization can have it.

        Raises:
            Conflict: ``slug_taken``; a dataset has this name, and no slug tells them apart.
            InvalidSetting: several have this name.
        """
        owner = await self.organization(organization)
        within = {"organization": owner.id}
        found = await self._existing(ShownDataset, within, name, slug, wanted=get_or_create)
        return found or await self._client.create_dataset(
            name=name, organization=owner.url, slug=slug, description=description
        )

    async def create_schema(
        self,
        dataset: ShownDataset,
        name: str,
        definition: Mapping[str, Any],
        *,
        slug: str | None,
        description: str | None,
        get_or_create: bool,
    ) -> ShownSchema:
        """Create a schema, or return the existing one, as :meth:`create_dataset` does.

        Raises:
            Conflict: also ``other_definition``; the existing schema has another definition.
        """
        within = {"dataset": dataset.id}
        found = await self._existing(ShownSchema, within, name, slug, wanted=get_or_create)
        if found is not None and as_sent(definition) != as_sent(found.definition):
            raise Conflict(
                f"the schema {found.slug} already exists, with another definition",
                code="other_definition",
                hint=(
                    "change its definition with change (ers schema change), or choose another name"
                ),
            )
        return found or await self._client.create_schema(
            name=name,
            dataset=dataset.url,
            definition=definition,
            slug=slug,
            description=description,
        )

    async def _existing(
        self,
        kind: type[Placed],
        within: dict[str, str],
        name: str,
        slug: str | None,
        *,
        wanted: bool,
    ) -> Placed | None:
        """The existing resource, if it is wanted; None if it is to be created."""
        if wanted:
            try:
                return await self._find(kind, slug or name, within)
            except NotFound:
                return None
        if slug is None:
            async for resource in self._client.read_all(kind, **within, name=name):
                if resource.name == name:
                    noun = _noun(kind)
                    raise Conflict(
                        f"a {noun} {name} already exists, with the slug {resource.slug}",
                        code="slug_taken",
                        hint="use it with get_or_create=True (--get-or-create); or choose a slug"
                        f" for another {noun} of this name",
                    )
        return None

    async def _by_id(self, kind: type[Named], wanted: str) -> Named | None:
        """The resource of which ``wanted`` is the path or the id, if it is either."""
        collection = COLLECTIONS[kind]
        if wanted.startswith("/api/"):
            ids.from_reference(wanted, collection, pointer="")
            return await self._client.read(kind, wanted)
        try:
            ids.from_text(wanted)
        except Malformed:
            return None
        return await self._client.read(kind, ids.reference(collection, wanted))

    async def _find(self, kind: type[Placed], name: str, filters: dict[str, str]) -> Placed:
        resources: dict[str, Placed] = {}
        for member in ("slug", "name"):
            async for resource in self._client.read_all(kind, **filters, **{member: name}):
                resources[resource.id] = resource
        found = list(resources.values())
        fitting = _named(name, found)
        listed = found
        if not fitting:
            listed = [entry async for entry in self._client.read_all(kind, **filters)]
            fitting = _named(name, listed)
        noun = _noun(kind)
        _require_signed(noun, name, found, fitting)
        trusted = [entry for entry in fitting if entry.signed is not False]
        return await self._only(noun, name, trusted, listed)

    async def _only(self, kind: str, name: str, fitting: list[Named], listed: list[Named]) -> Named:
        if len(fitting) == 1:
            return fitting[0]
        names = [await self.path_of(entry) for entry in (fitting or listed)[: _LISTED + 1]]
        if fitting:
            raise InvalidSetting(
                f"{name} names {len(fitting)} {kind}s", hint=f"name one of: {_join(names)}"
            )
        hint = f"there are: {_join(names)}"
        if not names:
            hint = f"create one: ers {kind} create --help"
            if kind != "organization":  # of others you see only what they share
                hint += (
                    f"; for a {kind} of your colleagues, ask an owner to share its dataset with you"
                )
        raise explain(NotFound(f"there is no {kind} {name}".rstrip(), hint=hint))

    async def path_of(self, named: OrganizationResource | ShownDataset | ShownSchema) -> str:
        """``acme``, ``acme/medical`` or ``acme/medical/patient``."""
        match named:
            case ShownSchema():
                within = await self.path_of(await self._client.read(ShownDataset, named.dataset))
            case ShownDataset():
                parent = await self._client.read(OrganizationResource, named.organization)
                within = parent.slug
            case _:
                return named.slug
        return f"{within}/{named.slug}"


def as_sent(definition: Any) -> Any:
    """A definition as JSON has it, whatever types its numbers and lists have here."""
    return msgspec.json.decode(strict_json.encode(definition))


def _noun(kind: type[Placed]) -> str:
    return COLLECTIONS[kind].removesuffix("s")


def _named(name: str, found: list[Placed]) -> list[Placed]:
    """The resources that have this name or slug: a proxy shows those of the signed roster, whatever
    the API has found them by."""
    return [resource for resource in found if name in (resource.slug, resource.name)]


def _require_signed(kind: str, name: str, found: list[Placed], fitting: list[Placed]) -> None:
    """
    Raises:
        Closed: ``schema_unsigned``; what the API shows by a name is not what was signed by it.
    """
    if found and not fitting:
        raise _unsigned(
            f"the API shows as {name} a {kind} that was signed under the name {found[0].name}"
        )
    if fitting and all(resource.signed is False for resource in fitting):
        raise _unsigned(
            f"the API shows a {kind} {name} that is not the one that was signed under this name"
        )


def _unsigned(message: str) -> Closed:
    return Closed(
        message,
        code="schema_unsigned",
        hint="nothing was done; ers share list shows the signed names, and an id is unambiguous",
    )


def _join(names: list[str]) -> str:
    more = ", ..." if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more

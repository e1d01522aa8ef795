"""Names, slugs, ids and paths -> the resource that is meant.

A schema is named by its slug or name, alone or after those of its dataset and organization
(``acme/medical/patient``), by its id, or by its path; datasets and organizations likewise. What
names several is refused with a list of them: nothing is ever guessed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from encrypted_records.client.proxy.transport import explain
from encrypted_records.errors import Closed, Conflict, InvalidSetting, Malformed, NotFound
from encrypted_records.model import ids, strict_json

if TYPE_CHECKING:
    from encrypted_records.client.proxy.client import ProxyClient
    from encrypted_records.client.proxy.connection import Resource

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

    async def organization(self, wanted: str | None = None) -> Resource:
        """The organization named, or else the only one there is.

        Raises:
            NotFound, InvalidSetting: none, or several.
        """
        wanted = wanted or self._organization
        if wanted is not None and (resource := await self._by_id("organizations", wanted)):
            return resource
        organizations = [entry async for entry in self._client.listing("organizations")]
        if wanted is None:
            fitting = organizations
        else:
            fitting = [candidate for candidate in organizations if candidate["slug"] == wanted] or [
                candidate
                for candidate in organizations
                if candidate["name"].casefold() == wanted.casefold()
            ]
        if wanted is None and len(fitting) > 1:
            raise InvalidSetting(
                "you belong to several organizations",
                hint="name one with organization (--organization): "
                + _join([entry["slug"] for entry in organizations]),
            )
        return await self._only("organization", wanted or "", fitting, organizations)

    async def dataset(self, wanted: str) -> Resource:
        """
        Raises:
            NotFound, InvalidSetting: none of that name, or several.
        """
        if resource := await self._by_id("datasets", wanted):
            return resource
        parent, _, name = wanted.rpartition("/")
        filters = await self.in_organization(parent or None)
        return await self._find("datasets", name, filters)

    async def schema(self, wanted: str, dataset: str | None = None) -> Resource:
        """
        Args:
            dataset: where to look; None is wherever ``wanted`` says, or else as of the class.

        Raises:
            NotFound, InvalidSetting: none of that name, or several.
        """
        if resource := await self._by_id("schemas", wanted):
            return resource
        parent, _, name = wanted.rpartition("/")
        if parent and dataset:
            raise InvalidSetting(
                "the schema is named with a dataset, and --dataset names one as well",
                hint="leave one of them out",
            )
        within = parent or dataset or self._dataset
        if within:
            filters = {"dataset": str((await self.dataset(within))["id"])}
        else:
            filters = await self.in_organization()
        return await self._find("schemas", name, filters)

    async def in_organization(self, wanted: str | None = None) -> dict[str, str]:
        """The filter that leaves what belongs to an organization; none where none is named."""
        if wanted is None and self._organization is None:
            return {}
        return {"organization": str((await self.organization(wanted))["id"])}

    async def organizations(self) -> list[str]:
        """The path of the organization where to look, or those of all."""
        if self._organization is not None:
            return [str((await self.organization())["url"])]
        return [entry["url"] async for entry in self._client.listing("organizations")]

    async def existing(
        self,
        collection: str,
        within: dict[str, str],
        name: str,
        slug: str | None,
        *,
        wanted: bool,
        definition: Any = None,
    ) -> Resource | None:
        """The existing resource of this name, if it is wanted; None if a new one is to be made.

        Args:
            within: the filter that leaves what is in the same dataset or organization.
            slug: one that was chosen, which the API lets nothing else have.
            definition: of a schema; the one that is there has to have the same.

        Raises:
            Conflict: ``slug_taken``; there is one of this name, it is not wanted, and no slug tells
                them apart.
                ``other_definition``; there is a schema, and it has another one.
            InvalidSetting: several have this name.
        """
        if wanted:
            try:
                found = await self._find(collection, slug or name, within)
            except NotFound:
                return None
            if definition is not None and as_sent(definition) != as_sent(found["schema"]):
                raise Conflict(
                    f"the schema {found['slug']} already exists, with another definition",
                    code="other_definition",
                    hint=(
                        "change its definition with change (ers schema change), or choose"
                        " another name"
                    ),
                )
            return found
        if slug is None:
            async for resource in self._client.listing(collection, **within, name=name):
                if resource["name"] == name:
                    kind = collection.removesuffix("s")
                    raise Conflict(
                        f"a {kind} {name} already exists, with the slug {resource['slug']}",
                        code="slug_taken",
                        hint="use it with get_or_create=True (--get-or-create); or choose a slug"
                        f" for another {kind} of this name",
                    )
        return None

    async def _by_id(self, collection: str, wanted: str) -> Resource | None:
        """The resource of which ``wanted`` is the path or the id, if it is either."""
        if wanted.startswith("/api/"):
            ids.from_reference(wanted, collection, pointer="")
            return await self._client.resource(wanted)
        try:
            ids.from_text(wanted)
        except Malformed:
            return None
        return await self._client.resource(ids.reference(collection, wanted))

    async def _find(self, collection: str, name: str, filters: dict[str, str]) -> Resource:
        resources: dict[str, Resource] = {}
        for member in ("slug", "name"):
            async for resource in self._client.listing(collection, **filters, **{member: name}):
                resources[resource["id"]] = resource
        found = list(resources.values())
        fitting = _named(name, found)
        listed = found
        if not fitting:
            listed = [entry async for entry in self._client.listing(collection, **filters)]
            fitting = _named(name, listed)
        kind = collection.removesuffix("s")
        _require_signed(kind, name, found, fitting)
        trusted = [entry for entry in fitting if entry.get("signed") is not False]
        return await self._only(kind, name, trusted, listed)

    async def _only(
        self, kind: str, name: str, fitting: list[Resource], listed: list[Resource]
    ) -> Resource:
        if len(fitting) == 1:
            return fitting[0]
        paths: dict[str, Callable[[Resource], Awaitable[str]]] = {
            "schema": self.path_of_schema,
            "dataset": self.path_of_dataset,
        }
        shown = (fitting or listed)[: _LISTED + 1]
        names = [
            await paths[kind](entry) if kind in paths else str(entry["slug"]) for entry in shown
        ]
        if fitting:
            raise InvalidSetting(
                f"{name} names {len(fitting)} {kind}s", hint=f"name one of: {_join(names)}"
            )
        hint = f"there are: {_join(names)}" if names else f"create one: ers {kind} create --help"
        raise explain(NotFound(f"there is no {kind} {name}".rstrip(), hint=hint))

    async def path_of_dataset(self, dataset: Resource) -> str:
        """``acme/medical``."""
        organization = await self._client.resource(dataset["organization"])
        return f"{organization['slug']}/{dataset['slug']}"

    async def path_of_schema(self, schema: Resource) -> str:
        """``acme/medical/patient``."""
        dataset = await self._client.resource(schema["dataset"])
        return f"{await self.path_of_dataset(dataset)}/{schema['slug']}"


def as_sent(definition: Any) -> Any:
    """A definition as JSON has it, whatever types its numbers and lists have here."""
    return msgspec.json.decode(strict_json.encode(definition))


def _named(name: str, found: list[Resource]) -> list[Resource]:
    """The resources that have this name or slug: a proxy shows those of the signed roster, whatever
    the API has found them by."""
    return [resource for resource in found if name in (resource["slug"], resource["name"])]


def _require_signed(kind: str, name: str, found: list[Resource], fitting: list[Resource]) -> None:
    """
    Raises:
        Closed: ``schema_unsigned``; what the API shows by a name is not what was signed by it.
    """
    if found and not fitting:
        raise _unsigned(
            f"the API shows as {name} a {kind} that was signed under the name {found[0]['name']}"
        )
    if fitting and all(resource.get("signed") is False for resource in fitting):
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

"""Names of datasets and schemas, from the rosters of a user's organizations.

:meth:`ShownNames.find` returns the names under which an object may be shown, which is what `ers`
and the Python client look for; :meth:`ShownNames.by_slug` finds the object that a request names by
its slug.
"""

from __future__ import annotations

import difflib
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from encrypted_records import errors, runtime
from encrypted_records.client.rosters import RosterApi
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import ids
from encrypted_records.model.signatures import Withheld, require_shown
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.sharing.reading import FRESH, RosterReader, hidden_roster

#: How many slugs or ids an error lists.
_LISTED: Final = 5

Collection = Literal["datasets", "schemas"]


@dataclass(frozen=True, slots=True)
class ShownName:
    """A dataset or schema as the API shows it; ``dataset`` is None for a dataset."""

    id: bytes
    organization: bytes
    slug: str
    name: str
    dataset: bytes | None


@dataclass(frozen=True, slots=True)
class ShownAs:
    """A dataset or schema as it may be shown.

    Attributes:
        signed: True: the names come from the roster. None: it is unsigned, and no signed object has
            the name by which it was looked up (or any of its names, if it is only displayed).
            False: it is unsigned, but another object with that name, or with a name that is hidden
            from this API token, is signed; or the roster was not accepted, or does not show its
            name.
    """

    shown: ShownName
    signed: bool | None


class ShownNames:
    def __init__(self, api: RosterApi, reader: RosterReader) -> None:
        self._api = api
        self._reader = reader

    async def of_reference(
        self,
        holder: Holder,
        wanted: object,
        collection: Collection,
        *,
        pointer: str,
        own_hosts: tuple[str, ...] = (),
    ) -> bytes:
        """The id in a reference, or the id that its slug was signed for.

        Args:
            wanted: as for :func:`encrypted_records.model.ids.from_reference`, or the same with a
                slug.
            pointer: of the reference in the request, for the error.

        Raises:
            BadInput: ``invalid_reference``, ``unknown_reference``, ``ambiguous_reference``.
            Refused, Unavailable: as :meth:`by_slug`.
        """
        slug = ids.slug_in(wanted, collection, own_hosts=own_hosts)
        if slug is None:
            return ids.from_reference(wanted, collection, pointer=pointer, own_hosts=own_hosts)
        try:
            return await self.by_slug(holder, collection, slug)
        except (errors.NotFound, errors.Conflict) as error:
            unknown = isinstance(error, errors.NotFound)
            code = "unknown_reference" if unknown else "ambiguous_reference"
            flaw = errors.Flaw(code, f"{error.message}; {error.hint}", pointer=pointer)
            raise errors.BadInput(error.message, hint=error.hint, flaws=(flaw,)) from None

    async def by_slug(self, holder: Holder, collection: Collection, slug: str) -> bytes:
        """The dataset or schema that was signed under a slug, among those that the user reads.

        Only trusted rosters count. The API could give the name to any object, so unsigned objects
        are not found by slug.

        Raises:
            NotFound: nothing that the user reads was signed under this slug.
            Conflict: ``ambiguous_slug``; several were, in different datasets or organizations.
            RosterWithheld: names are hidden from an API token, so other objects could have the
                slug.
            Refused: a subclass; a roster is not trusted, or is not shown any more.
            Unavailable: the API cannot be reached.
        """
        rosters = self._reader.rosters
        organizations = set(await runtime.in_thread(rosters.organizations, holder.user))
        named = await self._named(holder, organizations, collection, slug, within=FRESH)
        fitting = [key for key, other in named.items() if other == slug]
        if len(fitting) != 1:
            # The slug may be in a roster that this proxy has not read yet, or in a newer entry.
            shown = await self._api.organizations(holder.auth)
            organizations |= {ids.from_text(resource.id) for resource in shown}
            named = await self._named(holder, organizations, collection, slug, within=0.0)
            fitting = [key for key, other in named.items() if other == slug]
        if len(fitting) == 1:
            return fitting[0]
        kind = collection.removesuffix("s")
        if fitting:
            texts = sorted(map(ids.to_text, fitting))
            raise errors.Conflict(
                f"{len(fitting)} {collection} have this slug",
                code="ambiguous_slug",
                hint=f"name one of them by its id: {_join(texts)}",
            )
        raise errors.NotFound(f"no {kind} has this slug", hint=_advice(kind, slug, named.values()))

    async def _named(
        self,
        holder: Holder,
        organizations: Iterable[bytes],
        collection: Collection,
        slug: str,
        *,
        within: float,
    ) -> dict[bytes, str]:
        """The signed slugs of objects that the user reads, by id."""
        named: dict[bytes, str] = {}
        for organization in organizations:
            view, kept = await self._reader.read_or_slugs(holder, organization, within=within)
            if any(other == slug or isinstance(other, Withheld) for other in kept.values()):
                raise hidden_roster()
            if view is not None:
                named |= _slugs(view.roster, holder.user, collection)
        require_shown(*named.values())
        return named

    async def find(
        self, holder: Holder, shown: Sequence[ShownName], *, everywhere: bool, by_names: Set[str]
    ) -> list[ShownAs | None]:
        """The names to show for each object; None if its organization has no roster, or the user is
        not in it: then only the API's names exist.

        Args:
            everywhere: whether a schema's name must also be unique across datasets.
            by_names: the slugs and names of a lookup; empty if objects are only displayed.

        Raises:
            Refused: a subclass; the roster is not trusted, so it is not searched; or it does not
                show a name.
            Unavailable: the API cannot be reached.
        """
        organizations = {resource.organization for resource in shown}
        # The organization of a resource is unverified data from the API.
        rosters = self._reader.rosters
        organizations |= set(await runtime.in_thread(rosters.organizations, holder.user))
        ask = partial(
            self._find, holder, shown, organizations, everywhere=everywhere, by_names=by_names
        )
        found = await ask(within=FRESH)
        if any(
            named is not None and (named.signed is False or named.shown != resource)
            for resource, named in zip(shown, found, strict=True)
        ):
            # The object may have been renamed since the roster was read.
            found = await ask(within=0.0)
        return found

    async def _find(
        self,
        holder: Holder,
        shown: Sequence[ShownName],
        organizations: Iterable[bytes],
        *,
        everywhere: bool,
        by_names: Set[str],
        within: float,
    ) -> list[ShownAs | None]:
        rosters: dict[bytes, Roster] = {}
        doubtful: dict[bytes, errors.Refused] = {}
        hidden: set[bytes] = set()
        for organization in organizations:
            try:
                view, kept = await self._reader.read_or_slugs(holder, organization, within=within)
            except errors.Refused as error:
                doubtful[organization] = error
            else:
                hidden.update(kept)
                if view is not None:
                    rosters[organization] = view.roster
        if by_names:
            for named in shown:
                if named.organization in doubtful:
                    raise doubtful[named.organization]
                if named.id in hidden:
                    raise hidden_roster()
                for roster in rosters.values():
                    require_shown(_slug(roster, named))
        return [
            ShownAs(resource, signed=False)
            if resource.id in hidden
            else _name(
                rosters,
                doubtful,
                resource,
                by_names or {resource.slug, resource.name},
                everywhere=everywhere,
            )
            for resource in shown
        ]


def _name(
    rosters: Mapping[bytes, Roster],
    doubtful: Container[bytes],
    resource: ShownName,
    names: Set[str],
    *,
    everywhere: bool,
) -> ShownAs | None:
    for organization, roster in rosters.items():
        placed = _placed(roster, organization, resource)
        if placed is not None and isinstance(placed.slug, Withheld):
            return ShownAs(resource, signed=False)
        if placed is not None:
            return ShownAs(placed, signed=True)
    if resource.organization in doubtful:
        return ShownAs(resource, signed=False)
    of_organization = rosters.get(resource.organization)
    if of_organization is None:
        return None
    taken = _has_any_of(of_organization, resource, names, everywhere=everywhere)
    return ShownAs(resource, signed=False if taken else None)


def _placed(roster: Roster, organization: bytes, resource: ShownName) -> ShownName | None:
    """A dataset or schema in a roster; None if the roster does not have it."""
    if resource.dataset is None:
        dataset = roster.dataset(resource.id)
        if dataset is None or not dataset.slug:
            return None
        return replace(resource, organization=organization, slug=dataset.slug, name=dataset.name)
    schema = roster.schema(resource.id)
    if schema is None or not schema.slug:
        return None
    return replace(
        resource,
        organization=organization,
        slug=schema.slug,
        name=schema.name,
        dataset=schema.dataset,
    )


def _slugs(roster: Roster, user: bytes, collection: Collection) -> dict[bytes, str]:
    """The slugs of datasets, or schemas, that a member reads, by id."""
    if collection == "datasets":
        return {
            dataset.dataset: dataset.slug
            for dataset in roster.datasets()
            if dataset.slug and roster.reads(user, dataset.dataset)
        }
    return {
        schema.schema: schema.slug
        for schema in roster.every_schema()
        if schema.slug and roster.may_read(user, schema.schema)
    }


def _advice(kind: str, slug: str, known: Iterable[str]) -> str:
    """Suggest the slug that was probably meant, or list the known slugs."""
    slugs = sorted(set(known))
    signing = f"the slug of a new {kind} counts from its first records on: until then, use the id"
    if near := difflib.get_close_matches(slug, slugs, 1):
        return f"did you mean {near[0]}? {signing}"
    return f"there are: {_join(slugs)}; {signing}" if slugs else signing


def _join(texts: Sequence[str]) -> str:
    return ", ".join(texts[:_LISTED]) + (", ..." if len(texts) > _LISTED else "")


def _slug(roster: Roster, resource: ShownName) -> str:
    """The slug of a resource in a roster; empty if it has none."""
    named = roster.dataset(resource.id) if resource.dataset is None else roster.schema(resource.id)
    return "" if named is None else named.slug


def _has_any_of(roster: Roster, resource: ShownName, names: Set[str], *, everywhere: bool) -> bool:
    """Whether a signed resource has one of these names as its slug or name, or might have it."""
    named = (
        [(other.slug, other.name) for other in roster.datasets()]
        if resource.dataset is None
        else [
            (other.slug, other.name)
            for other in roster.every_schema()
            if everywhere or other.dataset == resource.dataset
        ]
    )
    return any(
        slug and (isinstance(slug, Withheld) or names & {slug, name}) for slug, name in named
    )

"""Names of datasets and schemas, by the rosters of a user's organizations."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from encrypted_records import runtime
from encrypted_records.errors import (
    IdentityReplaced,
    KeyMissing,
    NotAllowed,
    NotFound,
    Refused,
)
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model.openings import Withheld, require_shown
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.sharing.reading import RosterReader, hidden_roster

#: For how many seconds a roster that was read is taken as it is.
_FRESH: Final = 10.0


@dataclass(frozen=True, slots=True)
class Shown:
    """A dataset or schema as the API shows it; ``dataset`` is None of a dataset."""

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

    shown: Shown
    signed: bool | None


class ShownNames:
    def __init__(self, reader: RosterReader) -> None:
        self._reader = reader

    async def find(
        self, holder: Holder, shown: Sequence[Shown], *, everywhere: bool, by_names: Set[str]
    ) -> list[ShownAs | None]:
        """The names to show for each; None where its organization has no roster, or the user is not
        in it: then there are no other names than the API's.

        Args:
            everywhere: a schema must not have the name of one in another dataset either.
            by_names: the slugs and names that they are looked for by; empty where they are only
                looked at.

        Raises:
            Refused: by names: the roster is not believed, so that nothing is found by it; or it
                does not show what one is called.
            Unavailable: the API cannot be asked.
        """
        organizations = {one.organization for one in shown}
        # What it is of, is the API's word too.
        rosters = self._reader.rosters
        organizations |= set(await runtime.in_thread(rosters.organizations, holder.user))
        ask = partial(
            self._find, holder, shown, organizations, everywhere=everywhere, by_names=by_names
        )
        found = await ask(within=_FRESH)
        if any(
            named is not None and (named.signed is False or named.shown != one)
            for one, named in zip(shown, found, strict=True)
        ):
            # It may have been given another name since the roster was read.
            found = await ask(within=0.0)
        return found

    async def _find(
        self,
        holder: Holder,
        shown: Sequence[Shown],
        organizations: Iterable[bytes],
        *,
        everywhere: bool,
        by_names: Set[str],
        within: float,
    ) -> list[ShownAs | None]:
        rosters: dict[bytes, Roster] = {}
        doubtful: dict[bytes, Refused] = {}
        hidden: set[bytes] = set()
        for organization in organizations:
            try:
                view = await self._reader.read(holder, organization, within=within)
            except (KeyMissing, IdentityReplaced):
                continue  # a roster that was read says it: they open and store nothing there
            except (NotFound, NotAllowed):
                # They may have left. But a name that was signed is not unsigned by an answer.
                hidden |= await self._reader.names(holder.user, organization)
            except Refused as error:
                doubtful[organization] = error
            else:
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
    resource: Shown,
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
    own = rosters.get(resource.organization)
    if own is None:
        return None
    taken = _has_one_of(own, resource, names, everywhere=everywhere)
    return ShownAs(resource, signed=False if taken else None)


def _placed(roster: Roster, organization: bytes, resource: Shown) -> Shown | None:
    """A dataset or schema as a roster has it; None where it does not."""
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


def _slug(roster: Roster, resource: Shown) -> str:
    """The slug that a roster has of it; empty where it has none."""
    named = roster.dataset(resource.id) if resource.dataset is None else roster.schema(resource.id)
    return "" if named is None else named.slug


def _has_one_of(roster: Roster, resource: Shown, names: Set[str], *, everywhere: bool) -> bool:
    """Whether something like this one that was signed has one of these as its slug or name, or
    might have it."""
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

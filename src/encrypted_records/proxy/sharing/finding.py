"""Find the roster that has a dataset or schema, whatever organization the API says it is of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from encrypted_records import runtime
from encrypted_records.errors import IdentityReplaced, KeyMissing, NotAllowed, NotFound
from encrypted_records.index.roster.roster import Roster
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.sharing.reading import RosterReader, View, hidden_roster

#: For how many seconds a roster that was read is taken as it is.
FRESH: Final = 10.0


class RosterFinder:
    def __init__(self, reader: RosterReader) -> None:
        self._reader = reader

    async def of_dataset(
        self, holder: Holder, dataset: bytes, *, shown: bytes | None = None, within: float = 0.0
    ) -> View | None:
        """The roster that names a dataset; None where no roster that the user is in does.

        Args:
            shown: the organization that the API says it is of: a proxy that has seen no roster of
                it yet begins there.
            within: as for :meth:`RosterReader.read`.

        Raises:
            Refused: by names: a roster is not believed.
            Unavailable: the API cannot be asked.
        """

        def has(roster: Roster) -> bool:
            named = roster.dataset(dataset)
            return named is not None and bool(named.slug)

        return await self._find(holder, dataset, has, shown, within)

    async def organization_of(self, holder: Holder, dataset: bytes, shown: bytes) -> bytes:
        """The organization of a dataset.

        Args:
            shown: which the API says, whose word counts where no roster that the user is in has
                the dataset. Else it could name another one of the user's, in which nothing is to be
                done, and so have a right stay that is taken away.

        Raises:
            Refused, Unavailable: as :meth:`of_dataset`.
        """
        view = await self.of_dataset(holder, dataset, shown=shown)
        return shown if view is None else view.organization

    async def of_schema(
        self, holder: Holder, schema: bytes, *, shown: bytes | None = None, within: float = 0.0
    ) -> View | None:
        """The roster that places a schema, as :meth:`of_dataset`."""

        def has(roster: Roster) -> bool:
            placed = roster.schema(schema)
            return placed is not None and bool(placed.slug)

        return await self._find(holder, schema, has, shown, within)

    async def _find(
        self,
        holder: Holder,
        one: bytes,
        has: Callable[[Roster], bool],
        shown: bytes | None,
        within: float,
    ) -> View | None:
        seen = await runtime.in_thread(self._reader.rosters.organizations, holder.user)
        for organization in dict.fromkeys([*([] if shown is None else [shown]), *seen]):
            try:
                view = await self._reader.read(holder, organization, within=within)
            except (KeyMissing, IdentityReplaced):
                continue  # a roster that was read says it: they open and store nothing there
            except (NotFound, NotAllowed):
                # They may have left. But a name that was signed is not unsigned by an answer.
                if one in await self._reader.names(holder.user, organization):
                    raise hidden_roster() from None
                continue
            if view is not None and has(view.roster):
                return view
        return None

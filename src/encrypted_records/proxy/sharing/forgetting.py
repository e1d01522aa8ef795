"""Let a dataset's older keys be forgotten, once nothing is left that they open."""

from __future__ import annotations

from encrypted_records.errors import Conflict, NotFound
from encrypted_records.model import roster as form
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.sharing.changes import RosterChanges
from encrypted_records.proxy.sharing.drafts import Draft, no_roster
from encrypted_records.proxy.sharing.founding import grant_holders
from encrypted_records.proxy.sharing.grants import OwnGrants
from encrypted_records.proxy.sharing.reading import RosterReader


class Forgetting:
    def __init__(self, reader: RosterReader, changes: RosterChanges, grants: OwnGrants) -> None:
        self._reader = reader
        self._changes = changes
        self._grants = grants

    async def look(self, holder: Holder, organization: bytes, dataset: bytes) -> tuple[int, int]:
        """The oldest epoch of a dataset's keys that is not forgotten, and the present one, as the
        roster says now.

        Raises:
            NotAllowed: ``owners_only``, ``not_admitted``.
            NotFound: the roster has no such dataset.
            ErsError: as :meth:`RosterReader.read`.
        """
        view = await self._reader.read(holder, organization)
        if view is None:
            raise no_roster()
        return _epochs(Draft(view), dataset)

    async def forget(self, holder: Holder, organization: bytes, dataset: bytes, first: int) -> None:
        """Sign that epochs before ``first`` are forgotten, with grants that lack them for everybody
        who reads something of the dataset. Where it was done before, nothing is.

        Raises:
            Conflict: ``epoch_in_use``: the API has something that they open; ``epoch_moved``:
                another epoch has begun since.
            NotAllowed, NotFound: as :meth:`look`.
            ErsError: as :meth:`RosterChanges.change`.
        """

        async def plan(draft: Draft) -> None:
            oldest, present = _epochs(draft, dataset)
            if oldest >= first:
                return
            if present != first:
                raise Conflict(
                    "another epoch of the dataset's keys has begun meanwhile",
                    code="epoch_moved",
                    hint="seal all of it again under the new one, and repeat it",
                )
            keys = await self._grants.whole(draft.view, dataset)
            draft.sign(form.Forget(dataset, first))
            grant_holders(draft, dataset, keys)

        await self._changes.change(holder, organization, plan)


def _epochs(draft: Draft, dataset: bytes) -> tuple[int, int]:
    draft.require_owner()
    epoch = draft.roster.epoch(dataset)
    if epoch is None:
        raise NotFound(
            "the organization's roster has no such dataset",
            hint="store into it through an owner's proxy, or share it: then it has keys",
        )
    return draft.roster.first(dataset), epoch.epoch

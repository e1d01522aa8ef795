"""The one way in which a proxy changes a roster.

Read it to its head and believe it; make the change, which says for itself whether it still makes
sense; sign; send entries and grants in one request, which is applied whole or not at all. A proxy
that was overtaken starts over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar
from weakref import WeakValueDictionary

from encrypted_records.client.rosters import RosterApi
from encrypted_records.errors import Conflict, ErsError, Unavailable
from encrypted_records.model.roster import entry_digest
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.sharing.drafts import RosterDraft, no_roster
from encrypted_records.proxy.sharing.reading import RosterReader, View

T = TypeVar("T")
#: Signs what is wanted of the roster that it is given. It is called again where another owner was
#: first, so it must not have changed anything but the draft.
Plan = Callable[[RosterDraft], Awaitable[T]]

#: How often a change is signed before it is given up.
ATTEMPTS = 5


class RosterChanges:
    def __init__(self, api: RosterApi, reader: RosterReader) -> None:
        self._api = api
        self._reader = reader
        #: one change at a time of each organization, so that this proxy does not overtake itself
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    async def change(self, holder: Holder, organization: bytes, plan: Plan[T]) -> T:
        """Do what ``plan`` signs, and return what it returned.

        A plan that signs nothing has nothing sent: what it wanted is so already.

        Raises:
            Conflict: ``roster_moved``: others were first, five times; or what the API says of the
                entries.
            Unavailable: it is not known whether the change was stored.
            ErsError: what reading the roster or the plan raises.
        """
        async with self.alone(organization):
            for attempt in range(1, ATTEMPTS + 1):
                view = await self._reader.read(holder, organization)
                if view is None:
                    raise no_roster()
                draft = RosterDraft(view)
                result = await plan(draft)
                if draft.empty or await self._send(view, draft, last=attempt == ATTEMPTS):
                    return result
        raise AssertionError("the last attempt returns or raises")

    def alone(self, organization: bytes) -> asyncio.Lock:
        """Held while the organization's roster is changed here."""
        return self._locks.setdefault(organization, asyncio.Lock())

    async def _send(self, view: View, draft: RosterDraft, *, last: bool) -> bool:
        """Whether the draft is stored; False where it has to be made again."""
        try:
            await self._api.send(view.organization, draft.entries, draft.grants, view.holder.auth)
        except Conflict as error:
            if error.reason != "roster_moved" or last:
                raise
            return False
        except Unavailable as error:
            if not await self._is_stored(view, draft):
                raise _unknown(error) from None
            return True
        await self._reader.take(view.holder, view.organization, draft.entries)
        return True

    async def _is_stored(self, view: View, draft: RosterDraft) -> bool:
        """After a lost answer: whether the roster has what was sent."""
        if not draft.entries:
            return False
        try:
            after = await self._reader.read(view.holder, view.organization)
        except Unavailable:
            return False
        newest = entry_digest(draft.entries[-1])
        return after is not None and after.roster.digest_at(draft.roster.number) == newest


def _unknown(error: Unavailable) -> ErsError:
    return type(error)(
        f"{error.message}; it is not known whether the organization's roster was changed",
        code=error.reason,
        retry_after=error.retry_after,
        hint="once the API answers again, check with ers share list before you repeat the change",
    )

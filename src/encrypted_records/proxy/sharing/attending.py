"""Do what is due without being asked, while an owner works with this proxy.

A proxy acts only with a caller's credentials, so it looks while it answers an owner's requests: at
most once a minute for each owner, beside the request and not before it. It does what ``settle``
does, and nothing that the roster does not say already; what cannot be done now is due a minute
later as well. The minute begins with the first request, so that one command alone costs nothing.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

from encrypted_records import runtime
from encrypted_records.client.rosters import RosterApi
from encrypted_records.errors import ErsError
from encrypted_records.index.roster.due import due_datasets, due_services
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.background import ATTENDING, Background
from encrypted_records.proxy.sharing.reading import RosterReader
from encrypted_records.proxy.sharing.settling import Settling

log = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
#: Users whose last look is remembered; of one beyond that, the minute begins again.
_KEPT = 1000
#: Organizations of one user that are looked at.
_MOST_ORGANIZATIONS = 20


class Attending:
    def __init__(
        self,
        api: RosterApi,
        reader: RosterReader,
        settling: Settling,
        background: Background,
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self._api = api
        self._reader = reader
        self._settling = settling
        self._background = background
        self._every = every_seconds
        #: when the next look of each user is due
        self._due: dict[bytes, float] = {}

    def notice(self, holder: Holder) -> None:
        """An owner may be at work: look at what is due, if that was a minute ago."""
        if holder.token is not None or holder.service is not None:
            return  # neither is an owner's own
        now = runtime.monotonic()
        due = self._due.get(holder.user)
        if due is not None and now < due:
            return
        if due is None and len(self._due) >= _KEPT:
            self._due.clear()
        self._due[holder.user] = now + self._every
        if due is None and self._every:
            return
        # A look opens the keyring that there is, and takes in no device with a new one.
        self._background.start(ATTENDING, partial(self._look, replace(holder, newcomer=None)))

    async def _look(self, holder: Holder) -> None:
        try:
            known = await runtime.in_thread(self._reader.rosters.organizations, holder.user)
        except ErsError:
            return  # the disk says so where somebody asks for something
        for organization in known[:_MOST_ORGANIZATIONS]:
            try:
                await self._settle(holder, organization)
            except ErsError as error:
                log.info("pending changes of an organization are not applied: %s", error.reason)

    async def _settle(self, holder: Holder, organization: bytes) -> None:
        view = await self._reader.read(holder, organization)
        if view is None or not view.believed.standing.owns:
            return
        roster = view.roster
        if (
            await self._api.answers(organization, holder.auth)
            or due_services(roster, int(runtime.wall()))
            or due_datasets(roster)
        ):
            done = await self._settling.settle(holder, organization)
            log.info(
                "applied pending changes of an organization: admitted %d, removed %d, new keys %d,"
                " troubles %d",
                len(done.admitted),
                len(done.removed),
                len(done.rotated),
                len(done.troubles),
            )

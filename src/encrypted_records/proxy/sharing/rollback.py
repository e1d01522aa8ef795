"""Compare the API's roster of an organization with what this proxy has seen of it.

A roster that lacks what was seen is refused: an API that hides a removal looks just like one that
was restored from a backup. Only people can decide which it is; so they see what would be lost, and
name the head that they accept. Then that roster replaces the other, for this user of this proxy. It
must still be authentic, and the user must be in it under the user's own keys.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

from encrypted_records import runtime
from encrypted_records.errors import Conflict, RosterOlder
from encrypted_records.index.roster import belief
from encrypted_records.index.roster.belief import Remembered
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import roster as form
from encrypted_records.model.ids import to_text
from encrypted_records.model.roster import EntryBody, RosterEntry
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.sharing.reading import RosterReader

log = logging.getLogger(__name__)

#: ``whole``: it holds all that was seen. ``older``: a beginning of what was seen. ``forked``: it
#: has other entries. ``unclear``: older or forked, and what is kept does not show which.
State = Literal["whole", "older", "forked", "unclear"]


@dataclass(frozen=True, slots=True)
class RosterComparison:
    """``common`` is the newest entry of which it is known that both have it; ``lost`` are the kept
    entries behind it that the API's roster does not have."""

    roster: Roster
    state: State
    seen: Remembered | None
    common: int
    lost: list[EntryBody]


class Rollbacks:
    def __init__(self, reader: RosterReader, keyrings: Keyrings) -> None:
        self._reader = reader
        self._keyrings = keyrings

    async def of(self, holder: Holder, organization: bytes) -> RosterComparison:
        """The present standing of the roster.

        Raises:
            RosterOlder: another organization is shown under this id, which cannot be accepted.
            ErsError: as :meth:`RosterReader.read_shown`; also where the disk does not give it.
        """
        shown = await self._reader.read_shown(holder, organization)
        rosters, user = self._reader.rosters, holder.user
        seen = await runtime.in_thread(rosters.get, user, organization)
        if seen is None or shown.digest_at(seen.number) == seen.digest:
            return RosterComparison(shown, "whole", seen, 0 if seen is None else seen.number, [])
        if shown.number and shown.found != seen.found:
            raise RosterOlder("the API shows another organization under this one's id")
        kept = await runtime.in_thread(rosters.kept_entries, user, organization, 1)
        return await runtime.in_thread(_compare, shown, seen, kept)

    async def accept(
        self, holder: Holder, organization: bytes, number: int, digest: bytes, *, forked: bool
    ) -> RosterComparison:
        """Accept the roster that the API has as the organization's own; returns how it stood.

        Args:
            number, digest: its head, as the accepting user has seen it.
            forked: whether it may have other entries than what was seen.

        Raises:
            Conflict: ``nothing_to_accept``, ``roster_moved`` or ``roster_forked``; nothing has
                changed.
            NotAllowed, IdentityReplaced: the user is not in it, or under other keys.
            ErsError: as :meth:`of`; also where the disk does not take it.
        """
        standing = await self.of(holder, organization)
        roster = standing.roster
        if standing.state == "whole" or standing.seen is None:
            raise Conflict(
                "the roster contains everything that this proxy has seen of it",
                code="nothing_to_accept",
                hint="there is nothing to do; search and store as usual",
            )
        if (roster.number, roster.digest_at(roster.number)) != (number, digest):
            raise Conflict(
                f"the API's roster is now at entry {roster.number}, or is a different roster",
                code="roster_moved",
                hint="check it again before you accept it",
            )
        if standing.state != "older" and not forked:
            raise Conflict(
                "the roster has, or may have, other entries than this proxy has seen",
                code="roster_forked",
                hint="find out who changed the organization since; to accept the roster anyway:"
                " ers proxy accept-rollback --forked, or forked in the request",
            )
        if roster.number:
            keyring = await runtime.in_thread(self._keyrings.of, holder)
            seen = belief.remember(roster)
            await runtime.in_thread(belief.believe, roster, holder.user, keyring, seen)
        await runtime.in_thread(self._reader.rosters.replace, holder.user, roster)
        log.warning(
            "user %s accepts another roster of organization %s: entry %d (%s) instead of %d (%s),"
            " of which it has the first %d",
            to_text(holder.user),
            to_text(organization),
            number,
            digest.hex(),
            standing.seen.number,
            standing.seen.digest.hex(),
            standing.common,
        )
        return standing


def _compare(shown: Roster, seen: Remembered, kept: list[RosterEntry]) -> RosterComparison:
    bodies = [(form.read_entry(entry), form.entry_digest(entry)) for entry in kept]
    common = max(
        (body.number for body, digest in bodies if shown.digest_at(body.number) == digest),
        default=0,
    )
    lost = [body for body, _ in bodies if common < body.number <= seen.number]
    state: State
    if common == shown.number:
        state = "older"
    else:
        known = {body.number for body, _ in bodies}
        state = "forked" if common + 1 in known else "unclear"
    return RosterComparison(shown, state, seen, common, lost)

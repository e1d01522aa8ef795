"""Read an organization's roster to its head, and verify it for a user.

Rosters that were read stay in memory for each user: a further reading requests only new entries.
The API shows a limited API token only the names that concern its datasets, so a token's readings
are kept separately from its user's: everything else in a roster is the same, and is judged without
names.

A roster that lacks remembered entries is refused: an API that hides a removal looks like an API
that was restored from a backup. Only people can decide which is true; so they see which entries
would be lost, and name the head that they accept. Then that roster replaces the remembered roster,
for this user of this proxy. It must still be authentic, and the user must be in it under the user's
own keys.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from encrypted_records import errors, runtime
from encrypted_records.client.rosters import RosterApi
from encrypted_records.crypto.identity import Identity
from encrypted_records.crypto.keys import Keyring
from encrypted_records.index.roster import belief
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.process import Recent
from encrypted_records.proxy.rosters import Rosters

log = logging.getLogger(__name__)


#: Rosters of users that stay in memory.
_KEPT = 256
#: Entries that are verified in less time than a thread takes to start.
_FEW = 50


@dataclass(frozen=True, slots=True)
class View:
    """An organization as its user's proxy has read and verified it.

    ``roster`` is shared, and grows with later readings; a signer works on a copy
    (:class:`.changes.RosterDraft`).
    """

    holder: Holder
    organization: bytes
    roster: Roster
    believed: belief.Believed
    keyring: Keyring = field(repr=False)

    @property
    def user(self) -> bytes:
        return self.holder.user

    @property
    def identity(self) -> Identity:
        """The user's identity, under the keys in the roster."""
        return self.believed.identity


@dataclass(slots=True)
class _CachedRoster:
    roster: Roster
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    believed: belief.Believed | None = None
    #: entries read since the roster was last verified, by number
    fresh: list[tuple[int, form.RosterEntry]] = field(default_factory=list)
    #: the head and keyring with which it was verified
    number: int = 0
    keyring: Keyring | None = field(repr=False, default=None)
    read_at: float = 0.0

    def restart(self) -> None:
        """Drop the roster, to read it from its first entry."""
        self.roster, self.believed, self.number = Roster(self.roster.organization), None, 0
        self.fresh.clear()

    def copy(self) -> _CachedRoster:
        return _CachedRoster(
            self.roster.copy(),
            believed=self.believed,
            number=self.number,
            keyring=self.keyring,
            read_at=self.read_at,
        )


class RosterReader:
    """Rosters of all organizations of all users of this proxy."""

    def __init__(self, api: RosterApi, keyrings: Keyrings, rosters: Rosters) -> None:
        self._api = api
        self._keyrings = keyrings
        self.rosters = rosters
        #: by user, organization, and the credentials of a caller that may be shown less than the
        #: user
        self._cached: Recent[tuple[bytes, bytes, bytes], _CachedRoster] = Recent(_KEPT)

    async def read(
        self,
        holder: Holder,
        organization: bytes,
        *,
        older_keys: bool = False,
        within: float = 0.0,
    ) -> View | None:
        """Read the organization's roster up to its head; None if no roster is known.

        Args:
            older_keys: as for :func:`encrypted_records.index.roster.belief.believe`.
            within: maximum age in seconds of an earlier reading that is used without asking again.

        Raises:
            RosterBroken, RosterOlder, RosterUnknown, IdentityReplaced, NotAllowed, Unsupported: as
                for :meth:`Rosters.believe`; nothing may be decrypted, encrypted or signed.
            RosterWithheld: a name is hidden from a request that the API may not limit.
            NotFound: the organization does not exist, or the user has no access to it.
            KeyMissing: the user is in it, and has no keyring here.
            Closed, Unavailable: the keyring, or the API, cannot be used.
        """
        known = await self._of(holder, organization)
        async with known.lock:
            fresh = known.believed is not None and runtime.monotonic() - known.read_at < within
            if known.roster.number < self._newest(holder.user, organization):
                fresh = False
            try:
                if not fresh:
                    await self._catch_up(known, holder)
                if not known.roster.number:
                    await self._require_unseen(holder, organization)
                    return None
                keyring = await runtime.in_thread(self._keyrings.existing, holder)
                if keyring is None:
                    raise _without_keyring(known.roster, holder.user)
                believed = await self._believe(known, holder, keyring, older_keys=older_keys)
            except errors.Refused:
                # A rejected roster must not block a later valid roster.
                self.forget(holder.user, organization)
                raise
            return View(holder, organization, known.roster, believed, keyring)

    async def believe_older(self, holder: Holder) -> None:
        """Verify and remember all organizations that have keys of an older version of the user's
        keyring; organizations that are not the user's for another reason stay unverified.

        Raises:
            Unavailable: the API cannot be reached; a repeated call continues.
        """
        # An organization that the API omits is never verified under older keys, and is refused when
        # used.
        for shown in await self._api.organizations(holder.auth):
            try:
                await self.read(holder, ids.from_text(shown.id), older_keys=True)
            except (errors.Refused, errors.Closed, errors.NotAllowed, errors.NotFound) as error:
                # An untrusted organization is not trusted elsewhere in this proxy either: each use
                # raises the same error.
                log.warning("an organization is not trusted: %s", error.message)

    async def user_of(self, keyring: Keyring, reader: Holder, *, older_keys: bool) -> bytes:
        """The user of a keyring: the member for whom a roster has its keys. This identifies a user
        over a mirror, which has no logins. Nothing is remembered.

        Args:
            reader: the holder with whose credentials rosters are read; the user is not known yet.
            older_keys: as for :meth:`read`.

        Raises:
            RosterUnknown: no roster shows its keys for a member, or for more than one.
            NotAllowed: ``not_admitted``; the user was removed.
            RosterBroken, RosterOlder, IdentityReplaced: as for :meth:`read`.
            Unavailable: the mirror cannot be reached.
        """
        users: set[bytes] = set()
        refusal: errors.ErsError = errors.RosterUnknown(
            "no roster in this mirror has the keys of this backup",
            hint="use the words of all versions, or the newest backup file; if you joined an"
            " organization or rotated your keys after the copy was made, use a newer copy",
        )
        for shown in await self._api.organizations(reader.auth):
            known = await self._of(reader, ids.from_text(shown.id))
            async with known.lock:
                try:
                    await self._catch_up(known, reader)
                    for user in await runtime.in_thread(belief.recognize, known.roster, keyring):
                        await runtime.in_thread(
                            self.rosters.weigh, known.roster, user, keyring, older_keys=older_keys
                        )
                        users.add(user)
                except (errors.Refused, errors.NotAllowed) as error:
                    # The user may still be in another organization.
                    self.forget(reader.user, known.roster.organization)
                    refusal = error
        if not users:
            raise refusal
        if len(users) > 1:
            raise errors.RosterUnknown(
                "the rosters in this mirror have the keys of this backup for more than one user",
                hint="use a mirror that only one of these users has copied",
            )
        return users.pop()

    async def _require_unseen(self, holder: Holder, organization: bytes) -> None:
        if await runtime.in_thread(self.rosters.has_seen, holder.user, organization):
            raise hidden_roster()

    async def slugs(self, user: bytes, organization: bytes) -> dict[bytes, str]:
        """Slugs of datasets and schemas in the remembered part of an organization's roster, by id,
        for an organization that the API says does not exist for this user. Sends no request.

        Raises:
            OutOfSpace, Unavailable: the disk cannot be read.
        """
        entries = await runtime.in_thread(self.rosters.kept_entries, user, organization, 1)
        return await runtime.in_thread(_named, entries)

    async def read_or_slugs(
        self, holder: Holder, organization: bytes, *, within: float
    ) -> tuple[View | None, dict[bytes, str]]:
        """The roster as :meth:`read` returns it; or if the API denies it, its :meth:`slugs`: the
        user may have left the organization, but an API response does not revoke a signed name.
        Neither for an organization in which the user cannot decrypt or store.

        Raises:
            Refused, Unavailable: as :meth:`read`.
        """
        try:
            return await self.read(holder, organization, within=within), {}
        except (errors.KeyMissing, errors.IdentityReplaced):
            return None, {}
        except (errors.NotFound, errors.NotAllowed):
            return None, await self.slugs(holder.user, organization)

    async def read_unbelieved(self, holder: Holder, organization: bytes) -> Roster:
        """The roster as the API shows it to a user who is not a member, such as an invited user,
        who verifies it with the words of the invitation. It has to contain the remembered part.

        Raises:
            RosterBroken, RosterOlder, Unsupported, NotFound, Unavailable: as for :meth:`read`.
        """
        known = await self._of(holder, organization)
        async with known.lock:
            try:
                await self._catch_up(known, holder)
                if await self._reach_remembered(known, holder) is not None:
                    await runtime.in_thread(self.rosters.remember, holder.user, known.roster)
            except errors.Refused:
                self.forget(holder.user, organization)
                raise
            return known.roster

    async def read_shown(self, holder: Holder, organization: bytes) -> Roster:
        """The roster as the API shows it now, verified in itself; it is neither compared with
        remembered entries nor remembered.

        Raises:
            RosterBroken, Unsupported, NotFound, Unavailable: as :meth:`read`.
        """
        shown = _CachedRoster(Roster(organization))
        await self._catch_up(shown, holder)
        return shown.roster

    async def take(
        self, view_of: Holder, organization: bytes, entries: Sequence[form.RosterEntry]
    ) -> None:
        """Add this proxy's own entries, which the API has stored, and remember them."""
        known = await self._of(view_of, organization)
        async with known.lock:
            for entry in entries:
                if form.read_entry(entry).number == known.roster.number + 1:
                    known.fresh.append((known.roster.number + 1, entry))
                    known.roster.append(entry)
            if known.roster.number:  # otherwise it was forgotten, and is read again
                try:
                    await runtime.in_thread(self.rosters.remember, view_of.user, known.roster)
                except errors.RosterOlder:
                    remembered = await self._remembered(known, view_of)
                    if remembered is None or remembered.number <= known.roster.number:
                        raise
                    # Another process on this folder has read beyond the entries added here: the
                    # next reading goes that far, and compares.
                else:
                    await self._keep(known, view_of)

    def has_read(self, user: bytes, organization: bytes) -> bool:
        """Whether the organization is known to have a roster; sends no request."""
        return any(
            view.roster.number > 0
            for place, view in self._cached.items()
            if place[:2] == (user, organization)
        )

    def forget_user(self, user: bytes) -> None:
        """Drop what was read for a user whose keyring has changed."""
        for place in [place for place in self._cached if place[0] == user]:
            del self._cached[place]

    def forget(self, user: bytes, organization: bytes) -> None:
        for place in [place for place in self._cached if place[:2] == (user, organization)]:
            del self._cached[place]

    def _newest(self, user: bytes, organization: bytes) -> int:
        """The newest entry read of an organization for a user or an API token of the user: a roster
        never goes back.
        """
        numbers = (
            known.roster.number
            for place, known in self._cached.items()
            if place[:2] == (user, organization)
        )
        return max(numbers, default=0)

    async def _of(self, holder: Holder, organization: bytes) -> _CachedRoster:
        of_user = (holder.user, organization, b"")
        place = of_user
        if holder.may_be_limited:
            place = (*of_user[:2], hashlib.sha256(holder.auth.encode()).digest())
            of_whole_user = self._cached.get(of_user)
            if place not in self._cached and of_whole_user is not None:
                # The reading continues from the roster that its user was shown.
                async with of_whole_user.lock:
                    begun = of_whole_user.copy()
                self._cached.setdefault(place, begun)
        known = self._cached.get(place) or _CachedRoster(Roster(organization))
        self._cached[place] = known
        return known

    async def _catch_up(self, known: _CachedRoster, holder: Holder) -> None:
        # Two responses more than a full roster needs: an API that never ends is not followed.
        for _ in range(form.MAX_ENTRIES // (form.ENTRIES_AT_ONCE - 1) + 2):
            roster = known.roster
            # The newest entry is requested again: an API that was restored to an earlier moment
            # lacks it, and would otherwise look as if nothing were new.
            since = max(roster.number - 1, 0)
            shown = await self._api.entries(roster.organization, since, holder.auth)
            entries = shown[roster.number - since :]
            if roster.number and [form.entry_digest(entry) for entry in shown[:1]] != [
                roster.head.digest
            ]:
                known.restart()
                continue
            known.fresh.extend(enumerate(entries, roster.number + 1))
            if len(entries) > _FEW:
                await runtime.in_thread(roster.extend, entries)
            else:
                roster.extend(entries)
            if roster.withheld and not holder.may_be_limited:
                raise errors.RosterWithheld(
                    "the API withholds a name in the organization's roster: entry"
                    f" {roster.withheld}"
                )
            if len(shown) < form.ENTRIES_AT_ONCE:
                break
        known.read_at = runtime.monotonic()

    async def _remembered(self, known: _CachedRoster, holder: Holder) -> belief.Remembered | None:
        return await runtime.in_thread(self.rosters.get, holder.user, known.roster.organization)

    async def _reach_remembered(
        self, known: _CachedRoster, holder: Holder
    ) -> belief.Remembered | None:
        """Request the rest of the remembered entries, which may have been added since the last
        response; returns the remembered part.

        Raises:
            RosterBroken, RosterOlder, Unsupported, NotFound, Unavailable: as :meth:`read`.
        """
        remembered = await self._remembered(known, holder)
        if remembered is not None and remembered.number > known.roster.number:
            try:
                await self._catch_up(known, holder)
            except errors.RosterBroken:
                # The error for missing remembered entries says more.
                belief.check_memory(known.roster, remembered)
                raise
        return remembered

    async def _believe(
        self, known: _CachedRoster, holder: Holder, keyring: Keyring, *, older_keys: bool
    ) -> belief.Believed:
        same = known.keyring is keyring and known.number == known.roster.number
        if known.believed is not None and same:
            return known.believed
        known.believed = None
        believed: belief.Believed | None = None
        while believed is None:
            reached = await self._reach_remembered(known, holder)
            try:
                believed = await runtime.in_thread(
                    self.rosters.believe, known.roster, holder.user, keyring, older_keys=older_keys
                )
            except errors.RosterOlder:
                if await self._remembered(known, holder) == reached:
                    raise
                # Another process on this folder has remembered more in the meantime.
        await self._keep(known, holder)
        known.believed, known.keyring, known.number = believed, keyring, known.roster.number
        return believed

    async def _keep(self, known: _CachedRoster, holder: Holder) -> None:
        """Remember what was read."""
        if known.fresh:
            organization = known.roster.organization
            await runtime.in_thread(
                self.rosters.keep_entries, holder.user, organization, known.fresh
            )
            known.fresh.clear()


def hidden_roster() -> belief.RosterForked:
    return belief.RosterForked("the API no longer shows a roster for this organization")


def _named(entries: Iterable[form.RosterEntry]) -> dict[bytes, str]:
    found: dict[bytes, str] = {}
    for entry in entries:
        content = form.read_entry(entry).content
        names = (
            [(placement.schema, placement.slug) for placement in content]
            if isinstance(content, list)
            else []
        )
        if isinstance(content, form.DatasetName):
            names = [(content.dataset, content.slug)]
        for key, slug in names:
            found[key] = slug
    return {key: slug for key, slug in found.items() if slug}


def _without_keyring(roster: Roster, user: bytes) -> errors.ErsError:
    """No keyring is made for a caller who only reads: it would block the keyring that the user will
    restore.
    """
    standing = roster.member(user)
    if standing is None or not standing.present:
        return belief.not_admitted()
    return errors.KeyMissing(
        "you are in this organization, and have no keyring here",
        hint="restore the keyring with which you joined it: ers keyring restore; or ask an owner"
        " to invite you again",
    )


#: Age in seconds up to which a roster that was read is used without another request.
FRESH: Final = 10.0


class RosterFinder:
    def __init__(self, reader: RosterReader) -> None:
        self._reader = reader

    async def of_dataset(
        self, holder: Holder, dataset: bytes, *, shown: bytes | None = None, within: float = 0.0
    ) -> View | None:
        """The roster that has a dataset; None if no roster of the user's organizations has it.

        Args:
            shown: the organization that the API names for it: a proxy that has not read its roster
                yet begins there.
            within: as for :meth:`RosterReader.read`.

        Raises:
            Refused: a subclass; a roster is not trusted.
            Unavailable: the API cannot be reached.
        """

        def has(roster: Roster) -> bool:
            named = roster.dataset(dataset)
            return named is not None and bool(named.slug)

        return await self._find(holder, dataset, has, shown, within)

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
        uid: bytes,
        has: Callable[[Roster], bool],
        shown: bytes | None,
        within: float,
    ) -> View | None:
        seen = await runtime.in_thread(self._reader.rosters.organizations, holder.user)
        for organization in dict.fromkeys([*([] if shown is None else [shown]), *seen]):
            view, slugs = await self._reader.read_or_slugs(holder, organization, within=within)
            if uid in slugs:
                raise hidden_roster()
            if view is not None and has(view.roster):
                return view
        return None


#: ``whole``: it has all remembered entries. ``older``: it is a prefix of the remembered entries.
#: ``forked``: it has other entries. ``unclear``: older or forked, and the remembered data do not
#: show which.
State = Literal["whole", "older", "forked", "unclear"]


@dataclass(frozen=True, slots=True)
class RosterComparison:
    """``common`` is the newest entry that both rosters are known to have; ``lost`` are the
    remembered entries after it that the API's roster does not have.
    """

    roster: Roster
    state: State
    seen: belief.Remembered | None
    common: int
    lost: list[form.EntryBody]


class Rollbacks:
    def __init__(self, reader: RosterReader, keyrings: Keyrings) -> None:
        self._reader = reader
        self._keyrings = keyrings

    async def of(self, holder: Holder, organization: bytes) -> RosterComparison:
        """Compare the API's roster with the remembered roster.

        Raises:
            RosterOlder: another organization is shown under this id, which cannot be accepted.
            ErsError: as :meth:`RosterReader.read_shown`; also if the disk cannot be read.
        """
        shown = await self._reader.read_shown(holder, organization)
        rosters, user = self._reader.rosters, holder.user
        seen = await runtime.in_thread(rosters.get, user, organization)
        if seen is None or shown.digest_at(seen.number) == seen.digest:
            return RosterComparison(shown, "whole", seen, 0 if seen is None else seen.number, [])
        if shown.number and shown.found != seen.found:
            raise errors.RosterOlder("the API shows another organization under this one's id")
        kept = await runtime.in_thread(rosters.kept_entries, user, organization, 1)
        return await runtime.in_thread(_compare, shown, seen, kept)

    async def accept(
        self, holder: Holder, organization: bytes, number: int, digest: bytes, *, forked: bool
    ) -> RosterComparison:
        """Accept the API's roster as the organization's roster; returns the comparison before that.

        Args:
            number, digest: its head, as the accepting user has seen it.
            forked: whether its entries may differ from the remembered entries.

        Raises:
            Conflict: ``nothing_to_accept``, ``roster_moved`` or ``roster_forked``; nothing has
                changed.
            NotAllowed, IdentityReplaced: the user is not in it, or under other keys.
            ErsError: as :meth:`of`; also if the disk cannot be written.
        """
        standing = await self.of(holder, organization)
        roster = standing.roster
        if standing.state == "whole" or standing.seen is None:
            raise errors.Conflict(
                "the roster contains everything that this proxy has seen of it",
                code="nothing_to_accept",
                hint="there is nothing to do; search and store as usual",
            )
        if (roster.number, roster.digest_at(roster.number)) != (number, digest):
            raise errors.Conflict(
                f"the API's roster is now at entry {roster.number}, or is a different roster",
                code="roster_moved",
                hint="check it again before you accept it",
            )
        if standing.state != "older" and not forked:
            raise errors.Conflict(
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
            ids.to_text(holder.user),
            ids.to_text(organization),
            number,
            digest.hex(),
            standing.seen.number,
            standing.seen.digest.hex(),
            standing.common,
        )
        return standing


def _compare(
    shown: Roster, seen: belief.Remembered, kept: list[form.RosterEntry]
) -> RosterComparison:
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

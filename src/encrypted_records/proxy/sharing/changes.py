"""The only way in which a proxy changes a roster, and the grants that this needs.

Steps: read the roster to its head and verify it; make the change, which checks that it still makes
sense; sign; send entries and grants in one request, which is applied whole or not at all. If
another proxy was first, all steps are repeated. A user's grants are fetched, verified, decrypted,
and kept in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar
from weakref import WeakValueDictionary

from encrypted_records import errors, runtime
from encrypted_records.client.rosters import RosterApi
from encrypted_records.crypto.identity import Identity
from encrypted_records.crypto.keys import DatasetKey, Keyring
from encrypted_records.index.roster.access import OpenedGrant, open_grant, seal_grant
from encrypted_records.index.roster.roster import Roster, require_member, require_owner, sign_entry
from encrypted_records.model import roster as form
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import Recent
from encrypted_records.proxy.sharing.reading import RosterReader, View
from encrypted_records.rules.roster_state import Member


class RosterDraft:
    """New entries after a roster's head, in order, with their grants.

    ``roster`` is the roster with these entries, as readers will see it; ``now`` is in seconds since
    1970. ``identity`` is the user's signing identity under the keys in the roster, and changes with
    an entry that changes these keys.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.roster = view.roster.copy()
        self.identity = view.identity
        self.now = int(runtime.wall())
        self.entries: list[form.RosterEntry] = []
        self.grants: list[form.Grant] = []

    def require_owner(self) -> None:
        """
        Raises:
            NotAllowed: ``owners_only``; the user is not an owner any more.
        """
        require_owner(self.roster, self.view.user)

    def sign(self, content: form.Content) -> form.RosterEntry:
        """Add an entry. Before an entry that gives a dataset the slug of another dataset, add an
        entry that frees the slug, so that members who are not shown the new name see that the old
        name is gone.

        Raises:
            NotAllowed, Conflict, BadInput: the entry would be invalid
                (:func:`encrypted_records.index.roster.roster.sign_entry`).
        """
        if isinstance(content, form.DatasetName) and content.slug:
            for other in self.roster.datasets():
                epoch = self.roster.epoch(other.dataset)
                if other.slug == content.slug and other.dataset != content.dataset and epoch:
                    freed = form.DatasetName(
                        other.dataset, "", "", epoch.epoch, epoch.commitment, []
                    )
                    self._sign(freed)
        return self._sign(content)

    def _sign(self, content: form.Content) -> form.RosterEntry:
        entry = sign_entry(self.roster, self.identity, self.view.user, self.now, content)
        self.roster.append(entry)
        self.entries.append(entry)
        return entry

    def grant(self, member: bytes, dataset: bytes, keys: Mapping[int, DatasetKey]) -> None:
        """Add a grant with the keys of a dataset that the roster, with the draft's entries, lets a
        member read.

        Raises:
            NotAllowed, KeyMissing, TooLarge: as :func:`seal_grant`.
        """
        sealed = seal_grant(
            self.roster,
            self.identity,
            self.view.user,
            member=member,
            dataset=dataset,
            keys=keys,
        )
        self.grants.append(sealed)

    def standing(self, member: bytes) -> Member:
        """The state of a present member of the organization.

        Raises:
            NotFound: ``not_a_member``.
        """
        standing = self.roster.member(member)
        if standing is None or not standing.present:
            raise errors.NotFound(
                "nobody in the organization has this id",
                code="not_a_member",
                hint="ers share list shows its members and their ids",
            )
        return standing

    @property
    def empty(self) -> bool:
        return not self.entries and not self.grants


async def require_owner_now(draft: RosterDraft) -> None:
    """A plan that signs nothing, and requires that the user is an owner."""
    draft.require_owner()


def no_roster() -> errors.NotAllowed:
    """The organization has no roster, and the user is not an owner of it."""
    return errors.NotAllowed(
        "the organization has no roster yet, and only an owner can found it",
        code="not_admitted",
        hint="ask an owner of the organization to share something with you",
    )


T = TypeVar("T")
#: Signs the entries that a change of the given roster needs. It is called again if another owner
#: was first, so it must not change anything but the draft.
Plan = Callable[[RosterDraft], Awaitable[T]]

#: How often a change is signed before the proxy gives up.
ATTEMPTS = 5


class RosterChanges:
    def __init__(self, api: RosterApi, reader: RosterReader) -> None:
        self._api = api
        self._reader = reader
        #: one change at a time per organization, so that requests of this proxy do not race each
        #: other
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()

    async def change(self, holder: Holder, organization: bytes, plan: Plan[T]) -> T:
        """Apply the changes that ``plan`` signs, and return its result.

        Nothing is sent if the plan signs nothing, because the change is in effect already.

        Raises:
            Conflict: ``roster_moved``: others were first, five times; or the API refuses the
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
        """Lock that is held while this proxy changes the organization's roster."""
        return self._locks.setdefault(organization, asyncio.Lock())

    async def _send(self, view: View, draft: RosterDraft, *, last: bool) -> bool:
        """Whether the draft was stored; False if it has to be made again."""
        try:
            await self._api.send(view.organization, draft.entries, draft.grants, view.holder.auth)
        except errors.ErsError as error:
            if await self._is_stored(view, draft):
                return True
            if isinstance(error, errors.Unavailable):
                raise _unknown(error) from None
            if error.reason != "roster_moved" or last:
                raise
            return False
        await self._reader.take(view.holder, view.organization, draft.entries)
        return True

    async def _is_stored(self, view: View, draft: RosterDraft) -> bool:
        """After a lost response or a refusal: whether the roster has the entries that were sent."""
        if not draft.entries:
            return False
        try:
            after = await self._reader.read(view.holder, view.organization)
        except (errors.Unavailable, errors.NotAuthenticated, errors.NotAllowed, errors.NotFound):
            return False
        newest = form.entry_digest(draft.entries[-1])
        return after is not None and after.roster.digest_at(draft.roster.number) == newest


def _unknown(error: errors.Unavailable) -> errors.ErsError:
    return type(error)(
        f"{error.message}; it is not known whether the organization's roster was changed",
        code=error.reason,
        retry_after=error.retry_after,
        hint="once the API answers again, check with ers share list before you repeat the change",
    )


#: Decrypted grants that stay in memory.
_KEPT = 4096


class OwnGrants:
    """Grants of all users of this proxy."""

    def __init__(self, api: RosterApi, reader: RosterReader) -> None:
        self._api = api
        self._reader = reader
        self._opened: Recent[tuple[bytes, bytes, bytes], OpenedGrant] = Recent(_KEPT)

    async def open(self, view: View, dataset: bytes, *, newest: bool = True) -> OpenedGrant:
        """The keys of a dataset that were granted to the view's user.

        Args:
            newest: whether the key of the newest epoch has to be among them, which encryption
                needs; older keys decrypt older data.

        Raises:
            NotAllowed: ``not_shared``, ``not_admitted``: the roster does not let the user in.
            GrantBroken, Unsupported: the grant that the API has cannot be used.
            Closed: ``grant_missing``: there is none, or none of the newest epoch.
            Unavailable: the API cannot be reached.
        """
        require_member(view.roster, view.user, dataset)
        epoch = view.roster.epoch(dataset)
        place = (view.user, view.organization, dataset)
        opened = self._opened.get(place)
        if opened is not None and opened.number < view.roster.forgot_at(dataset):
            del self._opened[place]  # it has forgotten keys
            opened = None
        if opened is not None and (epoch is None or opened.epoch >= epoch.epoch):
            self._opened.move_to_end(place)
            if not _lacks(view, opened):
                return opened
        fresh = await self._fetch(view, dataset)
        if fresh is not None:
            opened = fresh
            self._opened[place] = fresh
        if opened is None or (newest and epoch is not None and opened.epoch < epoch.epoch):
            raise _missing()
        return opened

    async def whole(self, view: View, dataset: bytes) -> Mapping[int, DatasetKey]:
        """All keys of a dataset by epoch, as owners have them, for grants to other members.

        Raises:
            KeyMissing: they were granted for single schemas.
            NotAllowed, GrantBroken, Unsupported, Closed, Unavailable: as :meth:`open`.
        """
        opened = await self.open(view, dataset)
        if not opened.whole:
            raise errors.KeyMissing(
                "the dataset's keys were granted to you for single schemas",
                hint="ask an owner of the organization to run ers share settle",
            )
        return opened.whole

    async def take(self, identity: Identity, roster: Roster, grant: form.Grant) -> None:
        """Keep the user's own grant, which the API has stored, decrypted as if it had been fetched.

        Raises:
            GrantBroken, Unsupported: it cannot be used.
        """
        body = form.read_grant(grant)
        opened = await runtime.in_thread(
            open_grant, roster, identity, body.member, body.dataset, grant
        )
        self._opened[body.member, body.organization, body.dataset] = opened

    def forget_user(self, user: bytes) -> None:
        for place in [key for key in self._opened if key[0] == user]:
            del self._opened[place]

    async def _fetch(self, view: View, dataset: bytes) -> OpenedGrant | None:
        grants = await self._api.grants(view.organization, view.holder.auth)
        for grant in grants:
            body = _body(grant)
            if body is not None and body.dataset == dataset:
                if body.number > view.roster.number:
                    view = await self._read_on(view, dataset)
                identity = _identity(view, body)
                return await runtime.in_thread(
                    open_grant, view.roster, identity, view.user, dataset, grant
                )
        # The API withholds the newer grant, or it was never made: data that the earlier grant does
        # not open raises a named error.
        return None

    async def _read_on(self, view: View, dataset: bytes) -> View:
        """The roster after a grant that names a newer entry: another owner may have made the grant
        since the roster was read. An entry that the roster still lacks then does not exist.
        """
        after = await self._reader.read(view.holder, view.organization)
        if after is None:
            raise errors.GrantBroken("a grant is of an organization without a roster")
        require_member(after.roster, after.user, dataset)
        return after


def _lacks(view: View, opened: OpenedGrant) -> bool:
    """Whether the roster shares schemas with the user that the grant does not contain."""
    scope = view.roster.reads(view.user, opened.dataset)
    if scope.whole:
        return not opened.whole
    granted = {schema for schema, _ in opened.single}
    return not opened.whole and not scope.schemas <= granted


def _body(grant: form.Grant) -> form.GrantBody | None:
    try:
        return form.read_grant(grant)
    except errors.Malformed:
        return None


def _identity(view: View, body: form.GrantBody) -> Identity:
    """The user's identity at the time of a grant: the keyring may have been rotated since."""
    standing = view.roster.member(view.user, body.number)
    if standing is None:
        raise errors.GrantBroken("a grant is of a time at which its member was not in the roster")
    if standing.keys == view.identity.keys:
        return view.identity
    return identity_with(view.keyring, view.organization, view.user, standing.keys) or (
        view.identity
    )


def identity_with(
    keyring: Keyring, organization: bytes, member: bytes, keys: bytes
) -> Identity | None:
    """The identity of a keyring's versions that has these public keys."""
    for version, root in sorted(keyring.roots.items(), reverse=True):
        identity = root.identity(organization, member, version)
        if identity.keys == keys:
            return identity
    return None


def _missing() -> errors.Closed:
    return errors.Closed(
        "the organization shares this dataset with you, but you have no grant of its newest keys",
        code="grant_missing",
        hint="ask an owner of the organization to run ers share settle; earlier records can"
        " still be decrypted",
    )

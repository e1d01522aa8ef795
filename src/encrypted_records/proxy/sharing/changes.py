"""The one way in which a proxy changes a roster, and the grants that it needs for it.

Read the roster to its head and believe it; make the change, which says for itself whether it still
makes sense; sign; send entries and grants in one request, which is applied whole or not at all. A
proxy that was overtaken starts over. A user's own grants are fetched, verified, opened, and kept in
memory.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar
from weakref import WeakValueDictionary

from encrypted_records import runtime
from encrypted_records.client.rosters import RosterApi
from encrypted_records.crypto.identity import Identity
from encrypted_records.crypto.keys import DatasetKey, Keyring
from encrypted_records.errors import (
    Closed,
    Conflict,
    ErsError,
    GrantBroken,
    KeyMissing,
    Malformed,
    NotAllowed,
    NotFound,
    Unavailable,
)
from encrypted_records.index.roster.grants import OpenedGrant, open_grant, seal_grant
from encrypted_records.index.roster.roster import Roster, require_member, require_owner, sign_entry
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Content, Grant, RosterEntry, entry_digest
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.sharing.reading import RosterReader, View
from encrypted_records.rules.roster_state import Member


class RosterDraft:
    """Entries that follow a roster's head, one after another, and grants beside them.

    ``roster`` is the roster with these entries, as readers will take them; ``now`` is in seconds
    since 1970. ``identity`` signs, and is the user's under the keys that the roster has: another
    one once an entry has changed these.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.roster = view.roster.copy()
        self.identity = view.identity
        self.now = int(runtime.wall())
        self.entries: list[RosterEntry] = []
        self.grants: list[Grant] = []

    def require_owner(self) -> None:
        """
        Raises:
            NotAllowed: ``owners_only``; the user is not an owner any more.
        """
        require_owner(self.roster, self.view.user)

    def sign(self, content: Content) -> RosterEntry:
        """Add an entry; before one that gives a dataset the slug of another, one that frees it, so
        that who is not shown the new name sees that the old one is gone.

        Raises:
            NotAllowed, Conflict, BadInput: it would not count
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

    def _sign(self, content: Content) -> RosterEntry:
        entry = sign_entry(self.roster, self.identity, self.view.user, self.now, content)
        self.roster.append(entry)
        self.entries.append(entry)
        return entry

    def grant(self, member: bytes, dataset: bytes, keys: Mapping[int, DatasetKey]) -> None:
        """Add the keys of a dataset for what the roster, with the entries so far, lets a member
        read of it.

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
            raise NotFound(
                "nobody in the organization has this id",
                code="not_a_member",
                hint="ers share list shows its members and their ids",
            )
        return standing

    @property
    def empty(self) -> bool:
        return not self.entries and not self.grants


def no_roster() -> NotAllowed:
    """An organization has no roster, and the user is none of its owners."""
    return NotAllowed(
        "the organization has no roster yet, and only an owner can found it",
        code="not_admitted",
        hint="ask an owner of the organization to share something with you",
    )


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


#: Opened grants that stay in memory.
_KEPT = 4096


class OwnGrants:
    """Grants of all users of this proxy."""

    def __init__(self, api: RosterApi, reader: RosterReader) -> None:
        self._api = api
        self._reader = reader
        self._opened: OrderedDict[tuple[bytes, bytes, bytes], OpenedGrant] = OrderedDict()

    async def open(self, view: View, dataset: bytes, *, newest: bool = True) -> OpenedGrant:
        """The keys of a dataset that were granted to the view's user.

        Args:
            newest: whether the key of the newest epoch has to be among them, as to seal; older
                ones open what was stored before.

        Raises:
            NotAllowed: ``not_shared``, ``not_admitted``: the roster does not let the user in.
            GrantBroken, Unsupported: the grant that the API has cannot be used.
            Closed: ``grant_missing``: there is none, or none of the newest epoch.
            Unavailable: the API cannot be asked.
        """
        require_member(view.roster, view.user, dataset)
        epoch = view.roster.epoch(dataset)
        place = (view.user, view.organization, dataset)
        opened = self._opened.get(place)
        if opened is not None and opened.number < view.roster.forgot_at(dataset):
            del self._opened[place]  # it has keys that were forgotten
            opened = None
        if opened is not None and (epoch is None or opened.epoch >= epoch.epoch):
            self._opened.move_to_end(place)
            if not _lacks(view, opened):
                return opened
        fresh = await self._fetch(view, dataset)
        if fresh is not None:
            opened = fresh
            self._keep(place, fresh)
        if opened is None or (newest and epoch is not None and opened.epoch < epoch.epoch):
            raise _missing()
        return opened

    async def whole(self, view: View, dataset: bytes) -> Mapping[int, DatasetKey]:
        """The keys of a whole dataset by epoch, as owners have them, to seal them to others.

        Raises:
            KeyMissing: they were granted for single schemas.
            NotAllowed, GrantBroken, Unsupported, Closed, Unavailable: as :meth:`open`.
        """
        opened = await self.open(view, dataset)
        if not opened.whole:
            raise KeyMissing(
                "the dataset's keys were granted to you for single schemas",
                hint="ask an owner of the organization to run ers share settle",
            )
        return opened.whole

    async def take(self, identity: Identity, roster: Roster, grant: Grant) -> None:
        """Keep a grant of one's own that the API has stored, opened as if it had been fetched.

        Raises:
            GrantBroken, Unsupported: it cannot be used.
        """
        body = form.read_grant(grant)
        opened = await runtime.in_thread(
            open_grant, roster, identity, body.member, body.dataset, grant
        )
        self._keep((body.member, body.organization, body.dataset), opened)

    def _keep(self, place: tuple[bytes, bytes, bytes], opened: OpenedGrant) -> None:
        self._opened[place] = opened
        while len(self._opened) > _KEPT:
            self._opened.popitem(last=False)

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
        # Withheld, or never made: what the earlier one does not open stays closed, by name.
        return None

    async def _read_on(self, view: View, dataset: bytes) -> View:
        """The roster as it is after a grant came that names a newer entry: another owner may have
        sealed it since the roster was read. An entry that the roster still lacks is made up."""
        after = await self._reader.read(view.holder, view.organization)
        if after is None:
            raise GrantBroken("a grant is of an organization without a roster")
        require_member(after.roster, after.user, dataset)
        return after


def _lacks(view: View, opened: OpenedGrant) -> bool:
    """Whether the roster shares schemas with the user that the grant does not hold."""
    scope = view.roster.reads(view.user, opened.dataset)
    if scope.whole:
        return not opened.whole
    held = {schema for schema, _ in opened.single}
    return not opened.whole and not scope.schemas <= held


def _body(grant: Grant) -> form.GrantBody | None:
    try:
        return form.read_grant(grant)
    except Malformed:
        return None


def _identity(view: View, body: form.GrantBody) -> Identity:
    """The user's identity at the time of a grant: the keyring may have been rotated since."""
    standing = view.roster.member(view.user, body.number)
    if standing is None:
        raise GrantBroken("a grant is of a time at which its member was not in the roster")
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


def _missing() -> Closed:
    return Closed(
        "the organization shares this dataset with you, but you have no grant of its newest keys",
        code="grant_missing",
        hint=(
            "ask an owner of the organization to run ers share settle; earlier records can"
            " still be decrypted"
        ),
    )

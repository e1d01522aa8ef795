"""A user's own grants: fetched, verified, opened, and kept in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from encrypted_records import runtime
from encrypted_records.client.rosters import RosterApi
from encrypted_records.crypto.identity import Identity
from encrypted_records.crypto.keys import DatasetKey, Keyring
from encrypted_records.errors import Closed, GrantBroken, KeyMissing, Malformed
from encrypted_records.index.roster.access import require_member
from encrypted_records.index.roster.grants import OpenedGrant, open_grant
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Grant
from encrypted_records.proxy.sharing.reading import RosterReader, View

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

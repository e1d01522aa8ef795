"""Come back into an organization whose last owner was lost, by that owner's recovery phrases."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from encrypted_records import runtime
from encrypted_records.client.rosters import RosterApi
from encrypted_records.crypto.keys import DatasetKey, Keyring
from encrypted_records.crypto.recovery import keyring_of
from encrypted_records.errors import BadInput, Closed, Conflict, GrantBroken, Malformed
from encrypted_records.index.roster import belief
from encrypted_records.index.roster.grants import open_grant
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Grant, MemberStanding, entry_digest
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.sharing.changes import ATTEMPTS
from encrypted_records.proxy.sharing.drafts import RosterDraft, no_roster
from encrypted_records.proxy.sharing.grants import identity_with
from encrypted_records.proxy.sharing.reading import RosterReader, View
from encrypted_records.rules.roster_state import Member


class Recovering:
    def __init__(self, api: RosterApi, keyrings: Keyrings, reader: RosterReader) -> None:
        self._api = api
        self._keyrings = keyrings
        self._reader = reader

    async def recover(
        self, holder: Holder, organization: bytes, name: str, phrases: Sequence[str]
    ) -> str:
        """Make the caller an owner with the keys of an owner who was lost; returns the lost owner's
        name.

        The API has to know the caller as an owner (ers api owner). The phrases are not stored.

        Args:
            name: the caller's e-mail address.
            phrases: the phrases of all versions of the lost owner's keyring, in order.

        Raises:
            BadInput: ``invalid_phrase``: invalid phrases, or not those of an owner of the
                organization.
            RosterUnknown, RosterOlder, RosterBroken: the roster is not that owner's.
            NotAllowed: the API does not know the caller as an owner.
            Conflict: ``roster_moved``; other changes were faster, repeatedly.
            Closed: ``grant_missing``: the API does not show all grants of the lost owner.
            GrantBroken, Unavailable, ErsError: as elsewhere; nothing has changed.
        """
        lost_keyring = await runtime.in_thread(keyring_of, phrases, created=int(runtime.wall()))
        for attempt in range(1, ATTEMPTS + 1):
            roster = await self._read(holder, organization)
            lost = await runtime.in_thread(_find, roster, lost_keyring)
            grants = await self._api.grants_of(organization, lost.member, holder.auth)
            # Read again: a grant may name an entry that came after the first reading.
            roster = await self._read(holder, organization)
            lost = await runtime.in_thread(_find, roster, lost_keyring)
            believed = belief.believe(roster, lost.member, lost_keyring, None, older_keys=True)
            of_lost = replace(holder, user=lost.member)
            view = View(of_lost, organization, roster, believed, lost_keyring)
            draft = RosterDraft(view)
            keys = await runtime.in_thread(_open, view, grants)
            _require_all(roster, keys)
            keyring = await runtime.in_thread(self._keyrings.of, holder)
            draft.sign(_standing(draft, holder.user, name, keyring))
            for dataset, held in keys.items():
                draft.grant(holder.user, dataset, held)
            try:
                await self._api.send(organization, draft.entries, draft.grants, holder.auth)
            except Conflict as error:
                if error.reason != "roster_moved" or attempt == ATTEMPTS:
                    raise
                continue
            self._reader.forget(holder.user, organization)
            await runtime.in_thread(self._reader.rosters.remember, holder.user, draft.roster)
            assert draft.roster.head.digest == entry_digest(draft.entries[-1])
            return lost.name
        raise AssertionError("the last attempt returns or raises")

    async def _read(self, holder: Holder, organization: bytes) -> Roster:
        roster = await self._reader.read_unbelieved(holder, organization)
        if not roster.number:
            raise no_roster()
        return roster


def _open(view: View, grants: Sequence[Grant]) -> dict[bytes, dict[int, DatasetKey]]:
    """The keys that the lost owner was granted, by dataset and epoch.

    Raises:
        GrantBroken, Unsupported: as :func:`open_grant`.
    """
    found: dict[bytes, dict[int, DatasetKey]] = {}
    for grant in grants:
        try:
            body = form.read_grant(grant)
        except Malformed:
            raise GrantBroken("a grant is malformed") from None
        standing = view.roster.member(view.user, body.number)
        sealed_to = standing.keys if standing is not None else b""
        identity = identity_with(view.keyring, view.organization, view.user, sealed_to)
        opened = open_grant(view.roster, identity or view.identity, view.user, body.dataset, grant)
        named = view.roster.dataset(body.dataset)
        if named is not None and named.slug:
            found[body.dataset] = dict(opened.whole)
    return found


def _require_all(roster: Roster, keys: Container[bytes]) -> None:
    """Require a grant of every dataset for an owner: a grant that the API omits here could never be
    made again once the phrases are discarded. An older grant, which lacks epochs, is refused when
    it is sealed again (:func:`seal_grant`).

    Raises:
        Closed: ``grant_missing``.
    """
    missing = [
        dataset.name
        for dataset in roster.datasets()
        if dataset.slug and dataset.dataset not in keys
    ]
    if missing:
        raise Closed(
            f"the API does not show the keys of {', '.join(missing)} that were granted"
            " to the owner who lost access",
            code="grant_missing",
            hint="nothing has changed; repeat this, or restore the API's newest backup",
        )


def _find(roster: Roster, keyring: Keyring) -> Member:
    """The owner whose keys the keyring derives.

    Raises:
        BadInput: ``invalid_phrase``.
    """
    for owner in roster.owners():
        if identity_with(keyring, roster.organization, owner.member, owner.keys) is not None:
            return owner
    raise BadInput(
        "these words do not belong to a current owner of the organization",
        code="invalid_phrase",
        hint="use the words of all versions of an owner's keyring, oldest first",
    )


def _standing(
    draft: RosterDraft, member: bytes, name: str, keyring: Keyring
) -> MemberStanding[str]:
    before = draft.roster.member(member)
    version = keyring.newest
    root = keyring.root(version)
    identity = root.identity(draft.roster.organization, member, version)
    if before is not None and before.present and before.keys == identity.keys:
        given = (b"", b"", b"")
    else:
        anchor = root.anchor(draft.roster.organization, member, version).anchor(draft.roster.found)
        proof = identity.sign("keys", draft.roster.found, member, identity.keys, anchor)
        given = (identity.keys, anchor, proof)
    return MemberStanding(member, form.PERSON, form.OWNER, name, *given, b"", 0, [])

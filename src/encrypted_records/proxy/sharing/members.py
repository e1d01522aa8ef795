"""Change a member's shares or role, remove a member, leave.

Forget a dataset's older keys, once no data is left that needs them.

Make a service: a program with its own keyring, which consists of one secret key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from encrypted_records import runtime
from encrypted_records.client.rosters import RosterApi
from encrypted_records.crypto.keys import RootKey
from encrypted_records.errors import BadInput, Conflict, NotFound
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.model.credentials import SERVICE_KEY_BYTES, ServiceKey
from encrypted_records.model.roster import MemberStanding, Share
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.sharing.changes import RosterChanges
from encrypted_records.proxy.sharing.drafts import RosterDraft, no_roster
from encrypted_records.proxy.sharing.founding import grant_holders
from encrypted_records.proxy.sharing.grants import OwnGrants
from encrypted_records.proxy.sharing.inviting import member_named
from encrypted_records.proxy.sharing.reading import RosterReader
from encrypted_records.rules.roster_state import Member


class Members:
    def __init__(self, changes: RosterChanges, grants: OwnGrants) -> None:
        self._changes = changes
        self._grants = grants

    async def set_shares(
        self,
        holder: Holder,
        organization: bytes,
        dataset: bytes,
        member: bytes,
        shares: Sequence[Share],
    ) -> None:
        """Give a member these shares of one dataset, in place of what it had of it. None takes all
        of it away: what it loses counts at once, and the dataset is due then.

        Raises:
            NotFound: ``not_a_member``.
            Conflict: ``owners_have_all``.
            NotAllowed, ErsError: as :meth:`RosterChanges.change`.
        """
        if any(share.dataset != dataset for share in shares):
            raise BadInput("these shares are of another dataset")

        async def plan(draft: RosterDraft) -> None:
            draft.require_owner()
            standing = draft.standing(member)
            if standing.owns:
                raise Conflict(
                    "owners read and write every dataset",
                    code="owners_have_all",
                    hint="make the owner a member first: ers organization member update",
                )
            kept = [share for share in standing.shares if share.dataset != dataset]
            wanted = [*kept, *shares]
            if _as_set(wanted) != _as_set(standing.shares):
                draft.sign(restated(standing, wanted))
                await self._grant(draft, standing)

        await self._changes.change(holder, organization, plan)

    async def set_role(
        self, holder: Holder, organization: bytes, member: bytes, *, owner: bool
    ) -> None:
        """Make a member an owner, or an owner a member who is in no dataset.

        Raises:
            NotFound: ``not_a_member``.
            Conflict: ``last_owner``.
            NotAllowed, ErsError: as :meth:`RosterChanges.change`.
        """

        async def plan(draft: RosterDraft) -> None:
            draft.require_owner()
            standing = draft.standing(member)
            if standing.owns == owner:
                return
            draft.sign(restated(standing, [], owner=owner))
            await self._grant(draft, standing)

        await self._changes.change(holder, organization, plan)

    async def rename(
        self, holder: Holder, organization: bytes, member: bytes, address: str
    ) -> None:
        """Sign another e-mail address for a person, whose keys and rights stay.

        Raises:
            NotFound: ``not_a_member``.
            BadInput: the member is a service, which has no address.
            Conflict: ``already_member``; another member has the address in the roster.
            NotAllowed, ErsError: as :meth:`RosterChanges.change`.
        """

        async def plan(draft: RosterDraft) -> None:
            draft.require_owner()
            standing = draft.standing(member)
            if standing.type == form.SERVICE:
                raise BadInput("a service has no e-mail address")
            holding = member_named(draft.roster, address)
            if holding is not None and holding.present and holding.member != member:
                raise Conflict(
                    "the address is another member's in the signed roster",
                    code="already_member",
                    hint="ers share list shows whose it is; give that member another address first",
                )
            if standing.name != address:
                draft.sign(restated(standing, standing.shares, owner=standing.owns, name=address))

        await self._changes.change(holder, organization, plan)

    async def remove(self, holder: Holder, organization: bytes, named: bytes) -> None:
        """Put a member or a service out, or withdraw an invitation; or leave, where it is oneself.

        Raises:
            NotFound: ``not_a_member``: neither a member nor an open invitation.
            Conflict: ``last_owner``.
            NotAllowed, ErsError: as :meth:`RosterChanges.change`.
        """

        async def plan(draft: RosterDraft) -> None:
            if named != draft.view.user:
                draft.require_owner()
            invitation = draft.roster.invitation(named)
            if invitation is None:
                draft.standing(named)
            elif not invitation.open:
                raise NotFound(
                    "the invitation is already over",
                    code="not_a_member",
                    hint="ers share list shows members and open invitations",
                )
            draft.sign(form.Remove(named))

        await self._changes.change(holder, organization, plan)

    async def _grant(self, draft: RosterDraft, before: Member) -> None:
        """Seal what a member reads from now on, and did not before, of each dataset."""
        after = draft.standing(before.member)
        for dataset in draft.roster.datasets():
            scope, had = after.reads(dataset.dataset), before.reads(dataset.dataset)
            if scope and not had.contains(scope) and (dataset.slug or not after.owns):
                keys = await self._grants.whole(draft.view, dataset.dataset)
                draft.grant(before.member, dataset.dataset, keys)


def restated(
    standing: Member, shares: Sequence[Share], *, owner: bool = False, name: str | None = None
) -> MemberStanding[str]:
    """A member's standing with other shares, another role or name, under the keys that there
    are."""
    return MemberStanding(
        standing.member,
        form.SERVICE if standing.type == form.SERVICE else form.PERSON,
        form.OWNER if owner else form.MEMBER,
        standing.name if name is None else name,
        b"",
        b"",
        b"",
        b"",
        standing.expires,
        list(shares),
    )


def _as_set(shares: Sequence[Share]) -> set[tuple[bytes, int, frozenset[bytes]]]:
    return {(share.dataset, share.right, frozenset(share.schemas)) for share in shares}


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
        return _epochs(RosterDraft(view), dataset)

    async def forget(self, holder: Holder, organization: bytes, dataset: bytes, first: int) -> None:
        """Sign that epochs before ``first`` are forgotten, with grants that lack them for everybody
        who reads something of the dataset. Where it was done before, nothing is.

        Raises:
            Conflict: ``epoch_in_use``: the API has something that they open; ``epoch_moved``:
                another epoch has begun since.
            NotAllowed, NotFound: as :meth:`look`.
            ErsError: as :meth:`RosterChanges.change`.
        """

        async def plan(draft: RosterDraft) -> None:
            oldest, present = _epochs(draft, dataset)
            if oldest >= first:
                return
            if present != first:
                raise Conflict(
                    "another epoch of the dataset's keys has begun in the meantime",
                    code="epoch_moved",
                    hint="re-encrypt all of it under the new key, and repeat this",
                )
            keys = await self._grants.whole(draft.view, dataset)
            draft.sign(form.Forget(dataset, first))
            grant_holders(draft, dataset, keys)

        await self._changes.change(holder, organization, plan)


def _epochs(draft: RosterDraft, dataset: bytes) -> tuple[int, int]:
    draft.require_owner()
    epoch = draft.roster.epoch(dataset)
    if epoch is None:
        raise NotFound(
            "the organization's roster has no such dataset",
            hint="store a record in it through an owner's proxy, or share it: then it has keys",
        )
    return draft.roster.first(dataset), epoch.epoch


@dataclass(frozen=True, slots=True)
class MadeService:
    """A service that was made now. The string is shown once, and is nowhere else."""

    id: bytes
    key: str = field(repr=False)
    expires: int


class ServiceMaking:
    def __init__(self, api: RosterApi, changes: RosterChanges, grants: OwnGrants) -> None:
        self._api = api
        self._changes = changes
        self._grants = grants

    async def make(
        self, holder: Holder, organization: bytes, name: str, shares: Sequence[Share], expires: int
    ) -> MadeService:
        """Make a service and let it in.

        Args:
            expires: in seconds since 1970; 0: never.

        Raises:
            NotAllowed: ``owners_only``, ``not_admitted``.
            ErsError: as :meth:`RosterChanges.change`. Without its entry a service reaches nothing.
        """
        await self._changes.change(holder, organization, _require_owner)
        secret = runtime.random_bytes(SERVICE_KEY_BYTES)
        root = RootKey(secret)
        service = root.service_id
        digest = hashlib.sha256(root.token(service)).hexdigest()
        until = datetime.fromtimestamp(expires, UTC).isoformat() if expires else None
        body = {
            "id": ids.to_text(service),
            "name": name,
            "token_digest": digest,
            "expires": until,
        }
        await self._api.make_service(organization, body, holder.auth)
        identity = root.identity(organization, service, 1)

        async def plan(draft: RosterDraft) -> None:
            draft.require_owner()
            anchor = root.anchor(organization, service, 1).anchor(draft.roster.found)
            proof = identity.sign("keys", draft.roster.found, service, identity.keys, anchor)
            draft.sign(
                MemberStanding(
                    service,
                    form.SERVICE,
                    form.MEMBER,
                    name,
                    identity.keys,
                    anchor,
                    proof,
                    b"",
                    expires,
                    list(shares),
                )
            )
            for dataset in {share.dataset for share in shares}:
                keys = await self._grants.whole(draft.view, dataset)
                draft.grant(service, dataset, keys)

        await self._changes.change(holder, organization, plan)
        return MadeService(service, ServiceKey(service, secret).text, expires)


async def _require_owner(draft: RosterDraft) -> None:
    draft.require_owner()

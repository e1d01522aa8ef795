"""Members of an organization: shares and roles, access requests, services, removal.

An owner signs that a dataset is listed. A member signs an access request for it, which the API
keeps and owners' proxies show after they have verified it. The request grants no rights: an owner
who agrees shares the dataset as usual (:meth:`Members.set_shares`), which ends the request.

A service is a program with its own keyring, which consists of one secret key. A dataset's older
keys are forgotten once no data is left that needs them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from encrypted_records import runtime
from encrypted_records.client.rosters import RosterApi
from encrypted_records.crypto.keys import RootKey
from encrypted_records.errors import BadInput, Conflict, ErsError, NotAllowed, NotFound
from encrypted_records.index.roster.access import (
    ReadRequests,
    StandingRequest,
    make_request,
    prove_keys,
    read_requests,
)
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.model.credentials import SERVICE_KEY_BYTES, ServiceKey
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.sharing.changes import (
    ATTEMPTS,
    OwnGrants,
    RosterChanges,
    RosterDraft,
    no_roster,
    require_owner_now,
)
from encrypted_records.proxy.sharing.founding import grant_holders
from encrypted_records.proxy.sharing.joining import member_named
from encrypted_records.proxy.sharing.reading import RosterFinder, RosterReader, View
from encrypted_records.rules.roster_judging import RequestFault
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
        shares: Sequence[form.Share],
    ) -> None:
        """Replace a member's shares of one dataset. None removes them all: removed shares stop
        counting at once, and a key rotation of the dataset becomes pending.

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
        """Remove a member or a service, withdraw an invitation, or leave (``named`` is the user).

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
        """Add grants for the datasets in which the member's read access has grown."""
        after = draft.standing(before.member)
        for dataset in draft.roster.datasets():
            scope, had = after.reads(dataset.dataset), before.reads(dataset.dataset)
            if scope and not had.contains(scope) and (dataset.slug or not after.owns):
                keys = await self._grants.whole(draft.view, dataset.dataset)
                draft.grant(before.member, dataset.dataset, keys)


def restated(
    standing: Member, shares: Sequence[form.Share], *, owner: bool = False, name: str | None = None
) -> form.MemberStanding[str]:
    """A member's standing with other shares, role or name, under its current keys."""
    return form.MemberStanding(
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


def _as_set(shares: Sequence[form.Share]) -> set[tuple[bytes, int, frozenset[bytes]]]:
    return {(share.dataset, share.right, frozenset(share.schemas)) for share in shares}


class Forgetting:
    def __init__(self, reader: RosterReader, changes: RosterChanges, grants: OwnGrants) -> None:
        self._reader = reader
        self._changes = changes
        self._grants = grants

    async def look(self, holder: Holder, organization: bytes, dataset: bytes) -> tuple[int, int]:
        """The oldest epoch of a dataset's keys that is not forgotten, and the current epoch,
        according to the roster.

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
        """Sign that epochs before ``first`` are forgotten, with grants without these epochs for all
        members who read part of the dataset. Does nothing if they are forgotten already.

        Raises:
            Conflict: ``epoch_in_use``: the API has data that they decrypt; ``epoch_moved``: another
                epoch has begun since.
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
    """A new service. Its secret key is shown once and stored nowhere else."""

    id: bytes
    key: str = field(repr=False)
    expires: int


class ServiceMaking:
    def __init__(self, api: RosterApi, changes: RosterChanges, grants: OwnGrants) -> None:
        self._api = api
        self._changes = changes
        self._grants = grants

    async def make(
        self,
        holder: Holder,
        organization: bytes,
        name: str,
        shares: Sequence[form.Share],
        expires: int,
    ) -> MadeService:
        """Make a service and admit it.

        Args:
            expires: in seconds since 1970; 0: never.

        Raises:
            NotAllowed: ``owners_only``, ``not_admitted``.
            ErsError: as :meth:`RosterChanges.change`. Without its entry a service reaches nothing.
        """
        await self._changes.change(holder, organization, require_owner_now)
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
            anchor = root.anchor(organization, service, 1)
            proven = prove_keys(identity, anchor, draft.roster.found, service)
            standing = form.MemberStanding(
                service, form.SERVICE, form.MEMBER, name, *proven, b"", expires, list(shares)
            )
            draft.sign(standing)
            for dataset in {share.dataset for share in shares}:
                keys = await self._grants.whole(draft.view, dataset)
                draft.grant(service, dataset, keys)

        await self._changes.change(holder, organization, plan)
        return MadeService(service, ServiceKey(service, secret).text, expires)


@dataclass(eq=False, repr=False)
class Asking:
    _api: RosterApi
    _reader: RosterReader
    _changes: RosterChanges
    _finder: RosterFinder

    async def set_listed(
        self, holder: Holder, organization: bytes, dataset: bytes, *, listed: bool
    ) -> None:
        """Let members ask for access to a dataset, or no longer.

        Raises:
            NotAllowed: ``owners_only``, ``not_admitted``.
            NotFound: the roster has no such dataset.
            ErsError: as :meth:`RosterChanges.change`.
        """

        async def plan(draft: RosterDraft) -> None:
            draft.require_owner()
            named = draft.roster.dataset(dataset)
            if named is None or not named.slug:
                raise NotFound("the organization's roster has no such dataset")
            if bool(draft.roster.listed_at(dataset)) != listed:
                draft.sign(form.Listing(dataset, 1 if listed else 0))

        await self._changes.change(holder, organization, plan)

    async def read(self, view: View) -> ReadRequests:
        """Access requests as the API shows them, as far as they are valid in the current roster:
        those of all members for owners, otherwise the user's.

        Raises:
            ErsError: as :meth:`RosterReader.read`, and errors of the API.
        """
        if not any(view.roster.listed_at(named.dataset) for named in view.roster.datasets()):
            return ReadRequests([])
        shown = await self._api.requests(view.organization, view.holder.auth)
        # Read again: a request may name an entry from after the first reading.
        again = await self._reader.read(view.holder, view.organization) or view
        now = int(runtime.wall())
        found = await runtime.in_thread(read_requests, again.roster, shown, now)
        if again.believed.standing.owns:
            waiting = [request for request in found.standing if not request.declined]
            return ReadRequests(waiting, found.forged)
        by_user = [request for request in found.standing if request.body.member == view.user]
        return ReadRequests(by_user, found.forged)

    async def ask(
        self, holder: Holder, dataset: bytes, right: int
    ) -> tuple[View, StandingRequest, bool]:
        """Request access to all of a dataset. Returns the request, the roster that it refers to,
        and whether it is new. A pending request for the same right stays.

        Raises:
            NotFound: no roster that the user is in has the dataset.
            NotAllowed: ``not_listed``; or a service asks.
            Conflict: ``owners_have_all``, ``already_shared``, ``request_declined``.
            TooLarge: the user has too many requests.
            ErsError: as :meth:`RosterReader.read`.
        """
        organization = (await self._find(holder, dataset)).organization
        for attempt in range(1, ATTEMPTS + 1):
            view = await self._reader.read(holder, organization)
            if view is None:
                raise no_roster()
            now = int(runtime.wall())
            made = make_request(view.roster, view.identity, view.user, dataset, right, now)
            body = form.read_request(made)
            fault = view.roster.judge_request(made, body, now)
            if fault is not None:
                raise _refusal(view, fault)
            for request in (await self.read(view)).standing:
                requested = request.body.dataset, request.body.right
                if requested == (dataset, right) and not request.declined:
                    return view, request, False
            try:
                await self._api.ask(organization, made, holder.auth)
            except Conflict as error:
                if error.reason != "roster_moved" or attempt == ATTEMPTS:
                    raise
            else:
                return view, StandingRequest(body, 0), True
        raise AssertionError("the last attempt returns or raises")

    async def end(self, holder: Holder, dataset: bytes, member: bytes) -> None:
        """Withdraw the user's own request for a dataset, or decline that of another as an owner.

        Raises:
            NotFound: ``no_request``; or no roster that the user is in has the dataset.
            NotAllowed: ``owners_only``.
            ErsError: as :meth:`RosterReader.read`, and errors of the API.
        """
        view = await self._find(holder, dataset)
        if member != holder.user:
            RosterDraft(view).require_owner()
        await self._api.end_request(view.organization, dataset, member, holder.auth)

    async def _find(self, holder: Holder, dataset: bytes) -> View:
        view = await self._finder.of_dataset(holder, dataset)
        if view is None:
            raise NotFound(
                "no organization of yours has such a dataset in its roster",
                hint="choose one of the datasets that members may ask for",
            )
        return view


def _refusal(view: View, fault: RequestFault) -> ErsError:
    if fault is RequestFault.LISTED:
        return NotAllowed(
            "members cannot ask for access to this dataset",
            code="not_listed",
            hint="ask an owner of the organization in another way",
        )
    if fault is RequestFault.RIGHT:
        return Conflict(
            "the dataset is shared with you in this role already",
            code="already_shared",
            hint="ask for the other role, or for another dataset",
        )
    if view.believed.standing.owns:
        return Conflict(
            "owners read and write every dataset", code="owners_have_all", hint="nothing is to do"
        )
    return NotAllowed(
        "a service does not ask for access", hint="ask an owner of the organization yourself"
    )

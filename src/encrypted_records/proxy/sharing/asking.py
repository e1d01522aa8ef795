"""List datasets, and ask for access to those that are listed.

An owner signs that a dataset is listed. A member signs a request for it, which the API keeps, and
owners' proxies show it once they have verified it. It gives nobody anything: an owner who agrees
shares the dataset as any other (:meth:`.members.Members.set_shares`), which ends the request.
"""

from __future__ import annotations

from encrypted_records import runtime
from encrypted_records.client.rosters import RosterApi
from encrypted_records.errors import Conflict, ErsError, NotAllowed, NotFound
from encrypted_records.index.roster.requests import (
    ReadRequests,
    StandingRequest,
    make_request,
    read_requests,
)
from encrypted_records.model import roster as form
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.sharing.changes import ATTEMPTS, RosterChanges
from encrypted_records.proxy.sharing.drafts import RosterDraft, no_roster
from encrypted_records.proxy.sharing.reading import RosterFinder, RosterReader, View
from encrypted_records.rules.roster_judging import RequestFault


class Asking:
    def __init__(
        self, api: RosterApi, reader: RosterReader, changes: RosterChanges, finder: RosterFinder
    ) -> None:
        self._api = api
        self._reader = reader
        self._changes = changes
        self._finder = finder

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
        """Requests as the API shows them, of all members to owners, else those of the user, as far
        as they stand in the roster of now.

        Raises:
            ErsError: as :meth:`RosterReader.read`, and what asking the API meets.
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
        own = [request for request in found.standing if request.body.member == view.user]
        return ReadRequests(own, found.forged)

    async def ask(
        self, holder: Holder, dataset: bytes, right: int
    ) -> tuple[View, StandingRequest, bool]:
        """Ask for access to all of a dataset; the request, in whose roster it stands, and whether
        it is new. One that waits for the same right stays.

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
                asked = request.body.dataset, request.body.right
                if asked == (dataset, right) and not request.declined:
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
            ErsError: as :meth:`RosterReader.read`, and what asking the API meets.
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

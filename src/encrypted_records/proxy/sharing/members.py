"""Share more or less with a member, change a role, put somebody out, leave."""

from __future__ import annotations

from collections.abc import Sequence

from encrypted_records.errors import BadInput, Conflict, NotFound
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Share, Standing
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.sharing.changes import RosterChanges
from encrypted_records.proxy.sharing.drafts import Draft
from encrypted_records.proxy.sharing.grants import OwnGrants
from encrypted_records.rules.roster.state import Member


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

        async def plan(draft: Draft) -> None:
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

        async def plan(draft: Draft) -> None:
            draft.require_owner()
            standing = draft.standing(member)
            if standing.owns == owner:
                return
            draft.sign(restated(standing, [], owner=owner))
            await self._grant(draft, standing)

        await self._changes.change(holder, organization, plan)

    async def remove(self, holder: Holder, organization: bytes, named: bytes) -> None:
        """Put a member or a service out, or withdraw an invitation; or leave, where it is oneself.

        Raises:
            NotFound: ``not_a_member``: neither a member nor an open invitation.
            Conflict: ``last_owner``.
            NotAllowed, ErsError: as :meth:`RosterChanges.change`.
        """

        async def plan(draft: Draft) -> None:
            if named != draft.view.user:
                draft.require_owner()
            invitation = draft.roster.invitation(named)
            if invitation is None:
                draft.standing(named)
            elif not invitation.open:
                raise NotFound(
                    "the invitation is over already",
                    code="not_a_member",
                    hint="ers share list shows who is in, and which invitations wait",
                )
            draft.sign(form.Remove(named))

        await self._changes.change(holder, organization, plan)

    async def _grant(self, draft: Draft, before: Member) -> None:
        """Seal what a member reads from now on, and did not before, of each dataset."""
        after = draft.standing(before.member)
        for dataset in draft.roster.datasets():
            scope, had = after.reads(dataset.dataset), before.reads(dataset.dataset)
            if scope and not had.contains(scope) and (dataset.slug or not after.owns):
                keys = await self._grants.whole(draft.view, dataset.dataset)
                draft.grant(before.member, dataset.dataset, keys)


def restated(standing: Member, shares: Sequence[Share], *, owner: bool = False) -> Standing[str]:
    """A member's standing with other shares or another role, under the keys that there are."""
    return Standing(
        standing.member,
        form.SERVICE if standing.type == form.SERVICE else form.PERSON,
        form.OWNER if owner else form.MEMBER,
        standing.name,
        b"",
        b"",
        b"",
        b"",
        standing.expires,
        list(shares),
    )


def _as_set(shares: Sequence[Share]) -> set[tuple[bytes, int, frozenset[bytes]]]:
    return {(share.dataset, share.right, frozenset(share.schemas)) for share in shares}

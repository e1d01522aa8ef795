"""Invite a person with twelve words, and answer an invitation with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from encrypted_records import runtime
from encrypted_records.client.rosters import RosterApi
from encrypted_records.crypto.invitations import InvitationSecret
from encrypted_records.errors import ApiFailed, BadInput, Conflict, InvitationOver
from encrypted_records.index.roster.invitations import (
    answer_invitation,
    check_words,
    compose_invite,
)
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.model.roster import Share
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.sharing.changes import RosterChanges
from encrypted_records.proxy.sharing.drafts import RosterDraft
from encrypted_records.proxy.sharing.reading import RosterReader
from encrypted_records.rules.roster_state import InvitationState, Member

#: How long an invitation waits.
INVITATION_SECONDS = 7 * 86_400


@dataclass(frozen=True, slots=True)
class Invited:
    """An invitation that was made now. The words are shown once, and are nowhere else."""

    id: bytes
    words: str = field(repr=False)
    expires: int
    #: who is meant, where that one is or was in the organization
    member: bytes
    #: the invitation that this one takes the place of: the API keeps one of an address
    replaced: InvitationState | None
    #: in which it is
    roster: Roster


@dataclass(frozen=True, slots=True)
class JoinedOrganization:
    """The organization that the invited has joined, once an owner's proxy has let them in."""

    organization: bytes
    inviter: str
    #: people and services in the roster
    members: int


class Inviting:
    def __init__(
        self, api: RosterApi, keyrings: Keyrings, reader: RosterReader, changes: RosterChanges
    ) -> None:
        self._api = api
        self._keyrings = keyrings
        self._reader = reader
        self._changes = changes

    async def invite(
        self,
        holder: Holder,
        organization: bytes,
        address: str,
        shares: Sequence[Share] | None,
        *,
        new: bool = False,
    ) -> Invited:
        """Invite an e-mail address. If the address belongs to a present or former member, the
        invitation names that member, who gets new keys: that is the way back after the loss of a
        keyring.

        Args:
            shares: shares of datasets and schemas in the roster; None keeps the member's shares.
            new: invite an account that was never in the organization, instead of the former member
                with that address. A present member with the address has to be removed first.

        Raises:
            NotAllowed: ``owners_only``, ``not_admitted``.
            BadInput: no present member has the address, so there are no shares to keep; or the API
                refuses the address.
            Conflict: ``already_member``; a new member cannot have the address of a present one.
            ErsError: as for :meth:`RosterChanges.change`.
        """
        secret = InvitationSecret.generate()
        invitation = ids.new_id()

        async def plan(draft: RosterDraft) -> Invited:
            draft.require_owner()
            known = member_named(draft.roster, address)
            if new:
                _require_out(known)
                known = None
            if shares is None and (known is None or not known.present):
                raise BadInput(
                    "name what is shared with the invited person",
                    hint="ers share invite EMAIL --dataset DATASET --role reader",
                )
            expires = draft.now + INVITATION_SECONDS
            content = compose_invite(
                draft.roster,
                secret,
                invitation=invitation,
                name=known.name if known is not None else address,
                expires=expires,
                shares=list(known.shares) if shares is None and known is not None else shares or [],
                member=known.member if known is not None else b"",
            )
            replaced = _waiting(draft.roster, content.name, draft.now)
            draft.sign(content)
            return Invited(
                invitation, secret.words, expires, content.member, replaced, draft.roster
            )

        return await self._changes.change(holder, organization, plan)

    async def accept(self, holder: Holder, invitation: bytes, words: str) -> JoinedOrganization:
        """Answer an invitation of the user's with its words. A keyring is made where there is none.

        Raises:
            InvitationWords: the words are others, or the roster is not the inviter's.
            InvitationOver: it was used, withdrawn, declined, or has expired.
            Closed, Refused, Unavailable: as :meth:`RosterReader.read_unbelieved`, and the keyring.
        """
        secret = InvitationSecret.from_words(words)
        shown = await self._api.invitation(invitation, holder.auth)
        # An API that hides it keeps somebody out, and nothing was made for it yet.
        if shown is None:
            raise InvitationOver("there is no such open invitation for this account")
        try:
            organization = ids.from_reference(
                shown.get("organization"), "organizations", pointer="/organization"
            )
        except BadInput:
            raise ApiFailed("the API's answer names no organization") from None
        roster = await self._reader.read_unbelieved(holder, organization)
        now = int(runtime.wall())
        check_words(roster, secret, invitation, holder.user, now)  # else no keyring is made
        keyring = await runtime.in_thread(self._keyrings.of, holder)
        version = keyring.newest
        root = keyring.root(version)
        answer = answer_invitation(
            roster,
            secret,
            invitation=invitation,
            member=holder.user,
            identity=await runtime.in_thread(root.identity, organization, holder.user, version),
            anchor=root.anchor(organization, holder.user, version),
            now=now,
        )
        # The words have shown that it is the inviter's, so it is remembered before the API hears.
        await runtime.in_thread(self._reader.rosters.remember, holder.user, roster)
        await self._api.give_answer(invitation, answer, holder.auth)
        made = roster.invitation(invitation)
        inviter = roster.member(made.inviter) if made is not None else None
        return JoinedOrganization(
            organization, inviter.name if inviter is not None else "", len(roster.members())
        )


def _waiting(roster: Roster, name: str, now: int) -> InvitationState | None:
    """The newest invitation of an address that can still be answered."""
    waiting = [
        invitation
        for invitation in roster.invitations()
        if invitation.open
        and now < invitation.content.expires
        and invitation.content.name.casefold() == name.casefold()
    ]
    return max(waiting, key=lambda invitation: invitation.number, default=None)


def _require_out(known: Member | None) -> None:
    """
    Raises:
        Conflict: ``already_member``.
    """
    if known is not None and known.present:
        raise Conflict(
            "the address already belongs to a member",
            code="already_member",
            hint="invite the address without marking the person as new, or remove that member"
            " first",
        )


def member_named(roster: Roster, name: str) -> Member | None:
    """The person who has this address in the roster; one who is in it goes before one who was."""
    wanted = name.casefold()
    people = [history[-1] for history in roster.histories() if history[-1].type == form.PERSON]
    named = [person for person in people if person.name.casefold() == wanted]
    return next((member for member in named if member.present), named[-1] if named else None)

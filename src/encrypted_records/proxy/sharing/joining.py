"""Join an organization by an invitation, or return to it with recovery phrases.

An invitation consists of twelve words, with which the invited user answers. An organization that
lost its last owner is recovered with that owner's recovery phrases.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace

from encrypted_records import errors, runtime
from encrypted_records.client.rosters import RosterApi
from encrypted_records.crypto.invitations import InvitationSecret
from encrypted_records.crypto.keys import DatasetKey, Keyring
from encrypted_records.crypto.recovery import keyring_of
from encrypted_records.index.roster import belief
from encrypted_records.index.roster.access import (
    answer_invitation,
    check_words,
    compose_invite,
    open_grant,
    prove_keys,
)
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import ids
from encrypted_records.model import roster as form
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.sharing.changes import (
    ATTEMPTS,
    RosterChanges,
    RosterDraft,
    identity_with,
    no_roster,
)
from encrypted_records.proxy.sharing.reading import RosterReader, View
from encrypted_records.rules.roster_state import InvitationState, Member

#: How long an invitation waits.
INVITATION_SECONDS = 7 * 86_400


@dataclass(frozen=True, slots=True)
class Invited:
    """A new invitation. The words are shown once and stored nowhere else."""

    id: bytes
    words: str = field(repr=False)
    expires: int
    #: the invited member, if it is or was in the organization
    member: bytes
    #: the invitation that this invitation replaces: the API keeps one per address
    replaced: InvitationState | None
    #: the roster that has the invitation
    roster: Roster


@dataclass(frozen=True, slots=True)
class JoinedOrganization:
    """The organization that the invited user joins, once an owner's proxy has admitted the user."""

    organization: bytes
    inviter: str
    #: people and services in the roster
    members: int


@dataclass(eq=False, repr=False)
class Inviting:
    _api: RosterApi
    _keyrings: Keyrings
    _reader: RosterReader
    _changes: RosterChanges

    async def invite(
        self,
        holder: Holder,
        organization: bytes,
        address: str,
        shares: Sequence[form.Share] | None,
        *,
        new: bool = False,
    ) -> Invited:
        """Invite an e-mail address. If the address belongs to a present or former member, the
        invitation names that member, who gets new keys: this restores access after the loss of a
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
                raise errors.BadInput(
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
        """Answer the user's invitation with its words. Makes a keyring if there is none.

        Raises:
            InvitationWords: the words are wrong, or the roster is not the inviter's.
            InvitationOver: it was used, withdrawn, declined, or has expired.
            Closed, Refused, Unavailable: as :meth:`RosterReader.read_unbelieved`, and the keyring.
        """
        secret = InvitationSecret.from_words(words)
        shown = await self._api.invitation(invitation, holder.auth)
        # An API that hides the roster keeps the user out, and no keyring was made yet.
        if shown is None:
            raise errors.InvitationOver("there is no such open invitation for this account")
        try:
            organization = ids.from_reference(
                shown.organization, "organizations", pointer="/organization"
            )
        except errors.BadInput:
            raise errors.ApiFailed("the API's answer names no organization") from None
        roster = await self._reader.read_unbelieved(holder, organization)
        now = int(runtime.wall())
        # If this raises, no keyring is made.
        check_words(roster, secret, invitation, holder.user, now)
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
        # The words have proved that the roster is the inviter's, so it is remembered before the API
        # gets the answer.
        await runtime.in_thread(self._reader.rosters.remember, holder.user, roster)
        await self._api.give_answer(invitation, answer, holder.auth)
        made = roster.invitation(invitation)
        inviter = roster.member(made.inviter) if made is not None else None
        return JoinedOrganization(
            organization, inviter.name if inviter is not None else "", len(roster.members())
        )


def _waiting(roster: Roster, name: str, now: int) -> InvitationState | None:
    """An address's newest invitation that can still be answered."""
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
        raise errors.Conflict(
            "the address already belongs to a member",
            code="already_member",
            hint="invite the address without marking the person as new, or remove that member"
            " first",
        )


def member_named(roster: Roster, name: str) -> Member | None:
    """The person who has this address in the roster; a present member precedes a former member."""
    wanted = name.casefold()
    people = [history[-1] for history in roster.histories() if history[-1].type == form.PERSON]
    named = [person for person in people if person.name.casefold() == wanted]
    return next((member for member in named if member.present), named[-1] if named else None)


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
            # Read again: a grant may name an entry that is newer than the first reading.
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
            for dataset, keys_of_dataset in keys.items():
                draft.grant(holder.user, dataset, keys_of_dataset)
            try:
                await self._api.send(organization, draft.entries, draft.grants, holder.auth)
            except errors.Conflict as error:
                if error.reason != "roster_moved" or attempt == ATTEMPTS:
                    raise
                continue
            self._reader.forget(holder.user, organization)
            await runtime.in_thread(self._reader.rosters.remember, holder.user, draft.roster)
            assert draft.roster.head.digest == form.entry_digest(draft.entries[-1])
            return lost.name
        raise AssertionError("the last attempt returns or raises")

    async def _read(self, holder: Holder, organization: bytes) -> Roster:
        roster = await self._reader.read_unbelieved(holder, organization)
        if not roster.number:
            raise no_roster()
        return roster


def _open(view: View, grants: Sequence[form.Grant]) -> dict[bytes, dict[int, DatasetKey]]:
    """The keys that the lost owner was granted, by dataset and epoch.

    Raises:
        GrantBroken, Unsupported: as :func:`open_grant`.
    """
    found: dict[bytes, dict[int, DatasetKey]] = {}
    for grant in grants:
        try:
            body = form.read_grant(grant)
        except errors.Malformed:
            raise errors.GrantBroken("a grant is malformed") from None
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
    it is encrypted again (:func:`seal_grant`).

    Raises:
        Closed: ``grant_missing``.
    """
    missing = [
        dataset.name
        for dataset in roster.datasets()
        if dataset.slug and dataset.dataset not in keys
    ]
    if missing:
        raise errors.Closed(
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
    raise errors.BadInput(
        "these words do not belong to a current owner of the organization",
        code="invalid_phrase",
        hint="use the words of all versions of an owner's keyring, oldest first",
    )


def _standing(
    draft: RosterDraft, member: bytes, name: str, keyring: Keyring
) -> form.MemberStanding[str]:
    before = draft.roster.member(member)
    version = keyring.newest
    root = keyring.root(version)
    identity = root.identity(draft.roster.organization, member, version)
    if before is not None and before.present and before.keys == identity.keys:
        given = (b"", b"", b"")
    else:
        anchor = root.anchor(draft.roster.organization, member, version)
        given = prove_keys(identity, anchor, draft.roster.found, member)
    return form.MemberStanding(member, form.PERSON, form.OWNER, name, *given, b"", 0, [])

"""Invite, answer, admit: a member joins with twelve words (docs/SPEC.md, section 15.6).

```
waiting -- an answer with the right signature --> answered -- member --> admitted
   |   <------ an answer that does not check ---------+
   +--> withdrawn (remove), declined (at the API), expired (time): from waiting or answered
```
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from encrypted_records.crypto.identity import Identity, MemberKeys, Verifier
from encrypted_records.crypto.invitations import InvitationSecret
from encrypted_records.crypto.keys import AnchorKey
from encrypted_records.errors import InvitationOver, InvitationWords, KeysRefused, Unsupported
from encrypted_records.index.roster.roster import Roster
from encrypted_records.model import roster as form
from encrypted_records.rules.roster_state import InvitationState


class InvitationStatus(StrEnum):
    """The status of an invitation. All but the first two are final."""

    WAITING = "waiting"
    ANSWERED = "answered"
    ADMITTED = "admitted"
    WITHDRAWN = "withdrawn"
    DECLINED = "declined"
    EXPIRED = "expired"


def status_of(
    invitation: InvitationState, now: int, *, answered: bool = False, declined: bool = False
) -> InvitationStatus:
    """
    Args:
        now: in seconds since 1970.
        answered: whether there is an answer that :func:`check_answer` accepts.
        declined: whether the API states that the invited user has declined.
    """
    if invitation.admitted is not None:
        return InvitationStatus.ADMITTED
    if invitation.withdrawn is not None:
        return InvitationStatus.WITHDRAWN
    if declined:
        return InvitationStatus.DECLINED
    if now >= invitation.content.expires:
        return InvitationStatus.EXPIRED
    return InvitationStatus.ANSWERED if answered else InvitationStatus.WAITING


def compose_invite(
    roster: Roster,
    secret: InvitationSecret,
    *,
    invitation: bytes,
    name: str,
    expires: int,
    shares: Sequence[form.Share],
    member: bytes = b"",
) -> form.Invite[str]:
    """An invitation to be signed as the next entry of the roster.

    Args:
        invitation: its id, 16 unique bytes.
        name: the e-mail address of the invited user.
        expires: in seconds since 1970.
        member: the invited member, if it is, or was, in the roster.
    """
    keys = secret.keys(roster.organization, invitation)
    invite = form.Invite(
        invitation, member, name, expires, keys.answer_key, list(shares), form.NO_DIGEST
    )
    check = keys.compute_check(roster.head.digest, invite)
    return msgspec.structs.replace(invite, check=check)


def answer_invitation(
    roster: Roster,
    secret: InvitationSecret,
    *,
    invitation: bytes,
    member: bytes,
    identity: Identity,
    anchor: AnchorKey,
    now: int,
) -> form.Answer:
    """Make the answer of the invited user, after the words have proven that this roster is the
    inviter's.

    Args:
        member: the id of the invited user; ``identity`` and ``anchor`` are this member's in the
            organization.
        now: in seconds since 1970.

    Raises:
        InvitationWords: the words, the invitation or the roster do not match.
        InvitationOver: the invitation was used or withdrawn, or has expired.
    """
    found = check_words(roster, secret, invitation, member, now)
    keys = secret.keys(roster.organization, invitation)
    made = anchor.anchor(roster.found)
    proof = identity.sign("keys", roster.found, member, identity.keys, made)
    return keys.answer(
        found.digest,
        organization=roster.organization,
        invitation=invitation,
        member=member,
        keys=identity.keys,
        anchor=made,
        proof=proof,
    )


def check_words(
    roster: Roster, secret: InvitationSecret, invitation: bytes, member: bytes, now: int
) -> InvitationState:
    """The invitation, if ``member`` may answer it with these words.

    Raises:
        InvitationWords, InvitationOver: as :func:`answer_invitation`.
    """
    found = roster.invitation(invitation)
    if found is None:
        raise InvitationWords("the organization has no such invitation")
    secret.keys(roster.organization, invitation).verify(found.previous, found.content)
    _require_open(found, now)
    _require_fitting(roster, found, member)
    return found


def check_answer(roster: Roster, answer: form.Answer, now: int) -> InvitationState:
    """The invitation of an answer, if an owner may admit its sender.

    Args:
        now: in seconds since 1970.

    Raises:
        InvitationWords: the sender does not have the words, or the roster has no such invitation.
        InvitationOver: it was used or withdrawn, or has expired.
        KeysRefused: the keys do not load, belong to another member, or are not proven to be the
            sender's.
        Unsupported: of a format that this version does not know.
    """
    if answer.format != form.FORMAT:
        raise Unsupported(
            "an answer to an invitation is of a format that this version does not know",
            hint="use the newest version of encrypted-records",
        )
    found = roster.invitation(answer.id)
    if found is None or answer.organization != roster.organization:
        raise InvitationWords("the organization has no such invitation")
    _require_open(found, now)
    _require_fitting(roster, found, answer.member)
    signed = form.answer_message(
        found.digest, answer.member, answer.keys, answer.anchor, answer.proof
    )
    if not Verifier(found.content.answer_key).verify(answer.signature, signed):
        raise InvitationWords("an answer to an invitation was not made with its words")
    keys = MemberKeys(answer.keys)
    if roster.is_of_another(answer.member, answer.keys):
        raise KeysRefused("an answer to an invitation has keys of another member")
    proof = form.proof_message(roster.found, answer.member, answer.keys, answer.anchor)
    if not keys.verifier.verify(answer.proof, proof):
        raise KeysRefused("an answer to an invitation does not prove that its keys belong to it")
    return found


def admit(roster: Roster, answer: form.Answer, now: int) -> form.MemberStanding[str]:
    """The standing of the user who answered, as invited, to be signed as the next entry.

    Raises:
        InvitationWords, InvitationOver, KeysRefused, Unsupported: as :func:`check_answer`.
    """
    invite = check_answer(roster, answer, now).content
    return form.MemberStanding(
        answer.member,
        form.PERSON,
        form.MEMBER,
        invite.name,
        answer.keys,
        answer.anchor,
        answer.proof,
        invite.id,
        0,
        invite.shares,
    )


def _require_open(invitation: InvitationState, now: int) -> None:
    status = status_of(invitation, now)
    if status is not InvitationStatus.WAITING:
        said = {
            InvitationStatus.ADMITTED: "the invitation was used",
            InvitationStatus.WITHDRAWN: "the invitation was withdrawn",
            InvitationStatus.EXPIRED: "the invitation has expired",
        }
        raise InvitationOver(said[status])


def _require_fitting(roster: Roster, invitation: InvitationState, member: bytes) -> None:
    wanted = invitation.content.member
    if wanted and wanted != member:
        raise InvitationWords(
            "the invitation is for the account that had this address in the organization",
            hint="nothing was sent; if that account is gone or belonged to somebody else, ask an"
            " owner to invite this account as a new person",
        )
    if not wanted and roster.member(member) is not None:
        raise InvitationOver(
            "the invitation is for a new person, and this account is or was in the organization",
            hint="ask an owner to invite this account by the address that the organization has of"
            " it, and not as a new person",
        )

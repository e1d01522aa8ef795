"""Which entries count (docs/SPEC.md, section 15.4).

An entry in good form that does not count is *void*: it stays in the chain and changes nothing.
Otherwise an API that lies, or checks no signatures, could let one member stop all others with one
bad entry. Here is why an entry is void; its form and its chain were checked before.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from encrypted_records.crypto.identity import MemberKeys
from encrypted_records.errors import KeysRefused
from encrypted_records.index.roster.state import Ending, Invitation, Member, State, at
from encrypted_records.model import public_keys
from encrypted_records.model import roster as form
from encrypted_records.model.roster import (
    Dataset,
    End,
    EntryBody,
    Forget,
    Found,
    Invite,
    Placement,
    Remove,
    Share,
    Standing,
)


class Void(StrEnum):
    """Why an entry does not count."""

    #: by nobody who is in the roster, or the signature is not right
    SIGNATURE = "signature"
    #: the actor may not do this
    RIGHT = "right"
    #: a second ``found``
    FOUNDED = "founded"
    #: an id that stands for something else
    ID = "id"
    #: nothing has this id
    ABSENT = "absent"
    #: public keys that are refused, are another member's, or are not there
    KEYS = "keys"
    #: the keys are not shown to be the member's own
    PROOF = "proof"
    #: it does not exist, is over, or is for another
    INVITATION = "invitation"
    #: nobody would be an owner
    LAST_OWNER = "last_owner"
    #: a type or role that the member cannot have
    ROLE = "role"
    #: of datasets or schemas that are not in the roster, or named twice
    SHARES = "shares"
    #: neither the present epoch of a dataset nor the next one; none that has begun and comes after
    #: the oldest that was not forgotten
    EPOCH = "epoch"
    #: another commitment for the present epoch
    COMMITMENT = "commitment"
    #: logs that cannot end so
    ENDS = "ends"
    #: a schema that is of another dataset, or named twice
    PLACE = "place"
    #: more than an organization may have
    LIMIT = "limit"


def judge(
    state: State, found: bytes, body: EntryBody, actor: Member, keys: MemberKeys | None
) -> Void | None:
    """Why an entry does not count, whose signature is right; None where it does.

    Args:
        found: the digest of entry 1.
        actor: whose signature it is.
        keys: those that a ``member`` entry names, where they load.
    """
    content = body.content
    if isinstance(content, Found):
        return Void.FOUNDED
    if isinstance(content, Remove):
        return _judge_remove(state, content, actor)
    if isinstance(content, list):
        return _judge_places(state, content, actor)
    if not actor.owns:
        return Void.RIGHT
    if isinstance(content, Invite):
        return _judge_invite(state, content)
    if isinstance(content, Dataset):
        return _judge_dataset(state, content)
    if isinstance(content, Forget):
        return _judge_forget(state, content)
    return _judge_standing(state, found, body.time, content, keys)


def load_keys(raw: bytes) -> MemberKeys | None:
    """Public keys; None where they are refused."""
    try:
        return MemberKeys(raw)
    except KeysRefused:
        return None


def _judge_invite(state: State, invite: Invite[str]) -> Void | None:
    if invite.id in state.invitations or invite.id in state.members:
        return Void.ID
    if not public_keys.signs_alone(invite.answer_key):
        return Void.KEYS
    return _judge_shares(state, invite.shares)


def _judge_standing(
    state: State, found: bytes, time: int, content: Standing[str], keys: MemberKeys | None
) -> Void | None:
    before = state.member(content.member)
    stands = before is not None and before.present
    if content.member in state.invitations:
        return Void.ID
    if not stands and len(state.members_now) >= form.MAX_MEMBERS:
        return Void.LIMIT
    if content.type == form.SERVICE and (content.role == form.OWNER or content.invitation):
        return Void.ROLE
    if before is not None and before.type != content.type:
        return Void.ROLE
    if content.role == form.OWNER and content.shares:
        return Void.SHARES
    void = _judge_keys(state, found, content, keys, stands=stands)
    if void is None and content.invitation:
        void = _judge_admission(state, time, content)
    if void is None and content.role != form.OWNER and _is_last_owner(state, content.member):
        void = Void.LAST_OWNER
    return void or _judge_shares(state, content.shares)


def _judge_keys(
    state: State, found: bytes, content: Standing[str], keys: MemberKeys | None, *, stands: bool
) -> Void | None:
    given = (content.keys, content.anchor, content.proof)
    if not any(given):
        # Who was removed, or comes by an invitation, has to show keys.
        return None if stands and not content.invitation else Void.KEYS
    if not all(given) or keys is None or is_of_another(state, content.member, keys):
        return Void.KEYS
    message = form.proof_message(found, content.member, content.keys, content.anchor)
    return None if keys.verifier.verify(content.proof, message) else Void.PROOF


def is_of_another(state: State, member: bytes, keys: MemberKeys) -> bool:
    """Whether one of the keys belongs, or belonged, to somebody else."""
    return any(state.holders.get(key, member) != member for key in keys.parts)


def _judge_admission(state: State, time: int, content: Standing[str]) -> Void | None:
    invitation = state.invitations.get(content.invitation)
    if invitation is None or not admits(state, invitation, content.member, time):
        return Void.INVITATION
    # The words make a member. That somebody becomes an owner is said by a later entry.
    return Void.ROLE if content.role == form.OWNER else None


def admits(state: State, invitation: Invitation, member: bytes, time: int) -> bool:
    """Whether an invitation lets somebody in at a time, in seconds since 1970."""
    wanted = invitation.content.member
    fits = member == wanted if wanted else member not in state.members
    return invitation.open and time < invitation.content.expires and fits


def _is_last_owner(state: State, member: bytes) -> bool:
    return state.owners_now == {member}


def _judge_shares(state: State, shares: Sequence[Share]) -> Void | None:
    seen = {(share.dataset, share.right) for share in shares}
    if len(seen) < len(shares) or any(share.dataset not in state.epochs for share in shares):
        return Void.SHARES
    for share in shares:
        if len(set(share.schemas)) < len(share.schemas):
            return Void.SHARES
        for schema in share.schemas:
            if schema not in state.schemas or state.schemas[schema][-1].dataset != share.dataset:
                return Void.SHARES
    return None


def _judge_remove(state: State, content: Remove, actor: Member) -> Void | None:
    member = state.member(content.id)
    if not actor.owns and actor.member != content.id:
        return Void.RIGHT
    if member is not None:
        if not member.present:
            return Void.ABSENT
        return Void.LAST_OWNER if _is_last_owner(state, content.id) else None
    invitation = state.invitations.get(content.id)
    if invitation is None:
        return Void.ABSENT
    return None if invitation.open else Void.INVITATION


def _judge_dataset(state: State, content: Dataset) -> Void | None:
    epochs = state.epochs.get(content.dataset, [])
    if not epochs and len(state.epochs) >= form.MAX_DATASETS:
        return Void.LIMIT
    if content.epoch == len(epochs) + 1:
        if content.epoch > form.MAX_EPOCHS:
            return Void.LIMIT
        return _judge_ends(state, content)
    if content.epoch != len(epochs):
        return Void.EPOCH
    if content.commitment != epochs[-1].commitment:
        return Void.COMMITMENT
    return _judge_ends(state, content)


def _judge_forget(state: State, content: Forget) -> Void | None:
    epochs = state.epochs.get(content.dataset)
    if epochs is None:
        return Void.ABSENT
    oldest = state.first(content.dataset)
    return None if oldest < content.first <= len(epochs) else Void.EPOCH


def _judge_ends(state: State, content: Dataset) -> Void | None:
    """An end that a log cannot have would close it to everybody."""
    ends = content.ends
    if len({end.schema for end in ends}) < len(ends):
        return Void.ENDS
    for end in ends:
        placed = state.schemas.get(end.schema)
        if placed is None or placed[-1].dataset != content.dataset:
            return Void.ENDS
        if end.version == 0 and end.digest != form.NO_DIGEST:
            return Void.ENDS
        before = at(state.endings.get(end.schema, ()), None)
        if before is not None and not _may_follow(before, end, content.epoch):
            return Void.ENDS
    return None


def _may_follow(before: Ending, end: End, epoch: int) -> bool:
    """Whether a log that ended so with one epoch may have ended so with this one."""
    if end.version == before.version:
        return end.digest == before.digest
    return end.version > before.version and epoch > before.epoch


def _judge_places(state: State, content: Sequence[Placement], actor: Member) -> Void | None:
    if not all(actor.writes(one.dataset).whole for one in content):
        return Void.RIGHT
    if len({one.schema for one in content}) < len(content):
        return Void.PLACE
    if any(one.dataset not in state.epochs for one in content):
        return Void.ABSENT
    for one in content:
        placed = state.schemas.get(one.schema)
        if placed is not None and placed[-1].dataset != one.dataset:
            return Void.PLACE
    new = sum(one.schema not in state.schemas for one in content)
    return Void.LIMIT if len(state.schemas) + new > form.MAX_SCHEMAS else None

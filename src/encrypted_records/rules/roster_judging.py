"""Rules by which roster entries count or do not count (docs/SPEC.md, section 15.4).

A well-formed entry that does not count is *void*: it stays in the chain and changes nothing.
Otherwise an API that lies, or checks no signatures, could let a member block all others with a
single bad entry. The form and the chain of entries were checked before. Nothing here has a key:
callers that can verify signatures pass the results in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum

from encrypted_records.model import roster as form
from encrypted_records.model import signatures
from encrypted_records.rules.roster_state import Ending, InvitationState, Member, RosterState, at


class Void(StrEnum):
    """The code of the reason why an entry is invalid, in the specification's terms."""

    #: the actor is not in the roster, or the signature is wrong
    SIGNATURE = "signature"
    #: the actor may not do this
    RIGHT = "right"
    #: a second ``found``
    FOUNDED = "founded"
    #: the id is used for something else
    ID = "id"
    #: nothing has this id
    ABSENT = "absent"
    #: public keys that are refused, belong to another member, or are missing
    KEYS = "keys"
    #: no proof that the member holds the private keys
    PROOF = "proof"
    #: the invitation does not exist, is over, or is for another person
    INVITATION = "invitation"
    #: no owner would remain
    LAST_OWNER = "last_owner"
    #: a type or role that the member cannot have
    ROLE = "role"
    #: datasets or schemas that are not in the roster, or are named twice
    SHARES = "shares"
    #: neither the present epoch of a dataset nor the next; or, for forgetting, an epoch that has
    #: not begun or is not after the oldest that was not forgotten
    EPOCH = "epoch"
    #: another commitment for the present epoch
    COMMITMENT = "commitment"
    #: ends that the logs cannot have
    ENDS = "ends"
    #: a schema that belongs to another dataset, or is named twice
    PLACE = "place"
    #: exceeds a limit of the organization
    LIMIT = "limit"


class EntryFault(Enum):
    """The reason why an entry is invalid: the specification's word, and a sentence."""

    SIGNER = Void.SIGNATURE, "the signer is not in the roster"
    SIGNATURE = Void.SIGNATURE, "a signature is not right"
    OWNERS_ONLY = Void.RIGHT, "only an owner may sign such an entry"
    NOT_WRITER = Void.RIGHT, "only writers of the whole dataset place schemas"
    FOUNDED = Void.FOUNDED, "found is entry 1, and only it"
    INVITATION_ID = Void.ID, "an invitation's id is taken"
    MEMBER_ID = Void.ID, "a member's id is that of an invitation"
    NOBODY = Void.ABSENT, "an entry removes somebody who is not in"
    NO_DATASET = Void.ABSENT, "an entry names a dataset that the roster does not have"
    REFUSED_KEYS = Void.KEYS, "these public keys cannot be used"
    OTHERS_KEYS = Void.KEYS, "these public keys are another member's"
    PART_OF_KEYS = Void.KEYS, "keys, anchor and proof come together"
    NO_KEYS = Void.KEYS, "keys are left out of somebody who is not in"
    PROOF = Void.PROOF, "keys come without a proof"
    NO_INVITATION = Void.INVITATION, "there is no such invitation"
    INVITATION_OVER = Void.INVITATION, "the invitation is over: used, withdrawn or expired"
    ENDED_BEFORE = Void.INVITATION, "an entry removes an invitation that is over"
    OTHERS_INVITATION = Void.INVITATION, "the invitation is for somebody else"
    LAST_OWNER = Void.LAST_OWNER, "an organization keeps at least one owner"
    SERVICE = Void.ROLE, "a service is made, no owner"
    TYPE = Void.ROLE, "a person is not a service"
    INVITED_OWNER = Void.ROLE, "an invitation makes no owner"
    OWNERS_SHARES = Void.SHARES, "owners have all rights, and no shares"
    SHARED_TWICE = Void.SHARES, "shares name something twice"
    UNKNOWN_SHARE = Void.SHARES, "a share names a dataset that the roster does not have"
    UNPLACED_SHARE = Void.SHARES, "a share names a schema that is not placed in its dataset"
    EPOCH = Void.EPOCH, "an epoch follows the present one"
    FORGOTTEN = Void.EPOCH, "the epoch is forgotten, or has not begun"
    COMMITMENT = Void.COMMITMENT, "the present epoch is stated with another key"
    ENDED_TWICE = Void.ENDS, "an entry states two heads of one log"
    UNPLACED_END = Void.ENDS, "an end is of a schema that is not placed in the dataset"
    ENDS = Void.ENDS, "a log cannot end so"
    PLACED_TWICE = Void.PLACE, "an entry places one schema twice"
    MOVED = Void.PLACE, "a schema that the roster places stays in its dataset"
    MEMBERS = Void.LIMIT, f"an organization has at most {form.MAX_MEMBERS} members"
    DATASETS = Void.LIMIT, f"an organization has at most {form.MAX_DATASETS} datasets with keys"
    EPOCHS = Void.LIMIT, f"a dataset has at most {form.MAX_EPOCHS} epochs"
    SCHEMAS = Void.LIMIT, f"an organization places at most {form.MAX_SCHEMAS} schemas"

    def __init__(self, void: Void, sentence: str) -> None:
        self.void = void
        self.sentence = sentence


#: Whether a signature (64 bytes) over a message is valid under a member's public keys (1,249
#: bytes). False if the keys do not load.
IsBy = Callable[[bytes, bytes, bytes], bool]


@dataclass(frozen=True, slots=True)
class SignatureChecks:
    """Whether the signatures of an entry are valid: the actor's, and the proof by the keys that it
    states for a member.
    """

    by_actor: bool
    proof: bool


#: For an entry whose signatures were verified before.
RIGHT = SignatureChecks(by_actor=True, proof=True)


def verify(
    state: RosterState, entry: form.RosterEntry, body: form.EntryBody, is_by: IsBy
) -> SignatureChecks:
    """Verify the signatures of the next entry, under the keys that its actor has in ``state``."""
    content = body.content
    if isinstance(content, form.FoundingEntry) and not state.number:
        keys = content.keys
    else:
        actor = state.member(body.actor)
        keys = b"" if actor is None else actor.keys
    by_actor = is_by(keys, entry.signature, form.entry_message(entry.body))
    proof = False
    if by_actor and isinstance(content, form.MemberStanding) and content.keys:
        proved = form.proof_message(state.found, content.member, content.keys, content.anchor)
        proof = is_by(content.keys, content.proof, proved)
    return SignatureChecks(by_actor, proof)


def judge(state: RosterState, body: form.EntryBody, verified: SignatureChecks) -> EntryFault | None:
    """The reason why the next entry is invalid; None if it is valid.

    If the first entry is invalid, there is no roster.
    """
    content = body.content
    if not state.number:
        return _judge_foundation(content, verified)
    actor = state.member(body.actor)
    if actor is None or not actor.present:
        return EntryFault.SIGNER
    if not verified.by_actor:
        return EntryFault.SIGNATURE
    match content:
        case form.FoundingEntry():
            return EntryFault.FOUNDED
        case form.Remove():
            return _judge_remove(state, content, actor)
        case list():
            return _judge_places(state, content, actor)
        case _:
            if not actor.owns:
                return EntryFault.OWNERS_ONLY
            return _judge_owners(state, body, content, verified)


def _judge_owners(
    state: RosterState,
    body: form.EntryBody,
    content: form.Invite[str]
    | form.MemberStanding[str]
    | form.DatasetName
    | form.Forget
    | form.Listing,
    verified: SignatureChecks,
) -> EntryFault | None:
    """Judge what owners alone sign."""
    match content:
        case form.Invite():
            return _judge_invite(state, content)
        case form.DatasetName():
            return _judge_dataset(state, content)
        case form.Forget():
            return _judge_forget(state, content)
        case form.Listing():
            return None if content.dataset in state.epochs else EntryFault.NO_DATASET
        case form.MemberStanding():
            return _judge_standing(state, body.time, content, verified)


def _judge_foundation(content: form.Content, verified: SignatureChecks) -> EntryFault | None:
    if not isinstance(content, form.FoundingEntry):
        return EntryFault.FOUNDED
    if signatures.are_refused(content.keys):
        return EntryFault.REFUSED_KEYS
    return None if verified.by_actor else EntryFault.SIGNATURE


def _judge_invite(state: RosterState, invite: form.Invite[str]) -> EntryFault | None:
    if invite.id in state.invitations or invite.id in state.members:
        return EntryFault.INVITATION_ID
    if not signatures.signs_alone(invite.answer_key):
        return EntryFault.REFUSED_KEYS
    return _judge_shares(state, invite.shares)


def _judge_standing(
    state: RosterState, time: int, content: form.MemberStanding[str], verified: SignatureChecks
) -> EntryFault | None:
    before = state.member(content.member)
    stands = before is not None and before.present
    if content.member in state.invitations:
        return EntryFault.MEMBER_ID
    if not stands and len(state.members_now) >= form.MAX_MEMBERS:
        return EntryFault.MEMBERS
    if content.type == form.SERVICE and (content.role == form.OWNER or content.invitation):
        return EntryFault.SERVICE
    if before is not None and before.type != content.type:
        return EntryFault.TYPE
    if content.role == form.OWNER and content.shares:
        return EntryFault.OWNERS_SHARES
    reason = _judge_keys(state, content, verified, stands=stands)
    if reason is None and content.invitation:
        reason = _judge_admission(state, time, content)
    if reason is None and content.role != form.OWNER and _is_last_owner(state, content.member):
        reason = EntryFault.LAST_OWNER
    return reason or _judge_shares(state, content.shares)


def _judge_keys(
    state: RosterState,
    content: form.MemberStanding[str],
    verified: SignatureChecks,
    *,
    stands: bool,
) -> EntryFault | None:
    given = (content.keys, content.anchor, content.proof)
    if not any(given):
        # A member who was removed, or joins by an invitation, has to show keys.
        return None if stands and not content.invitation else EntryFault.NO_KEYS
    if not all(given):
        return EntryFault.PART_OF_KEYS
    if signatures.are_refused(content.keys):
        return EntryFault.REFUSED_KEYS
    if is_of_another(state, content.member, content.keys):
        return EntryFault.OTHERS_KEYS
    return None if verified.proof else EntryFault.PROOF


def is_of_another(state: RosterState, member: bytes, keys: bytes) -> bool:
    """Whether any of the three public keys belongs, or belonged, to another member."""
    parts = signatures.split_keys(keys) or ()
    return any(state.holders.get(key, member) != member for key in parts)


def _judge_admission(
    state: RosterState, time: int, content: form.MemberStanding[str]
) -> EntryFault | None:
    invitation = state.invitations.get(content.invitation)
    if invitation is None:
        return EntryFault.NO_INVITATION
    if not invitation.open or time >= invitation.content.expires:
        return EntryFault.INVITATION_OVER
    if not is_for(state, invitation, content.member):
        return EntryFault.OTHERS_INVITATION
    # The words only admit a member. Becoming an owner takes a later entry.
    return EntryFault.INVITED_OWNER if content.role == form.OWNER else None


def is_for(state: RosterState, invitation: InvitationState, member: bytes) -> bool:
    """Whether an invitation is for this member: it names the member, or it names nobody and the
    member was never in the roster.
    """
    wanted = invitation.content.member
    return member == wanted if wanted else member not in state.members


def _is_last_owner(state: RosterState, member: bytes) -> bool:
    return state.owners_now == {member}


def _judge_shares(state: RosterState, shares: Sequence[form.Share]) -> EntryFault | None:
    if len({(share.dataset, share.right) for share in shares}) < len(shares):
        return EntryFault.SHARED_TWICE
    if any(share.dataset not in state.epochs for share in shares):
        return EntryFault.UNKNOWN_SHARE
    for share in shares:
        if len(set(share.schemas)) < len(share.schemas):
            return EntryFault.SHARED_TWICE
        for schema in share.schemas:
            if schema not in state.schemas or state.schemas[schema][-1].dataset != share.dataset:
                return EntryFault.UNPLACED_SHARE
    return None


def _judge_remove(state: RosterState, content: form.Remove, actor: Member) -> EntryFault | None:
    member = state.member(content.id)
    if not actor.owns and actor.member != content.id:
        return EntryFault.OWNERS_ONLY
    if member is not None:
        if not member.present:
            return EntryFault.NOBODY
        return EntryFault.LAST_OWNER if _is_last_owner(state, content.id) else None
    invitation = state.invitations.get(content.id)
    if invitation is None:
        return EntryFault.NOBODY
    return None if invitation.open else EntryFault.ENDED_BEFORE


def _judge_dataset(state: RosterState, content: form.DatasetName) -> EntryFault | None:
    epochs = state.epochs.get(content.dataset, [])
    if not epochs and len(state.epochs) >= form.MAX_DATASETS:
        return EntryFault.DATASETS
    if content.epoch == len(epochs) + 1:
        if content.epoch > form.MAX_EPOCHS:
            return EntryFault.EPOCHS
        return _judge_ends(state, content)
    if content.epoch != len(epochs):
        return EntryFault.EPOCH
    if content.commitment != epochs[-1].commitment:
        return EntryFault.COMMITMENT
    return _judge_ends(state, content)


def _judge_forget(state: RosterState, content: form.Forget) -> EntryFault | None:
    epochs = state.epochs.get(content.dataset)
    if epochs is None:
        return EntryFault.NO_DATASET
    oldest = state.first(content.dataset)
    return None if oldest < content.first <= len(epochs) else EntryFault.FORGOTTEN


def _judge_ends(state: RosterState, content: form.DatasetName) -> EntryFault | None:
    """Refuse an end that the log cannot have: it would make the log unreadable for everyone."""
    ends = content.ends
    if len({end.schema for end in ends}) < len(ends):
        return EntryFault.ENDED_TWICE
    for end in ends:
        placed = state.schemas.get(end.schema)
        if placed is None or placed[-1].dataset != content.dataset:
            return EntryFault.UNPLACED_END
        if end.version == 0 and end.digest != form.NO_DIGEST:
            return EntryFault.ENDS
        before = at(state.endings.get(end.schema, ()), None)
        if before is not None and not _may_follow(before, end, content.epoch):
            return EntryFault.ENDS
    return None


def _may_follow(before: Ending, end: form.End, epoch: int) -> bool:
    """Whether a log with the end ``before`` at one epoch may have the end ``end`` at this epoch."""
    if end.version == before.version:
        return end.digest == before.digest
    return end.version > before.version and epoch > before.epoch


def _judge_places(
    state: RosterState, content: Sequence[form.Placement], actor: Member
) -> EntryFault | None:
    if not all(actor.writes(placement.dataset).whole for placement in content):
        return EntryFault.NOT_WRITER
    if len({placement.schema for placement in content}) < len(content):
        return EntryFault.PLACED_TWICE
    if any(placement.dataset not in state.epochs for placement in content):
        return EntryFault.NO_DATASET
    for placement in content:
        placed = state.schemas.get(placement.schema)
        if placed is not None and placed[-1].dataset != placement.dataset:
            return EntryFault.MOVED
    new = sum(placement.schema not in state.schemas for placement in content)
    return EntryFault.SCHEMAS if len(state.schemas) + new > form.MAX_SCHEMAS else None


#: Lifetime of a request, and how far the requester's clock may be ahead.
REQUEST_SECONDS = 30 * 86_400
_AHEAD_SECONDS = 86_400


class RequestFault(StrEnum):
    """The reason why a request for access is invalid, in the specification's terms."""

    #: the requester is not in the roster, is a service, or is an owner
    MEMBER = "member"
    #: the member's keys did not sign it
    SIGNATURE = "signature"
    #: it names an entry that this roster does not have
    ROSTER = "roster"
    #: the dataset is not listed for requests, or was listed only after the request
    LISTED = "listed"
    #: the member's keys or shares of the dataset changed after the request; or it is too old
    OVER = "over"
    #: the member has the right already
    RIGHT = "right"


def judge_request(
    state: RosterState,
    request: form.AccessRequest,
    body: form.AccessRequestBody,
    *,
    digest: bytes | None,
    is_by: IsBy,
    now: int,
) -> RequestFault | None:
    """The reason why a request for access is invalid; None if it is valid.

    Args:
        state: with histories; without them, the state at exactly the entry that the request names.
        body: the statements of the request.
        digest: the digest, in this roster, of the entry that the request names.
        now: in seconds since 1970.
    """
    member = state.member(body.member)
    if member is None or not member.present or member.owns or member.type != form.PERSON:
        return RequestFault.MEMBER
    if not is_by(member.keys, request.signature, form.request_message(request.body)):
        return RequestFault.SIGNATURE
    if digest != body.digest:
        return RequestFault.ROSTER
    if not 0 < state.listed_at(body.dataset) <= body.number:
        return RequestFault.LISTED
    if not body.time - _AHEAD_SECONDS <= now < body.time + REQUEST_SECONDS:
        return RequestFault.OVER
    if not _is_unchanged(state.members[body.member], body):
        return RequestFault.OVER
    has = member.writes if body.right == form.WRITER else member.reads
    return RequestFault.RIGHT if has(body.dataset).whole else None


def _is_unchanged(history: Sequence[Member], body: form.AccessRequestBody) -> bool:
    """Whether a member was in the organization at the time of the request, and has had the same
    keys and the same shares of the dataset since.
    """
    member = at(history, body.number)
    if member is None or not member.present:
        return False
    shares = shares_of(member, body.dataset)
    later = [standing for standing in history if standing.number > body.number]
    return not any(
        is_other_member(member, standing) or shares_of(standing, body.dataset) != shares
        for standing in later
    )


def is_other_member(before: Member, after: Member) -> bool:
    """Whether a later state has other keys or another role, or the member has left or rejoined:
    earlier requests become invalid.
    """
    same = after.present and before.joined == after.joined
    return not same or (before.keys, before.role) != (after.keys, after.role)


def shares_of(member: Member, dataset: bytes) -> set[tuple[int, frozenset[bytes]]]:
    """The shares that a member has of a dataset: the right, and the schemas."""
    return {
        (share.right, frozenset(share.schemas))
        for share in member.shares
        if share.dataset == dataset
    }

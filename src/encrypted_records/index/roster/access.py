"""Access of members: invitations, grants of the keys of datasets, and requests for access.

A member joins with twelve words (docs/SPEC.md, section 15.6): an owner invites, the person answers,
an owner admits.

```
waiting -- an answer with the right signature --> answered -- member --> admitted
   |   <------ an answer that does not check ---------+
   +--> withdrawn (remove), declined (at the API), expired (time): from waiting or answered
```

An owner seals a grant, and the member opens it. There is one grant per dataset and member, and it
holds every epoch that is not forgotten. Its content follows from the roster that it names, so a
machine that was cloned while sealing repeats the same message and never seals a second
(docs/SPEC.md, section 15.5).

The API returns requests (docs/SPEC.md, section 15.11), and is not trusted: it cannot make a
request. If it repeats or reorders requests, the newest of each member and dataset counts, if it is
still valid. The API can hide requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

from encrypted_records import errors
from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.identity import Identity, MemberKeys, Verifier
from encrypted_records.crypto.invitations import InvitationSecret
from encrypted_records.crypto.keys import AnchorKey, DatasetKey, SchemaKey
from encrypted_records.index.roster.roster import Roster, require_member, require_owner
from encrypted_records.model import roster as form
from encrypted_records.model.records import Digest, Uid
from encrypted_records.rules.roster_judging import RequestFault
from encrypted_records.rules.roster_state import Epoch, InvitationState


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
    public_keys, made, proof = prove_keys(identity, anchor, roster.found, member)
    return keys.answer(
        found.digest,
        organization=roster.organization,
        invitation=invitation,
        member=member,
        keys=public_keys,
        anchor=made,
        proof=proof,
    )


def prove_keys(
    identity: Identity, anchor: AnchorKey, found: bytes, member: bytes
) -> tuple[bytes, bytes, bytes]:
    """A member's public keys, their anchor in the organization whose first entry has the digest
    ``found``, and the proof that the member has both.
    """
    made = anchor.anchor(found)
    return identity.keys, made, identity.sign("keys", found, member, identity.keys, made)


def check_words(
    roster: Roster, secret: InvitationSecret, invitation: bytes, member: bytes, now: int
) -> InvitationState:
    """The invitation, if ``member`` may answer it with these words.

    Raises:
        InvitationWords, InvitationOver: as :func:`answer_invitation`.
    """
    found = roster.invitation(invitation)
    if found is None:
        raise errors.InvitationWords("the organization has no such invitation")
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
        raise errors.Unsupported(
            "an answer to an invitation is of a format that this version does not know",
            hint="use the newest version of encrypted-records",
        )
    found = roster.invitation(answer.id)
    if found is None or answer.organization != roster.organization:
        raise errors.InvitationWords("the organization has no such invitation")
    _require_open(found, now)
    _require_fitting(roster, found, answer.member)
    signed = form.answer_message(
        found.digest, answer.member, answer.keys, answer.anchor, answer.proof
    )
    if not Verifier(found.content.answer_key).verify(answer.signature, signed):
        raise errors.InvitationWords("an answer to an invitation was not made with its words")
    keys = MemberKeys(answer.keys)
    if roster.is_of_another(answer.member, answer.keys):
        raise errors.KeysRefused("an answer to an invitation has keys of another member")
    proof = form.proof_message(roster.found, answer.member, answer.keys, answer.anchor)
    if not keys.verifier.verify(answer.proof, proof):
        raise errors.KeysRefused(
            "an answer to an invitation does not prove that its keys belong to it"
        )
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
        reasons = {
            InvitationStatus.ADMITTED: "the invitation was used",
            InvitationStatus.WITHDRAWN: "the invitation was withdrawn",
            InvitationStatus.EXPIRED: "the invitation has expired",
        }
        raise errors.InvitationOver(reasons[status])


def _require_fitting(roster: Roster, invitation: InvitationState, member: bytes) -> None:
    wanted = invitation.content.member
    if wanted and wanted != member:
        raise errors.InvitationWords(
            "the invitation is for the account that had this address in the organization",
            hint="nothing was sent; if that account is gone or belonged to somebody else, ask an"
            " owner to invite this account as a new person",
        )
    if not wanted and roster.member(member) is not None:
        raise errors.InvitationOver(
            "the invitation is for a new person, and this account is or was in the organization",
            hint="ask an owner to invite this account by the address that the organization has of"
            " it, and not as a new person",
        )


class _Secrets(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Keys of one schema, or of the whole dataset, of the epochs from ``first`` on. ``fields`` is
    reserved for grants of single fields, which do not exist yet."""

    schema: Uid
    fields: list[msgspec.Raw]
    first: form.Epoch
    keys: Annotated[list[Digest], Meta(min_length=1, max_length=form.MAX_EPOCHS)]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[_Secrets])


@dataclass(frozen=True, repr=False)
class OpenedGrant:
    """The content of a grant: keys of the whole dataset by epoch, or of single schemas."""

    dataset: bytes
    epoch: int
    number: int
    actor: bytes
    whole: Mapping[int, DatasetKey]
    single: Mapping[tuple[bytes, int], SchemaKey]

    def __repr__(self) -> str:
        return f"<OpenedGrant of epoch {self.epoch}>"

    def schema(self, schema: bytes, epoch: int) -> SchemaKey:
        """A schema's key in an epoch.

        Raises:
            KeyMissing: the grant does not have it.
        """
        if epoch in self.whole:
            return self.whole[epoch].schema(schema)
        key = self.single.get((schema, epoch))
        if key is None:
            raise errors.KeyMissing(
                f"the dataset's keys that you were granted lack this schema in epoch {epoch}",
                hint="ask an owner of the organization whether the schema is shared with you",
            )
        return key


def seal_grant(
    roster: Roster,
    identity: Identity,
    actor: bytes,
    *,
    member: bytes,
    dataset: bytes,
    keys: Mapping[int, DatasetKey],
) -> form.Grant:
    """Seal the keys of the parts of a dataset that the roster lets a member read, up to the newest
    epoch.

    Args:
        identity: that of ``actor``, an owner.
        keys: the dataset's keys by epoch, from the oldest that is not forgotten.

    Raises:
        NotAllowed: ``owners_only``: the actor is not an owner; ``not_admitted``, or ``not_shared``:
            the roster lets the member read nothing.
        KeyMissing: one of the epochs is not in ``keys``, or the dataset has none.
        TooLarge: the grant exceeds a mebibyte.
    """
    require_owner(roster, actor)
    standing = require_member(roster, member, dataset)
    epoch = roster.epoch(dataset)
    if epoch is None:
        raise errors.KeyMissing(
            "the dataset has no keys yet",
            hint="create the dataset, or store a record in it, through an owner's proxy",
        )
    first = roster.first(dataset)
    wanted = range(first, epoch.epoch + 1)
    missing = [number for number in wanted if number not in keys]
    if missing:
        raise errors.KeyMissing(f"the dataset's key of epoch {missing[0]} is missing here")
    scope = standing.reads(dataset)
    if scope.whole:
        exported = [keys[number].export() for number in wanted]
        secrets = [_Secrets(form.WHOLE_DATASET, [], first, exported)]
    else:
        secrets = [
            _Secrets(
                schema, [], first, [keys[number].schema(schema).hand_over() for number in wanted]
            )
            for schema in sorted(scope.schemas)
        ]
    plain = _encoder.encode(secrets)
    if len(plain) > form.MAX_GRANT_BYTES - 4096:
        raise errors.TooLarge(
            "a grant of so many schemas and epochs is over the limit of a mebibyte"
        )
    body = form.GrantBody(
        form.FORMAT,
        roster.organization,
        dataset,
        epoch.epoch,
        member,
        roster.number,
        roster.head.digest,
        actor,
        b"",
    )
    sealed_to = roster.keys_of(standing)
    sealed = sealed_to.seal(plain, _info(body, sealed_to.digest))
    encoded = form.encode_grant_body(msgspec.structs.replace(body, sealed=sealed))
    return form.Grant(encoded, identity.sign("grant", encoded))


def open_grant(
    roster: Roster, identity: Identity, member: bytes, dataset: bytes, grant: form.Grant
) -> OpenedGrant:
    """Open the keys in a member's grant of a dataset.

    Args:
        identity: that of ``member``.

    Raises:
        GrantBroken: the grant was altered, is of another place, is not by an owner, or has other
            keys than the roster commits to; or it names an entry that this roster does not reach.
        Unsupported: it contains data that this version does not know.
    """
    try:
        body = form.read_grant(grant)
    except errors.Malformed:
        raise errors.GrantBroken("a grant is malformed") from None
    if (body.organization, body.dataset, body.member) != (roster.organization, dataset, member):
        raise errors.GrantBroken("a grant is of another organization, dataset or member")
    if roster.digest_at(body.number) != body.digest:
        raise errors.GrantBroken("a grant names a roster that is not this one")
    owner = roster.member(body.actor, body.number)
    if owner is None or not owner.owns:
        raise errors.GrantBroken("a grant was signed by somebody who was not an owner")
    if not roster.keys_of(owner).verifier.verify(grant.signature, form.grant_message(grant.body)):
        raise errors.GrantBroken("the signature of a grant is wrong")
    epochs = roster.epochs(dataset)
    if body.epoch > len(epochs) or body.number < epochs[body.epoch - 1].number:
        raise errors.GrantBroken("a grant is of an epoch that its roster does not have")
    if body.number < roster.forgot_at(dataset):
        raise errors.GrantBroken("a grant is older than the entry by which keys were forgotten")
    try:
        plain = identity.open(body.sealed, _info(body, identity.keys_digest))
    except errors.DoesNotOpen:
        raise errors.GrantBroken("a grant cannot be decrypted with this member's keys") from None
    return _read(roster, body, _decode(plain), epochs)


def _info(body: form.GrantBody, keys: bytes) -> bytes:
    return fmt.info(
        fmt.GRANT,
        body.organization,
        body.dataset,
        body.epoch.to_bytes(4, "big"),
        body.member,
        keys,
        body.number.to_bytes(8, "big"),
        body.digest,
        body.actor,
    )


def _decode(plain: bytes) -> list[_Secrets]:
    try:
        secrets = _decoder.decode(plain)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise errors.GrantBroken("the content of a grant is malformed") from None
    if any(secret.fields for secret in secrets):
        raise errors.Unsupported(
            "a grant is limited to single fields, which this version does not support",
            hint="use the newest version of encrypted-records",
        )
    if _encoder.encode(secrets) != plain or not secrets:
        raise errors.GrantBroken("the content of a grant is malformed")
    return secrets


def _read(
    roster: Roster, body: form.GrantBody, secrets: Sequence[_Secrets], epochs: Sequence[Epoch]
) -> OpenedGrant:
    organization, first = roster.organization, roster.first(body.dataset)
    by_epoch: dict[int, DatasetKey] = {}
    single: dict[tuple[bytes, int], SchemaKey] = {}
    if len({secret.schema for secret in secrets}) < len(secrets):
        raise errors.GrantBroken("a grant names a schema twice")
    for part in secrets:
        if part.first != first or part.first + len(part.keys) - 1 != body.epoch:
            raise errors.GrantBroken("a grant does not contain the epochs that it states")
        for epoch, secret in enumerate(part.keys, part.first):
            if part.schema == form.WHOLE_DATASET:
                key = DatasetKey(
                    secret, organization=organization, dataset=body.dataset, epoch=epoch
                )
                if not key.fits(epochs[epoch - 1].commitment):
                    raise errors.GrantBroken(
                        "a grant contains a key that does not match the roster"
                    )
                by_epoch[epoch] = key
            else:
                single[part.schema, epoch] = SchemaKey(
                    secret, organization=organization, schema=part.schema, version=epoch
                )
    return OpenedGrant(body.dataset, body.epoch, body.number, body.actor, by_epoch, single)


#: Faults of requests that their member did not make.
_FORGED = (RequestFault.SIGNATURE, RequestFault.ROSTER)


@dataclass(frozen=True, slots=True)
class StandingRequest:
    """A request that its member has signed and that is still valid.

    ``declined`` is when an owner declined it, in seconds since 1970, as stated by the API; 0 if not
    declined.
    """

    body: form.AccessRequestBody
    declined: int


@dataclass(frozen=True, slots=True)
class ReadRequests:
    """Valid requests, the oldest first, and the number of returned requests that no member of the
    roster has signed.
    """

    standing: list[StandingRequest]
    forged: int = 0


def make_request(
    roster: Roster, identity: Identity, member: bytes, dataset: bytes, right: int, now: int
) -> form.AccessRequest:
    """A request of ``member`` for a whole dataset, naming the roster's newest entry.

    Args:
        identity: that of ``member``.
        now: in seconds since 1970.
    """
    body = form.AccessRequestBody(
        form.FORMAT,
        roster.organization,
        dataset,
        member,
        form.WRITER if right == form.WRITER else form.READER,
        roster.number,
        roster.head.digest,
        now,
    )
    encoded = form.encode_request_body(body)
    return form.AccessRequest(encoded, identity.sign("request", encoded), 0)


def read_requests(roster: Roster, shown: Iterable[form.AccessRequest], now: int) -> ReadRequests:
    """The valid requests, at most one per member and dataset."""
    newest: dict[tuple[bytes, bytes], StandingRequest] = {}
    forged = 0
    for request in shown:
        try:
            body = form.read_request(request)
        except (errors.Malformed, errors.Unsupported):
            forged += 1
            continue
        fault = roster.judge_request(request, body, now)
        forged += fault in _FORGED
        if fault is not None:
            continue
        key = body.member, body.dataset
        known = newest.get(key)
        if known is None or (known.body.time, known.body.number) < (body.time, body.number):
            newest[key] = StandingRequest(body, request.declined)
    found = sorted(newest.values(), key=lambda request: (request.body.time, request.body.member))
    return ReadRequests(found, forged)

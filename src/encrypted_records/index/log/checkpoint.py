"""Make a checkpoint of a log that was verified, and take one that somebody else made.

A checkpoint spares a new reader the log before it (docs/SPEC.md, section 7.9). It is its signer's
word: who takes one looks at who that is now, and somebody compares it with the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from encrypted_records.crypto.log_keys import LogKeys
from encrypted_records.errors import (
    CheckpointBroken,
    KeyMissing,
    LogBroken,
    Malformed,
)
from encrypted_records.index.log.checkpoint_state import decode, encode
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.ledger_state import LedgerState
from encrypted_records.index.log.order import Begun, Head
from encrypted_records.index.log.signing import NO_MEMBER, Membership
from encrypted_records.model import checkpoints, wire
from encrypted_records.model.checkpoints import Checkpoint, CheckpointBody
from encrypted_records.model.records import LogEntry, ManifestDelta
from encrypted_records.model.roster import NO_DIGEST

#: For so long after its own time a request may be sent again, and a day more; in milliseconds.
REPEATED_MS = 2 * 86_400_000


def make(ledger: Ledger, state: LedgerState, requests_since: int) -> Checkpoint:
    """A checkpoint of a ledger that was verified from its beginning, signed.

    Args:
        state: what the ledger was; taken of it before, since it may go on meanwhile.
        requests_since: in milliseconds since 1970; requests before it are not named.

    Raises:
        Closed: the newest key is not here.
    """
    assert ledger.begun is None and state.order.begun is None, "who signs it has verified the log"
    key, by = ledger.keys.newest, ledger.membership
    roster, roster_digest, member = ledger.stated
    version = state.snapshot.version
    encoded = checkpoints.encode_body(
        CheckpointBody(
            format=1,
            schema=ledger.keys.schema,
            key_id=key.id,
            key_version=key.version,
            roster=roster,
            roster_digest=roster_digest,
            member=member,
            version=version,
            digest=state.order.digests[-1],
            state=encode(
                state,
                requests_since=requests_since,
                ends=_ends(state, ledger.keys.schema, by, roster),
            ),
        )
    )
    made = Checkpoint(encoded, key.checkpoint.compute(encoded), b"")
    if by is None:
        return made
    signature = by.identity.sign("checkpoint", checkpoints.digest_of(made))
    return Checkpoint(made.body, made.mac, signature)


def take(
    checkpoint: Checkpoint, keys: LogKeys, writer: bytes, membership: Membership | None, now: int
) -> Ledger:
    """The ledger that somebody says the log adds up to.

    Args:
        now: in milliseconds since 1970.
        writer: the ledger's own.
        membership: of the roster, read to its head.

    Raises:
        CheckpointBroken: it is not of this schema, of the newest keys, or by somebody who may write
            now; or is altered, or no state that a log can have.
        Closed: the newest key is not here, or one that the log began with.
    """
    body = _checked(checkpoint, keys, membership)
    begun = Begun(body.version, body.member, checkpoints.digest_of(checkpoint))
    kept = decode(body.state, body.version, body.digest, begun)
    if kept.order.requests_since > now - REPEATED_MS:
        raise CheckpointBroken("a checkpoint does not name the requests that may be repeated")
    if kept.order.roster > body.roster:
        raise CheckpointBroken("a checkpoint is of a newer log than the roster that it names")
    try:
        return Ledger.restore(keys, writer, kept, membership)
    except (LogBroken, KeyMissing) as error:
        raise CheckpointBroken(f"a checkpoint cannot be taken: {error.message}") from None


def read(checkpoint: Checkpoint) -> CheckpointBody:
    """What a checkpoint says, by itself.

    Raises:
        CheckpointBroken: it is of no form that this version knows.
    """
    try:
        return checkpoints.decode_body(checkpoint)
    except Malformed as error:
        raise CheckpointBroken(error.message) from None


def _checked(
    checkpoint: Checkpoint, keys: LogKeys, membership: Membership | None
) -> CheckpointBody:
    body, key = read(checkpoint), keys.newest
    if body.schema != keys.schema:
        raise CheckpointBroken("a checkpoint is of another schema")
    if (body.key_version, body.key_id) != (key.version, key.id):
        raise CheckpointBroken("a checkpoint is not of the newest keys")
    if not key.checkpoint.verify(checkpoint.mac, checkpoint.body):
        raise CheckpointBroken("a checkpoint is not authentic")
    if membership is None:
        named = (body.roster, body.roster_digest, body.member, checkpoint.signature)
        if named != (0, NO_DIGEST, NO_MEMBER, b""):
            raise CheckpointBroken("a checkpoint is signed, and the organization has no roster")
        return body
    roster = membership.roster
    if roster.digest_at(body.roster) != body.roster_digest:
        raise CheckpointBroken("a checkpoint names a roster that is not the organization's")
    signer = roster.member(body.member)
    if signer is None or not roster.may_write(body.member, keys.schema):
        raise CheckpointBroken("a checkpoint is by somebody who cannot write here")
    signed = checkpoints.signed_message(checkpoint)
    if not roster.keys_of(signer).verifier.verify(checkpoint.signature, signed):
        raise CheckpointBroken("the signature of a checkpoint is not right")
    return body


def prove_passage(ledger: Ledger, seen: Head, between: Sequence[LogEntry]) -> None:
    """Hash the commits between a head that is remembered and the checkpoint that a ledger begins
    with, so that the one is known to lead to the other.

    Args:
        between: all of them, in their order.

    Raises:
        CheckpointBroken: it does not.
    """
    digest = seen.digest
    for version, entry in enumerate(between, seen.version + 1):
        digest = wire.next_log_digest(digest, entry.commit)
        if entry.version != version or ledger.digest_at(version) not in (None, digest):
            raise CheckpointBroken("a checkpoint is not of the log that was seen")
    if Head(seen.version + len(between), digest) != ledger.head:
        raise CheckpointBroken("a checkpoint is not of the log that was seen")
    ledger.remember(seen)


def after(ledger: Ledger, deltas: Sequence[ManifestDelta]) -> list[ManifestDelta]:
    """Of the log, what comes after a ledger's version, with all that came beside it."""
    return [
        ManifestDelta(
            delta.schema,
            max(delta.version, ledger.version),
            delta.key_id,
            delta.definition,
            [entry for entry in delta.entries if entry.version > ledger.version],
            delta.headers,
        )
        for delta in deltas
    ]


def require_equal(claimed: Ledger, own: LedgerState) -> None:
    """Compare a ledger that began with a checkpoint with what one was at the same version that was
    verified from its beginning.

    Raises:
        CheckpointBroken: they differ, and the signer of the checkpoint has lied.
    """
    assert claimed.begun is not None and own.order.begun is None
    since = claimed.requests_since
    said, known = (encode(one, requests_since=since, ends={}) for one in (claimed.state(), own))
    if claimed.version != own.snapshot.version or said != known:
        raise CheckpointBroken(
            f"the checkpoint at version {claimed.begun.version} is not what the log adds up to"
        )


def _ends(
    state: LedgerState, schema: bytes, membership: Membership | None, number: int
) -> dict[int, bytes]:
    """Log digests at the versions at which the roster says, up to an entry, that the log stood."""
    if membership is None:
        return {}
    digests = state.order.digests
    every = (end for end in membership.roster.ends(schema) if end.number <= number)
    return {one.version: digests[one.version] for one in every if one.version < len(digests)}

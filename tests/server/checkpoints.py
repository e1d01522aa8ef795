"""Checkpoints of the right shape whose state means nothing: the API cannot tell."""

from __future__ import annotations

from typing import Any

import msgspec

from encrypted_records.model import ids, wire
from encrypted_records.model.wire import Checkpoint, CheckpointBody
from tests.server.rosters import Person
from tests.server.writer import Writer


def body_of(writer: Writer, **changes: Any) -> CheckpointBody:
    """One of where the log stands, as its writer knows it."""
    roster, digest, member = writer.stated
    body = CheckpointBody(
        format=1,
        schema=ids.from_text(writer.schema["id"]),
        key_id=writer.key_id,
        key_version=writer.key_version,
        roster=roster,
        roster_digest=digest,
        member=member,
        version=writer.seen,
        digest=writer.seen_digest,
        state=b"what it adds up to",
    )
    return msgspec.structs.replace(body, **changes)


def made(writer: Writer, signer: Person | None = None, **changes: Any) -> Checkpoint:
    bare = Checkpoint(wire.encode_checkpoint_body(body_of(writer, **changes)), bytes(32), b"")
    if signer is None:
        return bare
    signature = signer.identity.sign("checkpoint", wire.checkpoint_digest(bare))
    return msgspec.structs.replace(bare, signature=signature)

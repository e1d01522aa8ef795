"""Checkpoints: the state of a log at one version, by a member who has verified the log
(docs/SPEC.md, section 7.9).

The API reads the body but not the state in it; only proxies know what the state means.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from encrypted_records.errors import Malformed
from encrypted_records.model.records import U63, CommitSignature, Digest, KeyId, KeyVersion, Uid
from encrypted_records.model.signed import message

#: Of a body: what a reader must be ready to fetch and unpack.
MAX_CHECKPOINT_BYTES = 1 << 25


class Checkpoint(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The encoded :class:`CheckpointBody`, its HMAC, and the member's signature over both."""

    body: Annotated[bytes, Meta(max_length=MAX_CHECKPOINT_BYTES)]
    mac: Digest
    signature: CommitSignature


class CheckpointBody(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``version`` and ``digest`` are the log's, ``state`` is what it adds up to; the others are as
    in a commit: which key authenticates it, which roster ``member`` had read."""

    format: Literal[1]
    schema: Uid
    key_id: KeyId
    key_version: KeyVersion
    roster: U63
    roster_digest: Digest
    member: Uid
    version: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    digest: Digest
    state: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(CheckpointBody)


def encode_body(body: CheckpointBody) -> bytes:
    return _encoder.encode(body)


def decode_body(checkpoint: Checkpoint) -> CheckpointBody:
    """The content of a checkpoint. The caller checks HMAC and signature.

    Raises:
        Malformed: not a checkpoint of this version.
    """
    try:
        return _decoder.decode(checkpoint.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise Malformed("a checkpoint is not of this format", code="malformed_frame") from None


def digest_of(checkpoint: Checkpoint) -> bytes:
    """32 bytes that name a checkpoint: SHA-256 over body and HMAC."""
    return hashlib.sha256(checkpoint.body + checkpoint.mac).digest()


def signed_message(checkpoint: Checkpoint) -> bytes:
    """The message that the signature is over."""
    return message("checkpoint", digest_of(checkpoint))

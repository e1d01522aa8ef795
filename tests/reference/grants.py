"""Section 15.5: grants, made and opened."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.reference import Refused, hpke
from tests.reference.definitions import u32
from tests.reference.identity import Identity, commitment, is_signed, sign
from tests.reference.keys import info
from tests.reference.msgpack import pack, unpack
from tests.reference.roster import Roster

#: A body as the specification lists it, with ``sealed`` last.
Body = list[Any]


def context(body: Body, keys: bytes) -> bytes:
    _, organization, dataset, epoch, member, number, digest, actor, _ = body
    return info(
        b"grant",
        organization,
        dataset,
        u32(epoch),
        member,
        hashlib.sha256(keys).digest(),
        int(number).to_bytes(8, "big"),
        digest,
        actor,
    )


def seal(
    body: Body,
    secrets: bytes,
    *,
    receiver: bytes,
    signer: Identity,
    mlkem: tuple[bytes, bytes],
    ephemeral: bytes,
) -> tuple[bytes, bytes]:
    """The grant: body and signature."""
    sealed = hpke.seal(
        secrets,
        context(body, receiver),
        mlkem=mlkem,
        ephemeral=ephemeral,
        x25519=receiver[33:65],
    )
    encoded = pack([*body[:8], sealed])
    return encoded, sign(signer.sign, "grant", encoded)


def broken() -> Refused:
    return Refused("grant_broken")


def open_grant(
    roster: Roster, own: Identity, member: bytes, dataset: bytes, grant: tuple[bytes, bytes]
) -> dict[tuple[bytes, int], bytes]:
    """The keys by schema (16 zero bytes for D) and epoch."""
    encoded, signature = grant
    try:
        body = unpack(encoded)
    except ValueError:
        raise broken() from None
    if isinstance(body, list) and body and isinstance(body[0], int) and body[0] > 1:
        raise Refused("unsupported")
    sizes = [None, 16, 16, None, 16, None, 32, 16, None]
    if not isinstance(body, list) or len(body) != 9 or body[0] != 1:
        raise broken()
    for part, size in zip(body, sizes, strict=True):
        if size is not None and (not isinstance(part, bytes) or len(part) != size):
            raise broken()
    _, organization, of, epoch, whose, number, digest, actor, sealed = body
    if not isinstance(epoch, int) or not isinstance(number, int) or not isinstance(sealed, bytes):
        raise broken()
    if (organization, of, whose) != (roster.organization, dataset, member):
        raise broken()
    if not 0 < number < len(roster.digests) or roster.digests[number] != digest:
        raise broken()
    owner = roster.states[number].members.get(actor)
    if owner is None or not owner["present"] or owner["role"] != 1:
        raise broken()
    if not is_signed(owner["keys"][1:33], "grant", encoded, signature):
        raise broken()
    begun = roster.states[number].epochs.get(dataset, [])
    if not 1 <= epoch <= len(begun):
        raise broken()
    oldest, since = roster.states[-1].forgotten.get(dataset, (1, 0))
    if number < since:
        raise broken()
    try:
        plain = hpke.open_sealed(
            sealed, context(body, own.keys), mlkem=own.mlkem, x25519=own.x25519
        )
    except Refused:
        raise broken() from None
    return _secrets(plain, organization, dataset, range(oldest, epoch + 1), begun)


def _secrets(
    plain: bytes, organization: bytes, dataset: bytes, epochs: range, commitments: list[bytes]
) -> dict[tuple[bytes, int], bytes]:
    try:
        secrets = unpack(plain)
    except ValueError:
        raise broken() from None
    if not isinstance(secrets, list) or not secrets:
        raise broken()
    found: dict[tuple[bytes, int], bytes] = {}
    for secret in secrets:
        if not isinstance(secret, list) or len(secret) != 4 or not isinstance(secret[1], list):
            raise broken()
        schema, fields, first, keys = secret
        if fields:
            raise Refused("unsupported")
        if not isinstance(schema, bytes) or len(schema) != 16 or not isinstance(keys, list):
            raise broken()
        if first != epochs.start or len(keys) != len(epochs):
            raise broken()
        for at, key in enumerate(keys, first):
            if not isinstance(key, bytes) or len(key) != 32 or (schema, at) in found:
                raise broken()
            own = commitment(key, organization, dataset, at)
            if schema == bytes(16) and own != commitments[at - 1]:
                raise broken()
            found[schema, at] = key
    return found

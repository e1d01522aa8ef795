"""Section 14: what a proxy keeps of a log."""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.reference import Refused, does_not_open
from tests.reference.definitions import u32
from tests.reference.keys import Schema


def write(schema: Schema, user: bytes, nonce: bytes, plain: bytes) -> bytes:
    head = b"\x01" + u32(schema.kv)
    context = head + user + schema.organization + schema.schema
    return head + nonce + AESGCM(schema.ledger).encrypt(nonce, plain, context)


def read(schemas: list[Schema], user: bytes, sealed: bytes) -> bytes:
    """The plaintext; ``schemas`` are one schema under each version of the keyring."""
    if len(sealed) < 17 or sealed[0] != 1:
        raise Refused("malformed")
    kv = int.from_bytes(sealed[1:5], "big")
    found = [schema for schema in schemas if schema.kv == kv]
    if not found:
        raise Refused("key_missing")
    context = sealed[:5] + user + found[0].organization + found[0].schema
    try:
        return AESGCM(found[0].ledger).decrypt(sealed[5:17], sealed[17:], context)
    except (InvalidTag, ValueError):
        raise does_not_open() from None

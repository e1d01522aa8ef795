"""What a proxy keeps of a log, sealed under fixed nonces, and what does not open in its place."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.reference import kept as ref
from tests.reference import keys
from tests.vectors.cases import ORGANIZATION, RECORDS, ROOT, SCHEMA

USER, OTHER = RECORDS[0], RECORDS[1]
NONCE = hashlib.sha256(b"kept log").digest()[:12]
ROOTS = {1: ROOT, 2: hashlib.sha256(b"second root").digest()}
PLAIN = b"what a log adds up to"


def schema(kv: int, place: tuple[bytes, bytes] = (ORGANIZATION, SCHEMA)) -> keys.Schema:
    return keys.schema(ROOTS[kv], *place, kv)


def ledgers() -> dict[str, Any]:
    return {
        "roots": {str(kv): root.hex() for kv, root in ROOTS.items()},
        "user": USER.hex(),
        "organization": ORGANIZATION.hex(),
        "schema": SCHEMA.hex(),
        "nonce": NONCE.hex(),
        "good": [_good(1, PLAIN), _good(2, PLAIN), _good(2, b"")],
        "bad": _bad(ref.write(schema(2), USER, NONCE, PLAIN)),
    }


def _good(kv: int, plain: bytes) -> dict[str, Any]:
    sealed = ref.write(schema(kv), USER, NONCE, plain)
    return {
        "kv": kv,
        "K_ledger": schema(kv).ledger.hex(),
        "plain": plain.hex(),
        "sealed": sealed.hex(),
    }


def _bad(sealed: bytes) -> list[dict[str, Any]]:
    closed, malformed = "does_not_open", "malformed"
    elsewhere = [(OTHER, SCHEMA), (ORGANIZATION, OTHER)]
    wrong = [
        ("empty", b"", malformed),
        ("cut short in its nonce", sealed[:16], malformed),
        ("cut short before its tag", sealed[:17], closed),
        ("cut short by a byte", sealed[:-1], closed),
        ("a later version", b"\x02" + sealed[1:], malformed),
        ("read under another version of the keyring", sealed[:4] + b"\x01" + sealed[5:], closed),
        (
            "under a version that the keyring lacks",
            sealed[:4] + b"\x03" + sealed[5:],
            "key_missing",
        ),
        ("a nonce altered", _flipped(sealed, 5), closed),
        ("a ciphertext altered", _flipped(sealed, 17), closed),
        ("a tag altered", _flipped(sealed, len(sealed) - 1), closed),
        ("of another user", ref.write(schema(2), OTHER, NONCE, PLAIN), closed),
        ("of another organization", ref.write(schema(2, elsewhere[0]), USER, NONCE, PLAIN), closed),
        ("of another schema", ref.write(schema(2, elsewhere[1]), USER, NONCE, PLAIN), closed),
    ]
    return [{"why": why, "sealed": one.hex(), "error": error} for why, one, error in wrong]


def _flipped(sealed: bytes, at: int) -> bytes:
    return sealed[:at] + bytes((sealed[at] ^ 0x40,)) + sealed[at + 1 :]

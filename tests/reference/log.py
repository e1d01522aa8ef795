"""Section 7: frames, commits, digests of the log. Section 8: the keyring file."""

from __future__ import annotations

import hashlib
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.reference import Refused, does_not_open
from tests.reference.definitions import u32
from tests.reference.keys import mac
from tests.reference.msgpack import pack

COMMIT, ROW_BATCH, PAGE = 1, 2, 3
EMPTY_LOG = bytes(32)

_MAGIC = b"ERSKEYRING"


def frames(*items: tuple[int, list[Any]]) -> bytes:
    """A body of (kind, struct) pairs."""
    body = b"ERS1"
    for kind, struct in items:
        payload = pack(struct)
        body += bytes((kind,)) + u32(len(payload)) + payload
    return body


def content(batches: list[list[Any]], pages: list[list[Any]]) -> bytes:
    body = frames(*((ROW_BATCH, batch) for batch in batches), *((PAGE, page) for page in pages))
    return hashlib.sha256(body).digest()


def commit_mac(log_key: bytes, body: bytes) -> bytes:
    return mac(log_key, body)


def commit_digest(body: bytes, hmac: bytes) -> bytes:
    return hashlib.sha256(body + hmac).digest()


def next_log_digest(before: bytes, digest: bytes) -> bytes:
    return hashlib.sha256(before + digest).digest()


def wrap(roots: dict[int, bytes], machine_key: bytes, owner: bytes, nonce: bytes) -> bytes:
    head = _MAGIC + b"\x01\x01" + nonce
    plain = b"".join(u32(kv) + roots[kv] for kv in sorted(roots))
    return head + AESGCM(machine_key).encrypt(nonce, plain, head + owner)


def unwrap(file: bytes, machine_key: bytes, owner: bytes) -> dict[int, bytes]:
    head, sealed = file[:24], file[24:]
    if len(head) < 24 or head[:10] != _MAGIC or head[10:12] != b"\x01\x01":
        raise Refused("unsupported")
    try:
        plain = AESGCM(machine_key).decrypt(head[12:], sealed, head + owner)
    except InvalidTag:
        raise does_not_open() from None
    if not plain or len(plain) % 36:
        raise does_not_open()
    entries = [plain[at : at + 36] for at in range(0, len(plain), 36)]
    return {int.from_bytes(entry[:4], "big"): entry[4:] for entry in entries}

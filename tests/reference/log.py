"""Section 7: frames, commits, digests of the log."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.reference.definitions import u32
from tests.reference.keys import mac
from tests.reference.msgpack import pack

COMMIT, ROW_BATCH, PAGE = 1, 2, 3
SEGMENT_HEADER, GROUP_SALT = 13, 14
EMPTY_LOG = bytes(32)
#: roster, its digest, and member, where there is no roster
UNSIGNED = (0, bytes(32), bytes(16))


def frames(*items: tuple[int, list[Any]]) -> bytes:
    """A body of (kind, struct) pairs."""
    body = b"ERS1"
    for kind, struct in items:
        payload = pack(struct)
        body += bytes((kind,)) + u32(len(payload)) + payload
    return body


def commit_mac(log_key: bytes, body: bytes) -> bytes:
    return mac(log_key, body)


def commit_digest(body: bytes, hmac: bytes) -> bytes:
    return hashlib.sha256(body + hmac).digest()


def next_log_digest(before: bytes, digest: bytes) -> bytes:
    return hashlib.sha256(before + digest).digest()

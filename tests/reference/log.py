"""Section 7: frames, commits, digests of the log."""

from __future__ import annotations

import hashlib
from typing import Any

from tests.reference.definitions import u32
from tests.reference.keys import mac
from tests.reference.msgpack import pack

COMMIT, ROW_BATCH, PAGE = 1, 2, 3
EMPTY_LOG = bytes(32)


def frames(*items: tuple[int, list[Any]]) -> bytes:
    """A body of (kind, struct) pairs."""
    body = b"ERS1"
    for kind, struct in items:
        payload = pack(struct)
        body += bytes((kind,)) + u32(len(payload)) + payload
    return body


def content(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def part(batches: list[list[Any]], pages: list[list[Any]]) -> bytes:
    body = frames(*((ROW_BATCH, batch) for batch in batches), *((PAGE, page) for page in pages))
    return hashlib.sha256(body).digest()


def commit_mac(log_key: bytes, body: bytes) -> bytes:
    return mac(log_key, body)


def commit_digest(body: bytes, hmac: bytes) -> bytes:
    return hashlib.sha256(body + hmac).digest()


def next_log_digest(before: bytes, digest: bytes) -> bytes:
    return hashlib.sha256(before + digest).digest()

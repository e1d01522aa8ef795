"""Section 7.2.1: salted digests of rows and pages."""

from __future__ import annotations

import hashlib

from tests.reference.definitions import u32
from tests.reference.msgpack import pack

HOLE = bytes(32)


def row(salt: bytes, record: bytes, version: int, sealed: list[bytes]) -> bytes:
    return hashlib.sha256(salt + record + u32(version) + pack(sealed)).digest()


def rows(digests: list[bytes]) -> bytes:
    """A group's ``rows``, from the digests of its rows, of which some may be holes."""
    runs = [
        hashlib.sha256(b"".join(digests[at : at + 64])).digest()
        for at in range(0, len(digests), 64)
    ]
    return hashlib.sha256(b"".join(runs)).digest()


def group(salt: bytes, sealed: list[tuple[bytes, int, list[bytes]]]) -> bytes:
    return rows([row(salt, *one) for one in sealed])


def segment(salt: bytes, header: bytes, pages: list[bytes]) -> bytes:
    every = b"".join(hashlib.sha256(page).digest() for page in pages)
    return hashlib.sha256(salt + hashlib.sha256(header).digest() + every).digest()

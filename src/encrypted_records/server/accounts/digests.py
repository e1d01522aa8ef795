"""Digests of secrets that give access: the database stores only their SHA-256.

A reader of the database, or of a copy, can check a presented secret against a digest, but cannot
produce a secret: secrets are random and too long to be guessed. Therefore a plain hash is
sufficient here, whereas a password needs a slow one.
"""

from __future__ import annotations

import hashlib
import secrets

BYTES = 32


def new_secret() -> str:
    """32 random bytes, as 43 letters, digits, ``-`` and ``_``."""
    return secrets.token_urlsafe(BYTES)


def digest(secret: object) -> bytes:
    """The SHA-256 of a secret, 32 bytes, as the database holds it; of text that UTF-8 cannot hold,
    a digest that it never holds.
    """
    if not isinstance(secret, str) or not secret:
        return b""
    # A text that somebody sends may hold halves of surrogate pairs, which have no UTF-8.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()

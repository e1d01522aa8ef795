"""Verify signatures of members: the one thing that the API does with ``cryptography``.

It holds no key and opens nothing. What it verifies keeps those out who have no key of a member;
proxies believe none of it, and verify for themselves. Contracts in ``pyproject.toml`` and
tests/server/test_signatures.py let nobody else on this side import that library, and nothing of it
but what verifies.
"""

from __future__ import annotations

from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from encrypted_records.model import public_keys


def is_right(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether ``signature`` (64 bytes) is over ``message`` by the Ed25519 key of these 32 bytes.

    It is not by a key that makes every signature right, whatever the library says of that one.
    """
    loaded = _load(key)
    if loaded is None:
        return False
    try:
        loaded.verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=1024)
def _load(key: bytes) -> Ed25519PublicKey | None:
    """The key of these bytes; None of such as nobody may have. Members sign many times."""
    if len(key) != public_keys.SIGN_BYTES or not public_keys.signs_alone(key):
        return None
    try:
        return Ed25519PublicKey.from_public_bytes(key)
    except ValueError:
        return None


def is_by(keys: bytes, signature: bytes, message: bytes) -> bool:
    """The same of a member's public keys, 1,249 bytes."""
    parts = public_keys.split(keys)
    return parts is not None and is_right(parts.sign, signature, message)

"""Verify signatures of members: the only use of ``cryptography`` in the API.

This module has only public keys and decrypts nothing. Its verification keeps out clients without a
member's key; proxies do not rely on it, and verify for themselves. Contracts in ``pyproject.toml``
and tests/server/test_signatures.py forbid other modules of the API to import that library, and this
module to import anything but verification from it.
"""

from __future__ import annotations

from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from encrypted_records.model import signatures


def is_right(key: bytes, signature: bytes, message: bytes) -> bool:
    """Whether ``signature`` (64 bytes) is a valid signature of ``message`` by this Ed25519 key (32
    bytes).

    Never true for a key that makes every signature valid, whatever the library says.
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
    """Load a public key; None if the key is unacceptable. Results are cached, because members sign
    many times.
    """
    if len(key) != signatures.SIGN_BYTES or not signatures.signs_alone(key):
        return None
    try:
        return Ed25519PublicKey.from_public_bytes(key)
    except ValueError:
        return None


def is_by(keys: bytes, signature: bytes, message: bytes) -> bool:
    """The same for a member's public keys, 1,249 bytes."""
    parts = signatures.split_keys(keys)
    return parts is not None and is_right(parts.sign, signature, message)

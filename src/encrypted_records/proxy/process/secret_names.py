"""Names for secrets: what is remembered about a credential is kept under its HMAC."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from cryptography.hazmat.primitives import hashes, hmac

from encrypted_records import runtime


class SecretNames:
    """The key is made by this process and never leaves it."""

    def __init__(self) -> None:
        self._key = runtime.random_bytes(32)

    def of(self, parts: Sequence[str]) -> bytes:
        """The name of a secret that has these parts: 32 bytes."""
        state = hmac.HMAC(self._key, hashes.SHA256())
        state.update(msgspec.msgpack.encode(parts))
        return state.finalize()

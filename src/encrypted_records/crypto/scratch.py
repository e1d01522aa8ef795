"""Seal what one process writes to a file and reads back (docs/SPEC.md, section 11.1).

The key is in the memory of that process alone and goes with it, so that nobody can open the file
afterwards, whatever is left of it on the disk.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from encrypted_records.errors import DoesNotOpen

_KEY_BITS = 256
_NONCE_BYTES = 12


class ScratchKey:
    """A key that is drawn now. The caller seals one thing under each number, and one only."""

    def __init__(self) -> None:
        self._cipher = AESGCM(AESGCM.generate_key(_KEY_BITS))

    def seal(self, number: int, plain: bytes) -> bytes:
        return self._cipher.encrypt(number.to_bytes(_NONCE_BYTES, "big"), plain, None)

    def open(self, number: int, sealed: bytes) -> bytes:
        """
        Raises:
            DoesNotOpen: it is not what was sealed under this number.
        """
        try:
            return self._cipher.decrypt(number.to_bytes(_NONCE_BYTES, "big"), sealed, None)
        except InvalidTag:
            raise DoesNotOpen("the disk has other bytes than were written to it") from None

"""The base of every key: 32 bytes that do not print, a MAC, a cipher."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from cryptography.utils import Buffer

from encrypted_records.crypto import format as fmt
from encrypted_records.errors import DoesNotOpen


class Secret:
    """32 secret bytes that neither ``repr`` nor pickling gives away."""

    __slots__ = ("__dict__", "_secret")

    def __init__(self, secret: bytes) -> None:
        if len(secret) != fmt.KEY_BYTES:
            raise ValueError("a key has 32 bytes")
        self._secret: Final = secret

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> str:
        raise TypeError("keys are not pickled")

    def _derive(self, *parts: bytes, length: int = fmt.KEY_BYTES) -> bytes:
        expand = HKDFExpand(algorithm=hashes.SHA256(), length=length, info=fmt.info(*parts))
        return expand.derive(self._secret)


class Mac(Secret):
    def compute(self, *parts: bytes) -> bytes:
        state = hmac.HMAC(self._secret, hashes.SHA256())
        for part in parts:
            state.update(part)
        return state.finalize()

    def verify(self, tag: bytes, *parts: bytes) -> bool:
        """Compare in constant time."""
        state = hmac.HMAC(self._secret, hashes.SHA256())
        for part in parts:
            state.update(part)
        try:
            state.verify(tag)
        except InvalidSignature:
            return False
        return True


class Cipher(Secret):
    @cached_property
    def _aead(self) -> AESGCM:
        # A fresh AESGCM object per message costs half of the sealing rate.
        return AESGCM(self._secret)

    def encrypt(self, nonce: bytes, plain: bytes, context: bytes) -> bytes:
        """AES-256-GCM: ciphertext and 16-byte tag. The caller answers for the nonce."""
        return self._aead.encrypt(nonce, plain, context)

    def encrypt_into(self, nonce: bytes, plain: Buffer, context: bytes, out: memoryview) -> int:
        """Encrypt into the first bytes of ``out``, and return their number; see :meth:`encrypt`."""
        return self._aead.encrypt_into(nonce, plain, context, out)

    def decrypt(self, nonce: bytes, sealed: bytes, context: bytes) -> bytes:
        """Undo :meth:`encrypt`.

        Raises:
            DoesNotOpen: altered, of another place, or of another key.
        """
        try:
            return self._aead.decrypt(nonce, sealed, context)
        except (InvalidTag, ValueError):
            raise DoesNotOpen("a ciphertext cannot be decrypted") from None

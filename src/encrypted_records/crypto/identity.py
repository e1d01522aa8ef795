"""A member's identity in an organization: signing keys, decryption keys, and their public halves.

An identity is derived from a keyring's root key, so it needs no file. It signs only messages of the
kinds of :mod:`encrypted_records.model.signatures`, and opens data that was sealed to it by HPKE
(RFC 9180). The KEM is ML-KEM-768 with X25519, because the API stores grants for years
(docs/SPEC.md, section 15).
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Final

from cryptography.exceptions import InvalidSignature, InvalidTag

# Imported early: otherwise the first X25519 key loads it, which delays a user's first request.
from cryptography.hazmat.backends.openssl import backend as _backend  # noqa: F401
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from encrypted_records.errors import DoesNotOpen, KeysRefused
from encrypted_records.model import signatures
from encrypted_records.model.signatures import KeyParts, SignedKind, message

_SUITE: Final = hpke.Suite(hpke.KEM.MLKEM768_X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)


class Verifier:
    """A public key that checks signatures."""

    def __init__(self, key: bytes) -> None:
        """
        Args:
            key: an Ed25519 point, 32 bytes.

        Raises:
            KeysRefused: of small order, in a spelling that RFC 8032 does not allow, or not a key.
        """
        if not signatures.signs_alone(key):
            raise KeysRefused("a key to verify with is one under which anybody could sign")
        try:
            self._key: Final = Ed25519PublicKey.from_public_bytes(key)
        except ValueError:
            raise KeysRefused("a key to verify with does not load") from None

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Whether ``signature`` is valid for ``message``, which names its kind
        (:func:`encrypted_records.model.signatures.message`).
        """
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


class MemberKeys:
    """The public keys of a member, loaded."""

    def __init__(self, raw: bytes) -> None:
        """
        Args:
            raw: ``u8(1) || Ed25519 || X25519 || ML-KEM-768``, 1,249 bytes.

        Raises:
            KeysRefused: the keys do not load, nothing can be sealed to them, or anyone could sign
                with them.
        """
        parts = signatures.split_keys(raw)
        if parts is None:
            raise KeysRefused("public keys are of another length or format")
        self.raw: Final = raw
        self.parts: Final[KeyParts] = parts
        self.verifier: Final = Verifier(parts.sign)
        # Sealing would refuse it, too; this check needs only the bytes, not an exchange.
        if not signatures.agrees_alone(parts.x25519):
            raise KeysRefused("nothing can be encrypted to these public keys")
        try:
            agreed = X25519PublicKey.from_public_bytes(parts.x25519)
            self._sealing = hpke.MLKEM768X25519PublicKey(
                MLKEM768PublicKey.from_public_bytes(parts.mlkem), agreed
            )
        except ValueError:
            raise KeysRefused("nothing can be encrypted to these public keys") from None

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the public keys."""
        return hashlib.sha256(self.raw).digest()

    def seal(self, plain: bytes, info: bytes) -> bytes:
        """Encrypt ``plain`` for the holder of the private keys; adds 1,136 bytes.

        Args:
            info: the purpose; the ciphertext opens only with the same ``info``.
        """
        return _SUITE.encrypt(plain, self._sealing, info=info)


class Signer:
    """An Ed25519 private key, which signs messages that name their kind."""

    def __init__(self, seed: bytes) -> None:
        self._key: Final = Ed25519PrivateKey.from_private_bytes(seed)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> str:
        raise TypeError("keys are not pickled")

    @cached_property
    def public(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def sign(self, kind: SignedKind, *parts: bytes) -> bytes:
        """A 64-byte signature over the joined ``parts``."""
        return self._key.sign(message(kind, *parts))


class Identity(Signer):
    """The private keys of one member in one organization, under one version of a keyring."""

    def __init__(self, sign: bytes, x25519: bytes, mlkem: bytes) -> None:
        """
        Args:
            sign: the seed of an Ed25519 key, 32 bytes.
            x25519: a private key, 32 bytes.
            mlkem: the seed of an ML-KEM-768 key, 64 bytes.
        """
        super().__init__(sign)
        self._mlkem = MLKEM768PrivateKey.from_seed_bytes(mlkem)
        self._x25519 = X25519PrivateKey.from_private_bytes(x25519)
        self._opening = hpke.MLKEM768X25519PrivateKey(self._mlkem, self._x25519)

    @cached_property
    def keys(self) -> bytes:
        """The public keys, 1,249 bytes."""
        x25519 = self._x25519.public_key().public_bytes_raw()
        mlkem = self._mlkem.public_key().public_bytes_raw()
        return signatures.join_keys(KeyParts(self.public, x25519, mlkem))

    @cached_property
    def keys_digest(self) -> bytes:
        """SHA-256 of the public keys."""
        return hashlib.sha256(self.keys).digest()

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """Undo :meth:`MemberKeys.seal` to :attr:`keys`.

        Raises:
            DoesNotOpen: the ciphertext was altered, or was sealed for another purpose or another
                member.
        """
        try:
            return _SUITE.decrypt(sealed, self._opening, info=info)
        except (InvalidTag, ValueError):
            raise DoesNotOpen("a message to a member cannot be decrypted") from None

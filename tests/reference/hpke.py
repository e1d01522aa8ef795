"""Section 15.2: HPKE, written from RFC 9180, and the combiner of X-Wing from its draft.

Base mode, one message, no associated data. KEM 0x647A, KDF 0x0001, AEAD 0x0002. Only ML-KEM-768,
X25519 and AES-256-GCM are taken from a library.
"""

from __future__ import annotations

import hashlib
import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.reference import does_not_open

_KEM, _KDF, _AEAD = 0x647A, 0x0001, 0x0002
_SUITE = b"HPKE" + b"".join(one.to_bytes(2, "big") for one in (_KEM, _KDF, _AEAD))
#: draft-connolly-cfrg-xwing-kem, section 5.3
_XWING_LABEL = bytes.fromhex("5c2e2f2f5e5c")
_MLKEM_CIPHERTEXT, _SHARE = 1088, 32


def extract(salt: bytes, secret: bytes) -> bytes:
    """RFC 5869, section 2.2."""
    return hmac.new(salt or bytes(32), secret, hashlib.sha256).digest()


def expand(key: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869, section 2.3."""
    made, block = b"", b""
    while len(made) < length:
        block = hmac.new(key, block + info + bytes((len(made) // 32 + 1,)), hashlib.sha256).digest()
        made += block
    return made[:length]


def _labeled_extract(salt: bytes, label: bytes, secret: bytes) -> bytes:
    return extract(salt, b"HPKE-v1" + _SUITE + label + secret)


def _labeled_expand(key: bytes, label: bytes, info: bytes, length: int) -> bytes:
    labeled = length.to_bytes(2, "big") + b"HPKE-v1" + _SUITE + label + info
    return expand(key, labeled, length)


def _cipher(shared: bytes, info: bytes) -> tuple[AESGCM, bytes]:
    """RFC 9180, section 5.1: the key schedule in base mode, and the nonce of the first message."""
    context = (
        b"\x00"
        + _labeled_extract(b"", b"psk_id_hash", b"")
        + _labeled_extract(b"", b"info_hash", info)
    )
    secret = _labeled_extract(shared, b"secret", b"")
    key = _labeled_expand(secret, b"key", context, 32)
    return AESGCM(key), _labeled_expand(secret, b"base_nonce", context, 12)


def combine(of_mlkem: bytes, of_x25519: bytes, share: bytes, x25519: bytes) -> bytes:
    """The shared secret of X-Wing."""
    joined = of_mlkem + of_x25519 + share + x25519 + _XWING_LABEL
    return hashlib.sha3_256(joined).digest()


def seal(
    plain: bytes,
    info: bytes,
    *,
    mlkem: tuple[bytes, bytes],
    ephemeral: bytes,
    x25519: bytes,
) -> bytes:
    """
    Args:
        mlkem: an ML-KEM ciphertext to the receiver, and its shared secret.
        ephemeral: the private key of the share.
        x25519: the receiver's public key.
    """
    own = X25519PrivateKey.from_private_bytes(ephemeral)
    share = own.public_key().public_bytes_raw()
    agreed = own.exchange(X25519PublicKey.from_public_bytes(x25519))
    cipher, nonce = _cipher(combine(mlkem[1], agreed, share, x25519), info)
    return mlkem[0] + share + cipher.encrypt(nonce, plain, b"")


def open_sealed(sealed: bytes, info: bytes, *, mlkem: bytes, x25519: bytes) -> bytes:
    """
    Args:
        mlkem: the seed of the receiver's ML-KEM key, 64 bytes.
        x25519: the receiver's private key.
    """
    ciphertext, share = sealed[:_MLKEM_CIPHERTEXT], sealed[_MLKEM_CIPHERTEXT:][:_SHARE]
    own = X25519PrivateKey.from_private_bytes(x25519)
    try:
        of_mlkem = MLKEM768PrivateKey.from_seed_bytes(mlkem).decapsulate(ciphertext)
        agreed = own.exchange(X25519PublicKey.from_public_bytes(share))
        shared = combine(of_mlkem, agreed, share, own.public_key().public_bytes_raw())
        cipher, nonce = _cipher(shared, info)
        return cipher.decrypt(nonce, sealed[_MLKEM_CIPHERTEXT + _SHARE :], b"")
    except (ValueError, InvalidTag):
        raise does_not_open() from None

"""The public keys of a member, as bytes: what they are made of, and which are refused unloaded.

``u8(1) || Ed25519 (32) || X25519 (32) || ML-KEM-768 (1184)`` (docs/SPEC.md, section 15.1).
"""

from __future__ import annotations

from typing import NamedTuple

FORMAT = 1
SIGN_BYTES = 32
X25519_BYTES = 32
MLKEM_BYTES = 1184
PUBLIC_KEYS_BYTES = 1 + SIGN_BYTES + X25519_BYTES + MLKEM_BYTES

#: The prime of Curve25519.
_P = 2**255 - 19
#: The y of every Ed25519 point whose order divides 8.
_SMALL_ORDER_Y = frozenset(
    {
        0,
        1,
        _P - 1,
        0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
        0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
    }
)


class KeyParts(NamedTuple):
    """The three public keys of one member."""

    sign: bytes
    x25519: bytes
    mlkem: bytes


def split(keys: bytes) -> KeyParts | None:
    """The parts of ``keys``; None where they are of another length or format."""
    if len(keys) != PUBLIC_KEYS_BYTES or keys[0] != FORMAT:
        return None
    at = 1 + SIGN_BYTES
    return KeyParts(keys[1:at], keys[at : at + X25519_BYTES], keys[at + X25519_BYTES :])


def join(parts: KeyParts) -> bytes:
    """Undo :func:`split`."""
    return bytes((FORMAT,)) + parts.sign + parts.x25519 + parts.mlkem


def signs_alone(point: bytes) -> bool:
    """Whether an encoded Ed25519 point is one that can stand for a signer.

    A point of small order makes every signature right that has a fitting first half, also in
    OpenSSL; so does one of the encodings that RFC 8032 does not allow, with a y of 2**255 - 19 or
    more. Neither is ever the key of anybody.
    """
    y = int.from_bytes(point, "little") & (2**255 - 1)
    return y < _P and y not in _SMALL_ORDER_Y

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
#: The prime of ML-KEM, and how many bytes of a key its coefficients are.
_Q = 3329
_COEFFICIENT_BYTES = 1152
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
#: The u of every X25519 point, of the curve and of its twist, whose order divides 8.
_SMALL_ORDER_U = frozenset(
    {
        0,
        1,
        _P - 1,
        0x00B8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0,
        0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F,
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


def agrees_alone(point: bytes) -> bool:
    """Whether an encoded X25519 point is one that can stand for who is sealed to.

    With a point of small order every exchange gives zeros, which everybody knows; RFC 7748 has an
    encoding taken modulo the prime, with its highest bit left out.
    """
    u = (int.from_bytes(point, "little") & (2**255 - 1)) % _P
    return u not in _SMALL_ORDER_U


def are_refused(keys: bytes) -> bool:
    """Whether public keys are unacceptable: they have another length or format, anyone could sign
    under them, or nothing can be sealed to them.
    """
    parts = split(keys)
    return parts is None or not (
        signs_alone(parts.sign) and agrees_alone(parts.x25519) and is_reduced(parts.mlkem)
    )


def is_reduced(key: bytes) -> bool:
    """Whether each of the 768 coefficients of an ML-KEM-768 key, of twelve bits, is below the
    prime: the modulus check of FIPS 203, section 7.2."""
    packed = key[:_COEFFICIENT_BYTES]
    return all(
        low | (middle & 15) << 8 < _Q and middle >> 4 | high << 4 < _Q
        for low, middle, high in zip(packed[::3], packed[1::3], packed[2::3], strict=True)
    )

"""Sections 15.1 to 15.3: identities, public keys, signatures, keys of datasets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from tests.reference import Refused, hpke
from tests.reference.definitions import u32
from tests.reference.keys import Schema, expand, info, mac

P = 2**255 - 19
_D = -121665 * pow(121666, -1, P) % P
_L = 2**252 + 27742317777372353535851937790883648493


def long_expand(key: bytes, *parts: bytes) -> bytes:
    """64 bytes of HKDF-Expand."""
    return hpke.expand(key, info(*parts), 64)


@dataclass(frozen=True)
class Identity:
    """One member's keys in one organization under one version of a keyring."""

    sign: bytes
    x25519: bytes
    mlkem: bytes
    anchor: bytes

    @property
    def keys(self) -> bytes:
        x25519 = X25519PrivateKey.from_private_bytes(self.x25519).public_key()
        mlkem = MLKEM768PrivateKey.from_seed_bytes(self.mlkem).public_key()
        return (
            b"\x01" + signing_key(self.sign) + x25519.public_bytes_raw() + mlkem.public_bytes_raw()
        )


def identity(root: bytes, organization: bytes, member: bytes, kv: int) -> Identity:
    place = (organization, member, u32(kv))
    return Identity(
        expand(root, b"identity", b"sign", *place),
        expand(root, b"identity", b"x25519", *place),
        long_expand(root, b"identity", b"mlkem", *place),
        expand(root, b"anchor", *place),
    )


def service_id(root: bytes) -> bytes:
    return expand(root, b"service", length=16)


def token(root: bytes, member: bytes) -> bytes:
    return expand(root, b"token", member)


def anchor(key: Identity, found: bytes) -> bytes:
    return mac(key.anchor, found)


def signing_key(seed: bytes) -> bytes:
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def sign(seed: bytes, kind: str, data: bytes) -> bytes:
    message = info(b"signed", kind.encode()) + data
    return Ed25519PrivateKey.from_private_bytes(seed).sign(message)


def is_signed(key: bytes, kind: str, data: bytes, signature: bytes) -> bool:
    message = info(b"signed", kind.encode()) + data
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _add(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    (x1, y1), (x2, y2) = one, other
    product = _D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + product, -1, P)
    y = (y1 * y2 + x1 * x2) * pow(1 - product, -1, P)
    return x % P, y % P


def _times(number: int, point: tuple[int, int]) -> tuple[int, int]:
    found = (0, 1)
    while number:
        if number & 1:
            found = _add(found, point)
        point, number = _add(point, point), number >> 1
    return found


def _point(y: int) -> tuple[int, int] | None:
    square = (y * y - 1) * pow(_D * y * y + 1, -1, P) % P
    root = pow(square, (P + 3) // 8, P)
    for x in (root, root * pow(2, (P - 1) // 4, P) % P):
        if (x * x - square) % P == 0:
            return x, y
    return None


@cache
def small_orders() -> set[int]:
    """The y of each point whose order divides 8: what is left of any point times L."""
    points = [_point(y) for y in range(2, 60)]
    return {_times(_L, point)[1] for point in points if point is not None}


def check_signing_key(key: bytes) -> None:
    y = int.from_bytes(key, "little") % 2**255
    if y >= P or y in small_orders():
        raise Refused("keys_refused")


def check_keys(keys: bytes) -> None:
    """Refuse what 15.1 refuses."""
    if len(keys) != 1249 or keys[0] != 1:
        raise Refused("keys_refused")
    check_signing_key(keys[1:33])
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(keys[33:65]))
    except ValueError:
        raise Refused("keys_refused") from None
    packed = keys[65 : 65 + 1152]
    for at in range(0, len(packed), 3):
        three = int.from_bytes(packed[at : at + 3], "little")
        # FIPS 203, section 7.2: each coefficient is below q.
        if three % 4096 >= 3329 or three // 4096 >= 3329:
            raise Refused("keys_refused")


def commitment(key: bytes, organization: bytes, dataset: bytes, epoch: int) -> bytes:
    return expand(key, b"commitment", organization, dataset, u32(epoch))


def schema(key: bytes, organization: bytes, schema_id: bytes, epoch: int) -> Schema:
    secret = expand(key, b"schema", organization, schema_id, u32(epoch))
    return Schema(organization, schema_id, epoch, secret)

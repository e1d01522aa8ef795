"""Section 8: the keyring file."""

from __future__ import annotations

import unicodedata

from argon2.low_level import Type, hash_secret_raw
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.reference import Refused, does_not_open
from tests.reference.definitions import u32
from tests.reference.keys import expand

_MAGIC = b"ERSKEYRING"

#: version number to when it was made and its root key
Roots = dict[int, tuple[int, bytes]]


def parameters(memory: int, passes: int, lanes: int, salt: bytes) -> bytes:
    return u32(memory) + u32(passes) + u32(lanes) + salt


def passphrase_key(passphrase: str, chosen: bytes) -> bytes:
    memory, passes, lanes = (int.from_bytes(chosen[at : at + 4], "big") for at in (0, 4, 8))
    if not (8192 <= memory <= 1048576 and 1 <= passes <= 16 and 1 <= lanes <= 16):
        raise Refused("unsupported")
    if memory * passes > 1048576:
        raise Refused("unsupported")
    secret = unicodedata.normalize("NFC", passphrase).encode()
    return hash_secret_raw(secret, chosen[12:], passes, memory, lanes, 32, Type.ID)


def _seal(head: bytes, key: bytes, roots: Roots, owner: bytes) -> bytes:
    plain = b""
    for kv in sorted(roots):
        created, root = roots[kv]
        plain += u32(kv) + created.to_bytes(8, "big") + root
    return head + expand(key, b"commitment", head) + _sealed(head, key, plain, owner)


def _sealed(head: bytes, key: bytes, plain: bytes, owner: bytes) -> bytes:
    return AESGCM(expand(key, b"file", head)).encrypt(head[-12:], plain, head + owner)


def wrap_of_two_keys(
    first: bytes, second: bytes, roots: Roots, owner: bytes, nonce: bytes
) -> bytes:
    """A file sealed under one machine key that commits to another."""
    made = _MAGIC + b"\x01\x01" + nonce
    file = _seal(made, first, roots, owner)
    return made + expand(second, b"commitment", made) + file[len(made) + 32 :]


def wrap(roots: Roots, key: bytes, owner: bytes, nonce: bytes, wrapping: int = 1) -> bytes:
    """Under 32 random bytes: a machine key, or one of a keychain or key service."""
    return _seal(_MAGIC + bytes((1, wrapping)) + nonce, key, roots, owner)


def wrap_with_passphrase(
    roots: Roots, passphrase: str, owner: bytes, nonce: bytes, chosen: bytes
) -> bytes:
    head = _MAGIC + b"\x01\x02" + chosen + nonce
    return _seal(head, passphrase_key(passphrase, chosen), roots, owner)


def unwrap(file: bytes, secret: bytes | str, owner: bytes) -> Roots:
    """``secret`` is 32 bytes, or a passphrase."""
    if file[:10] != _MAGIC or file[10:11] != b"\x01" or file[11:12] not in b"\x01\x02\x03\x04":
        raise Refused("unsupported")
    if len(file) < 12:
        raise Refused("unsupported")
    size = 52 if file[11] == 2 else 24
    head, commitment, sealed = file[:size], file[size : size + 32], file[size + 32 :]
    if len(head) < size:
        raise Refused("unsupported")
    if (file[11] == 2) != isinstance(secret, str):
        raise does_not_open()
    key = secret if isinstance(secret, bytes) else passphrase_key(secret, head[12:40])
    if commitment != expand(key, b"commitment", head):
        raise does_not_open()
    try:
        plain = AESGCM(expand(key, b"file", head)).decrypt(head[-12:], sealed, head + owner)
    except (InvalidTag, ValueError):
        raise does_not_open() from None
    if not plain or len(plain) % 44:
        raise does_not_open()
    entries = [plain[at : at + 44] for at in range(0, len(plain), 44)]
    if [int.from_bytes(entry[:4], "big") for entry in entries] != list(range(1, len(entries) + 1)):
        raise does_not_open()
    return {
        int.from_bytes(entry[:4], "big"): (int.from_bytes(entry[4:12], "big"), entry[12:])
        for entry in entries
    }

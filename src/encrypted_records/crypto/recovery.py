"""Keyring <-> the bytes of a keyring file (docs/SPEC.md, section 8).

The file is the magic, a format version, how it is wrapped, a nonce, and AES-256-GCM over the
root keys; everything before the ciphertext is associated data, with the owner's user id.
"""

from __future__ import annotations

import os
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.keys import Keyring, RootKey
from encrypted_records.errors import DoesNotOpen, Unsupported

_HEAD = struct.Struct(f">{len(fmt.KEYRING_MAGIC)}sBB{fmt.NONCE_BYTES}s")
_ENTRY = struct.Struct(f">I{fmt.KEY_BYTES}s")


def wrap(keyring: Keyring, machine_key: bytes, owner: bytes) -> bytes:
    """The keyring file of the user ``owner`` (16 bytes), sealed under a 32-byte machine key.

    The nonce is random: a machine key wraps a few files, far below 2**32 messages.
    """
    nonce = os.urandom(fmt.NONCE_BYTES)
    head = _HEAD.pack(fmt.KEYRING_MAGIC, fmt.KEYRING_VERSION, fmt.WRAP_MACHINE_KEY, nonce)
    plain = b"".join(
        _ENTRY.pack(version, root.export()) for version, root in sorted(keyring.roots.items())
    )
    return head + AESGCM(machine_key).encrypt(nonce, plain, head + owner)


def unwrap(file: bytes, machine_key: bytes, owner: bytes) -> Keyring:
    """Undo :func:`wrap`.

    Raises:
        Unsupported: no keyring file, or of a version or wrapping this code does not know.
        DoesNotOpen: damaged, of another user, or wrapped under another machine key.
    """
    if len(file) < _HEAD.size or not file.startswith(fmt.KEYRING_MAGIC):
        raise Unsupported("that is no keyring file")
    _, version, wrapping, nonce = _HEAD.unpack_from(file)
    if (version, wrapping) != (fmt.KEYRING_VERSION, fmt.WRAP_MACHINE_KEY):
        raise Unsupported("the keyring file is of a newer version", hint="upgrade this program")
    head, sealed = file[: _HEAD.size], file[_HEAD.size :]
    try:
        plain = AESGCM(machine_key).decrypt(nonce, sealed, head + owner)
    except InvalidTag:
        plain = b""
    if not plain or len(plain) % _ENTRY.size:
        raise DoesNotOpen(
            "the keyring file does not open under this machine's key",
            hint="restore the keyring file and the machine key from the same backup",
        )
    return Keyring({version: RootKey(secret) for version, secret in _ENTRY.iter_unpack(plain)})

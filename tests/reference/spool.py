"""Section 11: the spool file."""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.reference import Refused, does_not_open
from tests.reference.definitions import u32
from tests.reference.keys import expand

_MAGIC = b"ERSSPOOL"

#: A salt, and the plaintexts of the session's frames.
Session = tuple[bytes, list[bytes]]


def job_key(root: bytes, job: bytes, kv: int) -> bytes:
    """Section 12: what a proxy keeps of a job."""
    return expand(root, b"job", job, u32(kv))


def spool_key(root: bytes, upload: bytes, kv: int) -> bytes:
    return expand(root, b"spool", upload, u32(kv))


def session_key(key: bytes, salt: bytes) -> bytes:
    return expand(key, b"session", salt)


def _context(head: bytes, session: int, offset: int) -> bytes:
    return head + u32(session) + offset.to_bytes(8, "big")


def write(root: bytes, upload: bytes, kv: int, kind: int, sessions: list[Session]) -> bytes:
    head = _MAGIC + bytes((1, kind)) + u32(kv) + upload
    file, offset = head, 0
    for number, (salt, frames) in enumerate(sessions):
        cipher = AESGCM(session_key(spool_key(root, upload, kv), salt))
        file += b"\x01" + salt
        for count, plain in enumerate(frames):
            sealed = cipher.encrypt(bytes(8) + u32(count), plain, _context(head, number, offset))
            file += b"\x02" + u32(len(plain)) + sealed
            offset += len(plain)
    return file


def read(root: bytes, upload: bytes, file: bytes, length: int) -> bytes:
    """The first ``length`` bytes of the upload."""
    if len(file) < 30:
        raise does_not_open()
    head, at = file[:30], 30
    if head[:9] != _MAGIC + b"\x01" or head[9] not in (1, 2, 3):
        raise Refused("unsupported")
    if head[14:] != upload:
        raise does_not_open()
    key = spool_key(root, upload, int.from_bytes(head[10:14], "big"))
    plain, sessions, frames, cipher = b"", 0, 0, None
    while len(plain) < length:
        if file[at : at + 1] == b"\x01":
            cipher = AESGCM(session_key(key, file[at + 1 : at + 33]))
            sessions, frames, at = sessions + 1, 0, at + 33
            continue
        size = int.from_bytes(file[at + 1 : at + 5], "big")
        sealed = file[at + 5 : at + 5 + size + 16]
        if file[at : at + 1] != b"\x02" or not 0 < size <= 2**18 or cipher is None:
            raise does_not_open()
        try:
            context = _context(head, sessions - 1, len(plain))
            plain += cipher.decrypt(bytes(8) + u32(frames), sealed, context)
        except (InvalidTag, ValueError):
            raise does_not_open() from None
        frames, at = frames + 1, at + 5 + len(sealed)
    return plain[:length]

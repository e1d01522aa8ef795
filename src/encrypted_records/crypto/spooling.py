"""Encrypt and decrypt spool files (docs/SPEC.md, section 11), which contain uploads in progress.

No key and nonce ever encrypt two plaintexts: every append draws a salt and uses a key derived from
it; the nonce counts the frames of the append. An interrupted append is never continued; the next
bytes belong to another append.

A :class:`ScratchKey` encrypts files that one process writes and reads back (docs/SPEC.md, section
11.1).

It exists only in the memory of that process, so the file cannot be decrypted after the process has
ended, even if parts of it remain on the disk.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.utils import Buffer

from encrypted_records import runtime
from encrypted_records.crypto import format as fmt
from encrypted_records.crypto.keys import SpoolKey
from encrypted_records.errors import DoesNotOpen, Unsupported

_HEAD = struct.Struct(f">{len(fmt.SPOOL_MAGIC)}sBBI16s")
_FRAME = struct.Struct(">BI")
_NONCE = struct.Struct(">8xI")
_CONTEXT = struct.Struct(">IQ")

TAG_BYTES = 16
HEAD_BYTES = _HEAD.size
SESSION_BYTES = 1 + fmt.SPOOL_SALT_BYTES
FRAME_HEAD_BYTES = _FRAME.size
#: Bytes of a frame on disk beyond its plaintext.
FRAME_OVERHEAD = FRAME_HEAD_BYTES + TAG_BYTES


@dataclass(frozen=True, slots=True)
class SpoolHead:
    """The first bytes of a spool file: its kind of content, and the key version.

    ``version`` is the keyring's; ``upload`` has 16 bytes.
    """

    kind: int
    version: int
    upload: bytes

    def encode(self) -> bytes:
        magic = (fmt.SPOOL_MAGIC, fmt.SPOOL_VERSION)
        return _HEAD.pack(*magic, self.kind, self.version, self.upload)


def read_head(data: bytes) -> SpoolHead:
    """The head at the beginning of ``data``. It is unverified until a frame has opened under it.

    Raises:
        DoesNotOpen: it is truncated.
        Unsupported: it is not a spool file, or has another version or kind.
    """
    if len(data) < HEAD_BYTES:
        raise DoesNotOpen("a spool file is truncated")
    magic, version, kind, keyring, upload = _HEAD.unpack_from(data)
    if magic != fmt.SPOOL_MAGIC or version != fmt.SPOOL_VERSION:
        raise Unsupported("this is not a spool file of this version")
    if kind not in (fmt.SPOOL_PLAIN, fmt.SPOOL_JOINED, fmt.SPOOL_NOTE):
        raise Unsupported("a spool file is of a kind that this version does not know")
    return SpoolHead(kind, keyring, upload)


class SpoolSession:
    """One append: the state after the frames that it has encrypted or decrypted so far.

    ``number`` counts the file's sessions from 0; ``offset`` is the position of the next frame in
    the upload, in bytes.
    """

    def __init__(
        self, key: SpoolKey, head: bytes, number: int, offset: int, salt: bytes | None = None
    ) -> None:
        """Begin a session with a fresh salt, or read the session with ``salt``."""
        self.number = number
        self.offset = offset
        self.salt = runtime.random_bytes(fmt.SPOOL_SALT_BYTES) if salt is None else salt
        self._key = key.session(self.salt)
        self._head = head
        self._frames = 0

    def encode(self) -> bytes:
        """The bytes before the session's first frame."""
        return bytes((fmt.SPOOL_SESSION,)) + self.salt

    @property
    def is_full(self) -> bool:
        """Whether another session must begin, so that no key seals too many messages."""
        return self._frames >= fmt.SPOOL_SESSION_FRAMES

    def seal_into(self, plain: Buffer, out: memoryview) -> int:
        """Write the next frame to the beginning of ``out``; returns its size in bytes.

        Args:
            plain: 1 to ``SPOOL_FRAME_BYTES`` bytes.
        """
        size = len(plain)
        assert 0 < size <= fmt.SPOOL_FRAME_BYTES and not self.is_full
        _FRAME.pack_into(out, 0, fmt.SPOOL_FRAME, size)
        sealed = out[FRAME_HEAD_BYTES : size + FRAME_OVERHEAD]
        self._key.encrypt_into(_NONCE.pack(self._frames), plain, self._context(), sealed)
        self.skip(size)
        return size + FRAME_OVERHEAD

    def open(self, sealed: bytes) -> bytes:
        """The plaintext of the next frame; ``sealed`` is its ciphertext and tag.

        Raises:
            DoesNotOpen: altered, moved, or of another append, upload or key.
        """
        plain = self._key.decrypt(_NONCE.pack(self._frames), sealed, self._context())
        self.skip(len(plain))
        return plain

    def skip(self, size: int) -> None:
        """Skip the next frame, of ``size`` bytes of plaintext, without opening it."""
        self._frames += 1
        self.offset += size

    def _context(self) -> bytes:
        return self._head + _CONTEXT.pack(self.number, self.offset)


def frame_size(head: bytes) -> int:
    """The size of the plaintext in the frame whose first bytes are ``head``.

    Raises:
        DoesNotOpen: it is not the beginning of a frame.
    """
    if len(head) == FRAME_HEAD_BYTES:
        marker, size = _FRAME.unpack(head)
        if marker == fmt.SPOOL_FRAME and 0 < size <= fmt.SPOOL_FRAME_BYTES:
            return int(size)
    raise DoesNotOpen("a spool file contains something that is not a frame")


def seal_whole(kind: int, key: SpoolKey, plain: Buffer) -> bytes:
    """A spool file of one frame, 1 to ``SPOOL_FRAME_BYTES`` bytes: a note, or a list of parts."""
    head = SpoolHead(kind, key.version, key.upload).encode()
    session = SpoolSession(key, head, 0, 0)
    frame = bytearray(len(plain) + FRAME_OVERHEAD)
    session.seal_into(plain, memoryview(frame))
    return head + session.encode() + frame


def open_whole(kind: int, key: SpoolKey, file: bytes) -> bytes:
    """Undo :func:`seal_whole`; ``key`` has the version that the file's head names.

    Raises:
        DoesNotOpen: altered, or of another kind, upload or key.
        Unsupported: as :func:`read_head`.
    """
    head = read_head(file)
    begin = HEAD_BYTES + SESSION_BYTES
    marker, salt = file[HEAD_BYTES : HEAD_BYTES + 1], file[HEAD_BYTES + 1 : begin]
    sealed = file[begin + FRAME_HEAD_BYTES :]
    size = frame_size(file[begin : begin + FRAME_HEAD_BYTES])
    if head.kind != kind or marker[0] != fmt.SPOOL_SESSION or len(sealed) != size + TAG_BYTES:
        raise DoesNotOpen("an encrypted note is of another form")
    return SpoolSession(key, file[:HEAD_BYTES], 0, 0, salt).open(sealed)


_KEY_BITS = 256
_NONCE_BYTES = 12


class ScratchKey:
    """A fresh random key. The caller must seal only one plaintext under each number."""

    def __init__(self) -> None:
        self._cipher = AESGCM(AESGCM.generate_key(_KEY_BITS))

    def seal(self, number: int, plain: bytes) -> bytes:
        return self._cipher.encrypt(number.to_bytes(_NONCE_BYTES, "big"), plain, None)

    def open(self, number: int, sealed: bytes) -> bytes:
        """
        Raises:
            DoesNotOpen: it was not sealed under this number.
        """
        try:
            return self._cipher.decrypt(number.to_bytes(_NONCE_BYTES, "big"), sealed, None)
        except InvalidTag:
            raise DoesNotOpen("the disk returned other bytes than were written to it") from None

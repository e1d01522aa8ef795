"""Read spool files: frame by frame; after a crash, only the part that may be damaged."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from io import FileIO

from encrypted_records.crypto import format as fmt
from encrypted_records.crypto import spooling
from encrypted_records.crypto.keys import SpoolKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.proxy.spool.files import (
    Extent,
    SpoolKeys,
    as_damage,
    damaged,
    head_of,
    name_errors,
)

log = logging.getLogger(__name__)


def read_file(
    file: FileIO, upload: bytes, keyring: SpoolKeys, start: int, size: int
) -> Iterator[bytes]:
    """The bytes from ``start`` up to ``size`` of a file, which is closed then."""
    reached = start
    with file, as_damage(), name_errors():
        key, head = head_of(file, upload, keyring)
        for session, position, length in _frames(file, key, head):
            begin = session.offset
            if begin >= size:
                break
            if begin + length <= start:
                session.skip(length)
                continue
            plain = session.open(_bytes_at(file, position, length + spooling.TAG_BYTES))
            yield plain[max(start - begin, 0) : size - begin]
            reached = session.offset
    if reached < size:
        raise damaged("it is shorter than it was")


def _frames(
    file: FileIO, key: SpoolKey, head: bytes
) -> Iterator[tuple[spooling.SpoolSession, int, int]]:
    """Every frame as its session, the position of its ciphertext, and the length of its plaintext.

    The caller opens or skips each in its session before it asks for the next.

    Raises:
        DoesNotOpen: neither a session nor a frame begins where one should.
    """
    handle, position, session = file.fileno(), spooling.HEAD_BYTES, None
    while begin := os.pread(handle, spooling.FRAME_HEAD_BYTES, position):
        if begin[0] == fmt.SPOOL_SESSION:
            salt = _bytes_at(file, position + 1, fmt.SPOOL_SALT_BYTES)
            number, offset = (session.number + 1, session.offset) if session else (0, 0)
            session = spooling.SpoolSession(key, head, number, offset, salt)
            position += spooling.SESSION_BYTES
            continue
        length = spooling.frame_size(begin)
        if session is None or session.is_full:
            raise DoesNotOpen("a frame belongs to no session")
        position += spooling.FRAME_HEAD_BYTES
        yield session, position, length
        position += length + spooling.TAG_BYTES


def survey(
    file: FileIO, key: SpoolKey, head: bytes, *, doubtful: int, up_to: int | None = None
) -> Extent:
    """The complete frames of a file, up to the plaintext offset ``up_to``.

    All bytes from before the last sync are on disk, so only the last ``doubtful`` bytes need to be
    opened.
    """
    size = os.fstat(file.fileno()).st_size
    extent = Extent(0, spooling.HEAD_BYTES, 0)
    try:
        for session, position, length in _frames(file, key, head):
            if extent.offset == up_to:
                break
            end = position + length + spooling.TAG_BYTES
            if size - end < doubtful:
                session.open(_bytes_at(file, position, end - position))
            else:
                session.skip(length)
            extent = Extent(session.offset, end, session.number + 1)
    except DoesNotOpen:
        log.info("the end of an upload's file is of an append that was cut off")
    return extent


def _bytes_at(file: FileIO, position: int, size: int) -> bytes:
    data = os.pread(file.fileno(), size, position)
    if len(data) < size:
        raise DoesNotOpen("a spool file is cut short")
    return data

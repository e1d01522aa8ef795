"""Read spool files: frame by frame, and after a crash no more of them than can be in doubt."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from io import FileIO

from encrypted_records.crypto import format as fmt
from encrypted_records.crypto import spooling
from encrypted_records.crypto.keys import SpoolKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.proxy.appending import DOUBTFUL_BYTES
from encrypted_records.proxy.spool_files import (
    Extent,
    SpoolKeys,
    as_damage,
    damaged,
    head_of,
    named_errors,
)

log = logging.getLogger(__name__)


def read_file(
    file: FileIO, upload: bytes, keyring: SpoolKeys, start: int, size: int
) -> Iterator[bytes]:
    """The bytes from ``start`` up to ``size`` of a file, which is closed then."""
    reached = start
    with file, as_damage(), named_errors():
        key, head = head_of(file, upload, keyring)
        for session, place, length in _frames(file, key, head):
            begin = session.offset
            if begin >= size:
                break
            if begin + length <= start:
                session.skip(length)
                continue
            plain = session.open(_bytes_at(file, place, length + spooling.TAG_BYTES))
            yield plain[max(start - begin, 0) : size - begin]
            reached = session.offset
    if reached < size:
        raise damaged("it is shorter than it was")


def _frames(
    file: FileIO, key: SpoolKey, head: bytes
) -> Iterator[tuple[spooling.Session, int, int]]:
    """Every frame as its session, the place of its ciphertext, and the length of its plaintext.

    The caller opens or skips each in its session before it asks for the next.

    Raises:
        DoesNotOpen: something else than a session or a frame begins where one should.
    """
    handle, place, session = file.fileno(), spooling.HEAD_BYTES, None
    while begin := os.pread(handle, spooling.FRAME_HEAD_BYTES, place):
        if begin[0] == fmt.SPOOL_SESSION:
            salt = _bytes_at(file, place + 1, fmt.SPOOL_SALT_BYTES)
            number, offset = (session.number + 1, session.offset) if session else (0, 0)
            session = spooling.Session(key, head, number, offset, salt)
            place += spooling.SESSION_BYTES
            continue
        length = spooling.frame_size(begin)
        if session is None or session.is_full:
            raise DoesNotOpen("a frame belongs to no session")
        place += spooling.FRAME_HEAD_BYTES
        yield session, place, length
        place += length + spooling.TAG_BYTES


def survey(file: FileIO, key: SpoolKey, head: bytes, *, up_to: int | None = None) -> Extent:
    """What is whole of a file, up to the plaintext offset ``up_to``.

    Whatever was written before the last sync is on disk, so that only the end need be opened.
    """
    size = os.fstat(file.fileno()).st_size
    extent = Extent(0, spooling.HEAD_BYTES, 0)
    try:
        for session, place, length in _frames(file, key, head):
            if extent.offset == up_to:
                break
            end = place + length + spooling.TAG_BYTES
            if size - end < DOUBTFUL_BYTES:
                session.open(_bytes_at(file, place, end - place))
            else:
                session.skip(length)
            extent = Extent(session.offset, end, session.number + 1)
    except DoesNotOpen:
        log.info("the end of an upload's file is of an append that was cut off")
    return extent


def _bytes_at(file: FileIO, place: int, size: int) -> bytes:
    data = os.pread(file.fileno(), size, place)
    if len(data) < size:
        raise DoesNotOpen("a spool file is cut short")
    return data

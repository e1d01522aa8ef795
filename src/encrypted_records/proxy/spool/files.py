"""A spool file as such: its name for what it holds, and names for what can be wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Protocol

from encrypted_records.crypto import spooling
from encrypted_records.crypto.keys import SpoolKey
from encrypted_records.errors import DoesNotOpen, NotFound, Unsupported
from encrypted_records.proxy.disk import disk_errors


class SpoolKeys(Protocol):
    """Gives the key of an upload under a keyring version; a keyring does."""

    def spool(self, upload: bytes, version: int) -> SpoolKey: ...


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of a file: plaintext up to ``offset``, sealed up to ``end``, in ``sessions``."""

    offset: int
    end: int
    sessions: int


def open_file(path: Path) -> FileIO:
    try:
        return FileIO(path, "r+")
    except FileNotFoundError:
        raise no_bytes() from None


def no_bytes() -> NotFound:
    return NotFound("the bytes of this upload are no longer here")


def head_of(file: FileIO, upload: bytes, keyring: SpoolKeys) -> tuple[SpoolKey, bytes]:
    data = os.pread(file.fileno(), spooling.HEAD_BYTES, 0)
    with as_damage():
        head = spooling.read_head(data)
    if head.upload != upload:
        raise damaged("it is the file of another upload")
    return keyring.spool(upload, head.version), data


def write_all(file: FileIO, data: memoryview) -> None:
    while data:
        data = data[file.write(data) :]


def damaged(what: str) -> DoesNotOpen:
    return DoesNotOpen(
        f"the stored bytes of this upload are damaged: {what}",
        code="spool_damaged",
        hint="delete the upload and send the file again",
    )


@contextmanager
def as_damage() -> Iterator[None]:
    try:
        yield
    except (DoesNotOpen, Unsupported) as error:
        raise damaged(error.message) from None


def name_errors() -> AbstractContextManager[None]:
    """Name what the disk refuses."""
    return disk_errors("the disk failed under the upload", code="spool_failed")

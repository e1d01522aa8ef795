"""Copy files so that they outlast a power cut, with what is needed to know them again.

A folder of copies is made beside its place under another name, and gets its own when it is whole.
So a folder that has its name is whole, even when the program that copied was killed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from encrypted_records.errors import Conflict, InvalidSetting, OutOfSpace, Startup

#: Behind the name of a folder that is not whole yet.
PARTIAL = ".partial"
#: The file by which such a folder is known to be ours, to delete what was cut off.
_MARK = ".ers-partial"
_PIECE = 1 << 20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
MANIFEST = "backup.json"
#: Of the manifest, for versions to come.
FORM = 1


class CopiedFile(msgspec.Struct, array_like=True, frozen=True):
    """Length and SHA-256, in hexadecimal, of a file of a backup."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The manifest of a backup; ``files`` are by path."""

    form: int
    version: str
    made: str
    files: dict[str, CopiedFile]


@contextmanager
def whole_or_nothing(target: Path) -> Iterator[Path]:
    """A new folder, only for its owner, that is renamed to ``target`` when the block ends without
    an error.

    Raises:
        InvalidSetting: ``target`` exists and is not empty; nothing is overwritten.
        Conflict: another process is making the folder.
        OutOfSpace, Startup: the folder cannot be written.
    """
    target = target.absolute()
    partial = target.with_name(target.name + PARTIAL)
    with named(target):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InvalidSetting(
                f"{target} already exists, and nothing is overwritten",
                hint="name a folder that does not exist",
                code="folder_taken",
            )
        with _alone(partial):
            yield partial
            _sync_folders(partial)
            (partial / _MARK).unlink()
            sync(partial)
            partial.rename(target)
            sync(target.parent)


@contextmanager
def _alone(partial: Path) -> Iterator[None]:
    """Make the folder, after removing the remains of an interrupted command."""
    if partial.exists() and any(partial.iterdir()) and not (partial / _MARK).exists():
        raise InvalidSetting(
            f"{partial} contains something else, and nothing is overwritten",
            hint="name another folder",
            code="folder_taken",
        )
    partial.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"another process is making {partial}",
                code="folder_taken",
                hint="wait until it has ended",
            ) from None
        (partial / _MARK).touch(mode=0o600)
        for path in partial.iterdir():
            if path.name != _MARK:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield
    except BaseException:
        with suppress(OSError):
            shutil.rmtree(partial)
        raise
    finally:
        os.close(descriptor)


def copy(source: Path | BinaryIO, target: Path) -> CopiedFile:
    """Copy a file to a new one, for its owner alone; folders above it are made."""
    if isinstance(source, Path):
        with source.open("rb") as stream:
            return copy(stream, target)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    hashed, size = hashlib.sha256(), 0
    with open(target, "xb", opener=_for_owner) as copied:
        while piece := source.read(_PIECE):
            hashed.update(piece)
            size += len(piece)
            copied.write(piece)
        copied.flush()
        os.fsync(copied.fileno())
    return CopiedFile(size, hashed.hexdigest())


def digest(path: Path) -> CopiedFile:
    """The size and digest of a file, in the form that :func:`copy` returns."""
    with path.open("rb") as stream:
        return CopiedFile(path.stat().st_size, hashlib.file_digest(stream, "sha256").hexdigest())


def sync(path: Path) -> None:
    """Flush a file or folder to disk, so that it survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folders(top: Path) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        sync(Path(folder))


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def named(folder: Path) -> Iterator[None]:
    """Convert disk errors in the block to errors of this package."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise OutOfSpace(
                f"the disk that holds {folder} is full", hint="make room there, then try again"
            ) from None
        reason = (error.strerror or "it fails").lower()
        raise Startup(
            f"{folder} cannot be written, or its source cannot be read: {reason}",
            hint="check that these folders exist and who owns them",
        ) from None

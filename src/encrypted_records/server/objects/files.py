"""Objects as files of one folder, in folders by the first letters of their names.

A file gets its name once it is whole and on the disk; until then it has another ending. The
folders are synced too, so that neither a name nor its end is undone by a power cut.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from encrypted_records.errors import StoreFull, StoreUnavailable
from encrypted_records.server.objects.protocol import (
    Range,
    cut_joined,
    join_neighbours,
    lost,
)

#: Of a file that is not whole yet.
DRAFT = ".draft"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_LETTERS = 2


class Files:
    """A store in a folder, which is made when the first object comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        #: folders of which this process knows that a power cut leaves them
        self._lasting: set[Path] = set()

    def put(self, name: str, data: bytes) -> None:
        path = self._path(name)
        with _named():
            self._make_folder(path.parent)
            draft = path.with_name(path.name + DRAFT)
            try:
                _write(draft, data)
                draft.rename(path)
            except OSError:
                with suppress(OSError):
                    draft.unlink(missing_ok=True)
                raise
            _sync_folder(path.parent)

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        joined = join_neighbours(ranges)
        contents: list[bytes] = []
        descriptor, opened = -1, ""
        try:
            for name, start, end in joined:
                if name != opened:
                    if descriptor >= 0:
                        os.close(descriptor)
                        descriptor = -1
                    descriptor, opened = self._open(name), name
                with _named():
                    contents.append(os.pread(descriptor, end - start, start))
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return cut_joined(ranges, joined, contents)

    def delete(self, names: Sequence[str]) -> None:
        folders: set[Path] = set()
        with _named():
            for path in map(self._path, names):
                # Also where the file is gone: who deleted it may have died before this.
                folders.add(path.parent)
                for file in (path, path.with_name(path.name + DRAFT)):
                    with suppress(FileNotFoundError):
                        file.unlink()
            for folder in folders:
                with suppress(FileNotFoundError):
                    _sync_folder(folder)

    def listing(self) -> Iterator[tuple[str, int]]:
        with _named():
            for path in self._folder.rglob("*"):
                with suppress(FileNotFoundError):
                    if path.is_file():
                        own = path == self._path(path.name.removesuffix(DRAFT)).with_name(path.name)
                        name = path.name.removesuffix(DRAFT) if own else ""
                        yield name or str(path.relative_to(self._folder)), path.stat().st_size

    def free(self) -> int | None:
        with _named():
            return free_below(self._folder)

    def keeps_versions(self, name: str) -> bool:
        return False  # snapshots of disks cannot be seen from here

    def _path(self, name: str) -> Path:
        return self._folder / name[:_LETTERS] / name

    def _make_folder(self, folder: Path) -> None:
        if folder in self._lasting:
            return
        # Somebody else may have made it, and not synced it yet.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for parent in (folder.parent, folder.parent.parent):
            _sync_folder(parent)
        self._lasting.add(folder)

    def _open(self, name: str) -> int:
        try:
            return os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise lost(name) from None
        except OSError as error:
            raise _unavailable(error) from None


def free_below(folder: Path) -> int:
    """Bytes that are free on the disk of a folder, or of that in which it will be made."""
    return shutil.disk_usage(
        next(parent for parent in (folder, *folder.parents) if parent.exists())
    ).free


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _named() -> Iterator[None]:
    """Have errors of the disk say what they mean here."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFull("the disk that holds the API's bulk store is full") from None
        raise _unavailable(error) from None


def _unavailable(error: OSError) -> StoreUnavailable:
    reason = (error.strerror or "it fails").lower()
    return StoreUnavailable(f"the bulk store cannot be read or written: {reason}")

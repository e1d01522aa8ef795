"""The interface of a store of objects, and a store of files.

An object is written once, under a name that was never used before, and never changed. A store
decides nothing: the database says which objects exist and which may be deleted.

A store of files gives a file its final name once it is complete and synced to disk; until then it
has another suffix. Folders are synced too, so that a power cut undoes neither a rename nor a
deletion. The store in an S3-compatible service, an optional extra, is :mod:`.s3`.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

from encrypted_records.errors import ObjectLost, StoreFull, StoreUnavailable

#: Ranges no further apart than this are read as one.
NEIGHBOURS = 4 << 10

#: The same for a remote store, whose client reads over the gap: a request costs more than these
#: bytes. Bytes in the gap can be cached (:mod:`.block_cache`).
JOINED_BYTES = 2 << 20
#: The most bytes in the gaps of one read.
READ_OVER_BYTES = 64 << 20


class Range(NamedTuple):
    """Bytes of an object, from ``start`` to below ``end``."""

    name: str
    start: int
    end: int


class BulkStore(Protocol):
    """Objects by name. All methods are thread-safe."""

    def put(self, name: str, data: bytes) -> None:
        """Store an object, so that it survives a power cut once this returns.

        Raises:
            StoreFull: there is no room.
            StoreUnavailable: the store is away or fails; whether the object exists is unknown.
        """

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        """The bytes of each range, in that order.

        Raises:
            ObjectLost: an object is missing, or shorter than expected.
            StoreUnavailable: the store is away or fails.
        """

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects, permanently once this returns. Missing objects are not an error.

        Raises:
            StoreUnavailable: some may still exist.
        """

    def listing(self) -> Iterator[tuple[str, int]]:
        """Name and size in bytes of everything in the store, including objects that are not ours,
        in the order of names.

        Raises:
            StoreUnavailable: the store is unavailable or fails.
        """

    def free(self) -> int | None:
        """Free space in bytes; None if the store does not report it.

        Raises:
            StoreUnavailable: the store is away or fails.
        """

    def keeps_versions(self, name: str) -> bool:
        """Whether the store reports that it keeps this object as an old version after a deletion.

        Raises:
            StoreUnavailable: the store is away or fails.
        """


def join_neighbours(ranges: Sequence[Range], reach: int = NEIGHBOURS) -> list[Range]:
    """Join the ranges of each object that are no further apart than ``reach``; the result is in
    order.
    """
    joined: list[Range] = []
    for span in sorted(set(ranges)):
        last = joined[-1] if joined else None
        if last and last.name == span.name and span.start - last.end <= reach:
            joined[-1] = last._replace(end=max(last.end, span.end))
        else:
            joined.append(span)
    return joined


def find_reach(ranges: Sequence[Range]) -> int:
    """The gap in bytes up to which a remote store reads ranges as one: :data:`JOINED_BYTES`, or
    less if the gaps would be too large in total.
    """
    gaps = sorted(
        behind.start - before.end
        for before, behind in pairwise(sorted(set(ranges)))
        if before.name == behind.name and 0 < behind.start - before.end <= JOINED_BYTES
    )
    over = 0
    for gap in gaps:
        over += gap
        if over > READ_OVER_BYTES:
            return gap - 1
    return JOINED_BYTES


def cut_joined(
    ranges: Sequence[Range], joined: Sequence[Range], contents: Sequence[bytes]
) -> list[bytes]:
    """The bytes of each range, from the contents of the ranges of :func:`join_neighbours`.

    Raises:
        ObjectLost: an object is shorter than expected.
    """
    by_range: dict[Range, bytes] = {}
    wanted = iter(sorted(set(ranges)))
    current = next(wanted, None)
    for span, data in zip(joined, contents, strict=True):
        if len(data) != span.end - span.start:
            raise lost(span.name)
        while current is not None and current.name == span.name and current.end <= span.end:
            by_range[current] = data[current.start - span.start : current.end - span.start]
            current = next(wanted, None)
    return [by_range[current] for current in ranges]


def is_stored(store: BulkStore, name: str, size: int) -> bool:
    """Whether the end of an object can be read, which a listing of the store may lack.

    Raises:
        StoreUnavailable: the store is unavailable or fails.
    """
    try:
        store.read([Range(name, size - 1, size)])
    except ObjectLost:
        return False
    return True


def lost(name: str) -> ObjectLost:
    return ObjectLost(f"an object is missing from the bulk store, or truncated: {name}")


#: Suffix of a file that is not complete yet.
DRAFT = ".draft"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_LETTERS = 2


class Files:
    """A store in a folder, which is created with the first object."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        #: folders known to survive a power cut
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
                # Sync even if the file is gone: the process that deleted it may have died before
                # the sync.
                folders.add(path.parent)
                for file in (path, path.with_name(path.name + DRAFT)):
                    with suppress(FileNotFoundError):
                        file.unlink()
            for folder in folders:
                with suppress(FileNotFoundError):
                    _sync_folder(folder)

    def listing(self) -> Iterator[tuple[str, int]]:
        with _named():
            tops = sorted(self._folder.iterdir()) if self._folder.is_dir() else []
            for top in tops:
                yield from sorted(self._listed(top))

    def _listed(self, top: Path) -> Iterator[tuple[str, int]]:
        for path in top.rglob("*") if top.is_dir() else (top,):
            with suppress(FileNotFoundError):
                if path.is_file():
                    is_object = path == self._path(path.name.removesuffix(DRAFT)).with_name(
                        path.name
                    )
                    name = path.name.removesuffix(DRAFT) if is_object else ""
                    yield name or str(path.relative_to(self._folder)), path.stat().st_size

    def free(self) -> int | None:
        with _named():
            return free_below(self._folder)

    def keeps_versions(self, name: str) -> bool:
        return False  # disk snapshots cannot be detected from here

    def _path(self, name: str) -> Path:
        return self._folder / name[:_LETTERS] / name

    def _make_folder(self, folder: Path) -> None:
        if folder in self._lasting:
            return
        # Another process may have created it, and not synced it yet.
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
    """Free bytes on the disk of a folder, or of the folder in which it will be created."""
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
    """Convert disk errors to ours."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFull("the disk that holds the API's bulk store is full") from None
        raise _unavailable(error) from None


def _unavailable(error: OSError) -> StoreUnavailable:
    reason = (error.strerror or "it fails").lower()
    return StoreUnavailable(f"the bulk store cannot be read or written: {reason}")

"""Back up a data folder with SQLite and files while the service runs on it, and create a data
folder from a backup.

Each part is copied after the parts that may be older than it, so that the copy looks like the
folder of a service that was killed:

1. the proxy's observations and running jobs: they are never ahead of the database, which is copied
   after them and would otherwise be refused as rolled back;
2. the database, at a single moment;
3. the objects that this copy of the database names. They never change, and most are copied before
   the database. If an object is deleted meanwhile, the database is copied again;
4. the keys: everything in the database was sealed under keys that were on disk before.

Caches, messages, and ``api/secret.key`` are left out; the latter must be stored separately from the
database.

A copy is written to a folder under another name, which is renamed when it is complete. So a folder
with the final name is complete, even if the program was killed or the power failed.
"""

from __future__ import annotations

import datetime
import errno
import fcntl
import hashlib
import os
import resource
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import quote

import msgspec

from encrypted_records import __version__, errors
from encrypted_records.cli.data_folder import for_owner, sync
from encrypted_records.cli.settings import Settings

#: Suffix of a folder that is not complete yet.
PARTIAL = ".partial"
#: A file that marks such a folder as ours, so that its remains can be deleted.
_MARK = ".ers-partial"
_PIECE = 1 << 20
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
MANIFEST = "backup.json"
#: Format version of the manifest.
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
    """A new folder, only for its owner, which is renamed to ``target`` if the block ends without an
    error.

    Raises:
        InvalidSetting: ``target`` exists and is not empty; nothing is overwritten.
        Conflict: another process is making the folder.
        OutOfSpace, Startup: the folder cannot be written.
    """
    target = target.absolute()
    partial = target.with_name(target.name + PARTIAL)
    with named(target):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise errors.InvalidSetting(
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
        raise errors.InvalidSetting(
            f"{partial} contains something else, and nothing is overwritten",
            hint="name another folder",
            code="folder_taken",
        )
    partial.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)  # the folder is the other process's work, and stays
        raise errors.Conflict(
            f"another process is making {partial}",
            code="folder_taken",
            hint="wait until it has ended",
        ) from None
    except OSError:
        pass  # NFS and SMB lock no folders
    try:
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
    """Copy a file to a new file, only for its owner; parent folders are created."""
    if isinstance(source, Path):
        with source.open("rb") as stream:
            return copy(stream, target)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    hashed, size = hashlib.sha256(), 0
    with open(target, "xb", opener=for_owner) as copied:
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


def _sync_folders(top: Path) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        sync(Path(folder))


@contextmanager
def named(folder: Path) -> Iterator[None]:
    """Convert disk errors in the block to errors of this package."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise errors.OutOfSpace(
                f"the disk that holds {folder} is full", hint="make room there, then try again"
            ) from None
        reason = (error.strerror or "it fails").lower()
        raise errors.Startup(
            f"{folder} cannot be written, or its source cannot be read: {reason}",
            hint="check that these folders exist and who owns them",
        ) from None


#: Files of the proxy that it can rebuild.
_CACHES = frozenset({"pages.sqlite3", "ledgers.sqlite3", "ballast"})
#: These are consistent with each other, and with the files of the spool.
_UNDER_WAY = ("jobs.sqlite3", "uploads.sqlite3")
_BESIDE = ("-wal", "-shm", "-journal", ".lock")
#: Files of the API besides its database and objects.
_OF_THE_API = ("served",)
#: Maximum copies of the database, if an object of the last copy was deleted meanwhile.
_TRIES = 10
_BUSY_SECONDS = 60
#: Objects that a copy may need; all others are deleted when the copy is used.
_NEEDED = """
SELECT name, size FROM bulk_object o WHERE state IN ('stored', 'named')
    OR EXISTS (SELECT 1 FROM row_part p WHERE p.object_id = o.id)
    OR EXISTS (SELECT 1 FROM page_part p WHERE p.object_id = o.id)
"""


@dataclass(frozen=True)
class BackedUp:
    """The number of files in a backup, the number of objects among them, and the total size in
    bytes.
    """

    files: int
    objects: int
    size: int


def back_up(settings: Settings, target: Path) -> BackedUp:
    """Copy the data folder to a new folder, which appears only when it is complete. With PostgreSQL
    it has the proxy's part alone.

    Raises:
        InvalidSetting: ``backup_elsewhere``, ``folder_taken``; there is nothing to back up here, or
            the database or its objects are kept elsewhere.
        DatabaseDamaged: the database, or its copy, cannot be read.
        ObjectLost: an object that the database names is missing.
        OutOfSpace, Startup, Unavailable: a file cannot be read or written, or is in use too long.
    """
    folder = settings.data_dir.absolute()
    _check(settings, folder)
    with whole_or_nothing(target) as partial, named(target), _as_named():
        files = _BackupFiles(folder, partial)
        database = folder / "api" / "db.sqlite3"
        here = settings.database_url is None and database.exists()
        if here:
            files.add_objects(_objects_of(database))
        if (folder / "proxy").exists():
            files.add_proxy_databases()
        if here:
            files.add_database(database)
        files.add_others()
        made = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        manifest = Manifest(FORM, __version__, made, files.copied)
        listed = partial / MANIFEST
        listed.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        listed.chmod(0o600)
        sync(listed)
    sizes = [file.size for file in files.copied.values()]
    return BackedUp(len(sizes), len(files.objects), sum(sizes))


def keeps_data_elsewhere(settings: Settings) -> bool:
    """Whether the API's database, or its objects, are outside the data folder."""
    return settings.database_url is not None or settings.bulk_url is not None


def _check(settings: Settings, folder: Path) -> None:
    if not (folder / "format").exists():
        raise errors.InvalidSetting(
            f"{folder} is not a data folder of this service", hint="name it with --data-dir"
        )
    in_folder = settings.database_url is None and (folder / "api").exists()
    if keeps_data_elsewhere(settings) and (in_folder or not (folder / "proxy").exists()):
        raise errors.InvalidSetting(
            "the database or the object store is outside the data folder, and this command cannot"
            " back it up",
            hint="use pg_dump and copy the objects: see Backup in docs/operations.md",
            code="backup_elsewhere",
        )


class _BackupFiles:
    """The files of a backup in progress; ``copied`` are those of the manifest, by path."""

    def __init__(self, folder: Path, partial: Path) -> None:
        self._from, self._to = folder, partial
        self.copied: dict[str, CopiedFile] = {}
        self.objects: set[str] = set()

    def add_proxy_databases(self) -> None:
        proxy = self._from / "proxy"
        databases = sorted(path for path in proxy.glob("*.sqlite3") if path.name not in _CACHES)
        under_way = [path for path in databases if path.name in _UNDER_WAY]
        with ExitStack() as stack:
            snapshots, uploads = _snapshot(stack, under_way, proxy / "spool")
            for name, stream in uploads.items():
                self._add(f"proxy/spool/{name}", stream)
            for path, snapshot in zip(under_way, snapshots, strict=True):
                self._add_copy(f"proxy/{path.name}", snapshot)
        for path in databases:
            if path not in under_way:
                with closing(_open(path)) as database:
                    self._add_copy(f"proxy/{path.name}", database)

    def add_database(self, path: Path) -> None:
        """Copy the database, and each object that exactly this copy names.

        Raises:
            DatabaseDamaged, ObjectLost: as :func:`back_up`.
        """
        name, missing = "api/db.sqlite3", ""
        for _ in range(_TRIES):
            self.copied.pop(name, None)
            (self._to / name).unlink(missing_ok=True)
            with closing(_open(path)) as database:
                self._add_copy(name, database)
            wanted = _objects_of(self._to / name)
            missing = self.add_objects(wanted)
            if not missing:
                break
        else:
            raise errors.ObjectLost(
                f"an object is not in api/objects/ of the data folder, or cut short: {missing}",
                hint="if the API has another bulk store, name it with --bulk-url: this command"
                " copies none outside the folder; otherwise restore the object from a backup",
            )
        for other in self.objects - wanted.keys():  # deleted meanwhile, and not in this copy
            (self._to / _object_path(other)).unlink()
            del self.copied[_object_path(other)]
        self.objects &= wanted.keys()

    def add_objects(self, wanted: dict[str, int]) -> str:
        """Copy objects that are not copied yet; returns the name of a missing object."""
        missing = ""
        for name, size in wanted.items():
            if name in self.objects:
                continue
            path = _object_path(name)
            try:
                copied = copy(self._from / path, self._to / path)
            except FileNotFoundError:
                missing = name
                continue
            if copied.size != size:
                (self._to / path).unlink()
                missing = name
                continue
            self.copied[path] = copied
            self.objects.add(name)
        return missing

    def add_others(self) -> None:
        """Copy keys, and small files that are replaced as a whole or never change."""
        paths = [self._from / "format", *(self._from / "api" / name for name in _OF_THE_API)]
        proxy = self._from / "proxy"
        paths += sorted(
            path
            for path in proxy.rglob("*")
            if path.is_file()
            and not path.is_relative_to(proxy / "spool")
            and ".sqlite3" not in path.name
            and not path.name.endswith(_BESIDE)
        )
        for path in paths:
            if path.exists():
                self._add(str(path.relative_to(self._from)), path)

    def _add(self, name: str, source: Path | BinaryIO) -> None:
        self.copied[name] = copy(source, self._to / name)

    def _add_copy(self, name: str, database: sqlite3.Connection) -> None:
        """Copy the state of a database at one moment, without blocking its writers.

        Raises:
            DatabaseDamaged: the database is corrupt.
        """
        target = self._to / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        target.touch(mode=0o600)
        with closing(sqlite3.connect(target)) as copied:
            database.backup(copied)
            (verdict,) = copied.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise _damaged(name)
        sync(target)
        self.copied[name] = digest(target)


@contextmanager
def _as_named() -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise errors.Unavailable(
                f"a database of the data folder cannot be read: {error.sqlite_errorname}",
                hint="it may be in use for too long, or the disk may fail; try again",
            ) from None
        raise _damaged("of the data folder") from None


def _damaged(name: str) -> errors.DatabaseDamaged:
    return errors.DatabaseDamaged(
        f"the database {name} is damaged, so there is no backup of it",
        hint="keep your backups, and check the disk",
    )


def _object_path(name: str) -> str:
    return f"api/objects/{name[:2]}/{name}"


def _open(path: Path) -> sqlite3.Connection:
    """Open an existing database for reading, without creating it."""
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw", uri=True, timeout=_BUSY_SECONDS, isolation_level=None
    )


def _objects_of(path: Path) -> dict[str, int]:
    """Names and sizes of the objects that a database needs; empty for an uninitialized database."""
    with closing(_open(path)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
        return dict(database.execute(_NEEDED)) if "bulk_object" in tables else {}


def _snapshot(
    stack: ExitStack, paths: Sequence[Path], spool: Path
) -> tuple[list[sqlite3.Connection], dict[str, BinaryIO]]:
    """Open databases and the files of the spool, all at the same moment.

    These databases are locked against writes meanwhile, so that the set of files does not change.
    Open files stay readable after their deletion, and only grow.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
    readers: list[sqlite3.Connection] = []
    uploads: dict[str, BinaryIO] = {}
    with ExitStack() as writers:
        for path in paths:
            writers.enter_context(closing(_open(path))).execute("BEGIN IMMEDIATE")
        for path in paths:
            reader = stack.enter_context(closing(_open(path)))
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
            readers.append(reader)
        for path in sorted(spool.iterdir()) if spool.exists() else ():
            try:
                uploads[path.name] = stack.enter_context(path.open("rb"))
            except FileNotFoundError:
                continue  # of a job that has ended
    return readers, uploads


def restore_folder(source: Path, data_dir: Path) -> Manifest:
    """Create a data folder from a backup, completely or not at all.

    Raises:
        InvalidSetting: ``folder_taken``; the folder exists, and nothing is overwritten.
            ``backup_damaged``; the source is not a backup.
        Unavailable: ``backup_damaged``; a file is missing, or differs from the copy.
        OutOfSpace, Startup: it cannot be read or written.
    """
    manifest = _manifest(source)
    with whole_or_nothing(data_dir) as partial, named(data_dir):
        for name, wanted in manifest.files.items():
            try:
                copied = copy(source / name, partial / name)
            except FileNotFoundError:
                raise _backup_damaged(f"{name} is not there") from None
            if copied != wanted:
                raise _backup_damaged(f"{name} differs from the copy")
    return manifest


def _manifest(source: Path) -> Manifest:
    with named(source):
        try:
            manifest = msgspec.json.decode((source / MANIFEST).read_bytes(), type=Manifest)
        except (FileNotFoundError, NotADirectoryError):
            raise errors.InvalidSetting(
                f"{source} is not a complete backup: it has no {MANIFEST}",
                hint="name a folder that ers backup has made",
                code="backup_damaged",
            ) from None
        except msgspec.DecodeError:
            raise _backup_damaged(f"{MANIFEST} cannot be read") from None
    if manifest.form != FORM:
        raise errors.InvalidSetting(
            f"this version cannot read backups of form {manifest.form}",
            hint=f"restore it with the version that made it, {manifest.version}",
            code="backup_damaged",
        )
    for name in manifest.files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise _backup_damaged(f"{MANIFEST} names a file that is outside of it")
    return manifest


def _backup_damaged(reason: str) -> errors.Unavailable:
    return errors.Unavailable(
        f"the backup is damaged: {reason}",
        hint="restore another one; nothing was changed",
        code="backup_damaged",
    )

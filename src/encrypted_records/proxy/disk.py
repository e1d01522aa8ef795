"""Files that survive a power failure, the proxy's SQLite files, and named errors of the disk.

Whole files are replaced atomically: written completely or not at all, and on disk when the call
returns. Content is written to a temporary name and synced, and then renamed. An interruption leaves
the old file readable, and at worst an unused temporary file.

Committed changes of an SQLite file are on disk, too. A file is checked when it is opened: a damaged
page may hide rows as well as corrupt them, and rows that are silently missing are worse than a
proxy that does not start.

This module imports nothing of the proxy.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, TypeVar

from encrypted_records import runtime
from encrypted_records.errors import ErsError, OutOfSpace, Startup, Unavailable

log = logging.getLogger(__name__)


# Named errors of files and of SQLite.

_DATA_FOLDER_HINT = "check the disk that holds the proxy's data folder"

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FULL = "SQLITE_FULL"


def _is_full(error: OSError | sqlite3.Error) -> bool:
    """Whether the disk is full, or this user's quota is."""
    if isinstance(error, OSError):
        return error.errno in _NO_SPACE
    return _reason_of(error) == _FULL


def _reason_of(error: OSError | sqlite3.Error) -> str:
    """The system's or SQLite's name of the error. SQLite's text may quote the file's content."""
    if isinstance(error, OSError):
        return (error.strerror or "it fails").lower()
    return getattr(error, "sqlite_errorname", None) or type(error).__name__


def _error_of(
    error: OSError | sqlite3.Error,
    message: str,
    *,
    code: str,
    hint: str = _DATA_FOLDER_HINT,
    full: str = "the disk is full",
) -> ErsError:
    """The package's error: ``OutOfSpace`` with the message ``full``, or ``Unavailable``."""
    if _is_full(error):
        return OutOfSpace(full)
    if isinstance(error, OSError):
        message = f"{message}: {_reason_of(error)}"
    return Unavailable(message, code=code, hint=hint)


@contextmanager
def disk_errors(
    message: str, *, code: str, hint: str = _DATA_FOLDER_HINT, full: str = "the disk is full"
) -> Iterator[None]:
    """Convert the errors of files and of SQLite to named errors.

    Raises:
        OutOfSpace: the disk is full.
        Unavailable: with this code; the disk fails otherwise.
    """
    try:
        yield
    except OSError as error:
        raise _error_of(error, message, code=code, hint=hint, full=full) from None
    except sqlite3.Error as error:
        raise _error_of(error, message, code=code, hint=hint, full=full) from error


# Atomic files.


def write_once(path: Path, content: bytes) -> bool:
    """Create ``path`` (0600) unless it exists; returns whether this call created it."""
    temporary = _write_draft(path, content)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync_folder(path.parent)
    return True


def replace(path: Path, content: bytes) -> None:
    """Replace the content of ``path`` (0600); the old content is lost."""
    temporary = _write_draft(path, content)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink()
        raise
    sync_folder(path.parent)


def replace_and_keep(path: Path, content: bytes) -> Path:
    """Replace a file, like :func:`replace`, and keep the content of ``path`` under another name.

    Returns:
        That name: the first free name of ``.previous``, ``.previous-2``, ... so that no kept file
        is overwritten.
    """
    kept = _keep(path)
    sync_folder(path.parent)
    replace(path, content)
    return kept


def list_kept(path: Path) -> list[Path]:
    """Files that :func:`replace_and_keep` has kept of ``path``."""
    return sorted(path.parent.glob(f"{path.name}.previous*"))


def _keep(path: Path) -> Path:
    for number in itertools.count(1):
        kept = path.with_name(f"{path.name}.previous" + (f"-{number}" if number > 1 else ""))
        try:
            os.link(path, kept)
        except FileExistsError:
            continue
        return kept
    raise AssertionError("there is always a next number")


def _write_draft(path: Path, content: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{runtime.random_hex(8)}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink()
        raise
    return temporary


def make_folder(folder: Path) -> None:
    """Create a folder only for its owner, and its parents, unless they exist; they are on disk when
    the call returns."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for made in missing:
        sync_folder(made.parent)


def sync_folder(folder: Path) -> None:
    """Sync the directory entries of ``folder`` to disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Files without a name: other processes do not find them, and they are gone with their process,
# however that ends. So no sweep is needed. Only encrypted data is written to them.

#: Bytes between two checks of the free disk space.
_LOOK_BYTES = 64 << 20


class NamelessFile:
    """A file without a name in ``folder``; ``keep_free`` bytes of the disk stay free. ``work`` is
    its purpose, for errors.
    """

    def __init__(self, folder: Path, keep_free: int, work: str) -> None:
        self._folder = folder
        self._work = work
        self._keep_free = keep_free
        self._unlooked = _LOOK_BYTES
        self._size = 0
        with self._named_errors():
            file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 # kept
            self._file: IO[bytes] = file

    def close(self) -> None:
        """Release its disk space."""
        self._file.close()

    def append(self, data: bytes | bytearray) -> int:
        """Append data, and return the offset at which it begins.

        Raises:
            OutOfSpace: the disk has no room for it.
            Unavailable: the disk fails.
        """
        with self._named_errors():
            self._unlooked += len(data)
            if self._unlooked >= _LOOK_BYTES:
                self._unlooked = 0
                if shutil.disk_usage(self._folder).free < self._keep_free + _LOOK_BYTES:
                    raise OutOfSpace(f"the disk has no space for {self._work}")
            at, left = self._size, memoryview(data)
            while left:
                written = os.pwrite(self._file.fileno(), left, at + len(data) - len(left))
                left = left[written:]
        self._size += len(data)
        return at

    def read(self, at: int, size: int) -> bytes:
        with self._named_errors():
            return os.pread(self._file.fileno(), size, at)

    def empty(self) -> None:
        with self._named_errors():
            os.ftruncate(self._file.fileno(), 0)
        self._size = 0

    def _named_errors(self) -> AbstractContextManager[None]:
        return disk_errors(f"the disk failed under {self._work}", code="spool_failed")


# Ballast: a file that reserves the disk space which a start needs on a full disk. SQLite cannot
# open a database without some space for its log and its shared memory, so a proxy that was
# restarted on a full disk could not even answer queries, which need no space.

BALLAST_NAME = "ballast"
#: The size of the file in bytes: several times the size of the proxy's databases while nothing is
#: written, and of their logs while a proxy catches up with the logs of its schemas.
BALLAST_BYTES = 2 << 20
_ZEROS = bytes(1 << 20)


def drop_ballast_if_full(folder: Path) -> None:
    """Delete the ballast if the disk has less free space than its size.

    Raises:
        OSError: the folder cannot be used.
    """
    if shutil.disk_usage(folder).free >= BALLAST_BYTES:
        return
    with suppress(FileNotFoundError):
        (folder / BALLAST_NAME).unlink()
        log.warning("the disk of %s is nearly full: the room kept for a start is used", folder)


def keep_ballast(folder: Path) -> None:
    """Make the ballast if the disk has at least as much additional space. Errors are ignored:
    without the file the proxy starts as long as the disk has space.
    """
    path = folder / BALLAST_NAME
    with suppress(OSError):
        if path.exists() and path.stat().st_size == BALLAST_BYTES:
            return
        if shutil.disk_usage(folder).free < 2 * BALLAST_BYTES:
            return
        # Not by ftruncate: a sparse file takes no space.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            for _ in range(BALLAST_BYTES // len(_ZEROS)):
                file.write(_ZEROS)


# SQLite files.

T = TypeVar("T")

#: The maximum number of pages in SQLite.
MOST_PAGES = (1 << 32) - 2

#: Prefixes of SQLite's names for errors of a damaged file.
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")


class Database:
    """One SQLite file, readable only by its owner. Thread-safe."""

    def __init__(
        self,
        path: Path,
        tables: str,
        *,
        code: str,
        message: str,
        loss: str,
        later: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        most_pages: int = MOST_PAGES,
    ) -> None:
        """Open the file, or make it.

        Args:
            tables: SQL that makes missing tables.
            later: columns that files of earlier versions lack: their types, by table and name.
            code, message: of the error if the file fails later.
            loss: short text about the loss if this file is lost.
            most_pages: maximum number of 4 KiB pages; a larger file is refused like a full disk.

        Raises:
            Startup: the file is damaged, or cannot be opened.
        """
        self._path = path
        self._code, self._message = code, message
        self._lock = threading.Lock()
        try:
            self._database = _open(path, tables, later)
            self._database.execute(f"PRAGMA max_page_count = {most_pages:d}")
        except sqlite3.Error as error:
            raise _refusal(path, error, loss) from None

    @contextmanager
    def asking(self) -> Iterator[sqlite3.Connection]:
        """The database for one thread; every change outside a transaction is a separate
        transaction.

        Raises:
            OutOfSpace: the disk is full.
            Unavailable: the file fails otherwise; the log has its name, and the reason.
        """
        with self._lock:
            try:
                yield self._database
            except sqlite3.Error as error:
                raise self._name_error(error) from error

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The database, for one transaction.

        Raises:
            OutOfSpace, Unavailable: as :meth:`asking`; nothing was stored.
        """
        with self.asking() as database:
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                # A full disk shows at the commit, and then the transaction is still open.
                database.execute("COMMIT")
            except BaseException:
                # SQLite may have rolled back already.
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise

    def rows(self, statement: str, *values: object) -> list[Any]:
        """The rows that a statement finds; raises as :meth:`asking`."""
        with self.asking() as database:
            return database.execute(statement, values).fetchall()

    def row(self, statement: str, *values: object) -> Any:
        """The first row that a statement finds, or None; raises as :meth:`asking`."""
        with self.asking() as database:
            return database.execute(statement, values).fetchone()

    def run(self, statement: str, *values: object) -> int:
        """Run a statement as a transaction; returns how many rows it changed. Raises as
        :meth:`writing`.
        """
        with self.asking() as database:
            return database.execute(statement, values).rowcount

    def _name_error(self, error: sqlite3.Error) -> ErsError:
        log.error("%s fails: %s", self._path, _reason_of(error))
        hint = f"{_DATA_FOLDER_HINT}; the proxy's log names the file"
        return _error_of(error, self._message, code=self._code, hint=hint)

    def close(self) -> None:
        with self._lock:
            self._database.close()


def _open(path: Path, tables: str, later: Mapping[str, Mapping[str, str]]) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.row_factory = sqlite3.Row
    try:
        path.chmod(0o600)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError  # SQLite's text quotes the file
        # Outside a transaction, each table is a separate transaction, which waits for the disk.
        database.executescript(f"BEGIN; {tables}; COMMIT")
        for table, columns in later.items():
            existing = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
            for name, kind in columns.items():
                if name not in existing:
                    database.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
    except BaseException:
        # Closing may try to write pages that could not be read.
        with suppress(sqlite3.Error):
            database.close()
        raise
    return database


class CacheDatabase:
    """A file that may be lost, readable only by its owner. Safe to use from several threads.

    An error counts as an empty result; a damaged file is replaced by an empty file.
    """

    def __init__(self, path: Path, tables: str) -> None:
        """
        Raises:
            OSError: the folder cannot be written.
            Startup: the file cannot be made otherwise.
        """
        self._path, self._tables = path, tables
        self._lock = threading.Lock()
        try:
            self._database = _open_cache(path, tables)
        except sqlite3.DatabaseError:
            self._database = self._restart()

    def _guard(self, work: Callable[[], T], otherwise: T) -> T:
        with self._lock:
            try:
                return work()
            except sqlite3.Error as error:
                name = _reason_of(error)
                log.warning("the cache %s cannot be used: %s", self._path.name, name)
                if name.startswith(_DAMAGED):
                    with suppress(sqlite3.Error, OSError, Startup):
                        self._database.close()
                        self._database = self._restart()
                return otherwise

    def empty_log(self) -> None:
        """Checkpoint and truncate the write-ahead log, so that it does not contain deleted data."""
        self._guard(
            lambda: self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone(), None
        )

    def _restart(self) -> sqlite3.Connection:
        log.warning("the cache %s was damaged and is replaced by an empty one", self._path.name)
        for name in (self._path.name, f"{self._path.name}-wal", f"{self._path.name}-shm"):
            self._path.with_name(name).unlink(missing_ok=True)
        try:
            return _open_cache(self._path, self._tables)
        except sqlite3.Error as error:
            raise _refusal(self._path, error, "") from None

    def close(self) -> None:
        with self._lock:
            self._database.close()


def _open_cache(path: Path, tables: str) -> sqlite3.Connection:
    path.touch(mode=0o600)
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        # After a power failure the newest changes may be missing, but never half written.
        database.execute("PRAGMA synchronous = NORMAL")
        # Deleted data must not stay in free pages.
        database.execute("PRAGMA secure_delete = ON")
        database.executescript(tables)
    except sqlite3.DatabaseError:
        database.close()
        raise
    return database


def _refusal(path: Path, error: sqlite3.Error, loss: str) -> Startup:
    name = _reason_of(error)
    if _is_full(error):
        return Startup(
            f"the disk that holds {path} is full", hint="free some space there, then start again"
        )
    if name.startswith(_DAMAGED) or type(error) is sqlite3.DatabaseError:
        return Startup(
            f"{path} is damaged",
            hint=f"delete it, together with {path.name}-wal and {path.name}-shm, if you can"
            f" accept this: {loss}",
        )
    return Startup(
        f"cannot open {path}: {name}",
        hint="let this user read and write there, and check the disk that holds it",
    )

"""The databases of an API: their settings, a check that a database was not lost, and the meaning of
database errors.

Without a check, a lost database would silently be replaced by an empty one. So the data folder has
a file ``served``: for each kind of database, when the database was first prepared, that is, the
time of its first migration, to the microsecond. Every backup of a database contains this time, and
no two databases have the same. A folder from before this file existed has a key, which is made
before the database; a first start that is interrupted between the two leaves ``served`` without a
line.

The text of a database error may quote a parameter. So errors are identified only by SQLite's error
name and PostgreSQL's SQLSTATE, which come from fixed lists.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import environ
import msgspec

from encrypted_records import errors, logs

#: Django's alias of the replica, which only serves reads.
REPLICA = "replica"
_POSTGRESQL = "encrypted_records.server.db.postgres"
_IMPATIENT = "encrypted_records.server.db.replica"
#: libpq options: milliseconds without an acknowledgement, and the keepalive times in seconds.
_SOON_GIVEN_UP = {
    "tcp_user_timeout": 4000,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 2,
}


def configure_databases(url: str, replica_url: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Django's ``DATABASES``.

    Args:
        url: of the database; empty for SQLite in the folder.
        replica_url: of a replica of it; empty if there is none.

    Raises:
        InvalidSetting: a URL is of an unsupported kind.
    """
    databases = {"default": _settings_of(url, folder)}
    if replica_url:
        databases[REPLICA] = _settings_of(replica_url, folder)
        if {database["ENGINE"] for database in databases.values()} != {_POSTGRESQL}:
            raise errors.InvalidSetting(
                "only PostgreSQL has replicas that can answer readers",
                hint="leave ERS_REPLICA_URL out, or name two servers of one PostgreSQL",
            )
        # The primary is the fallback: give up soon on a replica whose machine vanished silently.
        options = databases[REPLICA]["OPTIONS"]
        databases[REPLICA] |= {
            "ENGINE": _IMPATIENT,
            "OPTIONS": _SOON_GIVEN_UP | options | {"connect_timeout": 2},
        }
    return databases


def _settings_of(url: str, folder: Path) -> dict[str, Any]:
    if url:
        try:
            database: dict[str, Any] = environ.Env().db_url_config(url)
        except ValueError:
            database = {}
    else:
        path = str(folder / "db.sqlite3")
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": path}
    database["CONN_MAX_AGE"] = None  # each thread keeps its connection
    match str(database.get("ENGINE", "")).rpartition(".")[2]:
        case "sqlite3":
            database["OPTIONS"] = {
                # A transaction that begins with a read would fail when it writes.
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": (
                    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                    # Deleted data must not stay in free pages.
                    " PRAGMA secure_delete=ON;"
                ),
            }
        case "postgresql":
            # The server may have restarted; each request checks the connection.
            database["CONN_HEALTH_CHECKS"] = True
            database["ENGINE"] = _POSTGRESQL
            # As libpq reads it: the path of a socket's folder has %2F for each slash.
            database["HOST"] = unquote(database.get("HOST", ""))
            database["OPTIONS"] = {"connect_timeout": 5} | database.get("OPTIONS", {})
        case _:
            raise errors.InvalidSetting(
                "the database URL is of a kind that this service does not support",
                hint="use sqlite:///path or postgres://user:password@host:port/name",
            )
    return database


DATABASE_LOST = "database_lost"


class Served:
    """The ``served`` file of a folder, for the only API that starts on it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "served"
        self._key = folder / "secret.key"

    def begin(self) -> None:
        """Called before the key is made: from now on a key does not prove that there was a
        database.
        """
        if not self._key.exists() and not self._path.exists():
            self._write({})

    def check_file(self, database: Path) -> None:
        """Called before SQLite opens its file: it would create the file, and drop the
        write-ahead log of a lost database.

        Raises:
            Startup: the file is missing or empty, although there was a database.
        """
        gone = not database.exists()
        if not gone and database.stat().st_size > 0:
            return
        # Without ``served``, the folder is from before this file existed.
        if "sqlite" in self._read() or (self._key.exists() and not self._path.exists()):
            raise errors.Startup(
                f"the database {database} is {'gone' if gone else 'empty'}, but this folder"
                " has already been used with a database",
                hint=f"restore it from a backup; to begin a new service here, delete {self._key}"
                f" and {self._path}, or name another folder with --data-dir",
                code=DATABASE_LOST,
            )

    def check(self, kind: str, name: str, prepared: str | None) -> None:
        """Called once the database answers, and before it is prepared.

        Args:
            kind: sqlite or postgresql.
            name: the database's name for messages.
            prepared: when it was first prepared; None if it is empty.

        Raises:
            Startup: it is not the database that the folder served.
        """
        known = self._read().get(kind)
        if known in (None, prepared):
            return
        found = "empty" if prepared is None else "another one"
        raise errors.Startup(
            f"the database {name} is {found}, and not the one that this folder was used with",
            hint="check ERS_DATABASE_URL, or restore the database from a backup; to serve this one"
            f" from here, delete {self._path}",
            code=DATABASE_LOST,
        )

    def remember(self, kind: str, prepared: str) -> None:
        known = self._read()
        if known.get(kind) != prepared:
            self._write(known | {kind: prepared})

    def _read(self) -> dict[str, str]:
        try:
            lines = self._path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return {}
        return {kind: when for kind, _, when in (line.partition(" ") for line in lines)}

    def _write(self, known: dict[str, str]) -> None:
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with draft.open("w") as stream:
            stream.writelines(f"{kind} {when}\n" for kind, when in sorted(known.items()))
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(self._path)


#: disk_full
_FULL = frozenset({"SQLITE_FULL", "53100"})
#: io_error, read_only_sql_transaction
_DISK = frozenset({"58030", "25006"})
#: data_corrupted, index_corrupted
_DAMAGED = frozenset({"SQLITE_NOTADB", "XX001", "XX002"})


def error_name(error: BaseException) -> str:
    """The SQLite name or SQLSTATE of the database error that caused this error; empty if there is
    none.
    """
    causes: BaseException | None = error
    while causes is not None:
        if name := logs.database_name(causes):
            return name
        causes = causes.__cause__ or causes.__context__
    return ""


def meaning_of(error: BaseException) -> errors.Unavailable | None:
    """The error to report if waiting does not help and an operator must act; None for other
    errors.
    """
    name = error_name(error)
    if name in _FULL:
        return errors.DatabaseFull("the disk that holds the API's database is full")
    # SQLite has several names for corruption, with a common prefix.
    if name in _DAMAGED or name.startswith("SQLITE_CORRUPT"):
        return errors.DatabaseDamaged("the API's database is damaged: restore it from a backup")
    # Also reads and writes that the system refuses, and a file system that became read-only.
    if name in _DISK or name.startswith(("SQLITE_IOERR", "SQLITE_READONLY")):
        return errors.DatabaseDiskFailed(
            "the disk that holds the API's database fails, or is read-only"
        )
    return None


@contextmanager
def reading_stored(thing: str) -> Iterator[None]:
    """Convert format errors of stored data: it was checked before it was stored, so the caller is
    not to blame. ``Unsupported``, for a format of another version, stays as it is and names what to
    do.

    Raises:
        DatabaseDamaged: instead of ``Malformed``.
    """
    try:
        yield
    except (errors.Malformed, msgspec.DecodeError):
        raise errors.DatabaseDamaged(f"{thing} cannot be read as it is stored") from None

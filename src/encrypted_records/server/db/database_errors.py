"""Meanings of errors of a database: its disk is full or fails, it is damaged, or it does not
answer.

An exception of the database says in its own words what failed, and these may quote a parameter.
What is read here is the name that SQLite gives its errors, and the SQLSTATE of PostgreSQL's: words
of a fixed list.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from encrypted_records import logs
from encrypted_records.errors import (
    DatabaseDamaged,
    DatabaseDiskFailed,
    DatabaseFull,
    Malformed,
    Unavailable,
)

#: disk_full
_FULL = frozenset({"SQLITE_FULL", "53100"})
#: io_error, read_only_sql_transaction
_DISK = frozenset({"58030", "25006"})
#: data_corrupted, index_corrupted
_DAMAGED = frozenset({"SQLITE_NOTADB", "XX001", "XX002"})


def name_of(error: BaseException) -> str:
    """The name or SQLSTATE of what failed below this error; nothing if it was no database."""
    causes: BaseException | None = error
    while causes is not None:
        if name := logs.database_name(causes):
            return name
        causes = causes.__cause__ or causes.__context__
    return ""


def meaning(error: BaseException) -> Unavailable | None:
    """The error to report where waiting does not help, for an operator; None for others."""
    name = name_of(error)
    if name in _FULL:
        return DatabaseFull("the disk that holds the API's database is full")
    # Of a damaged file SQLite has several names with one beginning.
    if name in _DAMAGED or name.startswith("SQLITE_CORRUPT"):
        return DatabaseDamaged("the API's database is damaged: restore it from a backup")
    # Of a read or write that the system refuses, and of a file system that became read-only, too.
    if name in _DISK or name.startswith(("SQLITE_IOERR", "SQLITE_READONLY")):
        return DatabaseDiskFailed("the disk that holds the API's database fails, or is read-only")
    return None


@contextmanager
def reading_stored(thing: str) -> Iterator[None]:
    """Errors of the form of something that was checked before it was stored: not the caller's.
    A format of another version stays the ``Unsupported`` that it is, and names what to do.

    Raises:
        DatabaseDamaged: instead of ``Malformed``.
    """
    try:
        yield
    except (Malformed, msgspec.DecodeError):
        raise DatabaseDamaged(f"{thing} cannot be read as it is stored") from None

"""Refusals of the disk, as errors of ours: one place for files and for SQLite."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from encrypted_records.errors import ErsError, OutOfSpace, Unavailable

DATA_FOLDER_HINT = "check the disk that holds the proxy's data folder"

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FULL = "SQLITE_FULL"


def is_full(error: OSError | sqlite3.Error) -> bool:
    """Whether there is no space left, or no more of it for this user."""
    if isinstance(error, OSError):
        return error.errno in _NO_SPACE
    return reason_of(error) == _FULL


def reason_of(error: OSError | sqlite3.Error) -> str:
    """The system's or SQLite's name of the error. SQLite's text may quote what is in the file."""
    if isinstance(error, OSError):
        return (error.strerror or "it fails").lower()
    return getattr(error, "sqlite_errorname", None) or type(error).__name__


def error_of(
    error: OSError | sqlite3.Error,
    message: str,
    *,
    code: str,
    hint: str = DATA_FOLDER_HINT,
    full: str = "the disk is full",
) -> ErsError:
    """The error of ours: ``OutOfSpace`` with the message ``full``, or ``Unavailable``."""
    if is_full(error):
        return OutOfSpace(full)
    if isinstance(error, OSError):
        message = f"{message}: {reason_of(error)}"
    return Unavailable(message, code=code, hint=hint)


@contextmanager
def disk_errors(
    message: str, *, code: str, hint: str = DATA_FOLDER_HINT, full: str = "the disk is full"
) -> Iterator[None]:
    """Name the errors of files and of SQLite.

    Raises:
        OutOfSpace: the disk is full.
        Unavailable: of this code; the disk fails otherwise.
    """
    try:
        yield
    except OSError as error:
        raise error_of(error, message, code=code, hint=hint, full=full) from None
    except sqlite3.Error as error:
        raise error_of(error, message, code=code, hint=hint, full=full) from error

"""The newest log version this machine has seen of each schema, kept across restarts.

An API that answers with less has lost or withheld data; remembering is what makes that an error
and not a shorter answer. The versions before it are kept as well, as far as they are not too many:
they distinguish a log that is only older from one with other commits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection

from encrypted_records.index.log.order import Head
from encrypted_records.proxy.disk.sqlite import Database

#: Versions before the head that are kept, of each schema; some 60 bytes each.
KEPT = 10_000

_TABLES = """
CREATE TABLE IF NOT EXISTS head (
    schema BLOB PRIMARY KEY,
    version INTEGER NOT NULL,
    digest BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS passed (
    schema BLOB NOT NULL,
    version INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (schema, version)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    wall REAL NOT NULL,
    before REAL,
    observed REAL NOT NULL
)
"""
# A slower thread must not put an older head over a newer one.
_REMEMBER = """
INSERT INTO head (schema, version, digest) VALUES (?, ?, ?)
ON CONFLICT (schema) DO UPDATE SET version = excluded.version, digest = excluded.digest
WHERE excluded.version > head.version
"""
_INSERT_PASSED = "INSERT OR REPLACE INTO passed (schema, version, digest) VALUES (?, ?, ?)"
_NOTE_CLOCK = "INSERT OR REPLACE INTO clock (id, wall, before, observed) VALUES (1, ?, ?, ?)"


@dataclass(frozen=True, slots=True)
class ClockMark:
    """The time that this machine's clock showed last.

    ``wall`` is that time, or a later one that it should show, and ``before`` the time shown before
    a jump that is still in doubt, both in seconds since 1970. ``observed`` counts the seconds that
    the proxy has seen pass since the jump, or since its first start.
    """

    wall: float
    before: float | None
    observed: float


class Heads:
    """Safe to use from several threads."""

    def __init__(self, path: Path, kept: int = KEPT) -> None:
        """
        Args:
            kept: versions before the head that are kept, of each schema.

        Raises:
            Startup: the file is damaged, or cannot be opened.
        """
        self._kept = kept
        self._database = Database(
            path,
            _TABLES,
            # What cannot be remembered must not be trusted.
            code="proxy_store_failed",
            message="what this proxy has seen of schemas' logs cannot be read or written",
            loss="the proxy then no longer notices if the API's data is older than what it has"
            " seen; nothing else is lost",
        )

    def get(self, schema: bytes) -> Head | None:
        """Raises as :meth:`remember`."""
        with self._database.asking() as database:
            row = database.execute(
                "SELECT version, digest FROM head WHERE schema = ?", (schema,)
            ).fetchone()
        return None if row is None else Head(row[0], row[1])

    def remember(self, schema: bytes, head: Head, passed: Sequence[Head] = ()) -> None:
        """Durable when it returns.

        Args:
            passed: heads since the one that was remembered last.

        Raises:
            OutOfSpace, Unavailable: the disk does not take it.
        """
        with self._database.writing() as database:
            database.execute(_REMEMBER, (schema, head.version, head.digest))
            _pass(database, schema, [*passed, head], self._kept)

    def list_passed(self, schema: bytes, up_to: int) -> list[Head]:
        """What is kept of heads up to a version, the newest first. Raises as :meth:`remember`."""
        with self._database.asking() as database:
            rows = database.execute(
                "SELECT version, digest FROM passed WHERE schema = ? AND version <= ?"
                " ORDER BY version DESC",
                (schema, up_to),
            ).fetchall()
        return [Head(*row) for row in rows]

    def replace(self, schema: bytes, head: Head, passed: Sequence[Head]) -> None:
        """Forget what was seen of this schema, and take another log for it.

        Args:
            passed: heads of that log.

        Raises:
            OutOfSpace, Unavailable: the disk does not take it, and nothing has changed.
        """
        with self._database.writing() as database:
            for table in ("head", "passed"):
                database.execute(f"DELETE FROM {table} WHERE schema = ?", (schema,))  # noqa: S608
            database.execute(_REMEMBER, (schema, head.version, head.digest))
            _pass(database, schema, [*passed, head], self._kept)

    def clock(self) -> ClockMark | None:
        """None before the first note. Raises as :meth:`remember`."""
        with self._database.asking() as database:
            row = database.execute("SELECT wall, before, observed FROM clock").fetchone()
        return None if row is None else ClockMark(*row)

    def note_clock(self, mark: ClockMark) -> None:
        """Durable when it returns. Raises as :meth:`remember`."""
        with self._database.writing() as database:
            database.execute(_NOTE_CLOCK, (mark.wall, mark.before, mark.observed))

    def close(self) -> None:
        self._database.close()


def _pass(database: Connection, schema: bytes, heads: Sequence[Head], count: int) -> None:
    oldest = heads[-1].version - count
    kept = [head for head in heads if head.version > oldest]
    database.executemany(_INSERT_PASSED, [(schema, head.version, head.digest) for head in kept])
    database.execute("DELETE FROM passed WHERE schema = ? AND version <= ?", (schema, oldest))

"""State of schemas' logs that survives restarts: the newest heads, and verified logs.

The newest version that each user's proxy has seen of each log is remembered: an API that answers
with less has lost or withheld data, and remembering makes that an error and not a shorter answer.
Earlier versions are stored as well, up to a number: they distinguish a log that is only older from
a log with other commits. Each user of a proxy has a separate memory: a user who accepts an older
log changes no other user's memory. Acceptances of logs are stored, too, for all users to see.

A stored log lets a starting proxy request only what is new. It is sealed under a key of its schema
(docs/SPEC.md, section 14): only a holder of the keyring can have made it, or can read it. It is
trusted no more than the log that it was taken from: the API's later commits must continue it and
contain the newest version that this proxy has seen; if anything is wrong with it, the whole log is
read again. So the file may be lost, and a damaged file is replaced. Logs are saved in the
background, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Literal

from encrypted_records import runtime
from encrypted_records.crypto.format import NONCE_BYTES
from encrypted_records.crypto.keys import LogKeys
from encrypted_records.errors import ErsError, Malformed
from encrypted_records.index.log import ledger_state
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.ledger_state import LedgerState
from encrypted_records.index.log.order import LogHead, LogMembership, Order
from encrypted_records.proxy.disk import CacheDatabase, Database
from encrypted_records.proxy.process import LEDGERS, Background

log = logging.getLogger(__name__)


#: ``older``: a log is a beginning of what was seen. ``forked``: it has other commits. ``unclear``:
#: the stored versions do not show which.
LogDifference = Literal["older", "forked", "unclear"]

#: Versions before the head that are stored for each schema; some 60 bytes each.
KEPT = 10_000

# `head` and `passed` are from proxies that remembered logs for all their users together. They count
# for each user without a separate memory of a schema yet, and nothing is added to them.
_TABLES = """
CREATE TABLE IF NOT EXISTS user_head (
    user BLOB NOT NULL,
    schema BLOB NOT NULL,
    version INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (user, schema)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS user_passed (
    user BLOB NOT NULL,
    schema BLOB NOT NULL,
    version INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (user, schema, version)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS acceptance (
    user BLOB NOT NULL,
    schema BLOB NOT NULL,
    version INTEGER NOT NULL,
    digest BLOB NOT NULL,
    seen_version INTEGER NOT NULL,
    seen_digest BLOB NOT NULL,
    writer INTEGER NOT NULL,
    time INTEGER NOT NULL,
    PRIMARY KEY (schema, user)
) WITHOUT ROWID;
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
CREATE TABLE IF NOT EXISTS clock_mark (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    wall REAL NOT NULL,
    real REAL NOT NULL,
    boot TEXT NOT NULL,
    behind REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS clock_doubt (
    id INTEGER PRIMARY KEY,
    seconds REAL,
    noticed REAL NOT NULL,
    ran REAL NOT NULL
)
"""
# A slower thread must not replace a newer head by an older head.
_REMEMBER = """
INSERT INTO user_head (user, schema, version, digest) VALUES (?, ?, ?, ?)
ON CONFLICT (user, schema) DO UPDATE SET version = excluded.version, digest = excluded.digest
WHERE excluded.version > user_head.version
"""
_INSERT_PASSED = "INSERT OR REPLACE INTO user_passed VALUES (?, ?, ?, ?)"
_GET = "SELECT version, digest FROM user_head WHERE user = ? AND schema = ?"
_GET_OLD = "SELECT version, digest FROM head WHERE schema = ?"
# The first time that a user's memory is written, it begins with the common memory.
_BEGIN = """
INSERT OR IGNORE INTO user_passed
SELECT ?1, schema, version, digest FROM passed WHERE schema = ?2
AND NOT EXISTS (SELECT 1 FROM user_head WHERE user = ?1 AND schema = ?2)
"""
_PASSED = """
SELECT version, digest FROM user_passed WHERE user = ? AND schema = ? AND version <= ?
ORDER BY version DESC
"""
_PASSED_OLD = """
SELECT version, digest FROM passed WHERE schema = ? AND version <= ? ORDER BY version DESC
"""
_USERS = "SELECT user FROM user_head WHERE schema = ? ORDER BY user"
_ACCEPT = "INSERT OR REPLACE INTO acceptance VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_ACCEPTANCES = """
SELECT user, version, digest, seen_version, seen_digest, writer, time FROM acceptance
WHERE schema = ? ORDER BY time DESC
"""
_NOTE_CLOCK = "INSERT OR REPLACE INTO clock_mark VALUES (1, ?, ?, ?, ?)"
_NOTE_DOUBT = "INSERT INTO clock_doubt (seconds, noticed, ran) VALUES (?, ?, ?)"


@dataclass(frozen=True, slots=True)
class Doubt:
    """A step ahead of this machine's clock that nothing else confirms.

    ``seconds`` is how far it went; None at the first start of a proxy, which knows no time before.
    ``noticed`` is what the clock showed then, in seconds since 1970, and ``ran`` for how many
    seconds the proxy has run since.
    """

    seconds: float | None
    noticed: float
    ran: float


@dataclass(frozen=True, slots=True)
class ClockMark:
    """The last known time of this machine's clock.

    ``wall`` is that time, in seconds since 1970, or a later time that it should show; ``real`` is
    the reading of a monotonic clock, which restarts with each ``boot`` of the machine. ``behind``
    counts the seconds for which the proxy has run with a clock that is behind ``wall``. The oldest
    doubt comes first.
    """

    wall: float
    real: float
    boot: str
    behind: float
    doubts: tuple[Doubt, ...]


@dataclass(frozen=True, slots=True)
class AcceptedHead:
    """A user accepted a log with ``head`` instead of the log with ``seen``. ``writer`` says whether
    the user could write the schema then; ``time`` is in milliseconds since 1970."""

    user: bytes
    head: LogHead
    seen: LogHead
    writer: bool
    time: int


class Heads:
    """Safe to use from several threads."""

    def __init__(self, path: Path, kept: int = KEPT, reference: Heads | None = None) -> None:
        """
        Args:
            kept: number of versions before the head that are stored for each schema.
            reference: another memory, which is not changed: every log that is remembered here must
                be a beginning of a log there.

        Raises:
            Startup: the file is damaged, or cannot be opened.
        """
        self._kept = kept
        self._reference = reference
        self._database = Database(
            path,
            _TABLES,
            # A log whose head cannot be remembered must not be trusted.
            code="proxy_store_failed",
            message="this proxy's memory of schemas' logs cannot be read or written",
            loss="the proxy then no longer notices if the API's data is older than what it has"
            " seen; nothing else is lost",
        )

    def get(self, user: bytes, schema: bytes) -> LogHead | None:
        """The newest head that a user has seen of a schema's log; 16-byte identifiers. Raises as
        :meth:`remember`."""
        with self._database.asking() as database:
            return _get(database, user, schema)

    def remember(
        self, user: bytes, schema: bytes, head: LogHead, passed: Sequence[LogHead] = ()
    ) -> None:
        """Durable when it returns.

        Args:
            passed: heads since the last remembered head.

        Raises:
            OutOfSpace, Unavailable: the disk cannot store it.
        """
        with self._database.writing() as database:
            database.execute(_BEGIN, (user, schema))
            database.execute(_REMEMBER, (user, schema, head.version, head.digest))
            _pass(database, user, schema, [*passed, head], self._kept)

    def list_passed(self, user: bytes, schema: bytes, up_to: int) -> list[LogHead]:
        """The heads up to a version that are stored for a user, the newest first. Raises as
        :meth:`remember`."""
        with self._database.asking() as database:
            if database.execute(_GET, (user, schema)).fetchone() is not None:
                rows = database.execute(_PASSED, (user, schema, up_to)).fetchall()
            else:
                rows = database.execute(_PASSED_OLD, (schema, up_to)).fetchall()
        return [LogHead(*row) for row in rows]

    def lacks(self, user: bytes, schema: bytes, log: Order) -> LogDifference | None:
        """How a log differs from what a user has seen of it; None if it has all of that. Raises as
        :meth:`remember`."""
        seen = self.get(user, schema)
        if seen is None or log.knows(seen):
            return None
        return difference(log, seen, self.list_passed(user, schema, log.version))

    def users_of(self, schema: bytes) -> list[bytes]:
        """The users who have seen a log of a schema. Raises as :meth:`remember`."""
        return [row[0] for row in self._database.rows(_USERS, schema)]

    def is_beginning(self, user: bytes, schema: bytes, log: Order) -> bool:
        """Whether the other memory, if there is one, shows that a log is a beginning of the log
        there, or continues it. Raises as :meth:`remember`."""
        lacks = None if self._reference is None else self._reference.lacks(user, schema, log)
        return lacks in (None, "older")

    def accept(self, schema: bytes, accepted: AcceptedHead, passed: Sequence[LogHead]) -> None:
        """Forget what the accepting user has seen of this schema, and remember another log instead.

        Args:
            passed: heads of that log.

        Raises:
            OutOfSpace, Unavailable: the disk cannot store it, and nothing has changed.
        """
        with self._database.writing() as database:
            user, head, seen = accepted.user, accepted.head, accepted.seen
            for table in ("user_head", "user_passed"):
                database.execute(
                    f"DELETE FROM {table} WHERE user = ? AND schema = ?",  # noqa: S608
                    (user, schema),
                )
            database.execute(_REMEMBER, (user, schema, head.version, head.digest))
            _pass(database, user, schema, [*passed, head], self._kept)
            heads = (head.version, head.digest, seen.version, seen.digest)
            database.execute(_ACCEPT, (user, schema, *heads, accepted.writer, accepted.time))

    def acceptances(self, schema: bytes) -> list[AcceptedHead]:
        """The last acceptance of each user, the newest first. Raises as :meth:`remember`."""
        rows = self._database.rows(_ACCEPTANCES, schema)
        return [
            AcceptedHead(
                user, LogHead(version, digest), LogHead(seen, its_digest), bool(writer), time
            )
            for user, version, digest, seen, its_digest, writer, time in rows
        ]

    def clock(self) -> ClockMark | None:
        """None before the first note. Raises as :meth:`remember`."""
        with self._database.asking() as database:
            row = database.execute("SELECT wall, real, boot, behind FROM clock_mark").fetchone()
            doubts = database.execute("SELECT seconds, noticed, ran FROM clock_doubt ORDER BY id")
            found = tuple(Doubt(*doubt) for doubt in doubts.fetchall())
        if row is None:
            return None
        wall, real, boot, behind = row
        return ClockMark(wall, real, boot, behind, found)

    def note_clock(self, mark: ClockMark) -> None:
        """Durable when it returns. Raises as :meth:`remember`."""
        with self._database.writing() as database:
            database.execute(_NOTE_CLOCK, (mark.wall, mark.real, mark.boot, mark.behind))
            database.execute("DELETE FROM clock_doubt")
            doubts = [(doubt.seconds, doubt.noticed, doubt.ran) for doubt in mark.doubts]
            database.executemany(_NOTE_DOUBT, doubts)

    def close(self) -> None:
        self._database.close()
        if self._reference is not None:
            self._reference.close()


def difference(log: Order, seen: LogHead, passed: Sequence[LogHead]) -> LogDifference | None:
    """How a log differs from what was seen of it; None if it has all of that.

    Args:
        passed: heads that were seen up to its version, the newest first.
    """
    if log.knows(seen):
        return None
    if log.version >= seen.version:
        return "forked"
    if log.version == 0 or passed[:1] == [log.head]:
        return "older"
    return "unclear" if not passed or log.knows(passed[0]) else "forked"


def _get(database: Connection, user: bytes, schema: bytes) -> LogHead | None:
    row = database.execute(_GET, (user, schema)).fetchone()
    if row is None:
        row = database.execute(_GET_OLD, (schema,)).fetchone()
    return None if row is None else LogHead(*row)


def _pass(
    database: Connection, user: bytes, schema: bytes, heads: Sequence[LogHead], count: int
) -> None:
    oldest = heads[-1].version - count
    rows = [(user, schema, head.version, head.digest) for head in heads if head.version > oldest]
    database.executemany(_INSERT_PASSED, rows)
    database.execute(
        "DELETE FROM user_passed WHERE user = ? AND schema = ? AND version <= ?",
        (user, schema, oldest),
    )


#: Maximum bytes of all logs of all users together; some 140 bytes for a commit.
BUDGET_BYTES = 256 << 20

_HEAD = struct.Struct(">BI")
_FORMAT = 1
_TABLE = """
CREATE TABLE IF NOT EXISTS ledger (
    user BLOB NOT NULL,
    schema BLOB NOT NULL,
    version INTEGER NOT NULL,
    used INTEGER NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (user, schema)
)
"""


class LedgerStore(CacheDatabase):
    """Safe to use from several threads. The least recently used logs are dropped first."""

    def __init__(self, path: Path, budget: int = BUDGET_BYTES) -> None:
        """
        Raises:
            OSError, Startup: as :class:`CacheDatabase`.
        """
        super().__init__(path, _TABLE)
        self._budget = budget

    def find(self, user: bytes, schema: bytes) -> bytes | None:
        """The sealed copy of the user's log of a schema."""
        return self._guard(lambda: self._get(user, schema), None)

    def open(
        self,
        user: bytes,
        keys: LogKeys,
        writer: bytes,
        sealed: bytes,
        seen: LogHead,
        membership: LogMembership | None = None,
    ) -> Ledger | None:
        """The ledger from the result of :meth:`find`; None if it cannot be used.

        Args:
            writer: names the commits that are drafted from the ledger.
            seen: the newest version that this proxy remembers. A kept log beyond it is not used:
                an operator who removes the proxy's memory of a log removes the kept log, too.
        """
        try:
            state = ledger_state.decode(unseal(user, keys, sealed))
            ledger = Ledger.restore(keys, writer, state, membership)
        except ErsError as error:
            log.info("the stored state of a log cannot be used: %s", error.message)
            return None
        return ledger if ledger.version <= seen.version else None

    def _get(self, user: bytes, schema: bytes) -> bytes | None:
        key = (user, schema)
        self._database.execute(
            "UPDATE ledger SET used = ? WHERE user = ? AND schema = ?", (runtime.wall_ns(), *key)
        )
        row = self._database.execute(
            "SELECT data FROM ledger WHERE user = ? AND schema = ?", key
        ).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, user: bytes, keys: LogKeys, state: LedgerState) -> None:
        """Store a log, replacing its earlier copy."""
        try:
            sealed = seal(user, keys, state.encode())
        except ErsError as error:
            # A user without a grant of the newest key continues to read.
            log.info("a log was not kept: %s", error.message)
            return
        if len(sealed) <= self._budget:
            self._guard(lambda: self._put(user, keys.schema, state.snapshot.version, sealed), None)

    def drop(self, user: bytes, schema: bytes) -> None:
        """Delete the copy of a log."""
        self._guard(
            lambda: self._database.execute(
                "DELETE FROM ledger WHERE user = ? AND schema = ?", (user, schema)
            ),
            None,
        )

    def _put(self, user: bytes, schema: bytes, version: int, sealed: bytes) -> None:
        self._database.execute("BEGIN IMMEDIATE")
        with self._database:
            self._database.execute(
                "INSERT OR REPLACE INTO ledger (user, schema, version, used, data)"
                " VALUES (?, ?, ?, ?, ?)",
                (user, schema, version, runtime.wall_ns(), sealed),
            )
            # The least recently used logs, which exceed the budget.
            self._database.execute(
                "DELETE FROM ledger WHERE rowid IN (SELECT rowid FROM (SELECT rowid,"
                " sum(length(data)) OVER (ORDER BY used DESC, rowid DESC) AS total FROM ledger)"
                " WHERE total > ?)",
                (self._budget,),
            )


def seal(user: bytes, keys: LogKeys, plain: bytes) -> bytes:
    """Seal the copy of a user's log of a schema, see docs/SPEC.md, section 14."""
    key = keys.newest
    head, nonce = _HEAD.pack(_FORMAT, key.version), runtime.random_bytes(NONCE_BYTES)
    return head + nonce + key.ledger.encrypt(nonce, plain, _context(head, user, keys))


def unseal(user: bytes, keys: LogKeys, sealed: bytes) -> bytes:
    """The bytes that :func:`seal` was given.

    Raises:
        KeyMissing: the keyring lacks the version that sealed it.
        DoesNotOpen, Malformed: altered, of another user or schema, or of another version.
    """
    begin = _HEAD.size + NONCE_BYTES
    head, nonce = sealed[: _HEAD.size], sealed[_HEAD.size : begin]
    if len(sealed) < begin or head[0] != _FORMAT:
        raise Malformed("it is of another version")
    key = keys.of(_HEAD.unpack(head)[1])
    return key.ledger.decrypt(nonce, sealed[begin:], _context(head, user, keys))


def _context(head: bytes, user: bytes, keys: LogKeys) -> bytes:
    return head + user + keys.organization + keys.schema


#: Maximum seconds for storing all logs when a proxy is shut down.
SECONDS_AT_THE_END = 2.0


@dataclass(frozen=True, slots=True)
class KeepingPolicy:
    """The number of new commits after which a log is stored on disk: one ``part``-th of the stored
    log, but no fewer than ``least_commits``. So the cost does not grow with the log, and few
    commits are left to verify at a start. At an orderly end of the proxy, ``least_at_the_end`` are
    sufficient.
    """

    least_commits: int = 200
    part: int = 16
    least_at_the_end: int = 20


STANDARD = KeepingPolicy()


class LedgerKeeper:
    def __init__(
        self, store: LedgerStore, background: Background, policy: KeepingPolicy = STANDARD
    ) -> None:
        self._store = store
        self._background = background
        self._policy = policy
        self._one_at_a_time = asyncio.Lock()

    def note(self, user: bytes, ledger: Ledger, kept: int, *, at_the_end: bool = False) -> int:
        """Store the user's log of a schema if it is time.

        Args:
            kept: how many commits of it are stored on disk.

        Returns:
            The number of stored commits after this.
        """
        policy = self._policy
        least = max(policy.least_commits, kept // policy.part)
        if at_the_end:
            least = policy.least_at_the_end
        if ledger.version - kept < least:
            return kept
        self._background.start(LEDGERS, partial(self._keep, user, ledger))
        return ledger.version

    async def _keep(self, user: bytes, ledger: Ledger) -> None:
        async with self._one_at_a_time:
            # Quick, and on the event loop, so that the ledger cannot change; encoding takes longer.
            state = ledger.state()
            await runtime.in_thread(self._store.put, user, ledger.keys, state)

    async def finish(self) -> None:
        """Wait for running saves, at most ``SECONDS_AT_THE_END`` seconds."""
        await self._background.finish(LEDGERS, within=SECONDS_AT_THE_END)

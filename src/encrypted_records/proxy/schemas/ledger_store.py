"""Verified logs on this machine's disk, so that a starting proxy requests only what is new.

A kept log is sealed under a key of its schema (docs/SPEC.md, section 14): only a holder of the
keyring can have made it, or can read it. It is trusted no more than the log that it was taken from:
the API's later commits must continue it and contain the newest version that this proxy has seen
(:mod:`.heads`); if anything is wrong with it, the whole log is read again. So the file may be lost,
and a damaged one is replaced.

They are saved in the background, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from encrypted_records import runtime
from encrypted_records.crypto.format import NONCE_BYTES
from encrypted_records.crypto.keys import LogKeys
from encrypted_records.errors import ErsError, Malformed
from encrypted_records.index.log import ledger_state
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.ledger_state import LedgerState
from encrypted_records.index.log.order import LogHead
from encrypted_records.index.log.signing import LogMembership
from encrypted_records.proxy.disk import CacheDatabase
from encrypted_records.proxy.process.background import LEDGERS, Background

log = logging.getLogger(__name__)

#: Of all logs of all users together, and so of each; some 140 bytes for a commit.
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
        """The sealed bytes that are kept of the user's log of a schema."""
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
        """The ledger that :meth:`find` gave; None where it is of no use.

        Args:
            writer: the ledger's, of what is drafted from it.
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
        """Keep a log, instead of what was kept of it before."""
        try:
            sealed = seal(user, keys, state.encode())
        except ErsError as error:
            # Somebody who was not granted the newest key reads on.
            log.info("a log was not kept: %s", error.message)
            return
        if len(sealed) <= self._budget:
            self._guard(lambda: self._put(user, keys.schema, state.snapshot.version, sealed), None)

    def drop(self, user: bytes, schema: bytes) -> None:
        """Forget what is kept of a log."""
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
            # The logs for which the newer ones leave no space.
            self._database.execute(
                "DELETE FROM ledger WHERE rowid IN (SELECT rowid FROM (SELECT rowid,"
                " sum(length(data)) OVER (ORDER BY used DESC, rowid DESC) AS total FROM ledger)"
                " WHERE total > ?)",
                (self._budget,),
            )


def seal(user: bytes, keys: LogKeys, plain: bytes) -> bytes:
    """The bytes that are kept of a user's log of a schema, as docs/SPEC.md says in section 14."""
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


#: Seconds that may be spent on all logs where a proxy ends in order.
SECONDS_AT_THE_END = 2.0


@dataclass(frozen=True, slots=True)
class KeepingPolicy:
    """The number of new commits after which a log is stored on disk: the ``part``-th part of the
    stored log, but no fewer than ``least_commits``. So the cost does not grow with the log, and few
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
        """Keep the user's log of a schema if it is time.

        Args:
            kept: how many commits of it were kept last.

        Returns:
            The same, as it is after this.
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
        """Wait for what is under way, at most ``SECONDS_AT_THE_END`` seconds."""
        await self._background.finish(LEDGERS, within=SECONDS_AT_THE_END)

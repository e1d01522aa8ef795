"""Save verified logs to disk (:mod:`.ledger_store`), in the background, one at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from encrypted_records import runtime
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.proxy.process.background import LEDGERS, Background
from encrypted_records.proxy.schemas.ledger_store import LedgerStore

#: Seconds that may be spent on all logs where a proxy ends in order.
SECONDS_AT_THE_END = 2.0


@dataclass(frozen=True, slots=True)
class KeepingPolicy:
    """When a log is kept: when ``least_commits`` have come since it last was, and the ``part``-th
    part of it. So what keeping costs does not grow with the log, and few commits are left to
    verify at a start. Where a proxy ends in order, ``least_at_the_end`` are enough."""

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

"""Shared by running jobs and their service: dependencies, progress, and concurrent coroutines.

A watcher of a job gets its newest state, not every state in between. A job never waits for a
watcher: each reads the newest state when it is ready, so a slow watcher misses states and delays
nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from encrypted_records.client.api import Api
from encrypted_records.proxy.jobs.job import JobSecrets
from encrypted_records.proxy.jobs.store import JobStore
from encrypted_records.proxy.keyrings.store import Keyrings
from encrypted_records.proxy.schemas.states import Schemas
from encrypted_records.proxy.spool import Spool


async def run_together(jobs: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run all; if one fails, cancel the others and raise its error."""
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(_coroutine(job))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _coroutine(job: Callable[[], Awaitable[None]]) -> None:
    await job()


#: Seconds between two states that one watcher gets.
PAUSE_SECONDS = 0.1


class Progress:
    def __init__(self) -> None:
        self._watchers: dict[bytes, set[asyncio.Event]] = {}
        #: the reasons of waiting jobs
        self._waiting: dict[bytes, str] = {}

    def note_waiting(self, job: bytes, why: str) -> None:
        """Note that the job does nothing until it continues later."""
        self._waiting[job] = why

    def why_waiting(self, job: bytes) -> str | None:
        """The reason why the job waits, if it does, since its last progress."""
        return self._waiting.get(job)

    def announce(self, job: bytes) -> None:
        """Wake the watchers of a job that made progress."""
        self._waiting.pop(job, None)
        for event in self._watchers.get(job, ()):
            event.set()

    @contextmanager
    def watching(self, job: bytes) -> Iterator[asyncio.Event]:
        """An event that is set whenever the job has changed."""
        event = asyncio.Event()
        self._watchers.setdefault(job, set()).add(event)
        try:
            yield event
        finally:
            self._watchers[job].discard(event)
            if not self._watchers[job]:
                del self._watchers[job]


@dataclass(frozen=True, slots=True)
class JobDependencies:
    api: Api
    schemas: Schemas
    keyrings: Keyrings
    store: JobStore
    secrets: JobSecrets
    spool: Spool
    progress: Progress

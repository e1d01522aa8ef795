"""Several coroutines at once, of which the first error ends all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence


async def run_together(jobs: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Run all; when one fails, cancel the others and raise what it raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(_coroutine(job))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _coroutine(job: Callable[[], Awaitable[None]]) -> None:
    await job()

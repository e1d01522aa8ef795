"""Pools of worker processes that end with a test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from encrypted_records.proxy.workers.pool import WorkerPool


@asynccontextmanager
async def closing_pool(count: int) -> AsyncIterator[WorkerPool]:
    """A pool whose processes end with the block.

    Idle workers of a pool that nobody closes outlive its test, and others find them.
    """
    pool = WorkerPool(count=count)
    try:
        yield pool
    finally:
        await pool.close()

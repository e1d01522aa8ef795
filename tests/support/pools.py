"""Pools of worker processes that end with a test, or start as copies of one process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, cast

from encrypted_records.proxy.process import Background
from encrypted_records.proxy.workers.pool import WorkerPool
from tests.support.forked import WORKER, Forked, read_before


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


def copied(workers: Callable[[Background], WorkerPool]) -> Callable[[Background], WorkerPool]:
    """The pool of a proxy in the test's process, where the test does not say which one."""
    return CopiedWorkers if workers is WorkerPool else workers


class CopiedWorkers(WorkerPool):
    """A pool as every other, but for how its processes start: to import what a worker needs takes
    0.35 s of processor, and a proxy starts two for its first job. A copy holds 60 MiB more from its
    start, so that it ends behind more tasks than another process does."""

    async def start(self) -> asyncio.subprocess.Process:
        starting = asyncio.ensure_future(asyncio.to_thread(_Worker))
        try:
            worker = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread goes on, and nobody else would end the process that it starts.
            worker = await starting
            worker.kill()
            await worker.wait()
            raise
        return cast("asyncio.subprocess.Process", worker)


class _Worker:
    """What a pool uses of a process. Nothing but Python has its pipes: a thread reads one of them,
    and another writes the other, so that no event loop closes them a second time."""

    def __init__(self) -> None:
        self._process = Forked(
            [sys.executable, "-m", WORKER],
            env=read_before(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._threads = ThreadPoolExecutor(2, "worker")
        self._unsent = b""
        self.pid = self._process.pid
        self.stdin = self.stdout = self

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        code = await asyncio.to_thread(self._process.wait)
        self._threads.shutdown()
        for pipe in (self._process.stdin, self._process.stdout):
            pipe.close()  # type: ignore[union-attr]
        return code

    def write(self, data: bytes) -> None:
        self._unsent += data

    async def drain(self) -> None:
        data, self._unsent = memoryview(self._unsent), b""
        while data:
            data = data[await self._in_thread(self._process.stdin, "write", data) :]

    async def read(self, size: int) -> bytes:
        found: bytes = await self._in_thread(self._process.stdout, "read", size)
        return found

    async def readexactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = await self.read(size - len(data))
            if not piece:
                raise asyncio.IncompleteReadError(data, size)
            data += piece
        return data

    async def _in_thread(self, pipe: Any, method: str, argument: object) -> Any:
        act = getattr(pipe, method)
        return await asyncio.get_running_loop().run_in_executor(self._threads, act, argument)

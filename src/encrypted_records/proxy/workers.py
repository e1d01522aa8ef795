"""The worker processes: started when there is work, each asked one thing at a time.

Sealing keeps a core busy, and the event loop must answer meanwhile. So the work is done in
processes of our own (:mod:`.worker`), over pipes: a key is handed over as bytes in the request that
needs it, on purpose and to nobody else; nothing is pickled. A worker inherits no environment, so no
passphrase either, and ends when its pipe does: with this process, whatever ends that.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

from encrypted_records.errors import Unavailable
from encrypted_records.proxy import tasks

log = logging.getLogger(__name__)

_PIPE_BYTES = 1 << 20

#: Called with what a worker says before its last word; what it returns is the reply.
Listener = Callable[[tasks.Said], Awaitable[tasks.Reply | None]]


class Workers:
    """Up to ``count`` processes. Whoever waits longest is served first."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or os.cpu_count() or 1
        self._free = asyncio.Semaphore(self.count)
        self._idle: list[asyncio.subprocess.Process] = []

    async def run(self, request: tasks.Request, listener: Listener | None = None) -> tasks.Done:
        """What a worker answers.

        Raises:
            ErsError: the worker's own, such as DoesNotOpen or BadInput.
            Unavailable: ``worker_lost``; it ended, which repeating may cure.
        """
        async with self._free:
            process = await self._taken()
            try:
                answer = await _asked(process, request, listener)
            except (asyncio.IncompleteReadError, ConnectionError):
                await _end(process)
                raise Unavailable(
                    "a worker process ended before its work was done", code="worker_lost"
                ) from None
            except BaseException:
                _kill(process)  # in the middle of a task it can do no other
                raise
            if isinstance(request, tasks.Merge):
                await _end(process)  # which gives back hundreds of MiB that it would keep
            else:
                self._idle.append(process)
        if isinstance(answer, tasks.Failed):
            raise answer.error()
        assert isinstance(answer, tasks.Done)
        return answer

    async def _taken(self) -> asyncio.subprocess.Process:
        while self._idle:
            process = self._idle.pop()
            if process.returncode is None:
                return process
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "encrypted_records.proxy.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={},
            limit=_PIPE_BYTES,
        )

    async def close(self) -> None:
        """End the processes that have nothing to do; nobody may be asking."""
        for process in self._idle:
            await _end(process)
        self._idle.clear()


async def _end(process: asyncio.subprocess.Process) -> None:
    _kill(process)
    await process.wait()


def _kill(process: asyncio.subprocess.Process) -> None:
    # One that has ended already must not hide why it is killed.
    with suppress(ProcessLookupError):
        process.kill()


async def _asked(
    process: asyncio.subprocess.Process, request: tasks.Request, listener: Listener | None
) -> tasks.Answer:
    await _send(process, request)
    while True:
        answer: tasks.Answer = tasks.decode_answer(await _received(process))
        if not isinstance(answer, tasks.Said):
            return answer
        assert listener is not None
        reply = await listener(answer)
        if reply is not None:
            await _send(process, reply)


async def _send(process: asyncio.subprocess.Process, message: tasks.ToWorker) -> None:
    assert process.stdin is not None
    data = tasks.encode(message)
    process.stdin.write(len(data).to_bytes(tasks.LENGTH_BYTES, "big") + data)
    await process.stdin.drain()


async def _received(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    head = await process.stdout.readexactly(tasks.LENGTH_BYTES)
    return await process.stdout.readexactly(int.from_bytes(head, "big"))

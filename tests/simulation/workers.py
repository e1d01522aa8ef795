"""Worker processes as greenlets: the worker's own code runs, and its pipe leads to the pool.

Messages are encoded and decoded on their way, as between processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from greenlet import getcurrent, greenlet

from encrypted_records.errors import Unavailable
from encrypted_records.ingest.check import STANDARD
from encrypted_records.proxy.workers import main, messages
from encrypted_records.proxy.workers.pool import Listener, WorkerPool
from tests.simulation.world import World

#: Processes of a machine of the simulation.
PROCESSES = 2
#: Rows of a job that are sealed together.
CHUNK_ROWS = 40
#: Seconds of work between two messages.
_WORK = (0.0005, 0.05)


class _Worker(greenlet):
    """A worker in the middle of one task."""


class SimulatedWorkers(WorkerPool):
    """
    Attributes:
        lost: percent of the tasks whose process ends in the middle.
    """

    def __init__(self, world: World, lost: int = 0) -> None:
        super().__init__(count=PROCESSES)
        self._world = world
        self.lost = lost

    def prepare(self) -> None:
        pass

    async def works(self) -> bool:
        return True

    async def close(self) -> None:
        pass

    async def run(
        self, task: messages.Task, listener: Listener | None = None, *, additional: bool = False
    ) -> messages.Result:
        async with contextlib.nullcontext() if additional else self._free:
            answer = await self._do(task, listener)
        if isinstance(answer, messages.Failed):
            raise answer.error()
        return answer

    async def _do(
        self, task: messages.Task, listener: Listener | None
    ) -> messages.Result | messages.Failed:
        chance = self._world.chance
        ends_after = chance.randrange(4) if chance.randrange(100) < self.lost else None
        worker = _Worker(main._run)
        worker.gr_context = contextvars.copy_context()  # of the same machine
        given: Any = messages.decode_to_worker(messages.encode(task))
        try:
            while True:
                await asyncio.sleep(chance.uniform(*_WORK))
                if ends_after is not None:
                    if ends_after == 0:
                        raise Unavailable("a worker process ended", code="worker_lost")
                    ends_after -= 1
                worker.parent = getcurrent()
                sent = worker.switch(given)
                assert isinstance(sent, bytes), "a worker ends with a message"
                message = messages.decode_from_worker(bytearray(sent))
                if not isinstance(message, messages.Interim):
                    if ends_after is not None:
                        raise Unavailable("a worker process ended", code="worker_lost")
                    ended: messages.Result | messages.Failed = message
                    return ended
                assert listener is not None
                reply = await listener(message)
                given = None if reply is None else messages.decode_to_worker(messages.encode(reply))
        finally:
            # Not thrown into: a process that is killed unwinds nothing.
            self._world.loop.graves.append(worker)


@contextmanager
def installed() -> Iterator[None]:
    """Have the worker's end of its pipes lead to the pool, for this process."""

    def write(message: messages.FromWorker) -> None:
        worker = getcurrent()
        assert isinstance(worker, _Worker) and worker.parent is not None
        _unread[worker] = worker.parent.switch(bytes(messages.encode(message)))

    def read() -> messages.ToWorker | None:
        given: messages.ToWorker | None = _unread.pop(getcurrent())
        return given

    small = replace(STANDARD, records=CHUNK_ROWS)
    with (
        patch.object(messages, "write_message", write),
        patch.object(messages, "read_message", read),
        patch.object(main, "STANDARD", small),
    ):
        yield


#: What a worker was given when it was switched to, and has not read yet.
_unread: dict[Any, Any] = {}

"""Work beside requests, put off until the test asks for it: so it comes between nothing by chance.

Proxies that run in the test's process have this, unless the test asks for the real thing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from encrypted_records.proxy.process import JOBS, Background, Task, Work, attempt


class Queued(Background):
    """Started work waits for :meth:`settle`, or for a request that waits for it.

    Jobs begin at once: a user has asked for them, and looks for their end.
    """

    def __init__(self) -> None:
        super().__init__()
        #: of what is put off, in the order in which it came
        self._gates: dict[Task, asyncio.Event] = {}
        self._repeated: dict[str, Work] = {}
        #: the proxy's, from its start on
        self.loop: asyncio.AbstractEventLoop | None = None

    def start(self, name: str, work: Work) -> Task:
        if name == JOBS:
            return super().start(name, work)
        gate = asyncio.Event()

        async def put_off() -> None:
            await gate.wait()
            await work()

        task = super().start(name, put_off)
        self._gates[task] = gate
        task.add_done_callback(self._gates.pop)
        return task

    def every(self, seconds: float, name: str, work: Work, *, at_once: bool = True) -> None:
        self._repeated[name] = work
        self.loop = asyncio.get_running_loop()

    def hurry(self, tasks: Collection[Task]) -> None:
        for task in tasks:
            if task in self._gates:
                self._gates[task].set()

    def begin(self, *names: str) -> list[Task]:
        """Begin all that is put off of these kinds, and do not wait for it."""
        begun = [task for task in self._named(names) if task in self._gates]
        self.hurry(begun)
        return begun

    async def settle(self, *names: str) -> None:
        """Do what was put off, one after the other in the order in which it came, and what this
        starts, until nothing is left.

        Args:
            names: only these kinds, and wait for those that run. Repeated work runs only if it is
                named, once.
        """
        for name in names:
            if name in self._repeated:
                await attempt(name, self._repeated[name])
        while waiting := [task for task in self._named(names) if names or task in self._gates]:
            await self.wait(waiting[:1])

    def put_off(self, *names: str) -> int:
        """How much of these kinds has not ended."""
        return sum(task in self._gates for task in self._named(names))

"""Work that a proxy does beside requests: none begins with it, and none fails by it.

All of it is started here, so that no failure is lost, and that a proxy which stops leaves nothing
running. Requests may wait for what was started, by :meth:`Background.wait` alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable

from encrypted_records import runtime
from encrypted_records.errors import ErsError

log = logging.getLogger(__name__)

Task = asyncio.Task[None]
Work = Callable[[], Awaitable[None]]

MERGES = "merging"
CHECKPOINTING = "writing a checkpoint"
LEDGERS = "keeping a log"
ROW_CHECKS = "checking rows"
RETENTION = "retention"
ATTENDING = "looking for pending changes"
WORKERS = "starting a worker process"
JOBS = "a job"
JOB_SWEEP = "sweeping jobs"
UPLOAD_SWEEP = "sweeping uploads"
CLOCK = "watching the clock"
LOCKING = "locking unused keyrings"
WEBHOOKS = "a webhook"
FORGETTING = "dropping unused data"


async def attempt(name: str, work: Work) -> None:
    """Run background work; a failure is logged with ``name``."""
    try:
        await work()
    except ErsError as error:
        log.warning("%s failed: %s", name, error.message)
    except Exception as error:
        log.error("%s failed because of an internal error: %s", name, type(error).__name__)  # noqa: TRY400


class Background:
    """Background tasks; one instance for each proxy. Belongs to its event loop."""

    def __init__(self) -> None:
        self._tasks: dict[Task, str] = {}

    def start(self, name: str, work: Work) -> Task:
        """Begin ``work``. Where it fails, that is logged here, and its task just ends.

        Args:
            name: of its kind; :meth:`stop` takes it, and errors are logged with it.
        """
        task = asyncio.create_task(attempt(name, work))  # noqa: TID251 # this is where they start
        self._tasks[task] = name
        task.add_done_callback(self._forget)
        return task

    def every(self, seconds: float, name: str, work: Work, *, at_once: bool = True) -> None:
        """Do ``work`` again and again until :meth:`stop`, also behind a time when it failed.

        Args:
            seconds: between its end and its next beginning.
            at_once: whether the first time is now.
        """

        async def again() -> None:
            if at_once:
                await attempt(name, work)
            while True:
                await runtime.sleep(seconds)
                await attempt(name, work)

        self.start(name, again)

    async def wait(
        self,
        tasks: Iterable[Task],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 # as asyncio.wait has it
        return_when: str = asyncio.ALL_COMPLETED,
    ) -> None:
        """Wait for some of what was started, as :func:`asyncio.wait` does; also for none."""
        if waited := set(tasks):
            self.hurry(waited)
            await asyncio.wait(waited, timeout=timeout, return_when=return_when)

    def hurry(self, tasks: Collection[Task]) -> None:
        """A request waits for these from now on. Here, nothing is put off; where tests have it put
        off until they ask for it, these begin."""

    async def finish(self, *names: str, within: float) -> None:
        """Wait up to ``within`` seconds for the tasks with these names, and cancel the rest."""
        await self.wait(self._named(names), timeout=within)
        await self.stop(*names)

    async def stop(self, *names: str) -> None:
        """Cancel what has one of these names, or all where there is none, and see it end."""
        stopped = self._named(names)
        for task in stopped:
            task.cancel()
        await asyncio.gather(*stopped, return_exceptions=True)

    def _named(self, names: Collection[str]) -> list[Task]:
        return [task for task, name in self._tasks.items() if name in names or not names]

    def _forget(self, task: Task) -> None:
        del self._tasks[task]

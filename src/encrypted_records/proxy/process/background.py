"""Background work of a proxy: no request starts with it, and none fails because of it.

All background work is started here, so that failures are logged, and a proxy that stops leaves
nothing running. Requests wait for it only by :meth:`Background.wait`.
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
        """Start ``work``. A failure is logged here, and its task just ends.

        Args:
            name: name of the kind of work, for :meth:`stop` and the log.
        """
        task = asyncio.create_task(attempt(name, work))  # noqa: TID251 # this is where they start
        self._tasks[task] = name
        task.add_done_callback(self._forget)
        return task

    def every(self, seconds: float, name: str, work: Work, *, at_once: bool = True) -> None:
        """Repeat ``work`` until :meth:`stop`, also after a failure.

        Args:
            seconds: between its end and its next beginning.
            at_once: whether it runs immediately.
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
        """Wait for some of the started tasks, like :func:`asyncio.wait`; also for none."""
        if waited := set(tasks):
            self.hurry(waited)
            await asyncio.wait(waited, timeout=timeout, return_when=return_when)

    def hurry(self, tasks: Collection[Task]) -> None:
        """Mark tasks that a request waits for. It does nothing here; in tests that delay background
        work until requested, these tasks start.
        """

    async def finish(self, *names: str, within: float) -> None:
        """Wait up to ``within`` seconds for the tasks with these names, and cancel the rest."""
        await self.wait(self._named(names), timeout=within)
        await self.stop(*names)

    async def stop(self, *names: str) -> None:
        """Cancel the tasks with these names, or all tasks if there are no names, and wait for their
        end.
        """
        stopped = self._named(names)
        for task in stopped:
            task.cancel()
        await asyncio.gather(*stopped, return_exceptions=True)

    def _named(self, names: Collection[str]) -> list[Task]:
        return [task for task, name in self._tasks.items() if name in names or not names]

    def _forget(self, task: Task) -> None:
        del self._tasks[task]

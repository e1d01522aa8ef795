"""An event loop whose time is virtual and whose order is drawn.

One callback runs at a time. If none is ready, the clock jumps to the next timer. What is not a
step of a task keeps the order that asyncio promises; of the task steps in front of the next such
callback, the generator ``order`` picks one. Threads do not exist: what is given to an executor is
done in the loop, as one step, after a drawn delay.

Each callback has an owner, the life of a proxy that it belongs to, which tasks, timers and
executor jobs inherit. When a life is killed, none of its callbacks runs any more. They are kept in
``graves``: a coroutine that is collected runs its ``finally``, and a killed process does not.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
import random
import zlib
from asyncio.events import Handle, TimerHandle
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from greenlet import greenlet

#: The life of a proxy that runs, such as ``a3``; empty for people, the network and the API.
owner: contextvars.ContextVar[str] = contextvars.ContextVar("owner", default="")

#: In seconds of virtual time, and in callbacks: no scenario needs as many.
MOST_SECONDS, MOST_STEPS = 10_000_000.0, 100_000
#: Seconds after which work that was given to a thread is done; ``None`` draws up to 200 ms.
_DELAYS = (0.0, 0.0, 0.0001, 0.001, 0.001, 0.01, None)
#: Percent of the cancelled jobs of a thread that are done all the same: they had begun.
_BEGUN = 70


class Stuck(AssertionError):
    """Nothing is ready, and nothing will be: somebody waits for ever."""


class Endless(AssertionError):
    """It goes on and on."""


class _Left(BaseException):
    """A callback was left in its middle; never raised inside of it."""


class SimulatedFuture(asyncio.Future[Any]):
    """Its hash is a number that counts up, so that sets of futures have the same order in every
    process."""

    _numbers = itertools.count()

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = next(self._numbers)

    def __hash__(self) -> int:
        return self._number


class SimulatedTask(asyncio.Task[Any]):
    """As :class:`SimulatedFuture`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._number = next(SimulatedFuture._numbers)
        super().__init__(*arguments, **named)

    def __hash__(self) -> int:
        return self._number


class SimulatedLoop(asyncio.BaseEventLoop):
    """
    Attributes:
        dead: owners whose callbacks do not run any more.
        trace: a checksum of all that has run: owner, time and name of each callback.
    """

    _ready: deque[Handle]
    _scheduled: list[Any]
    _stopping: bool

    def __init__(self, order: random.Random, start: float) -> None:
        super().__init__()
        SimulatedFuture._numbers = itertools.count()
        self.order = order
        self.now = start
        self.steps = 0
        self.trace = 0
        self.dead: set[str] = set()
        self.graves: list[object] = []
        self.watch: Callable[[], None] | None = None
        self._ends = start + MOST_SECONDS
        self._hub: greenlet | None = None
        self._errors: list[dict[str, Any]] = []
        self.set_task_factory(
            lambda loop, coroutine, **more: SimulatedTask(coroutine, loop=loop, **more)
        )
        self.set_exception_handler(lambda _, context: self._errors.append(context))

    # --- what asyncio asks of a loop ---------------------------------------------------------

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[Any]:
        return SimulatedFuture(loop=self)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        done = self.create_future()
        delay = self.order.choice(_DELAYS)
        self.call_later(
            self.order.random() * 0.2 if delay is None else delay, self._work, done, func, args
        )
        return done

    def _work(
        self, done: asyncio.Future[Any], func: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        if done.cancelled() and self.order.randrange(100) >= _BEGUN:
            return
        # A thread knows of no running loop.
        asyncio._set_running_loop(None)
        try:
            result, error = func(*args), None
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as raised:
            result, error = None, raised
        finally:
            asyncio._set_running_loop(self)
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> Handle:
        return self.call_soon(callback, *args, context=context)

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        pass

    # --- one step ----------------------------------------------------------------------------

    def _run_once(self) -> None:
        while not self._ready:
            self._advance()
            if self._stopping:
                return
        handle = self._pick()
        if handle._cancelled:
            return
        own = self._owner_of(handle)
        if own in self.dead:
            self.graves.append(handle)
            return
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise Endless(f"{self.steps} callbacks: {_names(self)}")
        text = f"{own} {self.now:.6f} {name_of(handle)}"
        self.trace = zlib.crc32(text.encode(), self.trace)
        if self.trail is not None:
            self.trail.append(text)
        self._run(handle, own)
        if self.watch is not None:
            self.watch()

    #: Where it is a list, it gets a line of each callback: for finding where two runs part.
    trail: list[str] | None = None

    def _advance(self) -> None:
        """Move on to the next timer."""
        while self._scheduled and (
            self._scheduled[0]._cancelled or self._owner_of(self._scheduled[0]) in self.dead
        ):
            gone = heapq.heappop(self._scheduled)
            gone._scheduled = False
            self.graves.append(gone)
        if not self._scheduled:
            if self._stopping:
                return
            raise Stuck(f"nothing is left to run: {_names(self)}")
        self.now = max(self.now, self._scheduled[0]._when)
        if self.now > self._ends:
            raise Endless(f"{MOST_SECONDS:.0f} seconds: {_names(self)}")
        while self._scheduled and self._scheduled[0]._when <= self.now:
            due = heapq.heappop(self._scheduled)
            due._scheduled = False
            if not due._cancelled:
                self._ready.append(due)

    def _pick(self) -> Handle:
        """The next callback: the first one, or any of the task steps before the first other."""
        if not _is_step(self._ready[0]):
            return self._ready.popleft()
        steps = 1
        while steps < len(self._ready) and _is_step(self._ready[steps]):
            steps += 1
        at = self.order.randrange(steps)
        handle = self._ready[at]
        del self._ready[at]
        return handle

    @staticmethod
    def _owner_of(handle: Handle) -> str:
        return str(handle._context.get(owner, ""))  # type: ignore[attr-defined]

    def _run(self, handle: Handle, own: str) -> None:
        if not own:
            handle._run()
            return
        self._hub = greenlet.getcurrent()
        inner = greenlet(handle._run)
        result = inner.switch()
        self._hub = None
        if isinstance(result, _Left):
            self.graves += [inner, handle]
            # The step that was left is not the one that runs any more.
            task = asyncio.current_task(self)
            if task is not None:
                asyncio.tasks._leave_task(self, task)
            asyncio._set_running_loop(self)

    def leave(self) -> None:
        """Leave the callback that runs, from wherever in it this is called, and never come back."""
        assert self._hub is not None, "only a life can be left"
        self._hub.switch(_Left())

    @property
    def is_in_life(self) -> bool:
        """Whether what runs now belongs to a life of a proxy."""
        return self._hub is not None

    def kill(self, own: str) -> None:
        """Have nothing of this owner run any more."""
        self.dead.add(own)

    def take_errors(self) -> list[dict[str, Any]]:
        """What nobody has handled since this was asked last: exceptions of tasks that nobody
        awaits."""
        errors, self._errors = self._errors, []
        return errors


def _is_step(handle: Handle) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)  # type: ignore[attr-defined]


def name_of(handle: Handle) -> str:
    """What a callback is called, the same in every process."""
    callback = handle._callback  # type: ignore[attr-defined]
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        return str(getattr(task.get_coro(), "__qualname__", "?"))
    while hasattr(callback, "func"):
        callback = callback.func
    return str(getattr(callback, "__qualname__", type(callback).__qualname__))


def _names(loop: SimulatedLoop) -> str:
    """Who waits, and for what."""
    return "\n".join(_chains(loop)) or "no task"


def _chains(loop: SimulatedLoop) -> Iterator[str]:
    for task in sorted(asyncio.all_tasks(loop), key=hash):
        own = task.get_context().get(owner, "") if hasattr(task, "get_context") else ""
        if own in loop.dead:
            continue
        chain: list[str] = []
        waiting: Any = task.get_coro()
        while waiting is not None:
            frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None)
            if frame is not None:
                chain.append(f"{waiting.__qualname__}:{frame.f_lineno}")
            waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None)
        yield f"  {own or 'people'}: {' > '.join(chain)}"

"""Batching: one run of the work serves several callers that wait for it.

The first caller is served at once. Callers that arrive during a run wait, and the next run serves
as many of them together as it takes. So no caller waits for a batch to fill, and every result comes
from a run that began after the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741


@dataclass(eq=False, slots=True)
class Waiting(Generic[I, O]):
    """A waiting caller, with its request and its context."""

    item: I
    outcome: asyncio.Future[O]
    context: Context = field(default_factory=copy_context)

    def settle(self, outcome: O) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def refuse(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


@dataclass(eq=False, slots=True)
class WaitingLine(Generic[I, O]):
    """Tasks that wait for the same, in the order in which they came."""

    waiting: list[Waiting[I, O]] = field(default_factory=list)
    #: who is being served
    taken: list[Waiting[I, O]] = field(default_factory=list)

    def take(self, fit: Callable[[Sequence[I]], int] = len) -> list[Waiting[I, O]]:
        """Take the tasks that are served now: the first ones that still wait, and as many as
        ``fit`` says, at least one. Empty if all went away.
        """
        here = [waiter for waiter in self.waiting if not waiter.outcome.done()]
        count = max(1, fit([waiter.item for waiter in here])) if here else 0
        self.taken, self.waiting = here[:count], here[count:]
        return self.taken


class Gathering(Generic[K, I, O]):
    def __init__(self, serve: Callable[[WaitingLine[I, O]], Awaitable[None]]) -> None:
        """
        Args:
            serve: takes some waiting callers from a line, and settles or refuses each. An exception
                refuses the taken callers that are left, or all callers if none was taken.
                So callers that the error does not concern have to be settled or refused before.
        """
        self._serve = serve
        self._lines: dict[K, WaitingLine[I, O]] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def ask(self, key: K, item: I) -> O:
        """The result of ``serve`` for ``item``, served with others that wait under its key."""
        waiting: Waiting[I, O] = Waiting(item, asyncio.get_running_loop().create_future())
        line = self._lines.get(key)
        if line is not None:
            line.waiting.append(waiting)
            return await waiting.outcome
        line = self._lines[key] = WaitingLine([waiting])
        self._begin(key, line)
        return await waiting.outcome

    def _begin(self, key: K, line: WaitingLine[I, O]) -> None:
        # A task of its own, since who came first may go away; and on behalf of who came last: what
        # a server did not answer before that tells nothing of what it would now.
        context = line.waiting[-1].context
        task = asyncio.create_task(self._serve_some(key, line), context=context)  # noqa: TID251 # requests wait for it
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _serve_some(self, key: K, line: WaitingLine[I, O]) -> None:
        line.taken = []
        try:
            await self._serve(line)
        except Exception as error:
            for waiting in line.taken or line.take():
                waiting.refuse(error)
        except BaseException:
            for waiting in [*line.taken, *line.waiting]:
                waiting.outcome.cancel()
            line.waiting = []
            raise
        finally:
            if line.waiting:
                self._begin(key, line)
            else:
                del self._lines[key]

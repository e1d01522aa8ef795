"""Work that requests share: single-flight fetches, and batches of callers who wait.

Single-flight: each key is fetched once for all requests that need it at the same time
(:class:`Fetches`). A request that needs a key which another request fetches waits for the end of
that fetch, and then looks in the shared cache again. Nothing else is passed between requests, not
even errors. For each request, the API still confirms that its own caller may read
(:mod:`encrypted_records.proxy.search.upstream`). So a waiting request gets nothing that it would
not have received a moment later.

Lock order: a task that owns a claim never awaits another fetch, so there is no deadlock. For pages
and segments, unclaimed keys are claimed and fetched first, and other fetches are awaited after
that; for rows, other fetches are awaited first, and the keys that are still missing are claimed
then.

Batching: one run of the work serves several callers (:class:`Gathering`). The first caller is
served at once. Callers that arrive during a run wait, and the next run serves as many of them
together as it takes. So no caller waits for a batch to fill, and every result comes from a run that
began after the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
I = TypeVar("I")  # noqa: E741
O = TypeVar("O")  # noqa: E741


@dataclass(eq=False, slots=True)
class Fetch:
    """A fetch under way, with its known number of keys. ``ended`` is cancelled if the fetch was
    given up, and has a result if it succeeded or failed.
    """

    size: int
    ended: asyncio.Future[None]


class Fetches(Generic[K]):
    """The fetches under way, by key. Used by one event loop."""

    def __init__(self) -> None:
        self._under_way: dict[K, Fetch] = {}

    def of(self, keys: Collection[K]) -> dict[K, Fetch]:
        """The fetches under way among these keys."""
        return {key: self._under_way[key] for key in keys if key in self._under_way}

    def all(self) -> set[K]:
        """All keys that are being fetched."""
        return set(self._under_way)

    @contextmanager
    def claim(self, keys: Collection[K]) -> Iterator[Callable[[Collection[K]], None]]:
        """Claim the keys that no other task fetches, until the block ends. No fetch may be awaited
        in the block.

        Returns:
            A function that claims all keys of the fetch, including these, once they are known.
        """
        fetch = Fetch(0, asyncio.get_running_loop().create_future())
        own: list[K] = []

        def claim(every: Collection[K]) -> None:
            new = [key for key in every if key not in self._under_way]
            self._under_way |= dict.fromkeys(new, fetch)
            own.extend(new)
            fetch.size = len(every)

        claim(keys)
        try:
            yield claim
        except asyncio.CancelledError:
            fetch.ended.cancel()
            raise
        finally:
            for key in own:
                del self._under_way[key]
            if not fetch.ended.done():
                fetch.ended.set_result(None)


async def wait_for(fetches: Collection[Fetch]) -> bool:
    """Wait until all of these have ended.

    Returns:
        Whether a fetch was given up, for example because its client disconnected. Then one of the
        waiting requests fetches the keys again, and the others may wait for it. After a failed
        fetch, each request tries for itself.
    """
    ended = {fetch.ended for fetch in fetches}
    await asyncio.wait(ended)
    return any(task.cancelled() for task in ended)


# --- batching -------------------------------------------------------------------------------------


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
    """Tasks that wait under the same key, in order of arrival."""

    waiting: list[Waiting[I, O]] = field(default_factory=list)
    #: the tasks that are being served
    taken: list[Waiting[I, O]] = field(default_factory=list)

    def take(self, fit: Callable[[Sequence[I]], int] = len) -> list[Waiting[I, O]]:
        """Take the tasks to serve now: the first tasks that still wait, as many as ``fit`` returns,
        at least one. Empty if all were cancelled.
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
        """The result of ``serve`` for ``item``, served with other items that wait under its key."""
        waiting: Waiting[I, O] = Waiting(item, asyncio.get_running_loop().create_future())
        line = self._lines.get(key)
        if line is not None:
            line.waiting.append(waiting)
            return await waiting.outcome
        line = self._lines[key] = WaitingLine([waiting])
        self._begin(key, line)
        return await waiting.outcome

    def _begin(self, key: K, line: WaitingLine[I, O]) -> None:
        # A separate task, because the first caller may be cancelled. It runs in the context of the
        # last caller: if the API left an earlier call unanswered, that says nothing about now.
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

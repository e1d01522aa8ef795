"""Single-flight: each key is fetched once for all requests that need it at the same time.

A request that needs a key which another request fetches waits for the end of that fetch, and then
looks in the shared cache again. Nothing else is passed between requests, and errors are not either.
For each request, the API still confirms that its own caller may read
(:mod:`encrypted_records.proxy.search.upstream`). So a waiting request gets nothing that it would
not have got by arriving a moment later.

Lock order: a task that owns a claim never awaits another fetch, so there is no deadlock. For pages
and segments, unclaimed keys are claimed and fetched first, and other fetches are awaited after
that; for rows, other fetches are awaited first, and the keys that are still missing are claimed
then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(eq=False, slots=True)
class Fetch:
    """A fetch under way, with its known number of keys. ``ended`` is cancelled if the fetch was
    given up, and has a result if it succeeded or failed.
    """

    size: int
    ended: asyncio.Future[None]


class Fetches(Generic[K]):
    """Used by one event loop."""

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
        Whether one was given up, because its client went away say. One of those who waited fetches
        it again, and the others may wait for that. After one that failed, each tries for itself.
    """
    ended = {fetch.ended for fetch in fetches}
    await asyncio.wait(ended)
    return any(task.cancelled() for task in ended)

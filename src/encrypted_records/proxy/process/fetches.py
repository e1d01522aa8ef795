"""Fetches under way, so that each key is fetched once for all who need it.

Who needs what somebody else fetches waits until that fetch has ended, and looks again where it
would have been kept: in what all readers share. Nothing else passes from one to another, and no
error does. Each still has the API confirm that its own caller may read
(:mod:`encrypted_records.proxy.search.upstream`). So nobody gets by waiting what they would not have
got by coming a moment later.

Nobody waits for a fetch while they have claimed something themselves. Of pages and segments, what
nobody else fetches is claimed and fetched first, and the rest is waited for after that; of rows,
what others fetch is waited for first, and what is lacking then is claimed. So no two wait for each
other.
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
    """One that is under way, of so many things as far as is known. ``ended`` is cancelled where it
    was given up, and has a result where it succeeded or failed."""

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
        """Have others wait for these until the block ends. What somebody else fetches is theirs.
        No fetch may be waited for in the block.

        Returns:
            Claims what is fetched with these, themselves among it, once that is known.
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
    return any(one.cancelled() for one in ended)

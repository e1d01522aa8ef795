"""A journal of outgoing requests on behalf of a user, for that user to see.

A journal records the requests made in its context, including its tasks. A note has no header, no
parameter and no body: neither credentials nor data that others must not see.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from encrypted_records import runtime

#: Maximum notes in a journal.
MOST_NOTES = 20


@dataclass(frozen=True, slots=True)
class Note:
    """A request as sent. ``sent`` and ``received`` are the bytes of its body and of the answer's;
    None if they were not counted. ``at`` is in seconds since 1970.
    """

    method: str
    path: str
    sent: int | None
    received: int | None
    status: int
    at: float


@dataclass(slots=True)
class PageCost:
    """The cost of rendering a page: the number of ``requests`` sent for it, with the bytes ``sent``
    and ``received``; and the index ``pages`` and ``rows`` that its queries needed, from the cache
    or the API, as EXPLAIN counts them.
    """

    requests: int = 0
    sent: int = 0
    received: int = 0
    pages: int = 0
    rows: int = 0


class Journal:
    """The newest notes, the newest last."""

    def __init__(self) -> None:
        self._notes: deque[Note] = deque(maxlen=MOST_NOTES)

    def __iter__(self) -> Iterator[Note]:
        return iter(list(self._notes))

    def add(self, note: Note) -> None:
        self._notes.append(note)


_kept: ContextVar[tuple[Journal, PageCost] | None] = ContextVar("journal", default=None)


@contextmanager
def keep(journal: Journal, tally: PageCost) -> Iterator[None]:
    """Note in ``journal``, and add up in ``tally``, the requests sent until the block ends."""
    token = _kept.set((journal, tally))
    try:
        yield
    finally:
        _kept.reset(token)


def count(pages: int, rows: int) -> None:
    """Count a query that needed these pages of the index and rows."""
    if (kept := _kept.get()) is not None:
        kept[1].pages += pages
        kept[1].rows += rows


def note(method: str, target: str, sent: int | None, received: int | None, status: int) -> None:
    """Note a request that was answered. Only the path of its address is kept."""
    if (kept := _kept.get()) is None:
        return
    journal, tally = kept
    path = target.partition("?")[0]
    journal.add(Note(method, path, sent, received, status, runtime.wall()))
    tally.requests += 1
    tally.sent += sent or 0
    tally.received += received or 0

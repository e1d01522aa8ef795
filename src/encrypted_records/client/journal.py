"""What leaves this machine for somebody, for that somebody to see.

Who keeps a journal is told of the requests that are made in its context, tasks included. A note
has no header, no parameter and no body: neither credentials nor what others might not see.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from encrypted_records import runtime

#: Notes that a journal keeps.
MOST_NOTES = 12


@dataclass(frozen=True, slots=True)
class Note:
    """A request as it left. ``sent`` and ``received`` are bytes of its body and of the answer's;
    None where they were not counted. ``at`` is in seconds since 1970."""

    method: str
    path: str
    sent: int | None
    received: int | None
    status: int
    at: float


class Journal:
    """The newest notes, the newest last."""

    def __init__(self) -> None:
        self._notes: deque[Note] = deque(maxlen=MOST_NOTES)

    def __iter__(self) -> Iterator[Note]:
        return iter(list(self._notes))

    def add(self, note: Note) -> None:
        self._notes.append(note)


_journal: ContextVar[Journal | None] = ContextVar("journal", default=None)


@contextmanager
def keep(journal: Journal) -> Iterator[None]:
    """Note in ``journal`` what is sent from here on, until the block ends."""
    token = _journal.set(journal)
    try:
        yield
    finally:
        _journal.reset(token)


def note(method: str, target: str, sent: int | None, received: int | None, status: int) -> None:
    """A request was answered. Of its address only the path is kept."""
    journal = _journal.get()
    if journal is not None:
        path = target.partition("?")[0]
        journal.add(Note(method, path, sent, received, status, runtime.wall()))

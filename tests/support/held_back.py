"""Answers of the API that a test keeps back, and the questions that wait meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from threading import Event, Lock

import pytest

from encrypted_records.proxy import process
from encrypted_records.proxy.schemas import states
from encrypted_records.proxy.search import fetcher, row_fetcher
from tests.support.front import Asked, Reply

PATIENCE = 60.0


def is_for_pages(asked: Asked) -> bool:
    return asked.path.partition("?")[0].endswith("/pages/")


def is_for_rows(asked: Asked) -> bool:
    return asked.path.partition("?")[0].endswith("/rows/")


def is_for_data(asked: Asked) -> bool:
    """For pages and rows, and for the log that confirms a state."""
    return asked.path.partition("?")[0].endswith(("/pages/", "/rows/", "/manifest/"))


@dataclass
class HeldBack:
    """Keeps the first answer with pages back until it is let go; ``spoil`` says what it is then.

    ``holds`` says which answers are meant, and ``most`` how many.
    """

    came: Event = field(default_factory=Event)
    go: Event = field(default_factory=Event)
    spoil: Callable[[Reply], Reply] = lambda reply: reply
    holds: Callable[[Asked], bool] = is_for_pages
    most: int = 1
    #: how many came
    count: int = 0
    _lock: Lock = field(default_factory=Lock)

    def __call__(self, asked: Asked, reply: Reply) -> Reply:
        with self._lock:
            is_held = self.holds(asked) and self.count < self.most
            self.count += is_held
        if is_held:
            self.came.set()
            assert self.go.wait(PATIENCE)
            return self.spoil(reply)
        return reply


@dataclass
class Waiters:
    """How many questions wait for another's fetch just now."""

    now: int = 0

    async def wait_for(self, some: Collection[process.Fetch]) -> bool:
        self.now += 1
        try:
            return await process.wait_for(some)
        finally:
            self.now -= 1


@pytest.fixture
def waiters(monkeypatch: pytest.MonkeyPatch) -> Waiters:
    made = Waiters()
    for module in (fetcher, fetcher, row_fetcher, states):
        monkeypatch.setattr(module, "wait_for", made.wait_for)
    return made

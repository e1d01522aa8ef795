"""Statistics of one query: counts and durations, never a value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from encrypted_records import runtime
from encrypted_records.index.query.workspace import Counted


@dataclass
class QueryStats(Counted):
    """Rows, pages and requests of one query.

    ``pages`` are the index pages that were needed, from cache or API.

    ``requests`` is how many requests a proxy with empty caches would make for those pages and rows;
    ``asked`` how many this one made. ``seconds`` are by stage, wall-clock: queries that run at the
    same time count the same seconds.
    """

    pages: int = 0
    requests: int = 0
    asked: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, other: QueryStats) -> None:
        """Count in what another schema was asked for; its stages are one of this query's."""
        self.pages += other.pages
        self.rows += other.rows
        self.requests += other.requests
        self.asked += other.asked

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = runtime.monotonic()
        try:
            yield
        finally:
            spent = runtime.monotonic() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + spent

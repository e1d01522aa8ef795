"""Statistics of one query: counts and durations, never a value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from encrypted_records import runtime


@dataclass
class QueryStats:
    """Rows, pages and requests of one query.

    ``certain`` and ``unsure`` are rows as the index alone answered, ``pages`` the index pages that
    were needed, from cache or API, ``rows`` the sealed rows that were opened; ``scanned`` the
    fields whose distinct values were tested one by one.

    ``requests`` is how many requests a proxy with empty caches would make for those pages and rows;
    ``asked`` how many this one made. ``seconds`` are by stage, wall-clock: queries that run at the
    same time count the same seconds.
    """

    certain: int = 0
    unsure: int = 0
    pages: int = 0
    rows: int = 0
    requests: int = 0
    asked: int = 0
    scanned: set[str] = field(default_factory=set)
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

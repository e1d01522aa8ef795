"""What answering a question took: counted where it happens, never a value."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Cost:
    """Counts of one question.

    ``certain`` and ``unsure`` are rows as the index alone answered, ``pages`` are index pages by
    where they came from, ``rows`` the sealed rows that were opened,
    ``requests`` what was asked of the API for this question alone. ``seconds`` are by stage; what
    ran while another question did counts for both.
    """

    certain: int = 0
    unsure: int = 0
    pages: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    requests: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - started
            self.seconds[name] = self.seconds.get(name, 0.0) + spent

"""The number of searches by pages of a session in the last hour, for the overview.

Kept on the session's desk, so in memory only, and gone with it. There are numbers of searches by
minute and nothing of what was asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from encrypted_records import runtime

#: Minutes that are remembered, and that a bar of the picture stands for.
KEPT_MINUTES = 60
BAR_MINUTES = 2


@dataclass(slots=True)
class SearchCounts:
    """``clock`` is in seconds and never goes back."""

    clock: Callable[[], float] = runtime.monotonic
    _by_minute: dict[int, int] = field(default_factory=dict, repr=False)

    def add(self) -> None:
        """Count a search that is made now."""
        now = self._now()
        self._by_minute[now] = self._by_minute.get(now, 0) + 1
        for minute in [minute for minute in self._by_minute if minute <= now - KEPT_MINUTES]:
            del self._by_minute[minute]

    def bars(self) -> list[int]:
        """Searches in each two minutes of the last hour, the latest at the end."""
        now, bars = self._now(), [0] * (KEPT_MINUTES // BAR_MINUTES)
        for minute, count in self._by_minute.items():
            ago = now - minute
            if ago < KEPT_MINUTES:
                bars[-1 - ago // BAR_MINUTES] += count
        return bars

    def __len__(self) -> int:
        """Minutes that are remembered."""
        return len(self._by_minute)

    def _now(self) -> int:
        return int(self.clock() // 60)

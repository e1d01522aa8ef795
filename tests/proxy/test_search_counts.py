"""Searches of a session, counted by minutes for the overview."""

from __future__ import annotations

from dataclasses import dataclass

from encrypted_records.proxy.pages.questions import KEPT_MINUTES, SearchCounts


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_searches_are_counted_by_two_minutes_and_forgotten_after_an_hour() -> None:
    clock = Clock(600.0)
    counts = SearchCounts(clock)
    counts.add()
    counts.add()
    assert counts.bars() == [0] * 29 + [2]
    clock.now += 4 * 60
    counts.add()
    assert counts.bars() == [0] * 27 + [2, 0, 1]
    clock.now += 56 * 60
    assert counts.bars() == [0, 1] + [0] * 28
    clock.now += 3600
    assert counts.bars() == [0] * 30


def test_a_session_that_searches_for_days_keeps_an_hour() -> None:
    clock = Clock()
    counts = SearchCounts(clock)
    for _ in range(10_000):
        counts.add()
        clock.now += 20
    assert len(counts) <= KEPT_MINUTES
    assert sum(counts.bars()) <= KEPT_MINUTES * 3

"""The scenario ``counters`` (:mod:`.scenarios.counters`)."""

from __future__ import annotations

from collections.abc import Callable


def test_no_raise_of_a_number_is_lost_or_done_twice(
    holds: Callable[[str], None],
) -> None:
    holds("counters")

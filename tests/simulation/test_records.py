"""The scenario ``records`` (:mod:`.scenarios.records`)."""

from __future__ import annotations

from collections.abc import Callable


def test_acknowledged_records_are_there_once_for_all_who_ask_later(
    holds: Callable[[str], None],
) -> None:
    holds("records")

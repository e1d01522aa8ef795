"""The scenario ``retention`` (:mod:`.scenarios.retention`)."""

from __future__ import annotations

from collections.abc import Callable


def test_records_go_by_their_dates_alone_whoever_writes_and_whatever_is_killed(
    holds: Callable[[str], None],
) -> None:
    holds("retention")

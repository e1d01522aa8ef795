"""The scenario ``jobs`` (:mod:`.scenarios.jobs`)."""

from __future__ import annotations

from collections.abc import Callable


def test_a_job_is_there_as_a_whole_or_not_at_all(
    holds: Callable[[str], None],
) -> None:
    holds("jobs")

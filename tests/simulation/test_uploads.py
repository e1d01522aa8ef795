"""The scenario ``uploads`` (:mod:`.scenarios.uploads`)."""

from __future__ import annotations

from collections.abc import Callable


def test_an_upload_goes_on_where_it_had_got_to_and_becomes_a_job_once(
    holds: Callable[[str], None],
) -> None:
    holds("uploads")

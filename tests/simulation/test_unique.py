"""The scenario ``unique`` (:mod:`.scenarios.unique`)."""

from __future__ import annotations

from collections.abc import Callable


def test_no_two_records_share_a_unique_value_and_the_last_one_stands(
    holds: Callable[[str], None],
) -> None:
    holds("unique")

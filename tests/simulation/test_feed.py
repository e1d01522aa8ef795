"""The scenario ``feed`` (:mod:`.scenarios.feed`)."""

from __future__ import annotations

from collections.abc import Callable


def test_a_copy_made_of_the_change_feed_holds_what_a_search_finds(
    holds: Callable[[str], None],
) -> None:
    holds("feed")

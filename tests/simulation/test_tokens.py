"""The scenario ``tokens`` (:mod:`.scenarios.tokens`)."""

from __future__ import annotations

from collections.abc import Callable


def test_a_token_that_was_revoked_is_answered_nothing_and_a_limited_token_no_more_than_it_may(
    holds: Callable[[str], None],
) -> None:
    holds("tokens")

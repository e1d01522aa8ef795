"""The scenario ``rollback`` (:mod:`.scenarios.rollback`)."""

from __future__ import annotations

from collections.abc import Callable


def test_an_api_that_was_put_back_is_noticed_until_each_user_accepts_it(
    holds: Callable[[str], None],
) -> None:
    holds("rollback")

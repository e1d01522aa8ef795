"""The scenario ``removal`` (:mod:`.scenarios.removal`)."""

from __future__ import annotations

from collections.abc import Callable


def test_who_was_put_out_changes_nothing_and_nobody_else_loses_anything(
    holds: Callable[[str], None],
) -> None:
    holds("removal")

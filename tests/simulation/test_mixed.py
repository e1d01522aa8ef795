"""The scenario ``mixed`` (:mod:`.scenarios.mixed`)."""

from __future__ import annotations

from collections.abc import Callable


def test_no_promise_is_broken_while_everything_happens_at_once(
    holds: Callable[[str], None],
) -> None:
    holds("mixed")

"""The scenario ``people`` (:mod:`.scenarios.people`)."""

from __future__ import annotations

from collections.abc import Callable


def test_every_flow_of_an_organization_survives_kills_and_lost_answers(
    holds: Callable[[str], None],
) -> None:
    holds("people")

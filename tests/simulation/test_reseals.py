"""The scenario ``reseals`` (:mod:`.scenarios.reseals`)."""

from __future__ import annotations

from collections.abc import Callable


def test_sealing_again_and_adding_fields_changes_no_record(
    holds: Callable[[str], None],
) -> None:
    holds("reseals")

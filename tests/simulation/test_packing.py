"""The scenario ``packing`` (:mod:`.scenarios.packing`)."""

from __future__ import annotations

from collections.abc import Callable


def test_a_packed_job_is_there_once_and_nothing_of_it_is_left(holds: Callable[[str], None]) -> None:
    holds("packing")

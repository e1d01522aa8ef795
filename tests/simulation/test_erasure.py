"""The scenario ``erasure`` (:mod:`.scenarios.erasure`)."""

from __future__ import annotations

from collections.abc import Callable


def test_what_is_erased_is_in_no_file_and_exports_have_every_record(
    holds: Callable[[str], None],
) -> None:
    holds("erasure")

"""No bytes crash a parser: it takes them, or refuses them by the errors that it names.

Bounded in ``make test``. ``make fuzz`` goes on for ``FUZZ_SECONDS``, spread over all targets.
"""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz import paged_targets, plain_targets, sealed_targets, sharing_targets
from tests.fuzz.target import Target

TARGETS = [
    *sealed_targets.TARGETS,
    *paged_targets.TARGETS,
    *plain_targets.TARGETS,
    *sharing_targets.TARGETS,
]
SECONDS_EACH = float(os.environ.get("FUZZ_SECONDS", "0")) / len(TARGETS)

every_target = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


@every_target
def test_a_parser_takes_what_is_good(target: Target) -> None:
    target.run(target.seeds[0])


@every_target
def test_no_bytes_crash_a_parser(target: Target) -> None:
    usual = settings.default
    assert usual is not None

    # Most examples cost less than a millisecond: there can be more of them than elsewhere.
    @settings(
        max_examples=4 * usual.max_examples,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(target.inputs(target.seeds))
    def survives(data: bytes) -> None:
        target.survives(data)

    deadline = time.monotonic() + SECONDS_EACH
    survives()
    while time.monotonic() < deadline:
        survives()

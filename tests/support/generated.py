"""Requests that schemathesis makes of an OpenAPI document, held to what the document says."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def statuses_of(
    operation: Any,
    base: str,
    headers: Mapping[str, str],
    *,
    examples: int,
    aim: Callable[[Any], None],
) -> list[int]:
    """Send ``examples`` requests of an operation; the statuses of their answers.

    Args:
        aim: changes every other request, the first among them, to name something that is there.
    """
    seen: list[int] = []

    @given(case=operation.as_strategy())
    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def hold(case: Any) -> None:
        if len(seen) % 2 == 0:
            aim(case)
        answer = case.call_and_validate(base_url=base, headers=dict(headers), checks=CHECKS)
        seen.append(answer.status_code)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hold()
    return seen

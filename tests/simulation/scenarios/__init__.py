"""The scenarios, by name. Each module has ``run``, a coroutine over a scene, and says what it
holds."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from tests.simulation.scenarios import (
    counters,
    erasure,
    jobs,
    packing,
    records,
    removal,
    reseals,
    retention,
    unique,
    uploads,
)
from tests.simulation.scene import Scene


class Scenario(Protocol):
    """
    Raises:
        Fault: the service broke a promise.
    """

    def __call__(self, scene: Scene) -> Coroutine[Any, Any, None]: ...


SCENARIOS: Mapping[str, Scenario] = {
    "counters": counters.run,
    "erasure": erasure.run,
    "jobs": jobs.run,
    "packing": packing.run,
    "records": records.run,
    "removal": removal.run,
    "reseals": reseals.run,
    "retention": retention.run,
    "unique": unique.run,
    "uploads": uploads.run,
}

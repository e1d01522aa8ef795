"""The scenarios, by name. Each module has ``run``, a coroutine over a scene, and says what it
holds."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from tests.simulation.scenarios import (
    counters,
    erasure,
    feed,
    jobs,
    mixed,
    packing,
    people,
    records,
    removal,
    reseals,
    retention,
    rollback,
    tokens,
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
    "feed": feed.run,
    "jobs": jobs.run,
    "mixed": mixed.run,
    "packing": packing.run,
    "people": people.run,
    "records": records.run,
    "removal": removal.run,
    "reseals": reseals.run,
    "retention": retention.run,
    "rollback": rollback.run,
    "tokens": tokens.run,
    "unique": unique.run,
    "uploads": uploads.run,
}

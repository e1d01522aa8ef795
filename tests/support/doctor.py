"""What ``ers doctor --stored`` says of an API's database and stores."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tests.support import forked
from tests.support.service import ERS, clean_environment


@dataclass(frozen=True)
class Look:
    """``everything`` is all that was printed; ``status`` is the exit code."""

    state: str
    found: str
    status: int
    everything: str = field(repr=False)


def looked_at(check: str, **environment: str) -> Look:
    """What it finds of one part.

    Args:
        check: the part's name.
        environment: variables of the API.
    """
    done = forked.run(
        [*ERS, "doctor", "--stored", "--output", "json"], clean_environment(**environment)
    )
    [part] = [load for load in json.loads(done.stdout) if load["check"] == check]
    return Look(part["state"], part["found"], done.returncode, done.stdout + done.stderr)

"""A run is a function of the code, the scenario and the seed: what has failed once can be seen
again."""

from __future__ import annotations

import re
from pathlib import Path

from tests.simulation.conftest import simulate


def test_a_seed_gives_the_same_run_in_every_process_and_another_one_another(template: Path) -> None:
    runs = [
        simulate("removal", "--template", str(template), "--seeds", seeds, PYTHONHASHSEED=hashes)
        for seeds, hashes in (("1,2", "1"), ("2,1", "2"))
    ]
    traces = [sorted(re.findall(r"^(\S+ \d): trace (\w+)", run.stdout, re.M)) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], runs
    assert traces[0] == traces[1]
    assert len(dict(traces[0])) == len({trace for _, trace in traces[0]}) == 2

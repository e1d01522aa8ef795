"""A run is a function of the code, the scenario and the seed: what has failed once can be seen
again."""

from __future__ import annotations

from pathlib import Path

from tests.simulation.conftest import simulate


def test_a_seed_gives_the_same_run_in_every_process(template: Path) -> None:
    given = ("records", "removal", "--template", str(template))
    runs = [
        simulate(*given, "--seeds", seeds, PYTHONHASHSEED=hashes)
        for seeds, hashes in (("1,2", "1"), ("2,1", "2"))
    ]
    traces = [
        {line.split(", ")[0] for line in run.stdout.splitlines() if " trace " in line}
        for run in runs
    ]
    assert len(traces[0]) == 4, runs[0].stdout + runs[0].stderr
    assert traces[0] == traces[1]


def test_another_seed_gives_another_run(template: Path) -> None:
    said = simulate("records", "--template", str(template), "--seeds", "1,2")
    assert said.returncode == 0, said.stdout + said.stderr
    one, two = (line.split(" trace ")[1][:8] for line in said.stdout.splitlines())
    assert one != two

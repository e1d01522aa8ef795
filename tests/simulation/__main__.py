"""Run scenarios: ``python -m tests.simulation records --seeds 0-3``.

A process is warmed up by a run with other accounts; each seed then runs in a fork of it, so that no
seed leaves anything to the next.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.simulation import breaking
from tests.simulation.seeds import NONE_FAILED, SOME_FAILED, USUAL, read_seeds
from tests.support.place import place


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="SCENARIO",
        help="all, if none is named; -: those of stdin, each with its seeds on a line",
    )
    parser.add_argument("--seeds", default="", help="such as 0-3 or 3,17")
    parser.add_argument("--seconds", type=float, help="draw new seeds for so long")
    parser.add_argument("--trail", type=Path, help="write each step of the run to this file")
    parser.add_argument("--log", action="store_true", help="print what was logged, also of success")
    parser.add_argument("--template", type=Path, help="a folder with the databases to begin with")
    parser.add_argument("--make-template", type=Path, metavar="FOLDER", help="fill it, and end")
    parser.add_argument("--plant", metavar="FAULT", help="of breaking.py: put it into the service")
    parser.add_argument("--first", action="store_true", help="end with the first that fails")
    asked = parser.parse_args()
    if asked.plant:
        breaking.plant(asked.plant)
    # Behind what is planted, which has to be there before the service is imported.
    from tests.simulation.runs import Runner, make_template
    from tests.simulation.scenarios import SCENARIOS

    if asked.make_template:
        make_template(asked.make_template)
        return 0
    names = asked.names or sorted(SCENARIOS)
    failed = 0
    with place() as folder:
        runner = Runner(folder, asked.template)
        if names == ["-"]:
            for line in sys.stdin:
                name, seeds = line.split()
                outcomes = [runner.run(name, seed) for seed in read_seeds(seeds)]
                ended = SOME_FAILED if any(one.error for one in outcomes) else NONE_FAILED
                sys.stdout.write("".join(f"{one}\n" for one in outcomes) + ended)
                sys.stdout.flush()
            return 0
        deadline = time.monotonic() + (asked.seconds or 0)
        for name, seed in _every(names, asked.seeds, deadline if asked.seconds else None):
            outcome = runner.run(name, seed, trail=asked.trail, log=asked.log)
            sys.stdout.write(f"{outcome}\n{outcome.counts if asked.log else ''}".rstrip() + "\n")
            sys.stdout.flush()
            failed += outcome.error is not None
            if failed and asked.first:
                break
    return 1 if failed else 0


def _every(names: Sequence[str], seeds: str, deadline: float | None) -> Iterator[tuple[str, int]]:
    """What is run, in turn: these seeds, or new ones until the deadline."""
    if deadline is None:
        for name in names:
            for seed in read_seeds(seeds or USUAL):
                yield name, seed
        return
    seed = time.time_ns() // 1000 % 10**12
    while time.monotonic() < deadline:
        for name in names:
            yield name, seed
        seed += 1


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Not unwound: killed lives are still in memory, and have no loop to end on.
    os._exit(code)

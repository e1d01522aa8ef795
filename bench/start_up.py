"""How long commands take that do nothing but start.

    .venv/bin/python -m bench.start_up --rounds 20

Each is a process of its own, with the interpreter of this environment; beside them an interpreter
that does nothing. The goal is 100 ms for ``ers --version``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.support.table import Row, show

GOAL_MS = 100
ERS = str(Path(sys.executable).with_name("ers"))
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "ers --version": [ERS, "--version"],
    "ers --help": [ERS, "--help"],
    "ers record search --help": [ERS, "record", "search", "--help"],
}


def measured(command: list[str], rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds that passed, and milliseconds of the processor, of each round."""
    passed, used = [], []
    for _ in range(rounds):
        before, began = os.times(), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        passed.append((time.perf_counter() - began) * 1000)
        after = os.times()
        children = after.children_user + after.children_system
        used.append((children - before.children_user - before.children_system) * 1000)
    return passed, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds: int = parser.parse_args().rounds
    rows = []
    for name, command in COMMANDS.items():
        passed, used = measured(command, rounds)
        middle = f"{statistics.median(passed):.0f} ms, of the processor {statistics.mean(used):.0f}"
        goal = f"below {GOAL_MS} ms" if name == "ers --version" else ""
        rows.append(Row(name, middle, goal))
    show("Starting", rows)


if __name__ == "__main__":
    main()

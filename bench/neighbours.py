"""What one user's requests cost another: the worst that is accepted, and a cheap search beside it.

    .venv/bin/python -m bench.neighbours --records 100000

Each request is repeated for some seconds while another account, with a schema of its own, puts the
same small search again and again. Printed are the request's own time and the longest that a search
waited; what is refused at once stands there too, since to refuse may take long as well.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.neighbour_cases import GROUPS
from bench.neighbour_world import Case, prepare
from bench.support import stack
from bench.support.neighbours import PATIENCE, Asked, Neighbour, Waits

GOAL = 0.250


def measure(case: Case, neighbour: Neighbour, seconds: float) -> tuple[list[Asked], Waits]:
    """The case's requests for so long, one at least, and how long the neighbour waited."""
    found: list[Asked] = []

    def repeat(until: float) -> None:
        while True:
            try:
                found.append(case.ask())
            except TimeoutError:
                found.append(Asked(0, PATIENCE, b"", 0))
            if time.perf_counter() > until:
                return

    with neighbour.asking() as waits:
        time.sleep(0.3)
        until = time.perf_counter() + seconds
        threads = [threading.Thread(target=repeat, args=(until,)) for _ in range(case.at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found, waits


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=100_000)
    options.add_argument("--seconds", type=float, default=3.0, help="for each request")
    options.add_argument("--groups", nargs="*", default=list(GROUPS), choices=list(GROUPS))
    options.add_argument("--only", default="", help="requests whose name has this in it")
    asked = options.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="ers-neighbours-") as name,
        stack.running_api(Path(name), None) as (url, _),
        stack.running_proxy(Path(name), url) as service,
    ):
        neighbour = Neighbour(service)
        world = prepare(service, asked.records, Path(name))
        print(f"{'':42} {'status':>6} {'own s':>7} {'median':>7} {'longest':>7} {'held':>7}  ms")
        for group in asked.groups:
            nothing = Case("(nothing)", _wait)
            for case in (nothing, *GROUPS[group](world)):
                if asked.only in case.name:
                    found, waits = measure(case, neighbour, asked.seconds)
                    print(_line(case, found, waits), flush=True)


def _wait() -> Asked:
    time.sleep(1)
    return Asked(200, 0.0, b"", 0)


def _line(case: Case, found: Sequence[Asked], waits: Waits) -> str:
    own = statistics.median(one.seconds for one in found)
    median = statistics.median(wait.seconds for wait in waits.every)
    figures = " ".join(f"{one * 1000:7.0f}" for one in (median, waits.longest, waits.held))
    over = "  over" if waits.held > GOAL else ""
    return f"{case.name:42} {found[-1].status:>6} {own:7.2f} {figures}{over}"


if __name__ == "__main__":
    main()

"""What slow senders without credentials take from somebody who works: how long his requests take.

    .venv/bin/python -m bench.slow_senders --senders 500 --seconds 30

A real service. Half of the senders are connected to the API, half to the proxy: silent, with heads
and with bodies that never end. Each that is closed comes back at once. Beside them one user asks
one question after another; the same without any of them is the comparison. The goal is a p99
below a second on two idle cores.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from bench.support.table import Row, show
from tests.support.senders import slow_senders
from tests.support.service import running_service
from tests.support.store import Store, new_store

GOAL_MS = 1000
DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 1_000_000}},
}


def keep_sending(url: str, count: int, ready: Event, end: Event) -> None:
    """So many slow senders, until the end; those that were closed begin again."""
    while not end.is_set():
        with slow_senders(url, count):
            ready.set()
            end.wait(5.0)


def measured(store: Store, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each request, by what was asked."""
    numbers = itertools.count()
    ways: dict[str, Callable[[], Any]] = {
        "GET /api/users/self/ at the API": lambda: store.api("GET", "/api/users/self/"),
        "GET /api/datasets/ by the proxy": lambda: store.proxy("GET", "/api/datasets/"),
        "ingest of a record": lambda: store.send([{"n": next(numbers)}]),
        "search": lambda: store.ask({"field": "n", "op": "eq", "value": 1}, limit=10),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, ask in ways.items():
            began = time.perf_counter()
            assert ask().status in (200, 201)
            took[name].append((time.perf_counter() - began) * 1000)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--senders", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=30.0)
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_service(Path(folder) / "data") as service,
    ):
        store = new_store(service, DEFINITION)
        measured(store, 2.0)  # warm
        alone = measured(store, chosen.seconds)
        end = multiprocessing.Event()
        senders = []
        for url in (service.base_url, service.proxy_url):
            ready = multiprocessing.Event()
            given = (url, chosen.senders // 2, ready, end)
            senders.append(multiprocessing.Process(target=keep_sending, args=given, daemon=True))
            senders[-1].start()
            assert ready.wait(60)
        beside = measured(store, chosen.seconds)
        end.set()
        for sender in senders:
            sender.join()
    rows = [
        Row(
            name,
            f"p50 {statistics.median(took):6.1f}  p99 {at(took, 0.99):6.1f} ms",
            f"alone p50 {statistics.median(alone[name]):6.1f}  p99 {at(alone[name], 0.99):6.1f}",
        )
        for name, took in beside.items()
    ]
    worst = max(at(took, 0.99) for took in beside.values())
    verdict = f"goal {GOAL_MS} ms: {'met' if worst < GOAL_MS else 'missed'}"
    show(
        f"beside {chosen.senders} slow senders",
        [*rows, Row("worst p99", f"{worst:.1f} ms", verdict)],
    )


def at(took: list[float], share: float) -> float:
    return sorted(took)[min(int(len(took) * share), len(took) - 1)]


if __name__ == "__main__":
    main()

"""What asking who somebody is costs: GET /api/users/self/ by each login, against GET /api/status/.

    .venv/bin/python -m bench.authentication

A real API process, one connection per worker, the ways taken in turn several times so that a busy
machine slows all of them alike. Printed is the median of the rounds.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path

from tests.server.api import PASSWORD, basic, running_api
from tests.server.sessions import session_of

WORKERS = 4
ROUNDS = 5
SECONDS = 1.0
GOALS = {"Basic, warm": 0.5, "Bearer": 0.5}


def rate(port: int, path: str, headers: Mapping[str, str]) -> float:
    """Requests a second by all workers together."""
    counts = [0] * WORKERS
    end = time.perf_counter() + SECONDS

    def work(number: int) -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        while time.perf_counter() < end:
            connection.request("GET", path, headers=dict(headers))
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            counts[number] += 1
        connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_api(Path(folder)) as api:
        account = api.new_account()
        ways = {
            "status, nobody": ("/api/status/", {}),
            "Basic, warm": ("/api/users/self/", basic(account.email, PASSWORD)),
            "Bearer": ("/api/users/self/", {"Authorization": f"Bearer {account.token}"}),
            "session": ("/api/users/self/", session_of(api, account.email)),
        }
        measured: dict[str, list[float]] = {name: [] for name in ways}
        for path, headers in ways.values():
            rate(api.port, path, headers)  # warm
        for _ in range(ROUNDS):
            for name, (path, headers) in ways.items():
                measured[name].append(rate(api.port, path, headers))
    found = {name: statistics.median(rates) for name, rates in measured.items()}
    base = found["status, nobody"]
    print(f"{'':16} {'requests/s':>10} {'ratio':>6} {'goal':>5}")
    for name, value in found.items():
        goal = GOALS.get(name)
        print(f"{name:16} {value:10.0f} {value / base:6.2f} {goal or '':>5}")


if __name__ == "__main__":
    main()

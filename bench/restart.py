"""What a long log costs: storing one record more, and the first question of a proxy.

Starts API and proxy as two services and stores ``--commits`` records one by one, through one
connection, since ingests that come at once share a commit. Printed is, for each fifth of them, how
many were stored a second and how much processor time of each side one took, which other work on the
machine disturbs least. Then, of how many commits the log is, merges and compactions among them; how
long the first question takes of a proxy that was started again, and of one that has the keys and
what it has seen, but no log: which begins with the newest checkpoint of it, and where the API has
none, with its first commit (the median of three starts each, who asks has a token); and how large
what it kept is.

    .venv/bin/python -m bench.restart --commits 5000
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from bench.support.processes import Meter
from bench.support.stack import Asking, kept, logged_in, running_api, running_proxy
from bench.support.table import Row, show
from tests.support.service import Service
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 0, "maximum": 10**9},
        "name": {"type": "string"},
    },
}
PARTS = 5
ROUNDS = 3


def store_some(store: Store, numbers: Sequence[int]) -> None:
    """One direct ingest for each."""
    asking = Asking(store.service.proxy_url, {"Authorization": store.account.auth})
    for number in numbers:
        data = {"number": number, "name": f"name {number}"}
        asking.post("/api/records/ingest/", [{"schema": store.schema, "data": data}])
    asking.close()


def ingesting(store: Store, meter: Meter, commits: int) -> list[Row]:
    rows: list[Row] = []
    size = commits // PARTS
    for at in range(0, size * PARTS, size):
        began, api, proxy = time.monotonic(), meter.seconds(meter.api), meter.seconds(meter.proxy)
        store_some(store, range(at, at + size))
        took = time.monotonic() - began
        api, proxy = meter.seconds(meter.api) - api, meter.seconds(meter.proxy) - proxy
        cost = f"{1000 * proxy / size:.1f} ms of the proxy, {1000 * api / size:.1f} ms of the API"
        rows.append(Row(f"{at} to {at + size}", f"{size / took:.1f}/s", cost))
    return rows


def first_search(store: Store, service: Service) -> tuple[float, float]:
    """Milliseconds of the first count through a proxy that was just started, and of the next."""
    asking = logged_in(replace(store, service=service))
    body = {"schema": store.schema, "where": None, "count": True, "limit": 0}
    found: list[float] = []
    for _ in range(2):
        began = time.perf_counter()
        asking.post("/api/records/search/", body)
        found.append(1000 * (time.perf_counter() - began))
    asking.close()
    return found[0], found[1]


def drop_checkpoints(folder: Path) -> None:
    """The proxy writes one again once it has answered."""
    with closing(sqlite3.connect(folder / "api" / "api" / "db.sqlite3", timeout=60)) as database:
        database.execute("DELETE FROM log_checkpoint")
        database.commit()


def log_length(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "api" / "api" / "db.sqlite3", timeout=60)) as database:
        (commits,) = database.execute("SELECT count(*) FROM commit_log").fetchone()
    return int(commits)


def starting(folder: Path, base_url: str, store: Store) -> list[Row]:
    own = folder / "proxy" / "proxy"
    kept = sum(path.stat().st_size for path in own.glob("ledgers.sqlite3*"))
    rows = [
        Row("the log", f"{log_length(folder):,} commits"),
        Row("kept of it", f"{kept >> 10} KiB"),
    ]
    ways = (
        ("a proxy that was started again", False, False),
        ("without its log, by a checkpoint", True, False),
        ("without its log, by the API's", True, True),
    )
    for what, forgets, whole in ways:
        found = []
        for _ in range(ROUNDS):
            if forgets:
                for path in own.glob("ledgers.sqlite3*"):
                    path.unlink()
            if whole:
                drop_checkpoints(folder)
            with running_proxy(folder, base_url) as service:
                found.append(first_search(store, service))
        first, then = (statistics.median(one) for one in zip(*found, strict=True))
        rows.append(Row(what, f"{first:.0f} ms", f"then {then:.0f} ms"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=500)
    parser.add_argument("--folder", type=Path, help="keep everything here, and use it again")
    arguments = parser.parse_args()
    with kept(arguments.folder) as folder, running_api(folder, None) as (base_url, api):
        with running_proxy(folder, base_url) as service:
            store = new_store(service, DEFINITION)
            rows = ingesting(store, Meter(service, api), arguments.commits)
            show(f"{arguments.commits} records, one by one", rows)
        show("the first question, and the next", starting(folder, base_url, store))


if __name__ == "__main__":
    main()

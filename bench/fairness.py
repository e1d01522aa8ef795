"""A busy user at one proxy and a quiet one at another: how late the quiet one is answered.

    .venv/bin/python -m bench.fairness --records 20000 --clients 64

Two proxies of one API, each with an account of its own. The quiet user puts one search after
another: alone, while the busy one's clients search without a pause, and while these ingest records
one by one. Printed are p50 and p99 of the quiet user's answers, and
how many times the p99 alone that is. Client, proxies and API share the machine's cores, so a part
of it is the machine's own.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from pathlib import Path

from bench.load import Tally, Target, keep_asking
from bench.support import people, stack
from tests.support.postgres import running_server

GOAL = 3.0


def target(name: str, folder: Path, api: str, held: contextlib.ExitStack, records: int) -> Target:
    """A proxy of its own with an account of its own, and its records."""
    service = held.enter_context(stack.running_proxy(folder, api, name))
    own = folder / name
    store, _ = stack.stored_people(own, service, people.csv_file(own, records))
    credentials = {"email": store.account.email, "password": store.account.password}
    token = store.proxy("POST", "/api/token/", credentials).json()["access"]
    return Target(store, store.another_schema(people.DEFINITION), token, records)


async def ask(
    quiet: Target, busy: Target | None, work: str, clients: int, seconds: float
) -> tuple[Tally, Tally]:
    """What became of the quiet user's searches, and of the busy one's requests."""
    mine, theirs = Tally(), Tally()
    until = time.perf_counter() + seconds
    async with asyncio.TaskGroup() as group:
        group.create_task(keep_asking("search", quiet, mine, until, 0))
        if busy is not None:
            for number in range(clients):
                group.create_task(keep_asking(work, busy, theirs, until, 1 + number))
    return mine, theirs


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--records", type=int, default=20_000, help="of each user")
    options.add_argument("--seconds", type=float, default=10.0, help="for each line")
    options.add_argument("--clients", type=int, default=64, help="of the busy user")
    options.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    asked = options.parse_args()
    with contextlib.ExitStack() as held:
        folder = held.enter_context(stack.kept(None))
        url = None
        if asked.database == "postgresql":
            (folder / "postgresql").mkdir(exist_ok=True)
            server = held.enter_context(running_server(folder / "postgresql", durable=True))
            url = stack.database(server, "api")
        api, _ = held.enter_context(stack.running_api(folder, url))
        busy = target("busy", folder, api, held, asked.records)
        quiet = target("quiet", folder, api, held, asked.records)
        print(f"{'beside':10} {'p50 ms':>8} {'p99 ms':>8} {'times':>7} {'their answers/s':>16}")
        alone = 0.0
        for work in (None, "search", "ingest"):
            beside = busy if work else None
            mine, theirs = asyncio.run(ask(quiet, beside, work or "", asked.clients, asked.seconds))
            middle, late = mine.percentiles(0.5, 0.99)
            alone = alone or late
            print(
                f"{work or 'nobody':10} {middle:8.1f} {late:8.1f} {late / alone:7.1f}"
                f" {len(theirs.seconds) / asked.seconds:16.1f}"
                f"  goal {GOAL:g} {'met' if late <= GOAL * alone else 'missed'}",
                flush=True,
            )


if __name__ == "__main__":
    main()

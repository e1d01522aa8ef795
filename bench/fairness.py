"""A busy user and a quiet one: how late the quiet one is answered.

    .venv/bin/python -m bench.fairness --records 20000 --clients 64
    .venv/bin/python -m bench.fairness --records 60000 --clients 4 --works export --one-proxy

Two proxies of one API, or one, with an account for each user. The quiet user puts one search after
another, or stores one record after another: alone, and while the busy one's clients do each of the
works without a pause. Printed are p50 and p99 of the quiet user's answers, and how many times those
alone they are. Client, proxies and API share the machine's cores, so a part of it is the machine's
own.
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
from tests.support.service import Service

GOAL = 3.0


def target(name: str, folder: Path, service: Service, records: int) -> Target:
    """An account of its own, and its records."""
    own = folder / name
    own.mkdir(exist_ok=True)
    store, _ = stack.stored_people(own, service, people.csv_file(own, records))
    credentials = {"email": store.account.email, "password": store.account.password}
    token = store.proxy("POST", "/api/token/", credentials).json()["access"]
    return Target(store, store.another_schema(people.DEFINITION), token, records)


async def ask(
    quiet: Target, asks: str, busy: Target | None, work: str, clients: int, seconds: float
) -> tuple[Tally, Tally]:
    """What became of the quiet user's requests, and of the busy one's."""
    mine, theirs = Tally(), Tally()
    until = time.perf_counter() + seconds
    async with asyncio.TaskGroup() as group:
        group.create_task(keep_asking(asks, quiet, mine, until, 0))
        if busy is not None:
            for number in range(clients):
                group.create_task(keep_asking(work, busy, theirs, until, 1 + number))
    return mine, theirs


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--records", type=int, default=20_000, help="of each user")
    options.add_argument("--seconds", type=float, default=10.0, help="for each line")
    options.add_argument("--clients", type=int, default=64, help="of the busy user")
    options.add_argument("--folder", type=Path, help="where the stores are kept for the next run")
    options.add_argument("--one-proxy", action="store_true", help="both users are at one proxy")
    options.add_argument("--works", default="search,ingest", help="of the busy user, by commas")
    options.add_argument("--asks", default="search", help="of the quiet user, by commas")
    options.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    asked = options.parse_args()
    with contextlib.ExitStack() as held:
        folder = held.enter_context(stack.kept(asked.folder))
        url = None
        if asked.database == "postgresql":
            (folder / "postgresql").mkdir(exist_ok=True)
            server = held.enter_context(running_server(folder / "postgresql", durable=True))
            url = stack.database(server, "api")
        api, _ = held.enter_context(stack.running_api(folder, url))
        at = [held.enter_context(stack.running_proxy(folder, api, "busy"))]
        if not asked.one_proxy:
            at.append(held.enter_context(stack.running_proxy(folder, api, "quiet")))
        busy = target("busy", folder, at[0], asked.records)
        quiet = target("quiet", folder, at[-1], asked.records)
        titles = ("p50 ms", "times", "p99 ms", "times")
        print(f"{'beside':10} {'asks':8} {' '.join(f'{one:>8}' for one in titles)}  answers/s")
        for asks in asked.asks.split(","):
            alone: list[float] = []
            for work in (None, *asked.works.split(",")):
                beside = busy if work else None
                mine, theirs = asyncio.run(
                    ask(quiet, asks, beside, work or "", asked.clients, asked.seconds)
                )
                times = mine.percentiles(0.5, 0.99)
                alone = alone or times
                middle, late = (now / then for now, then in zip(times, alone, strict=True))
                print(
                    f"{work or 'nobody':10} {asks:8} {times[0]:8.1f} {middle:8.1f} {times[1]:8.1f}"
                    f" {late:8.1f} {len(theirs.seconds) / asked.seconds:10.1f}"
                    f"  goal {GOAL:g} {'met' if max(middle, late) <= GOAL else 'missed'}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

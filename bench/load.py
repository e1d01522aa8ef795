"""Many clients at once: how many requests are answered in a second, how late, and at what cost.

    .venv/bin/python -m bench.load --records 100000 --work search ingest mixed --clients 1 32 128

Each client has a connection of its own, and asks again as soon as it is answered, or after the
``Retry-After`` of a 503. Works: ``search`` (an equality, ten rows decrypted), ``ingest`` (one
record, all into one schema), ``mixed`` (of eight clients five search, one ingests, one sends CSV
jobs of a thousand records and one resumable uploads of 1 MiB). Printed for each work and number of
clients: requests a second, median and 99th percentile of what was taken, how many were refused or
got no answer (with the client's error), processor time of both sides for a request, and the proxy's
memory. Client and servers share the machine.

Each line follows the one above it, so that the proxy has by then what it needs. With ``--fresh``
it is started again before each line, without the pages and rows that it kept: the crowd meets a
proxy that has nothing but its keys and the log. Then each line is followed by how many requests the
API had, by route.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import random
import re
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp

from bench.support import people, stack
from bench.support.processes import Meter, memory_mib
from tests.support.postgres import running_server
from tests.support.service import Service, free_ports
from tests.support.store import Store

WORKS = ("search", "ingest", "mixed")
#: What the clients of mixed work do, in turn.
_MIX = ("search", "search", "ingest", "search", "job", "search", "upload", "search")
_CSV_RECORDS = 1000
_UPLOAD = bytes(1 << 20)
_PATIENCE = aiohttp.ClientTimeout(total=300)


@dataclass
class Tally:
    """What became of one kind of request: seconds of those that were taken, and statuses."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    #: requests without an answer, by the name of the client's error
    failures: Counter[str] = field(default_factory=Counter)

    def add(self, status: int, seconds: float) -> None:
        self.statuses[status] += 1
        if status < 300:
            self.seconds.append(seconds)

    def percentiles(self, *parts: float) -> list[float]:
        """Milliseconds within which so large a part was taken; 0 where nothing was."""
        times = sorted(self.seconds) or [0.0]
        return [times[int(len(times) * part)] * 1000 for part in parts]


@dataclass(frozen=True)
class Target:
    searched: Store
    filled: Store
    token: str
    records: int


Send = Callable[[aiohttp.ClientSession, Target, random.Random], Awaitable[aiohttp.ClientResponse]]


async def _search(
    http: aiohttp.ClientSession, target: Target, chance: random.Random
) -> aiohttp.ClientResponse:
    where = {"field": "number", "op": "eq", "value": chance.randrange(target.records)}
    body = {"schema": target.searched.schema, "where": where, "limit": 10}
    return await http.post("/api/records/search/", json=body)


async def _ingest(
    http: aiohttp.ClientSession, target: Target, chance: random.Random
) -> aiohttp.ClientResponse:
    data = people.record(chance, chance.randrange(10**9))
    return await http.post(
        "/api/records/ingest/", json=[{"schema": target.filled.schema, "data": data}]
    )


async def _job(
    http: aiohttp.ClientSession, target: Target, chance: random.Random
) -> aiohttp.ClientResponse:
    head = ",".join([*people.FIELDS, f"schema_id:{target.filled.schema_id}"])
    rows = (people.record(chance, n) for n in range(_CSV_RECORDS))
    lines = [head, *(",".join(map(str, row.values())) for row in rows), ""]
    headers = {"Content-Type": "text/csv"}
    return await http.post("/api/jobs/upload/", data="\n".join(lines).encode(), headers=headers)


async def _upload(
    http: aiohttp.ClientSession, target: Target, chance: random.Random
) -> aiohttp.ClientResponse:
    schema = base64.b64encode(target.filled.schema_id.encode()).decode()
    kind = base64.b64encode(b"text/csv").decode()
    headers = {
        "Tus-Resumable": "1.0.0",
        "Upload-Length": str(2 * len(_UPLOAD)),  # never complete: the upload alone is measured
        "Upload-Metadata": f"schema {schema},filetype {kind}",
    }
    made = await http.post("/api/files/", headers=headers)
    if made.status != 201:
        return made
    head = ",".join([*people.FIELDS, f"schema_id:{target.filled.schema_id}\n"]).encode()
    headers = {
        "Tus-Resumable": "1.0.0",
        "Upload-Offset": "0",
        "Content-Type": "application/offset+octet-stream",
    }
    body = head + b"x" * (len(_UPLOAD) - len(head))
    sent = await http.patch(made.headers["Location"], data=body, headers=headers)
    await http.delete(made.headers["Location"], headers={"Tus-Resumable": "1.0.0"})
    return sent


async def _export(
    http: aiohttp.ClientSession, target: Target, _chance: random.Random
) -> aiohttp.ClientResponse:
    return await http.post("/api/records/export/", json={"schema": target.searched.schema})


KINDS: dict[str, Send] = {
    "search": _search,
    "ingest": _ingest,
    "job": _job,
    "upload": _upload,
    "export": _export,
}


async def keep_asking(kind: str, target: Target, tally: Tally, until: float, seed: int) -> None:
    """One client's requests of one kind until :func:`time.perf_counter` says ``until``."""
    chance = random.Random(seed)
    send = KINDS[kind]
    async with aiohttp.ClientSession(
        target.searched.service.proxy_url,
        connector=aiohttp.TCPConnector(limit=1),
        headers={"Authorization": f"Bearer {target.token}"},
        timeout=_PATIENCE,
    ) as http:
        while (began := time.perf_counter()) < until:
            pause = 0.0
            try:
                answer = await send(http, target, chance)
                async for _ in answer.content.iter_any():
                    if time.perf_counter() >= until:
                        break  # the rest of an export
            except (aiohttp.ClientError, TimeoutError) as error:
                tally.failures[type(error).__name__] += 1
                pause = 1.0
            else:
                tally.add(answer.status, time.perf_counter() - began)
                if answer.status == 503:
                    pause = float(answer.headers.get("Retry-After", 1))
            if pause:
                await asyncio.sleep(min(pause, max(0.0, until - time.perf_counter())))


async def _drive(work: str, clients: int, target: Target, seconds: float) -> dict[str, Tally]:
    tallies: dict[str, Tally] = defaultdict(Tally)
    until = time.perf_counter() + seconds
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            kind = _MIX[number % len(_MIX)] if work == "mixed" else work
            group.create_task(keep_asking(kind, target, tallies[kind], until, number))
    return tallies


class Routes:
    """Requests that an API has answered, by route, as its metrics tell."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"

    def counts(self) -> Counter[str]:
        with urllib.request.urlopen(self._url) as answer:
            text = answer.read().decode()
        found: Counter[str] = Counter()
        for labels, value in re.findall(r"^ers_requests_total{(.*)} (\S+)$", text, re.MULTILINE):
            (route,) = re.findall(r'route="([^"]*)"', labels)
            found[route] += int(float(value))
        return found


def _measure(work: str, clients: int, target: Target, seconds: float, meter: Meter) -> None:
    before, began = meter.both, time.perf_counter()
    tallies = asyncio.run(_drive(work, clients, target, seconds))
    took, busy = time.perf_counter() - began, meter.both - before
    every = sum(tally.statuses.total() + tally.failures.total() for tally in tallies.values())
    memory = memory_mib(meter.proxy, "VmRSS")
    for kind, tally in sorted(tallies.items()):
        middle, late = tally.percentiles(0.5, 0.99)
        refused = {status: n for status, n in tally.statuses.items() if status >= 300}
        left = refused | dict(tally.failures)
        name = kind if work == kind else f"{work}: {kind}"
        print(
            f"{name:16} {clients:>7} {len(tally.seconds) / took:9.1f} {middle:8.1f} {late:8.1f}"
            f" {busy / every * 1000:9.1f} {memory:7.0f}  {left or ''}",
            flush=True,
        )


def _restarted(
    folder: Path, api: str, held: contextlib.ExitStack, target: Target
) -> tuple[Target, Service]:
    """The target behind a proxy that has just started, without pages and rows of before."""
    held.close()
    for path in (folder / "proxy" / "proxy").glob("pages.sqlite3*"):
        path.unlink()
    service = held.enter_context(stack.running_proxy(folder, api))
    searched, filled = (replace(one, service=service) for one in (target.searched, target.filled))
    return replace(target, searched=searched, filled=filled), service


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=100_000, help="in the schema searched")
    options.add_argument("--seconds", type=float, default=10.0, help="for each line")
    options.add_argument("--clients", type=int, nargs="*", default=[1, 32, 128])
    options.add_argument("--work", nargs="*", default=list(WORKS), choices=WORKS)
    options.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    options.add_argument("--keep", type=Path, help="a folder that keeps the records for next time")
    options.add_argument("--fresh", action="store_true", help="start the proxy for each line")
    asked = options.parse_args()
    with contextlib.ExitStack() as held:
        folder = held.enter_context(stack.kept(asked.keep))
        url = None
        if asked.database == "postgresql":
            (folder / "postgresql").mkdir(exist_ok=True)
            server = held.enter_context(running_server(folder / "postgresql", durable=True))
            url = stack.database(server, "api")
        (port,) = free_ports(1)
        routes = Routes(port)
        settings = {"ERS_API_METRICS_PORT": str(port)} if asked.fresh else {}
        api, pid = held.enter_context(stack.running_api(folder, url, settings))
        proxy = held.enter_context(contextlib.ExitStack())
        service = proxy.enter_context(stack.running_proxy(folder, api))
        file = people.csv_file(folder, asked.records)
        store, _ = stack.stored_people(folder, service, file)
        credentials = {"email": store.account.email, "password": store.account.password}
        token = store.proxy("POST", "/api/token/", credentials).json()["access"]
        print(
            f"{'':16} {'clients':>7} {'answers/s':>9} {'p50 ms':>8} {'p99 ms':>8} {'cpu ms':>9}"
            f" {'MiB':>7}  refused"
        )
        for work in asked.work:
            for clients in asked.clients:
                mine = store.another_schema(people.DEFINITION)
                target = Target(store, mine, token, asked.records)
                if asked.fresh:
                    target, service = _restarted(folder, api, proxy, target)
                    store = target.searched
                meter = Meter(service, pid)
                meter.rest()
                before = routes.counts() if asked.fresh else Counter()
                _measure(work, clients, target, asked.seconds, meter)
                if asked.fresh:
                    for route, count in (routes.counts() - before).most_common():
                        print(f"{'':24} {count:9} {route}")


if __name__ == "__main__":
    main()

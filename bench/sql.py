"""SQL over sealed records beside DuckDB over a Parquet file of the same rows.

Processor seconds are those of proxy, API, this process and that of its engine together, of the
second of two runs; the first question after the records were stored finds no column in the proxy's
memory. DuckDB has two threads on either side. The ratio is ours to Parquet's; the goal is at most
0.1 s more than Parquet takes.

    .venv/bin/python -m bench.sql --records 1000000 --fields 16
    .venv/bin/python -m bench.sql --records 10000000 --fields 3
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow

from bench.support.processes import Meter, processor_seconds
from bench.support.results import keep
from bench.support.table import Row, show
from encrypted_records import Client
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.sql.engine import Engine
from tests.support.service import Service, descendants, running_service

WHOLE = {"type": "integer", "minimum": 0, "maximum": 10**9}
FIELDS: dict[str, dict[str, Any]] = {
    "id": WHOLE,
    "city": {"type": "string"},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "paid": {"type": "number", "minimum": 0, "maximum": 10**6, "precision": 2},
    "born": {"type": "string", "format": "date"},
    "ok": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
    "name": {"type": "string"},
    **{f"code{number}": {"type": "string"} for number in range(4)},
    **{f"count{number}": WHOLE for number in range(5)},
}
STATEMENTS = {
    "count(*)": "SELECT count(*) FROM {0}",
    "group by city": "SELECT city, count(*), avg(age) FROM {0} GROUP BY city ORDER BY city",
    "median of a tenth": "SELECT median(age), max(id) FROM {0} WHERE age < 10",
    "window": "SELECT max(r) FROM (SELECT rank() OVER (PARTITION BY city ORDER BY id) r FROM {0})",
    "a list of values": "SELECT count(*) FROM {0} WHERE city IN ('city 3', 'city 70', 'city 150')",
    "the first ten": "SELECT * FROM {0} ORDER BY id DESC LIMIT 10",
    "ten more of some": "SELECT * FROM {0} WHERE age < 50 ORDER BY city, id LIMIT 10 OFFSET 10",
    "join with itself": "SELECT count(*) FROM {0} a JOIN {0} b ON a.id = b.id WHERE b.age < 10",
}


def value(name: str, number: int, chance: random.Random) -> str:
    kind = FIELDS[name].get("format", FIELDS[name]["type"])
    match kind:
        case "date":
            return f"{1930 + number % 90}-{1 + number % 12:02}-{1 + number % 28:02}"
        case "boolean":
            return "true" if number % 3 else "false"
        case "number":
            return f"{chance.randrange(10**6)}.{number % 100:02}"
        case "integer":
            return str(
                {"id": number, "age": chance.randrange(100)}.get(name, chance.randrange(10**6))
            )
    if name == "name":
        return f"somebody {number * 7919 % 10**8}"
    return f"{name} {chance.randrange(200)}"


def csv_file(folder: Path, names: list[str], records: int) -> Path:
    path, chance = folder / "rows.csv", random.Random(44)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([value(name, at, chance) for name in names] for at in range(records))
    return path


def used(meter: Meter) -> float:
    # Also of the engine's process, which is a child of this one.
    engines = (pid for pid in descendants(os.getpid()) if "encrypted_records.sql" in command(pid))
    return meter.both + time.process_time() + sum(map(processor_seconds, engines))


def side(service: Service, name: str) -> int:
    """The process of the proxy, or of the API."""
    every = descendants(service.process.pid)
    return next(pid for pid in every if f"cli.main\0{name}" in command(pid))


def command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""


async def measured(meter: Meter, work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """Seconds of the clock and of the processor."""
    before, began = used(meter), time.monotonic()
    await work()
    return time.monotonic() - began, used(meter) - before


async def ask(
    service: Service, meter: Meter, make: Callable[[], ProxyClient], names: list[str]
) -> tuple[list[Row], dict[str, Any], dict[str, tuple[float, float]]]:
    rows: list[Row] = []
    figures: dict[str, Any] = {}
    taken: dict[str, tuple[float, float]] = {}
    async with make() as client, Engine(client) as engine:
        path = engine.tables()[0].schema

        for what, some in (("all, first", names), ("all, again", names), ("two", names[1:3])):
            await ask_columns(meter, client, path, what, some, rows, figures)
        meter.forget_peak()
        for what, text in STATEMENTS.items():

            async def run(text: str = text) -> None:
                async with await engine.execute(text.format("bench.rows")) as result:
                    await result.table()

            await run()
            taken[what] = await measured(meter, run)
        figures["peak MiB of the proxy"] = meter.peak_mib()
    rows.append(Row("statements: peak of the proxy", f"{meter.peak_mib():.0f} MiB"))
    assert service.process.poll() is None
    return rows, figures, taken


async def ask_columns(
    meter: Meter,
    client: ProxyClient,
    schema: str,
    what: str,
    names: list[str],
    rows: list[Row],
    figures: dict[str, Any],
) -> None:
    async def columns() -> None:
        async with client.columns(schema, names) as pieces:
            parts = [piece async for piece in pieces]
        reader = pyarrow.ipc.open_stream(b"".join(parts))
        assert sum(batch.num_rows for batch in reader) > 0

    meter.forget_peak()
    clock, processor = await measured(meter, columns)
    peak = meter.peak_mib()
    rows.append(Row(f"columns: {what}", f"{processor:.2f} s", f"{clock:.2f} s, {peak:.0f} MiB"))
    figures[f"columns {what}"] = [processor, clock, peak]


async def ask_restarted(
    meter: Meter, make: Callable[[], ProxyClient], names: list[str]
) -> tuple[list[Row], dict[str, Any]]:
    """All columns, with pages on disk and none in memory."""
    rows: list[Row] = []
    figures: dict[str, Any] = {}
    async with make() as client, Engine(client) as engine:
        path = engine.tables()[0].schema
        await ask_columns(meter, client, path, "all, restarted", names, rows, figures)
    return rows, figures


def metered(service: Service) -> Meter:
    meter = Meter(service, side(service, "api"))
    # The process that was started is their parent, which does nothing and stays small.
    meter.proxy = side(service, "proxy")
    meter.rest()
    return meter


def plaintext(path: Path, folder: Path, names: list[str]) -> dict[str, tuple[float, float]]:
    """The same statements over Parquet: seconds of the clock and of the processor."""
    connection = duckdb.connect(":memory:", config={"threads": 2})
    kinds = {"date": "DATE", "boolean": "BOOLEAN", "number": "DECIMAL(9,2)", "integer": "BIGINT"}
    typed = ", ".join(
        f"'{name}': '{kinds.get(FIELDS[name].get('format', FIELDS[name]['type']), 'VARCHAR')}'"
        for name in names
    )
    parquet = folder / "rows.parquet"
    read = f"read_csv('{path}', header = true, columns = {{{typed}}})"
    connection.execute(f"COPY (SELECT * FROM {read}) TO '{parquet}' (FORMAT parquet)")
    taken = {}
    for what, text in STATEMENTS.items():
        for _ in range(2):
            clock, processor = time.monotonic(), time.process_time()
            connection.execute(text.format(f"'{parquet}'")).fetchall()
            taken[what] = (time.monotonic() - clock, time.process_time() - processor)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--fields", type=int, default=16)
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    names = list(FIELDS)[: asked.fields]
    with tempfile.TemporaryDirectory(prefix="ers-bench-") as name:
        folder = Path(name)
        path = csv_file(folder, names, asked.records)
        told = {"ERS_ALLOWED_HOSTS": "127.0.0.1", "ERS_ACCESS": "api"}
        with running_service(folder / "data", environment=told) as service:
            account = service.new_account()
            with Client(
                service.proxy_url, email=account.email, password=account.password
            ) as client:
                dataset = client.create_dataset("Bench", slug="bench")
                properties = {name: FIELDS[name] for name in names}
                definition = {"type": "object", "formats": "enforced", "properties": properties}
                dataset.create_schema("Rows", definition, slug="rows").upload(path).wait()
            make = partial(
                ProxyClient, service.proxy_url, email=account.email, password=account.password
            )
            rows, figures, ours = asyncio.run(ask(service, metered(service), make, names))
            theirs = plaintext(path, folder, names)
        with running_service(folder / "data", environment=told) as again:
            make = partial(
                ProxyClient, again.proxy_url, email=account.email, password=account.password
            )
            more, restarted = asyncio.run(ask_restarted(metered(again), make, names))
            rows += more
            figures |= restarted
        report(asked, rows, figures, ours, theirs)


def report(
    asked: argparse.Namespace,
    rows: list[Row],
    figures: dict[str, Any],
    ours: dict[str, tuple[float, float]],
    theirs: dict[str, tuple[float, float]],
) -> None:
    for what, (clock, processor) in ours.items():
        plain_clock, plain = theirs[what]
        beside = (
            f"{clock:.2f} s; Parquet {plain:.2f} s, {plain_clock:.2f} s;"
            f" {processor / max(plain, 0.001):.1f} times, {processor - plain:+.2f} s"
        )
        rows.append(Row(what, f"{processor:.2f} s", beside))
        figures[what] = [processor, clock, plain, plain_clock]
    show(f"{asked.records:,} records x {asked.fields} fields: processor; clock", rows)
    if asked.keep:
        keep(f"sql-{asked.records}-{asked.fields}", figures, machine="2 cores")


if __name__ == "__main__":
    main()

"""Batch jobs: does memory stay flat, does a small batch cost speed, who is slower, proxy or API?

Starts API and proxy as two services, uploads files of ``--mib`` MiB as CSV and as JSON, and prints
records and bytes per second, the seconds of each step, the processor time of each side, and the
highest resident memory of the proxy: until the job was completed, and in the merging that follows
it, which is the index's own upkeep and has a bound of its own. Every file is sent with each of the
``--batches``, of which the first and the last are compared: also by processor time, which other
work on the machine disturbs least. Processor time is that up to the end of the merging.

    .venv/bin/python -m bench.jobs --mib 64
    .venv/bin/python -m bench.jobs --mib 2048 --forms csv --batches 1000    # does memory stay flat?
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.support.processes import Meter
from tests.support import jobs
from tests.support.sides import running_sides
from tests.support.store import Store, new_store

DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 0, "maximum": 10**9},
        "amount": {"type": "number", "minimum": 0, "maximum": 10**6, "precision": 2},
        "city": {"type": "string"},
        "note": {"type": "string"},
    },
    "required": ["number"],
}
_PIECE = 1 << 20


def csv_pieces(store: Store, size: int, note: int) -> Iterator[bytes]:
    yield f"number,amount,city,note,schema_id:{store.schema_id}\n".encode()
    yield from _pieces(size, lambda n: f"{n},{n % 10**6}.25,city {n % 500},{'x' * note}\n")


def json_pieces(store: Store, size: int, note: int) -> Iterator[bytes]:
    head = f'{{"schema":"{store.schema}","data":{{"number":'
    yield b"["
    yield from _pieces(
        size,
        lambda n: (
            f'{head}{n},"amount":{n % 10**6}.25,"city":"city {n % 500}","note":"{"x" * note}"}}}},'
        ),
    )
    yield f"{head}0}}}}]".encode()


def _pieces(size: int, line) -> Iterator[bytes]:  # type: ignore[no-untyped-def]
    number = sent = 0
    while sent < size:
        lines = []
        held = 0
        while held < _PIECE:
            lines.append(line(number).encode())
            held += len(lines[-1])
            number += 1
        sent += held
        yield b"".join(lines)


def send(
    store: Store, pieces: Iterator[bytes], kind: str, batch: int, more: dict[str, str] | None = None
) -> str:
    """Upload as a stream of unknown length; the job's path. ``more`` are further headers."""
    connection = http.client.HTTPConnection(urlsplit(store.service.proxy_url).netloc, timeout=3600)
    headers = {
        "Content-Type": kind,
        "Authorization": store.account.auth,
        "X-Batch-Size": str(batch),
        **(more or {}),
    }
    connection.request(
        "POST", "/api/jobs/upload/", pieces, {**headers, "Transfer-Encoding": "chunked"},
        encode_chunked=True,
    )  # fmt: skip
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 201, body
    return f"/api/jobs/{json.loads(body)['job_id']}/"


def run(
    store: Store, meter: Meter, form: str, *, mib: int, note: int, batch: int
) -> tuple[float, float]:
    """Seconds that one upload took, and seconds of processor time of both sides."""
    kind = {"csv": "text/csv", "json": "application/json"}[form]
    pieces = (csv_pieces if form == "csv" else json_pieces)(store, mib << 20, note)
    before = meter.seconds(meter.proxy), meter.seconds(meter.api)
    meter.forget_peak()
    began = time.monotonic()
    path = send(store, pieces, kind, batch)
    received = time.monotonic()
    sealing = None
    while True:
        found = jobs.status(store, path)
        if sealing is None and found["processed"]:
            sealing = time.monotonic()
        if found["status"] in jobs.ENDED:
            break
        time.sleep(0.2)
    ended, job_mib, workers = time.monotonic(), meter.peak_mib(), meter.workers_mib()
    meter.forget_peak()
    assert found["status"] == "completed", found
    merging_mib = meter.rest()
    merged = time.monotonic() - ended
    rate = found["total"] / (ended - began)
    proxy, api = (meter.seconds(root) - then for root, then in
                  zip((meter.proxy, meter.api), before, strict=True))  # fmt: skip
    sys.stdout.write(
        f"{form:4} {mib:5} MiB  batch {batch:4}  {found['total']:9} records  {rate:8.0f} records/s"
        f"  {mib / (ended - began):6.1f} MiB/s  received {received - began:6.1f} s,"
        f" done {ended - began:6.1f} s, merged {merged:6.1f} s later"
        f"  cpu: proxy {proxy:6.1f} s, API {api:6.1f} s"
        f"  peak: proxy {job_mib:.0f} MiB, while merging {meter.peak_mib():.0f} MiB;"
        f" workers {', '.join(f'{one:.0f}' for one in workers)} MiB,"
        f" while merging {merging_mib:.0f} MiB\n"
    )
    sys.stdout.flush()
    return ended - began, proxy + api


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--mib", type=int, default=32, help="size of each file")
    arguments.add_argument("--note", type=int, default=100, help="bytes of one field of text")
    arguments.add_argument("--forms", default="csv,json")
    arguments.add_argument("--batches", default="10,1000", help="sizes of a batch, one run each")
    chosen = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_sides(Path(folder)) as (service, fog),
    ):
        store = new_store(service, DEFINITION)
        meter = Meter(service, fog.api)
        # What starting the workers costs, no run is to pay.
        few = csv_pieces(store, 32 << 20, chosen.note)
        jobs.completed(store, send(store, few, "text/csv", 10))
        for form in chosen.forms.split(","):
            runs = []
            for batch in map(int, chosen.batches.split(",")):
                store = store.another_schema(DEFINITION)
                took = run(store, meter, form, mib=chosen.mib, note=chosen.note, batch=batch)
                runs.append((batch, *took))
            (first, seconds, cpu), (last, others, others_cpu) = runs[0], runs[-1]
            if first != last:
                sys.stdout.write(
                    f"{form}: batch {first} runs at {others / seconds:.2f} of the speed of batch"
                    f" {last}, and takes {cpu / others_cpu:.2f} of its processor time\n"
                )


if __name__ == "__main__":
    main()

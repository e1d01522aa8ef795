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
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.support import jobs
from tests.support.service import Service, descendants
from tests.support.sides import running_sides
from tests.support.store import Store, new_store

DEFINITION = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 0, "maximum": 10**9},
        "amount": {"type": "number", "minimum": 0, "maximum": 10**6, "precision": 2},
        "city": {"type": "string"},
        "note": {"type": "string"},
    },
    "required": ["number"],
}
_TICK = os.sysconf("SC_CLK_TCK")
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


def send(store: Store, pieces: Iterator[bytes], kind: str, batch: int) -> str:
    """Upload as a stream of unknown length; the job's path."""
    connection = http.client.HTTPConnection(urlsplit(store.service.proxy_url).netloc, timeout=3600)
    headers = {
        "Content-Type": kind,
        "Authorization": store.account.auth,
        "X-Batch-Size": str(batch),
    }
    connection.request(
        "POST", "/api/jobs/upload/", pieces, {**headers, "Transfer-Encoding": "chunked"},
        encode_chunked=True,
    )  # fmt: skip
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 201, body
    return f"/api/jobs/{json.loads(body)['job_id']}/"


class Meter:
    """Processor seconds and peak memory of processes, from Linux's process table."""

    def __init__(self, service: Service, api: int) -> None:
        self.proxy = service.process.pid
        self.api = api

    def seconds(self, root: int) -> float:
        total = 0
        for pid in [root, *descendants(root)]:
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except FileNotFoundError:
                continue
            # With the time of children that have ended; of those that run, their own entry tells.
            total += sum(map(int, fields[11:15]))
        return total / _TICK

    @property
    def both(self) -> float:
        return self.seconds(self.proxy) + self.seconds(self.api)

    def rest(self) -> float:
        """Wait until neither side works any more; the most memory that a worker had meanwhile."""
        before, now = 0.0, self.both
        most = 0.0
        while now - before > 0.05:
            for _ in range(10):
                time.sleep(0.1)
                most = max([most, *self.workers_mib()])
            before, now = now, self.both
        return most

    def peak_mib(self) -> float:
        """The most memory that the proxy has had since :meth:`forget_peak`."""
        return _peak_mib(self.proxy)

    def forget_peak(self) -> None:
        """Let the next peak count from here (Linux's proc(5), clear_refs)."""
        Path(f"/proc/{self.proxy}/clear_refs").write_text("5")

    def workers_mib(self) -> list[float]:
        """The most memory that each of the proxy's workers has had."""
        found = []
        for pid in descendants(self.proxy):
            with suppress(FileNotFoundError, ProcessLookupError, StopIteration):  # it has ended
                found.append(_peak_mib(pid))
        return sorted(found)


def _peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


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

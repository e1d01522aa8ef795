"""Sealing all records again, against the CSV job that stored them, in one run.

Starts API and proxy as two services, stores ``--records`` records from a CSV file, widens the
bounds of a field, and says how long that took and the first question after it, which finds a value
of before and one beyond the former bounds (goal: a second for the first). Then it seals all records
again, and prints seconds, records a second and the highest memory of the proxy of both, and what
the second is of the first (goal: half). The same file, stored once more into another schema, says
what a job takes of memory in a proxy that has done as much. With ``--writer`` records are stored
one after another while all is sealed again: how many, and the longest that one of them waited.

    .venv/bin/python -m bench.reseal --records 200000
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

from bench.jobs import DEFINITION, send
from bench.support.processes import Meter
from tests.support import jobs
from tests.support.sides import running_sides
from tests.support.store import Store, new_store

_AT_ONCE = 10_000


def pieces(store: Store, records: int) -> Iterator[bytes]:
    yield f"number,amount,city,note,schema_id:{store.schema_id}\n".encode()
    for begin in range(0, records, _AT_ONCE):
        numbers = range(begin, min(begin + _AT_ONCE, records))
        yield "".join(f"{n},{n % 10**6}.25,city {n % 500},{'x' * 40}\n" for n in numbers).encode()


def follow(store: Store, path: str, meter: Meter, name: str, began: float) -> float:
    """Records a second of a job that began then."""
    while (found := jobs.status(store, path))["status"] not in jobs.ENDED:
        time.sleep(0.05)
    seconds, memory = time.monotonic() - began, meter.peak_mib()
    assert found["status"] == "completed", found
    meter.rest()
    rate = found["total"] / seconds
    sys.stdout.write(
        f"{name:8} {found['total']:9} records  {seconds:7.1f} s  {rate:8.0f} records/s"
        f"  peak: proxy {memory:.0f} MiB\n"
    )
    sys.stdout.flush()
    return float(rate)


def widen(store: Store, records: int) -> None:
    """Let a field take greater values, and find one of before and one of after in one range."""
    greatest = DEFINITION["properties"]["number"]["maximum"]
    wider = deepcopy(DEFINITION)
    wider["properties"]["number"]["maximum"] = 100 * greatest
    began = time.monotonic()
    answer = store.proxy("PATCH", store.schema, {"schema": wider})
    widened = time.monotonic() - began
    assert answer.status == 200, answer.body
    store.ingest([{"number": 2 * greatest}])
    began = time.monotonic()
    where = {"field": "number", "op": "ge", "value": records - 1}
    found = store.search(where=where, order_by=["-number"])
    asked = time.monotonic() - began
    assert [result["data"]["number"] for result in found["results"]] == [2 * greatest, records - 1]
    sys.stdout.write(
        f"bounds widened in {widened * 1000:.0f} ms, the first question after it {asked * 1000:.0f}"
        " ms\n"
    )


class Writer:
    """Stores one record after another until it is told to stop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stop = threading.Event()
        self.waits: list[float] = []
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            self._store.ingest([{"number": 1}])
            self.waits.append(time.monotonic() - began)
            time.sleep(0.05)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, default=100_000)
    arguments.add_argument("--writer", action="store_true", help="store records meanwhile")
    chosen = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_sides(Path(folder)) as (service, fog),
    ):
        store = new_store(service, DEFINITION)
        meter = Meter(service, fog.api)
        # What starting the workers costs, no run is to pay.
        few = store.another_schema(DEFINITION)
        jobs.completed(few, send(few, pieces(few, 20_000), "text/csv", 10))
        began = time.monotonic()
        path = send(store, pieces(store, chosen.records), "text/csv", 1000)
        stored = follow(store, path, meter, "stored", began)
        widen(store, chosen.records)
        meter.forget_peak()

        def reseal() -> float:
            began = time.monotonic()
            answer = store.proxy("POST", f"{store.schema}reseal/")
            assert answer.status == 202, answer.body
            return follow(store, answer.headers["X-Job-Status-URL"], meter, "resealed", began)

        if not chosen.writer:
            sys.stdout.write(f"{reseal() / stored:.2f} of the rate of storing\n")
            again = store.another_schema(DEFINITION)
            meter.forget_peak()
            began = time.monotonic()
            path = send(again, pieces(again, chosen.records), "text/csv", 1000)
            follow(again, path, meter, "again", began)
            return
        with Writer(store) as writer:
            rate = reseal()
        sys.stdout.write(
            f"{rate / stored:.2f} of the rate of storing; meanwhile {len(writer.waits)} records"
            f" were stored one by one, the slowest in {max(writer.waits):.2f} s\n"
        )


if __name__ == "__main__":
    main()

"""Many generated records in one schema, stored by jobs, one after the other.

What a record holds follows from its number, so that nothing of what was stored has to be kept to
know what a question must find, and a run that was interrupted goes on where it was.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from bench.jobs import send
from bench.support import stack
from bench.support.processes import Meter, watched_workers, written_bytes
from bench.support.stack import PATIENCE, merge
from tests.support import jobs
from tests.support.second_proxy import with_keyrings
from tests.support.service import Account, Service
from tests.support.store import Store, new_store

STATES = ("active", "closed", "new", "pending")
CITIES = 2000
#: of ``amount``, which is a multiple of :data:`STEP`
MOST, STEP = 10**6, 100
DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": {"type": "string", "maxLength": 16},
        "city": {"type": "string", "maxLength": 9},
        "status": {"type": "string", "enum": list(STATES)},
        "amount": {"type": "integer", "minimum": 0, "maximum": MOST},
        "number": {"type": "integer", "minimum": 0, "maximum": 10**10},
    },
}
FIELDS = tuple(DEFINITION["properties"])
#: Records of one job.
JOB = 1_000_000
_BLOCK = 10_000


@dataclass(frozen=True)
class Block:
    """Records ``numbers``, as columns."""

    numbers: np.ndarray[Any, np.dtype[np.uint64]]

    @property
    def codes(self) -> list[str]:
        """All different: the mixing is a bijection."""
        return [f"{value:016x}" for value in _mixed(self.numbers, 0).tolist()]

    @property
    def amounts(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        return _mixed(self.numbers, 1) % np.uint64(MOST // STEP) * np.uint64(STEP)

    @property
    def cities(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Few of them have many records."""
        share = (_mixed(self.numbers, 2) >> np.uint64(11)).astype(np.float64) / 2**53
        found: np.ndarray[Any, np.dtype[np.uint64]] = (CITIES * share**3).astype(np.uint64)
        return found

    @property
    def states(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        return _mixed(self.numbers, 3) % np.uint64(len(STATES))

    def records(self) -> Iterator[tuple[Any, ...]]:
        """In the order of :data:`FIELDS`."""
        cities = (f"city {city:04}" for city in self.cities.tolist())
        states = (STATES[state] for state in self.states.tolist())
        numbers = (self.amounts.tolist(), self.numbers.tolist())
        return zip(self.codes, cities, states, *numbers, strict=True)


def blocks(first: int, end: int, size: int = _BLOCK) -> Iterator[Block]:
    for begin in range(first, end, size):
        yield Block(np.arange(begin, min(end, begin + size), dtype=np.uint64))


def record(number: int) -> dict[str, Any]:
    (values,) = Block(np.array([number], dtype=np.uint64)).records()
    return dict(zip(FIELDS, values, strict=True))


def as_csv(first: int, end: int, schema_id: str) -> Iterator[bytes]:
    yield f"{','.join(FIELDS)},schema_id:{schema_id}\n".encode()
    for block in blocks(first, end):
        yield "".join(
            f"{code},{city},{state},{amount},{number}\n"
            for code, city, state, amount, number in block.records()
        ).encode()


def _mixed(
    numbers: np.ndarray[Any, np.dtype[np.uint64]], column: int
) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """splitmix64, which is a bijection of 64 bits; a stream of its own for each column."""
    with np.errstate(over="ignore"):
        mixed = (numbers + np.uint64(column << 56)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def write_whole(path: Path, content: Mapping[str, Any]) -> None:
    """As JSON that its owner alone reads: all of it, or what was there before."""
    unfinished = path.with_suffix(".part")
    unfinished.touch(mode=0o600)
    unfinished.write_text(json.dumps(content))
    unfinished.rename(path)


@dataclass
class Kept:
    """What the runs on one folder did until now."""

    account: dict[str, str]
    schema: str
    seconds: float = 0.0
    merging: float = 0.0
    written: int = 0
    #: seconds of processors, of both sides and of PostgreSQL
    processor: float = 0.0
    #: MiB that the proxy, and one of its workers, had at most while it stored
    proxy: float = 0.0
    worker: float = 0.0

    def save(self, folder: Path) -> None:
        write_whole(folder / "store.json", asdict(self))


def opened(folder: Path, service: Service) -> tuple[Store, Kept]:
    """The store of ``folder``, new if it has none."""
    path = folder / "store.json"
    if path.exists():
        kept = Kept(**json.loads(path.read_text()))
        return Store(service, Account(**kept.account), kept.schema), kept
    store = new_store(service, DEFINITION)
    kept = Kept(asdict(store.account), store.schema)
    kept.save(folder)
    return store, kept


def stored(store: Store) -> int:
    count: int = store.search(None, limit=0, count=True)["count"]
    return count


def fill(
    folder: Path, store: Store, kept: Kept, meter: Meter, writers: list[int], total: int, job: int
) -> None:
    """Store records until there are ``total``, and merge until nothing is worth it.

    Args:
        writers: processes whose writing and work are counted, with all that they start.
    """
    for result in store.proxy("GET", "/api/jobs/").json()["results"]:
        if result["status"] not in jobs.ENDED:
            jobs.ended(store, f"/api/jobs/{result['job_id']}/", within=PATIENCE)
    while (there := stored(store)) < total:
        size = min(job, total - there)
        with _accounted(folder, kept, meter, writers):
            began = time.monotonic()
            path = send(store, as_csv(there, there + size, store.schema_id), "text/csv", 1000)
            assert jobs.completed(store, path, within=PATIENCE)["total"] == size
            took = time.monotonic() - began
            kept.seconds += took
        print(f"  {there + size:,} of {total:,}, {size / took:,.0f}/s", flush=True)
    with _accounted(folder, kept, meter, writers):
        began = time.monotonic()
        _settle(store)
        kept.merging += time.monotonic() - began


def _settle(store: Store) -> None:
    """Merge until nothing is worth it, and what the last job began has ended, too."""
    status = f"/api/records/status/?schema={store.schema_id}"
    while True:
        merge(store)
        if not store.proxy("GET", status).json()["merge_pending"]:
            return
        time.sleep(0.5)


@contextmanager
def _accounted(folder: Path, kept: Kept, meter: Meter, writers: list[int]) -> Iterator[None]:
    """Add what is written and worked meanwhile, and see to the peaks."""
    before = sum(map(written_bytes, writers))
    used = sum(map(meter.seconds, [meter.proxy, *writers]))
    meter.forget_peak()
    with watched_workers(meter) as most:
        yield
    kept.written += sum(map(written_bytes, writers)) - before
    kept.processor += sum(map(meter.seconds, [meter.proxy, *writers])) - used
    kept.proxy = max(kept.proxy, meter.peak_mib())
    kept.worker = max(kept.worker, *most)
    kept.save(folder)


def kept_bytes(folder: Path, database_url: str) -> int:
    """What the API's folder and its database take."""
    with psycopg.connect(database_url) as connection:
        found = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert found is not None
    files = (path.stat() for path in (folder / "api").rglob("*") if path.is_file())
    return int(found[0]) + sum(file.st_blocks * 512 for file in files)


def first_answers(folder: Path, base_url: str, store: Store, rounds: int = 3) -> float:
    """Milliseconds of the first count through a proxy that has the keys and has seen nothing; the
    median."""
    found = []
    for _ in range(rounds):
        new = folder / "new"
        shutil.rmtree(new, ignore_errors=True)
        with_keyrings(replace(store.service, data_dir=folder / "proxy"), new)
        shutil.copy(folder / "proxy" / "format", new)
        with stack.running_proxy(folder, base_url, "new") as service:
            asking = stack.Asking(service.proxy_url, {"Authorization": store.account.auth})
            asking.get("/api/users/self/")
            body = {"schema": store.schema, "where": None, "count": True, "limit": 0}
            began = time.perf_counter()
            asking.post("/api/records/search/", body)
            found.append(1000 * (time.perf_counter() - began))
            asking.close()
    return statistics.median(found)

"""Records that are stored one by one, over HTTP, each in a direct ingest of its own.

:data:`WORKERS` connections at once, in parts; a part that was interrupted is sent again under the
same keys, and stored once. After that come some parts more, in turn with the same for a store that
has just begun, in a database and with sides of its own. The same records are stored by a job into
another schema, and questions are put to both in turn.
"""

from __future__ import annotations

import json
import random
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from bench.jobs import send
from bench.support import stack, volume
from bench.support.processes import Meter
from bench.support.table import Row, show
from encrypted_records.model import ids
from tests.support import jobs
from tests.support.service import Account, Service
from tests.support.store import Store, new_store

WORKERS = 8
PART = 1000
FIFTHS = 5
#: Parts that are stored in turn with those of a new store, after those that start it.
PARTS_BESIDE, STARTING = 10, 2
MOST_FIRST_MS, MOST_RATIO, MOST_GROWTH = 3000.0, 2.0, 1.2
QUESTIONS = 100


@dataclass
class Progress:
    account: dict[str, str]
    schema: str
    done: int = 0
    #: of the part that is being stored
    keys: list[str] = field(default_factory=list)
    #: of each part: median milliseconds of one, processor milliseconds of one, groups, segments
    parts: list[tuple[float, float, int, int]] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        volume.write_whole(folder / "singles.json", asdict(self))


def opened(folder: Path, service: Service) -> tuple[Store, Progress]:
    """Where records go one by one, and how far that is."""
    path = folder / "singles.json"
    if path.exists():
        progress = Progress(**json.loads(path.read_text()))
    else:
        store = new_store(service, volume.DEFINITION)
        progress = Progress(asdict(store.account), store.schema)
        progress.save(folder)
    return Store(service, Account(**progress.account), progress.schema), progress


def store_part(store: Store, first: int, keys: Sequence[str]) -> list[float]:
    """Milliseconds of each."""
    took: list[float] = []
    failures: list[Exception] = []

    def work(worker: int) -> None:
        asking = stack.Asking(store.service.proxy_url, {"Authorization": store.account.auth})
        try:
            for at in range(worker, len(keys), WORKERS):
                body = [{"schema": store.schema, "data": volume.record(first + at)}]
                began = time.perf_counter()
                asking.post("/api/records/ingest/", body, **{"Idempotency-Key": keys[at]})
                took.append(1000 * (time.perf_counter() - began))
        except Exception as error:  # it is raised below
            failures.append(error)
        finally:
            asking.close()

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return took


def store_next(folder: Path, store: Store, progress: Progress, size: int) -> list[float]:
    """The next records; the caller saves the progress. Milliseconds of each."""
    if not progress.keys:
        progress.keys = new_keys(size)
        progress.save(folder)
    took = store_part(store, progress.done, progress.keys)
    progress.done += len(progress.keys)
    progress.keys = []
    return took


def fill(
    folder: Path, store: Store, progress: Progress, meter: Meter, url: str, total: int
) -> None:
    while progress.done < total:
        size = min(PART, total - progress.done)
        before = meter.both
        took = store_next(folder, store, progress, size)
        busy = 1000 * (meter.both - before) / size
        progress.parts.append((statistics.median(took), busy, *live(url, store)))
        progress.save(folder)
        if progress.done % (20 * PART) == 0:
            print(f"  {progress.done:,} of {total:,}, {progress.parts[-1]}", flush=True)


def new_keys(size: int) -> list[str]:
    return [str(uuid.UUID(bytes=ids.new_id())) for _ in range(size)]


class Timed:
    """What single ingests took on one side of a comparison: milliseconds of each, and of each part
    the processor's for one."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.took: list[float] = []
        self.busy: list[float] = []

    def note(self, store_some: Callable[[], list[float]]) -> None:
        self._meter.rest()
        before = self._meter.both
        self.took += store_some()
        self.busy.append(1000 * (self._meter.both - before) / PART)


def compare_growth(
    folder: Path, server: str, store: Store, progress: Progress, meter: Meter
) -> list[Row]:
    """Of a single ingest, what it takes beside the same into a store that has just begun."""
    own = folder / "beside"
    own.mkdir(exist_ok=True)
    with (
        stack.running_api(own, stack.database(server, "singles_new")) as (base_url, api),
        stack.running_proxy(own, base_url) as service,
    ):
        new = new_store(service, volume.DEFINITION)
        for number in range(STARTING):
            store_part(new, number * PART, new_keys(PART))
        grown, fresh = Timed(meter), Timed(Meter(service, api))
        for number in range(STARTING, STARTING + PARTS_BESIDE):
            grown.note(lambda: store_next(folder, store, progress, PART))
            progress.save(folder)
            fresh.note(lambda: store_part(new, number * PART, new_keys(PART)))  # noqa: B023
    rows = []
    for name, ours, theirs in (
        ("p50", grown.took, fresh.took),
        ("processor of both sides", grown.busy, fresh.busy),
    ):
        mine, other = statistics.median(ours), statistics.median(theirs)
        verdict = "met" if mine <= MOST_GROWTH * other else "missed"
        beside = f"in a new store {other:.1f} ms, ratio {mine / other:.2f}, {verdict}"
        rows.append(Row(name, f"{mine:.1f} ms", beside))
    return rows


def live(url: str, store: Store) -> tuple[int, int]:
    """Groups and segments of a schema that live."""
    schema = ids.from_text(store.schema_id)
    found = []
    with psycopg.connect(url) as connection:
        for table, end in (("record_group", "ended"), ("index_segment", "replaced")):
            row = connection.execute(
                sql.SQL(
                    "SELECT count(*) FROM {}"
                    " WHERE schema_id = %s AND version IS NOT NULL AND {} IS NULL"
                ).format(sql.Identifier(table), sql.Identifier(end)),
                [schema],
            ).fetchone()
            assert row is not None
            found.append(int(row[0]))
    return found[0], found[1]


def compare(one_by_one: Store, together: Store, total: int) -> list[Row]:
    """The same questions to both, in turn; warm."""
    asking = stack.logged_in(one_by_one)
    chance = random.Random(21)
    some = [volume.record(chance.randrange(total)) for _ in range(QUESTIONS)]
    wheres: dict[str, list[Any]] = {
        "equality, unique": [{"field": "code", "op": "eq", "value": one["code"]} for one in some],
        "equality, common": [{"field": "city", "op": "eq", "value": one["city"]} for one in some],
        "a range": [
            {"field": "number", "op": "between", "value": [one["number"], one["number"] + 999]}
            for one in some
        ],
    }
    rows = []
    for name, asked in wheres.items():
        took: tuple[list[float], list[float]] = ([], [])
        for warm in (False, True):
            for where in asked:
                counts = []
                for store, own in zip((one_by_one, together), took, strict=True):
                    body = {"schema": store.schema, "where": where, "limit": 10, "count": True}
                    began = time.perf_counter()
                    counts.append(asking.post("/api/records/search/", body)["count"])
                    if warm:
                        own.append(1000 * (time.perf_counter() - began))
                assert counts[0] == counts[1] > 0, (where, counts)
        ours, theirs = map(statistics.median, took)
        verdict = "met" if ours <= MOST_RATIO * theirs else "missed"
        beside = f"from one job {theirs:.1f} ms, ratio {ours / theirs:.2f}, {verdict}"
        rows.append(Row(name, f"{ours:.1f} ms", beside))
    asking.close()
    return rows


def ingests(progress: Progress) -> list[Row]:
    rows = []
    size = max(1, len(progress.parts) // FIFTHS)
    for first in range(0, size * FIFTHS, size):
        own = progress.parts[first : first + size]
        if not own:
            break
        passed, busy = (statistics.median(one[at] for one in own) for at in (0, 1))
        groups, segments = (max(one[at] for one in own) for at in (2, 3))
        beside = f"{busy:.1f} ms of both sides, at most {groups:,} groups, {segments:,} segments"
        rows.append(Row(f"from {first * PART:,} on", f"{passed:.1f} ms", beside))
    return rows


def run(folder: Path, server: str, total: int) -> None:
    url = stack.database(server, "singles")
    with (
        stack.running_api(folder, url) as (base_url, api),
        stack.running_proxy(folder, base_url) as service,
    ):
        store, progress = opened(folder, service)
        meter = Meter(service, api)
        fill(folder, store, progress, meter, url, total)
        assert volume.stored(store) == progress.done
        show(f"{progress.done:,} single ingests, {WORKERS} at once, p50", ingests(progress))
        growth = compare_growth(folder, server, store, progress, meter)
        show(f"a single ingest after {progress.done:,}", growth)
        whole = store.another_schema(volume.DEFINITION)
        path = send(whole, volume.as_csv(0, progress.done, whole.schema_id), "text/csv", 1000)
        jobs.completed(whole, path, within=stack.PATIENCE)
        stack.merge(whole)
        meter.rest()
        groups, segments = live(url, store)
        first = volume.first_answers(folder, base_url, store)
        state = [
            Row("groups, segments", f"{groups:,}, {segments:,}"),
            Row(
                "a new proxy's first answer",
                f"{first:,.0f} ms",
                "met" if first <= MOST_FIRST_MS else "missed",
            ),
            Row("proxy", f"{meter.peak_mib():.0f} MiB"),
        ]
        show("what is left of them", state)
        show("questions, warm p50", compare(store, whole, progress.done))

"""Records that are stored one by one, over HTTP, each in a direct ingest of its own.

:data:`WORKERS` connections at once, in parts; a part that was interrupted is sent again under the
same keys, and stored once. The same records are stored by a job into another schema, and questions
are put to both in turn.
"""

from __future__ import annotations

import json
import random
import statistics
import threading
import time
import uuid
from collections.abc import Sequence
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
MOST_FIRST_MS, MOST_RATIO = 3000.0, 2.0
QUESTIONS = 100


@dataclass
class Progress:
    account: dict[str, str]
    schema: str
    whole: str
    done: int = 0
    #: of the part that is being stored
    keys: list[str] = field(default_factory=list)
    #: of each part: median milliseconds of one, processor milliseconds of one, groups, segments
    parts: list[tuple[float, float, int, int]] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        volume.write_whole(folder / "singles.json", asdict(self))


def opened(folder: Path, service: Service) -> tuple[Store, Store, Progress]:
    """Where records go one by one, where they go together, and how far that is."""
    path = folder / "singles.json"
    if path.exists():
        progress = Progress(**json.loads(path.read_text()))
    else:
        store = new_store(service, volume.DEFINITION)
        whole = store.another_schema(volume.DEFINITION)
        progress = Progress(asdict(store.account), store.schema, whole.schema)
        progress.save(folder)
    account = Account(**progress.account)
    first, second = (Store(service, account, one) for one in (progress.schema, progress.whole))
    return first, second, progress


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


def fill(
    folder: Path, store: Store, progress: Progress, meter: Meter, url: str, total: int
) -> None:
    while progress.done < total:
        size = min(PART, total - progress.done)
        if not progress.keys:
            progress.keys = [str(uuid.UUID(bytes=ids.new_id())) for _ in range(size)]
            progress.save(folder)
        before = meter.both
        took = store_part(store, progress.done, progress.keys)
        busy = 1000 * (meter.both - before) / size
        progress.parts.append((statistics.median(took), busy, *live(url, store)))
        progress.done += len(progress.keys)
        progress.keys = []
        progress.save(folder)
        if progress.done % (20 * PART) == 0:
            print(f"  {progress.done:,} of {total:,}, {progress.parts[-1]}", flush=True)


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
        store, whole, progress = opened(folder, service)
        meter = Meter(service, api)
        fill(folder, store, progress, meter, url, total)
        assert volume.stored(store) == progress.done
        if volume.stored(whole) == 0:
            path = send(whole, volume.as_csv(0, progress.done, whole.schema_id), "text/csv", 1000)
            jobs.completed(whole, path, within=stack.PATIENCE)
        stack.merge(whole)
        show(f"{progress.done:,} single ingests, {WORKERS} at once, p50", ingests(progress))
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

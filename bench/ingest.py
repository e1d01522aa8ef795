"""Bulk ingest end to end beside plaintext: is sealing and indexing as fast as an index per column?

A CSV file of ten-field records goes through a batch job (client, proxy, API, database) until all is
visible, and into one plaintext table with a B-tree index on every column: by COPY into
PostgreSQL, in one transaction into SQLite. Both sides write so that nothing acknowledged is lost
in a crash. Beside the rates: who used the processor, how long the merging in the background took
after that, and what a record takes on disk.

With ``--infer`` the definition is the one that is proposed for the file, and not the one that the
benchmarks share.

    .venv/bin/python -m bench.ingest --records 200000
"""

from __future__ import annotations

import argparse
import csv
import itertools
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.jobs import send
from bench.support import people, plain, results, stack
from bench.support.processes import Meter
from bench.support.table import Row, show
from encrypted_records.ingest.infer import infer
from encrypted_records.model.record_formats import Format
from tests.support import jobs
from tests.support.postgres import running_server
from tests.support.store import new_store

#: Rows of the file that a definition is proposed for.
_SAMPLED = 5000
#: Of our rate to that of plaintext, and of bytes on disk for a record.
_GOALS = {"postgresql": 1.3, "sqlite": 1.0}
_GOAL_BYTES = 600
_PLAIN_TABLE = "SELECT pg_table_size('people'), pg_total_relation_size('people')"
#: Bytes of rows and of the pages of live segments, in tables and in objects.
_SEALED = (
    "SELECT (SELECT COALESCE(SUM(LENGTH(sealed)), 0) FROM record_row)"
    "   + (SELECT COALESCE(SUM(size), 0) FROM bulk_object"
    "     WHERE id IN (SELECT object_id FROM row_part)),"
    " (SELECT COALESCE(SUM(LENGTH(data)), 0) FROM index_page WHERE segment_id IN"
    "   (SELECT id FROM index_segment WHERE superseded_at IS NULL))"
    "   + (SELECT COALESCE(SUM(count * page_bytes), 0) FROM page_part WHERE segment_id IN"
    "     (SELECT id FROM index_segment WHERE superseded_at IS NULL))"
)
#: Bytes that wait to be deleted, of objects and of pages in tables that merging replaced.
_WAITING = (
    "SELECT (SELECT COALESCE(SUM(size), 0) FROM bulk_object WHERE state = 'doomed')"
    " + (SELECT COALESCE(SUM(LENGTH(data)), 0) FROM index_page WHERE segment_id IN"
    "   (SELECT id FROM index_segment WHERE superseded_at IS NOT NULL))"
)


@dataclass(frozen=True)
class Plain:
    """Seconds, and bytes with and without the indexes."""

    seconds: float
    table: int
    total: int


@dataclass(frozen=True)
class Sealed:
    """Seconds until all is visible, of merging after that, and of each side's processor; bytes."""

    seconds: float
    merging: float
    proxy: float
    api: float
    rows: int
    index: int
    database: int
    objects: int
    waiting: int

    @property
    def total(self) -> int:
        return self.database + self.objects


def plain_postgresql(url: str, file: Path) -> Plain:
    seconds = timed(lambda: plain.load(url, file))
    with psycopg.connect(url) as connection:
        table, total = connection.execute(_PLAIN_TABLE).fetchone() or (0, 0)
    return Plain(seconds, table, total)


def plain_sqlite(path: Path, file: Path) -> Plain:
    columns = ", ".join(
        f"{name} {'INTEGER' if name in people.INTEGERS else 'TEXT'}" for name in people.FIELDS
    )
    marks = ", ".join("?" * len(people.FIELDS))

    def load(indexed: bool) -> None:
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
            database.execute(f"CREATE TABLE people ({columns})")
            for name in people.FIELDS if indexed else ():
                database.execute(f"CREATE INDEX {name}_index ON people ({name})")
            with file.open(newline="") as source:
                rows = csv.reader(source)
                next(rows)
                database.execute("BEGIN")
                database.executemany(f"INSERT INTO people VALUES ({marks})", rows)
                database.execute("COMMIT")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    load(indexed=False)
    table = path.stat().st_size
    seconds = timed(lambda: load(indexed=True))
    return Plain(seconds, table, path.stat().st_size)


def proposed(file: Path, count: int) -> dict[str, Any]:
    """What is proposed for some of a file's rows, without its unique fields: that no two of some
    rows have the same address says nothing of all rows, as the proposal tells its reader."""
    with file.open("rb") as source:
        lines = [next(source), *itertools.islice(source, 0, None, max(1, count // _SAMPLED))]
    definition = infer(b"".join(lines), Format.CSV).schema
    definition.pop("unique", None)
    return definition


def sealed(folder: Path, url: str | None, file: Path, definition: dict[str, Any]) -> Sealed:
    folder.mkdir()
    with (
        stack.running_api(folder, url) as (base_url, api),
        stack.running_proxy(folder, base_url) as service,
    ):
        empty, _ = sizes_on_disk(folder, url)
        store = new_store(service, definition)
        meter = Meter(service, api)
        before = meter.seconds(meter.proxy), meter.seconds(meter.api)
        began = time.perf_counter()
        upload = people.as_upload(file, store.schema_id)
        jobs.completed(store, send(store, upload, "text/csv", 1000), within=stack.PATIENCE)
        seconds = time.perf_counter() - began
        proxy, own = meter.seconds(meter.proxy) - before[0], meter.seconds(meter.api) - before[1]
        merging = timed(lambda: stack.merge(store))
    rows, index = ask(folder, url, _SEALED)
    database, objects = sizes_on_disk(folder, url)
    (waiting,) = ask(folder, url, _WAITING)
    return Sealed(
        seconds, merging, proxy, own, rows, index, database - empty, objects, int(waiting)
    )


def sizes_on_disk(folder: Path, url: str | None) -> tuple[int, int]:
    """Of the database, and of its objects, those that wait to be deleted too."""
    own = folder / "api" / "api"
    objects = sum(one.stat().st_size for one in (own / "objects").rglob("*") if one.is_file())
    if url is not None:
        question = "SELECT pg_database_size(current_database())"
        return int(ask(folder, url, question)[0]), objects
    ask(folder, url, "PRAGMA wal_checkpoint(TRUNCATE)")
    return (own / "db.sqlite3").stat().st_size, objects


def ask(folder: Path, url: str | None, question: str) -> tuple[Any, ...]:
    """One row of what the API's database says."""
    if url is not None:
        with psycopg.connect(url) as connection:
            return connection.execute(question).fetchone() or ()
    with closing(sqlite3.connect(folder / "api" / "api" / "db.sqlite3")) as database:
        found: tuple[Any, ...] = database.execute(question).fetchone()
        return found


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def rows_of(count: int, ours: Sealed, theirs: Plain, goal: float) -> list[Row]:
    ratio = theirs.seconds / ours.seconds
    left = (ours.total - ours.waiting) / count
    return [
        Row("plaintext, indexes on all columns", f"{count / theirs.seconds:,.0f} records/s"),
        Row(
            "CSV job until all is visible",
            f"{count / ours.seconds:,.0f} records/s",
            f"ratio {ratio:.2f}, goal {goal}: {'met' if ratio >= goal else 'missed'}",
        ),
        Row("  processor of the proxy", f"{1e6 * ours.proxy / count:.0f} us/record"),
        Row("  processor of the API", f"{1e6 * ours.api / count:.0f} us/record"),
        Row("  merging after that", f"{ours.merging:.1f} s"),
        Row("plaintext", f"{theirs.table / count:.0f} bytes/record"),
        Row("plaintext with indexes", f"{theirs.total / count:.0f} bytes/record"),
        Row("sealed rows", f"{ours.rows / count:.0f} bytes/record"),
        Row("live index pages", f"{ours.index / count:.0f} bytes/record"),
        Row(
            "database and objects on disk",
            f"{ours.total / count:.0f} bytes/record",
            f"{ours.total / theirs.total:.2f} of plaintext with indexes",
        ),
        Row("  of it in the database", f"{ours.database / count:.0f} bytes/record"),
        Row(
            "  without what waits to be deleted",
            f"{left:.0f} bytes/record",
            f"goal {_GOAL_BYTES}: {'met' if left <= _GOAL_BYTES else 'missed'}",
        ),
    ]


def keep(kind: str, count: int, ours: Sealed, theirs: Plain) -> None:
    """For docs/performance.md."""
    figures = {
        "records_per_second": round(count / ours.seconds),
        "plaintext_records_per_second": round(count / theirs.seconds),
        "processor_microseconds": round(1e6 * (ours.proxy + ours.api) / count),
        "merging_seconds": round(ours.merging),
        "sealed_bytes": round(ours.rows / count),
        "index_bytes": round(ours.index / count),
        "disk_bytes": round(ours.total / count),
        "waiting_bytes": round(ours.waiting / count),
        "plaintext_bytes": round(theirs.total / count),
    }
    results.keep(f"ingest-{count}-{kind}", figures, machine=stack.describe_machine())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--databases", nargs="+", default=["postgresql", "sqlite"])
    parser.add_argument("--infer", action="store_true", help="the definition, from the file")
    parser.add_argument("--keep", action="store_true", help="in bench/results.json")
    chosen = parser.parse_args()
    with stack.kept(None) as folder:
        file = people.csv_file(folder, chosen.records)
        definition = proposed(file, chosen.records) if chosen.infer else people.DEFINITION
        what = f"{chosen.records:,} records{', definition inferred' * chosen.infer}"
        if "postgresql" in chosen.databases:
            (folder / "postgres").mkdir()
            with running_server(folder / "postgres", durable=True) as server:
                theirs = plain_postgresql(stack.database(server, "plain"), file)
                ours = sealed(folder / "a", stack.database(server, "sealed"), file, definition)
            rows = rows_of(chosen.records, ours, theirs, _GOALS["postgresql"])
            show(f"{what}, PostgreSQL", rows)
            if chosen.keep:
                keep("postgresql", chosen.records, ours, theirs)
        if "sqlite" in chosen.databases:
            theirs = plain_sqlite(folder / "plain.sqlite3", file)
            ours = sealed(folder / "b", None, file, definition)
            show(f"{what}, SQLite", rows_of(chosen.records, ours, theirs, _GOALS["sqlite"]))
            if chosen.keep:
                keep("sqlite", chosen.records, ours, theirs)


if __name__ == "__main__":
    main()

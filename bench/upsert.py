"""A file of which half exists, stored or in place of what is there: how much slower is that?

The same CSV file goes, by batch jobs of one service, into a schema without unique fields; into one
whose field is unique, where nothing is there yet; and into one where the first half of it is there,
with ``X-On-Conflict: replace``. All is visible at the end of each.

    .venv/bin/python -m bench.upsert --records 200000 --by uuid
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from bench.jobs import send
from bench.support import people, results, stack
from bench.support.table import Row, show
from tests.support import jobs
from tests.support.store import Store, new_store

GOAL = 0.5


def store_file(store: Store, file: Path, **headers: str) -> float:
    """Seconds until all of a file is visible."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    began = time.perf_counter()
    upload = people.as_upload(file, store.schema_id)
    path = send(store, upload, "text/csv", 1000, more)
    jobs.completed(store, path, within=stack.PATIENCE)
    return time.perf_counter() - began


def count(store: Store) -> int:
    found: int = store.search(None, limit=0, count=True)["count"]
    return found


def measure(store: Store, folder: Path, records: int, by: str) -> tuple[float, float, float]:
    """Seconds of a plain job, of one with a unique field, and of one that replaces half."""
    unique: dict[str, Any] = people.DEFINITION | {"unique": [[by]]}
    whole, half = (people.csv_file(folder, some) for some in (records, records // 2))
    # Workers are started, and the account has its keys.
    store_file(store.another_schema(people.DEFINITION), people.csv_file(folder, 1000))
    plain = store_file(store, whole)
    fresh = store_file(store.another_schema(unique), whole)
    there = store.another_schema(unique)
    store_file(there, half)
    stack.merge(there)
    replacing = store_file(there, whole, X_On_Conflict="replace")
    assert count(there) == records, "each record is there once"
    return plain, fresh, replacing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--by", default="uuid", choices=["uuid", "number"])
    parser.add_argument("--keep", action="store_true", help="in bench/results.json")
    chosen = parser.parse_args()
    records = chosen.records
    with (
        stack.kept(None) as folder,
        stack.running_api(folder, None) as (base_url, _),
        stack.running_proxy(folder, base_url) as service,
    ):
        store = new_store(service, people.DEFINITION)
        plain, fresh, replacing = measure(store, folder, records, chosen.by)
    ratio = plain / replacing
    rows = [
        Row("plain job", f"{records / plain:,.0f} records/s"),
        Row("with a unique field, nothing there", f"{records / fresh:,.0f} records/s"),
        Row(
            "half is there and replaced",
            f"{records / replacing:,.0f} records/s",
            f"ratio {ratio:.2f}, goal {GOAL}: {'met' if ratio >= GOAL else 'missed'}",
        ),
    ]
    show(f"{records:,} records, unique {chosen.by}", rows)
    if chosen.keep:
        figures = {
            "plain_records_per_second": round(records / plain),
            "unique_records_per_second": round(records / fresh),
            "replacing_records_per_second": round(records / replacing),
        }
        results.keep(f"upsert-{records}-{chosen.by}", figures, machine=stack.describe_machine())


if __name__ == "__main__":
    main()

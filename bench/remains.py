"""What the API's tables keep of records that were deleted and erased, in bytes for each commit.

    .venv/bin/python -m bench.remains --commits 1000 --fields 30

Each record is a commit of its own. Then all records are deleted, the index is merged, and an
erasure is waited for. SQLite alone: it says how many bytes each table and index takes.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from bench.support.table import Row, show
from tests.support.service import running_service
from tests.support.store import Store, new_store

#: What one request deletes.
AT_ONCE = 100
#: Seconds for which the API is waited for.
PATIENCE = 900.0
#: Tables that keep something of each commit.
TABLES = ("commit_log", "record_group", "index_segment", "dead_row", "commit_request")
_BYTES = """
SELECT SUM(s.pgsize - s.unused) FROM dbstat s JOIN sqlite_schema m ON m.name = s.name
WHERE m.tbl_name = ?
"""


def definition(fields: int) -> dict[str, Any]:
    names = [f"field {number}" for number in range(fields)]
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}}


def fill_and_empty(store: Store, commits: int) -> None:
    """Store records one by one, delete them, and have their bytes go."""
    for number in range(commits):
        store.ingest([{"field 0": f"value {number}"}])
    while found := store.found():
        named = "&".join(f"id={record}" for record in found[:AT_ONCE])
        answer = store.proxy("DELETE", f"/api/records/?{named}")
        assert answer.status in (200, 204), answer.body
    deadline = time.monotonic() + PATIENCE
    while not store.proxy("POST", f"{store.schema}merge/").json()["done"]:
        assert time.monotonic() < deadline
    while not store.proxy("POST", f"{store.schema}erasure/").json()["gone"]:
        assert time.monotonic() < deadline
        time.sleep(1)


def measure(database: Path) -> tuple[int, dict[str, int]]:
    """The number of commits, and the bytes of each table with its indexes."""
    with closing(sqlite3.connect(database)) as connection:
        (commits,) = connection.execute("SELECT COUNT(*) FROM commit_log").fetchone()
        sizes = {}
        for table in TABLES:
            (size,) = connection.execute(_BYTES, (table,)).fetchone()
            sizes[table] = size or 0
    return commits, sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--fields", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ers-bench-") as name:
        folder = Path(name) / "data"
        with running_service(folder) as service:
            store = new_store(service, definition(options.fields))
            fill_and_empty(store, options.commits)
            commits, sizes = measure(folder / "api" / "db.sqlite3")
    rows = [Row(table, f"{size / commits:.0f} bytes a commit") for table, size in sizes.items()]
    show(f"{commits} commits of which nothing is left, {options.fields} fields", rows)


if __name__ == "__main__":
    main()

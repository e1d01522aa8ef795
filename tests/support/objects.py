"""An API's store of objects from behind: what lies there, against what the database names."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.support.eventually import eventually

_OLD = "2001-01-01 00:00:00"


def wait_until_swept(data_dir: Path, names: Callable[[], set[str]]) -> None:
    """Wait until the store has what the database names and parts point to, and nothing else.

    Args:
        data_dir: of an API on SQLite, which runs.
        names: of what lies in the store.
    """
    path = data_dir / "api" / "db.sqlite3"

    def is_exact() -> bool:
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as database:
            database.execute("UPDATE bulk_object SET since = ? WHERE state = 'doomed'", [_OLD])
            database.execute(
                "UPDATE index_segment SET superseded_at = ? WHERE superseded_at IS NOT NULL",
                [_OLD],
            )
            rows = database.execute("SELECT id, name, state FROM bulk_object").fetchall()
            used = database.execute(
                "SELECT object_id FROM row_part UNION ALL SELECT object_id FROM page_part"
            ).fetchall()
        return (
            {state for _, _, state in rows} == {"named"}
            and sorted(number for (number,) in used) == sorted(number for number, _, _ in rows)
            and names() == {name for _, name, _ in rows}
        )

    eventually(is_exact, "the store has what the database names", pause=0.2)

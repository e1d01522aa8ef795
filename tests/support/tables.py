"""A database that has its tables and nothing in them, made once for many services: an embedded one
here, and one of each PostgreSQL by :class:`tests.support.postgres.NewDatabase`.

To make the tables takes longer than all else that an API does at its first start. Tests about first
starts start an API by themselves.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from encrypted_records.cli import data_folder


def give_tables(data_dir: Path) -> None:
    """Put them where an API without ``ERS_DATABASE_URL`` keeps its database, if it never ran."""
    if data_dir.exists() and any(data_dir.iterdir()):
        return
    data_folder.prepare(data_dir)
    file = data_dir / "api" / "db.sqlite3"
    file.parent.mkdir(mode=0o700)
    shutil.copy(_made(), file)
    file.chmod(0o600)
    with closing(sqlite3.connect(file)) as database, database:
        # An API knows its database by the moment at which this was made.
        database.execute("UPDATE django_migrations SET applied = ?", (_now(),))


def migrate(data_dir: Path, **settings: str) -> None:
    """Make the tables in the database that an API with these settings has."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ERS_")}
    subprocess.run(
        [sys.executable, "-m", "encrypted_records.server.manage", "migrate", "--verbosity", "0"],
        env={**kept, "ERS_DATA_DIR": str(data_dir), "ERS_CONFIG": os.devnull, **settings},
        check=True,
    )


def _now() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


@functools.cache
def _made() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ers-tables-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    migrate(folder)
    with closing(sqlite3.connect(folder / "api" / "db.sqlite3")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return folder / "api" / "db.sqlite3"

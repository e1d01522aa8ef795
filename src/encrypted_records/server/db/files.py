"""What is deleted in SQLite, and still lies in its write-ahead log."""

from __future__ import annotations

from django.db import connection

#: How long writers may have to wait.
BUSY_MILLISECONDS = 100


def empty_log() -> bool:
    """Bring SQLite's write-ahead log into its file, and empty it; whether nobody was in the way.

    PostgreSQL keeps what was deleted until its own vacuum, which operators run.
    """
    if connection.vendor != "sqlite":
        return True
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA busy_timeout")
        (usual,) = cursor.fetchone()
        # Most of it while everybody works. For the rest writers wait as long as this waits for
        # readers, who may read for long.
        cursor.execute("PRAGMA wal_checkpoint(PASSIVE)")
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS:d}")
        try:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (busy, *_) = cursor.fetchone()
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {usual:d}")
    return not busy

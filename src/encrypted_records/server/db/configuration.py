"""Django's settings of the databases, from their URLs."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import environ

from encrypted_records.errors import InvalidSetting

#: How Django calls the one that only answers readers.
REPLICA = "replica"
_POSTGRESQL = "encrypted_records.server.db.postgres"
_IMPATIENT = "encrypted_records.server.db.replica"
#: Of libpq: milliseconds without an acknowledgement, and seconds between looks meanwhile.
_SOON_GIVEN_UP = {
    "tcp_user_timeout": 4000,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 2,
}


def configure(url: str, replica_url: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Django's ``DATABASES``.

    Args:
        url: of the database; empty for SQLite in the folder.
        replica_url: of one that follows it; empty where there is none.

    Raises:
        InvalidSetting: a URL is of a kind that cannot be.
    """
    databases = {"default": _one(url, folder)}
    if replica_url:
        databases[REPLICA] = _one(replica_url, folder)
        if {database["ENGINE"] for database in databases.values()} != {_POSTGRESQL}:
            raise InvalidSetting(
                "only PostgreSQL has replicas that can answer readers",
                hint="leave ERS_REPLICA_URL out, or name two servers of one PostgreSQL",
            )
        # There is another one to ask: also soon where its machine is gone without a word.
        own = databases[REPLICA]["OPTIONS"]
        databases[REPLICA] |= {
            "ENGINE": _IMPATIENT,
            "OPTIONS": _SOON_GIVEN_UP | own | {"connect_timeout": 2},
        }
    return databases


def _one(url: str, folder: Path) -> dict[str, Any]:
    if url:
        try:
            database: dict[str, Any] = environ.Env().db_url_config(url)
        except ValueError:
            database = {}
    else:
        path = str(folder / "db.sqlite3")
        database = {"ENGINE": "django.db.backends.sqlite3", "NAME": path}
    database["CONN_MAX_AGE"] = None  # each thread keeps its connection
    match str(database.get("ENGINE", "")).rpartition(".")[2]:
        case "sqlite3":
            database["OPTIONS"] = {
                # A transaction that begins by reading would fail when it comes to write.
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": (
                    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                    # What is deleted must not stay in free pages.
                    " PRAGMA secure_delete=ON;"
                ),
            }
        case "postgresql":
            # A server may have gone meanwhile; each request makes sure.
            database["CONN_HEALTH_CHECKS"] = True
            database["ENGINE"] = _POSTGRESQL
            # As libpq reads it: the folder of a socket stands there with its slashes as %2F.
            database["HOST"] = unquote(database.get("HOST", ""))
            database["OPTIONS"] = {"connect_timeout": 5} | database.get("OPTIONS", {})
        case _:
            raise InvalidSetting(
                "the database URL is of a kind that this service does not support",
                hint="use sqlite:///path or postgres://user:password@host:port/name",
            )
    return database

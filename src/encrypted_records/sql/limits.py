"""Requirements and limits of SQL: packages of the extras ``sql`` and ``mcp``, which may not be
installed, and limits of a statement and of the listener."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from encrypted_records.errors import NotInstalled


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """Limits of one engine.

    Attributes:
        memory_bytes: for DuckDB and the columns that a statement keeps in memory.
        seconds: from the start of a statement until its last row.
        rows: maximum rows of a result.
        threads: DuckDB's threads.
        batch_rows: maximum rows of a batch of a result.
        idle_seconds: how long an idle process waits for the next statement.
    """

    memory_bytes: int = 2 << 30
    seconds: float = 300.0
    rows: int = 100_000_000
    threads: int = 2
    batch_rows: int = 1 << 16
    idle_seconds: float = 60.0


STANDARD = SqlLimits()


@dataclass(frozen=True, slots=True)
class WireLimits:
    """
    Attributes:
        connections: concurrent sessions.
        waiting: connections that have not logged in; beyond that, the oldest is closed.
        login_seconds: from a connection's start to its login.
        statement_seconds: from a statement's start to its last row at the client.
        message_bytes: maximum size of a client's message.
        statement_characters: maximum length of a query.
        prepared, portals: maximum number per session.
        prepared_characters: total length of a session's prepared statements, with the names and
            types of their columns.
        portal_bytes: total length of the parameters of a session's portals.
        batch_rows: rows encoded in one step.
        buffer_bytes: unread answers of a client; beyond that, the server waits.
        cancel_misses: cancel requests with a wrong key for a session; after that many, all are
            ignored.
        catalogue_seconds: how long the catalogues are cached.
    """

    connections: int = 100
    waiting: int = 50
    login_seconds: float = 30.0
    statement_seconds: float = 300.0
    message_bytes: int = 16 << 20
    statement_characters: int = 1 << 20
    prepared: int = 1_000
    prepared_characters: int = 4 << 20
    portals: int = 100
    portal_bytes: int = 32 << 20
    batch_rows: int = 1_000
    buffer_bytes: int = 1 << 20
    cancel_misses: int = 60
    catalogue_seconds: float = 5.0


STANDARD_WIRE = WireLimits()


def require_sql() -> None:
    """
    Raises:
        NotInstalled: DuckDB or pyarrow is missing.
    """
    _require("SQL", "sql", "duckdb", "pyarrow")


def require_mcp() -> None:
    """
    Raises:
        NotInstalled: DuckDB, pyarrow or the Model Context Protocol's package is missing.
    """
    _require("ers mcp", "sql,mcp", "duckdb", "pyarrow", "mcp")


def _require(who: str, extra: str, *modules: str) -> None:
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise NotInstalled(
            f"{who} needs packages that are not installed: {', '.join(missing)}",
            hint=f"install them: pip install 'encrypted-records[{extra}]'",
        )

"""Limits of a statement."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SqlLimits:
    """Limits of one engine.

    Attributes:
        memory_bytes: DuckDB's memory, and the columns that a statement keeps there.
        seconds: from the start of a statement until its last row.
        rows: of a result.
        threads: of DuckDB.
        batch_rows: of one batch of a result.
        idle_seconds: for which a process waits for the next statement.
    """

    memory_bytes: int = 2 << 30
    seconds: float = 300.0
    rows: int = 100_000_000
    threads: int = 2
    batch_rows: int = 1 << 16
    idle_seconds: float = 60.0


STANDARD = SqlLimits()

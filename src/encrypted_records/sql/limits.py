"""Limits of a statement."""

from __future__ import annotations

from dataclasses import dataclass


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

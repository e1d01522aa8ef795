"""Requests that another transaction overtakes, on PostgreSQL: SQLite has one writer at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import psycopg

from tests.server.api import Api
from tests.support.eventually import eventually

T = TypeVar("T")


def overtaken(api: Api, statements: str, row: bytes, call: Callable[[], T]) -> T:
    """The outcome of a call that waits for a transaction, which then ends.

    Args:
        statements: of the transaction, in order, with semicolons between them; ``%s`` is ``row``.
    """
    assert api.database_url is not None
    with psycopg.connect(api.database_url) as first, ThreadPoolExecutor(1) as pool:
        for statement in statements.split(";"):
            first.execute(statement.encode(), (row,) * statement.count("%s"))
        answer = pool.submit(call)
        until_one_waits(api.database_url, answer.done)
        first.commit()
        return answer.result()


def until_one_waits(database_url: str, done: Callable[[], bool]) -> None:
    """Until a session of the database waits for a lock, or what should is done without."""
    with psycopg.connect(database_url, autocommit=True) as looking:
        asked = (
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        eventually(lambda: done() or looking.execute(asked).fetchone() != (0,), "one waits")

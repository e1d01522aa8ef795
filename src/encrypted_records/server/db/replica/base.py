"""The backend: the primary's, with a time limit for each statement, whatever the server does.

TCP detects a server whose machine is gone (:mod:`..databases`). A server that is stopped, or whose
disk hangs, still acknowledges every byte, and no setting of the server ends a statement there.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

from encrypted_records.server.db.postgres import base

T = TypeVar("T")

#: A statement that takes longer fails. Rows and pages are read by their keys, in milliseconds.
STATEMENT_SECONDS = 2.0
#: Seconds between checks whether it takes longer.
_CHECK_INTERVAL = 0.1


class _Impatient(psycopg.Connection[Any]):
    def wait(self, gen: PQGen[T], interval: float = _CHECK_INTERVAL, *arguments: Any) -> T:
        """
        Raises:
            psycopg.OperationalError: the server has not answered in time. The connection is then
                unusable.
        """
        return super().wait(_in_time(gen), min(interval, _CHECK_INTERVAL), *arguments)


def _in_time(gen: PQGen[T]) -> PQGen[T]:
    """The same steps, until the time is over. The caller wakes up ten times a second."""
    deadline = time.monotonic() + STATEMENT_SECONDS
    try:
        waits_for = next(gen)
        while True:
            ready = yield waits_for
            if time.monotonic() > deadline:
                raise psycopg.OperationalError("the server did not answer in time")
            waits_for = gen.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


class DatabaseWrapper(base.DatabaseWrapper):
    # The members that Django uses of a driver: mainly its errors.
    Database = SimpleNamespace(  # type: ignore[assignment]
        **vars(psycopg) | {"connect": _Impatient.connect}
    )

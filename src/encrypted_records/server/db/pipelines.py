"""Statements that share their way to PostgreSQL (libpq's pipeline mode).

A statement is sent when it is asked, and its answer waited for when somebody looks at it, or when
the transaction ends. What was sent in between is one round trip, and the server works while the
next statements are written. Each statement still sees what was committed when it began.

COPY has no place in a pipeline, and there nobody learns how many rows an update found without
looking (``rowcount`` is -1). Behind a pool, which may wait for the end of each statement, there is
none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from django.db import DEFAULT_DB_ALIAS, Error, OperationalError, connections

from encrypted_records.server.db.postgres.base import LOST, DatabaseWrapper


@contextmanager
def pipelined() -> Iterator[None]:
    """Around a transaction: its statements share round trips where the database is PostgreSQL.

    Raises:
        django.db.DatabaseError: of any of its statements, at the latest when the transaction ends.
            ``OperationalError`` where the server lost a statement that it had kept: none is kept
            after that.
    """
    own = connections[DEFAULT_DB_ALIAS]
    if not isinstance(own, DatabaseWrapper):
        yield
        return
    # The transaction would find out too late.
    own.close_if_health_check_failed()
    own.ensure_connection()
    if not own.is_direct or not psycopg.Pipeline.is_supported():
        yield
        return
    try:
        with own.wrap_database_errors, own.connection.pipeline():
            yield
    except Error as error:
        if not isinstance(error.__cause__, LOST):
            raise
        own.stop_preparing()
        raise OperationalError("the server lost a statement") from error

"""Transactions whose statements share their way to PostgreSQL (libpq's pipeline mode).

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
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, Error, OperationalError, connections, transaction

from encrypted_records.server.db.postgres.base import LOST, DatabaseWrapper


def shares_ways() -> bool:
    """Whether statements of :func:`pipelined` share round trips: where the database is PostgreSQL,
    with no pool before it, and no transaction is open.

    Raises:
        django.db.DatabaseError: the database cannot be reached.
    """
    own = connections[DEFAULT_DB_ALIAS]
    if not isinstance(own, DatabaseWrapper) or own.in_atomic_block:
        return False
    # A transaction would find out too late.
    own.close_if_health_check_failed()
    own.ensure_connection()
    return own.is_direct and psycopg.Pipeline.is_supported()


@contextmanager
def pipelined() -> Iterator[None]:
    """A transaction; its statements share round trips where :func:`shares_ways` says so.

    Raises:
        django.db.DatabaseError: of any of its statements, at the latest when the transaction ends.
            ``OperationalError`` where the server lost a statement that it had kept: none is kept
            after that.
    """
    if not shares_ways():
        with transaction.atomic():
            yield
        return
    own = connections[DEFAULT_DB_ALIAS]
    assert isinstance(own, DatabaseWrapper)
    try:
        # The driver would wait for an answer where a transaction begins, and twice where it ends.
        with _atomic(own):
            with own.wrap_database_errors, own.connection.pipeline():
                _say(own, "BEGIN")
                yield
                ended = None if own.needs_rollback else _say(own, "COMMIT")
            if ended is not None and ended.statusmessage != "COMMIT":
                raise OperationalError("the server has undone the transaction")
    except Error as error:
        if not isinstance(error.__cause__, LOST):
            raise
        own.stop_preparing()
        raise OperationalError("the server lost a statement") from error


@contextmanager
def _atomic(own: DatabaseWrapper) -> Iterator[None]:
    """A transaction as Django knows it, which says itself that it begins. What it has not ended
    itself when the block ends is undone, or committed."""
    own.begins_itself = True
    try:
        with transaction.atomic():
            # What is to run once it is committed may begin transactions of its own.
            own.begins_itself = False
            yield
    finally:
        own.begins_itself = False


def _say(own: DatabaseWrapper, statement: str) -> psycopg.RawCursor[Any]:
    cursor = psycopg.RawCursor(own.connection)
    cursor.execute(statement, prepare=False)
    return cursor

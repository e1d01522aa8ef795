"""Django's backend for PostgreSQL, which makes better use of a connection that is kept.

Whether it still works is known without a round trip. Django asks the server before each request,
which took a sixth of the time in which ten rows are handed out. A server that ends, or that ends a
connection, closes its socket, which the operating system knows here at once.

The server keeps the plans of statements that are asked again and again (*prepares* them), where
the connection leads to one and the same process of it. A pool in between that gives each
transaction another one would lose them.
"""

from __future__ import annotations

import selectors
from typing import Any

import psycopg
from django.db.backends.postgresql import base

#: Of one socket, asked once; that of a system's own choice opens and closes a file each time.
_Selector = getattr(selectors, "PollSelector", selectors.DefaultSelector)


#: How often a statement is asked on a connection before the server keeps it.
_ASKED_BEFORE = 5
#: What the server says of a statement that it lost, that somebody else made, or whose columns are
#: of other types by now.
LOST = (
    psycopg.errors.InvalidSqlStatementName,
    psycopg.errors.DuplicatePreparedStatement,
    psycopg.errors.FeatureNotSupported,
)


class DatabaseWrapper(base.DatabaseWrapper):
    #: whether statements are kept by servers, as far as this process knows
    prepares = True

    def init_connection_state(self) -> None:
        super().init_connection_state()
        if self.prepares and _leads_to_one_process(self.connection):
            self.connection.prepare_threshold = _ASKED_BEFORE

    def stop_preparing(self) -> None:
        """Disable prepared statements from now on, because a server lost one."""
        type(self).prepares = False
        if self.connection is not None:
            self.connection.prepare_threshold = None

    def is_usable(self) -> bool:
        """Whether the next statement will find a server.

        A server that vanished without a word is found out by that statement, as it would be if it
        vanished between the question and the statement.
        """
        if self.connection is None or self.connection.closed:
            return False
        if self.errors_occurred or _has_news(self.connection.fileno()):
            return super().is_usable()
        return True


def _leads_to_one_process(connection: psycopg.Connection[Any]) -> bool:
    """Whether the process that answers is the one that the connection was made with. A pool names
    itself when a connection is made, since it has no process of the server for it yet."""
    answer = connection.execute("SELECT pg_backend_pid()").fetchone()
    return answer == (connection.info.backend_pid,)


def _has_news(socket: int) -> bool:
    """Whether an idle connection's socket has something to read: its end, or a notice."""
    with _Selector() as selector:
        selector.register(socket, selectors.EVENT_READ)
        return bool(selector.select(0))

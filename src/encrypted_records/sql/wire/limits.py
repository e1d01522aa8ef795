"""Limits of the listener."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WireLimits:
    """
    Attributes:
        connections: sessions at once.
        waiting: connections that have not logged in; the oldest of more is ended.
        login_seconds: from a connection's start to its login.
        statement_seconds: from a statement's start to its last row at the client.
        message_bytes: of a client's message.
        statement_characters: of the text of a query.
        prepared, portals: of one session at once.
        prepared_characters: of all prepared statements of a session.
        batch_rows: rows that are encoded in one step.
        buffer_bytes: of answers that a client has not yet taken; more waits.
        cancel_misses: requests to cancel a session with a wrong key; after so many, none is
            believed.
        catalogue_seconds: for which the catalogues say what they said before.
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
    batch_rows: int = 1_000
    buffer_bytes: int = 1 << 20
    cancel_misses: int = 60
    catalogue_seconds: float = 5.0


STANDARD = WireLimits()

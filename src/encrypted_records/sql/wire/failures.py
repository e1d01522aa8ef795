"""Errors in PostgreSQL's form: a SQLSTATE, a message, a hint."""

from __future__ import annotations

from encrypted_records.errors import ErsError
from encrypted_records.sql.failures import state_of


class Failure(Exception):
    """A statement was refused, or has failed.

    Attributes:
        state: the SQLSTATE, of PostgreSQL's appendix A.
        fatal: whether the connection ends with it.
    """

    def __init__(self, state: str, message: str, *, hint: str = "", fatal: bool = False) -> None:
        super().__init__(message)
        self.state, self.message, self.hint, self.fatal = state, message, hint, fatal


class BadParameter(Failure):
    """Bytes of a parameter do not fit its type."""

    def __init__(self, message: str, state: str = "22P02") -> None:
        super().__init__(state, message)


class Unrepresentable(Failure):
    """A value that the protocol cannot represent; the message names the kind, never the value."""

    def __init__(self, message: str) -> None:
        super().__init__("22P05", message)


def failure_of(error: Failure | ErsError) -> Failure:
    """The error for the client. If the proxy refuses the login, the session ends, because the login
    is no longer valid.
    """
    if isinstance(error, Failure):
        return error
    state = state_of(error)
    return Failure(state, error.message, hint=error.hint, fatal=state == "28000")

"""Errors with a SQLSTATE, and their form in PostgreSQL's protocol.

ISO 9075 defines SQLSTATE; PostgreSQL's appendix A has the codes.
"""

from __future__ import annotations

from encrypted_records import errors

SYNTAX, UNKNOWN_TABLE, UNKNOWN_COLUMN, UNKNOWN_FUNCTION = "42601", "42P01", "42703", "42883"
READ_ONLY, CANCELED, OUT_OF_MEMORY, TOO_MUCH = "25006", "57014", "53200", "54000"
UNKNOWN_DATABASE, AMBIGUOUS, INVALID, REFUSED = "3D000", "42702", "42000", "42501"
NOT_SUPPORTED, BAD_VALUE, OUT_OF_RANGE, INTERNAL = "0A000", "22P02", "22003", "XX000"

NARROWER = "narrow the statement with WHERE, or select fewer columns"


def sql_error(
    state: str, message: str, *, code: str | None = None, hint: str | None = None
) -> errors.SqlError:
    """An error with this SQLSTATE."""
    error = errors.SqlError(message, code=code, hint=hint)
    error.sqlstate = state
    return error


def broken_stream() -> errors.ApiFailed:
    """The error for bytes from the proxy that are not an Arrow stream."""
    return errors.ApiFailed("the columns that came are not of the expected form")


def ended() -> errors.SqlError:
    """The error for reading rows after their statement has ended."""
    return sql_error(CANCELED, "the statement has ended", code="sql_canceled")


def moved() -> errors.SqlError:
    """The error if definitions keep changing, or have types unknown to this package."""
    return sql_error(
        "40001",
        "the table's columns are not those that its definition says",
        code="sql_invalid",
        hint="run the statement again; if it fails again, update encrypted-records",
    )


#: The nearest class in the inheritance order decides.
_OF_OURS: dict[type[errors.ErsError], str] = {
    errors.SqlError: INVALID,
    errors.NotAuthenticated: "28000",
    errors.NotAllowed: REFUSED,
    errors.NotFound: UNKNOWN_TABLE,
    errors.InvalidQuery: INVALID,
    errors.TooLarge: TOO_MUCH,
    errors.Conflict: "40001",
    errors.Closed: "XX001",
    errors.Overloaded: "53300",
    errors.OutOfSpace: "53100",
    errors.Unavailable: "08006",
    errors.ErsError: INTERNAL,
}


def state_of(error: errors.ErsError) -> str:
    """The SQLSTATE of an error of this package, such as one that the proxy answers with."""
    if isinstance(error, errors.SqlError):
        return error.sqlstate
    return next(_OF_OURS[kind] for kind in type(error).__mro__ if kind in _OF_OURS)


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


def failure_of(error: Failure | errors.ErsError) -> Failure:
    """The error for the client. If the proxy refuses the login, the session ends, because the login
    is no longer valid.
    """
    if isinstance(error, Failure):
        return error
    state = state_of(error)
    return Failure(state, error.message, hint=error.hint, fatal=state == "28000")

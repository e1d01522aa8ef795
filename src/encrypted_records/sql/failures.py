"""Errors of DuckDB as errors with a SQLSTATE (ISO 9075; PostgreSQL's appendix A has the codes)."""

from __future__ import annotations

import re

import duckdb

from encrypted_records import errors
from encrypted_records.errors import ApiFailed, ErsError, SqlError
from encrypted_records.sql.catalogue import Catalogue

SYNTAX, UNKNOWN_TABLE, UNKNOWN_COLUMN, UNKNOWN_FUNCTION = "42601", "42P01", "42703", "42883"
READ_ONLY, CANCELED, OUT_OF_MEMORY, TOO_MUCH = "25006", "57014", "53200", "54000"
UNKNOWN_DATABASE, AMBIGUOUS, INVALID, REFUSED = "3D000", "42702", "42000", "42501"
NOT_SUPPORTED, BAD_VALUE, OUT_OF_RANGE, INTERNAL = "0A000", "22P02", "22003", "XX000"

NARROWER = "narrow the statement with WHERE, or select fewer columns"
#: Names that a hint lists.
_LISTED = 20
#: The nearest class decides; those of unknown names follow from the message.
_STATES: tuple[tuple[type[Exception], str, str], ...] = (
    (duckdb.ParserException, SYNTAX, "sql_invalid"),
    (duckdb.InterruptException, CANCELED, "sql_canceled"),
    (duckdb.OutOfMemoryException, OUT_OF_MEMORY, "sql_memory"),
    (duckdb.PermissionException, REFUSED, "sql_refused"),
    (duckdb.ConversionException, BAD_VALUE, "sql_invalid"),
    (duckdb.OutOfRangeException, OUT_OF_RANGE, "sql_invalid"),
    (duckdb.NotImplementedException, NOT_SUPPORTED, "sql_invalid"),
    (duckdb.InternalException, INTERNAL, "sql_invalid"),
    (duckdb.FatalException, INTERNAL, "sql_invalid"),
    (duckdb.Error, INVALID, "sql_invalid"),
)
_UNKNOWN = (
    (re.compile(r"Table with name .* does not exist"), UNKNOWN_TABLE),
    (
        re.compile(r"(?:Scalar|Table|Aggregate|Macro)? ?Function with name .* does not exist"),
        UNKNOWN_FUNCTION,
    ),
    (re.compile(r"Referenced (?:column|table) .* not found"), UNKNOWN_COLUMN),
    (re.compile(r"does not have a column named"), UNKNOWN_COLUMN),
    (re.compile(r"Ambiguous reference"), AMBIGUOUS),
    (re.compile(r"No function matches"), UNKNOWN_FUNCTION),
)
_BY_TEXT: tuple[tuple[str, type[duckdb.Error]], ...] = (
    ("INTERRUPT", duckdb.InterruptException),
    ("Out of Memory", duckdb.OutOfMemoryException),
    ("Conversion", duckdb.ConversionException),
    ("Out of Range", duckdb.OutOfRangeException),
    ("Permission", duckdb.PermissionException),
    ("Not implemented", duckdb.NotImplementedException),
    ("INTERNAL", duckdb.InternalException),
)
_KIND = re.compile(r"^[A-Za-z ]+ Error: ")


def sql_error(
    state: str, message: str, *, code: str | None = None, hint: str | None = None
) -> SqlError:
    """An error with this SQLSTATE."""
    error = SqlError(message, code=code, hint=hint)
    error.sqlstate = state
    return error


def translate(error: Exception, catalogue: Catalogue, dataset: str | None) -> SqlError:
    """DuckDB's error in its own words; unknown names come with those that there are."""
    text = str(error)
    if not isinstance(error, duckdb.Error):
        # Arrow hands DuckDB's errors on as texts alone.
        error = next((kind for start, kind in _BY_TEXT if text.startswith(start)), duckdb.Error)(
            text
        )
    message = _KIND.sub("", text.split("\n\nLINE ", maxsplit=1)[0].strip())
    state, code = next((state, code) for kind, state, code in _STATES if isinstance(error, kind))
    if isinstance(error, duckdb.CatalogException | duckdb.BinderException):
        state = next((state for form, state in _UNKNOWN if form.search(text)), state)
    if state in (UNKNOWN_TABLE, UNKNOWN_COLUMN, UNKNOWN_FUNCTION):
        code = "sql_unknown"
    if state == UNKNOWN_TABLE:
        # DuckDB proposes tables of its own catalogue.
        message = message.split("\nDid you mean")[0]
    return sql_error(state, message, code=code, hint=_hint(state, code, catalogue, dataset))


def _hint(state: str, code: str, catalogue: Catalogue, dataset: str | None) -> str:
    if state == UNKNOWN_TABLE:
        return _tables_there(catalogue, dataset)
    if state == UNKNOWN_FUNCTION:
        return "functions are those of DuckDB: https://duckdb.org/docs/sql/functions/overview"
    if code == "sql_memory":
        return NARROWER
    if code == "sql_refused":
        return "SQL here reads records, and no files, extensions or settings"
    return ""


def _tables_there(catalogue: Catalogue, dataset: str | None) -> str:
    if dataset is not None:
        names = [table.name for table in catalogue.in_dataset(dataset)]
    else:
        names = [table.qualified for table in catalogue.tables]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    told = f"tables: {', '.join(names[:_LISTED])}{more}" if names else "there are no tables"
    if catalogue.left_out:
        told += (
            f"; several datasets are called {', '.join(catalogue.left_out)}: name an organization"
        )
    return told


def broken_stream() -> ApiFailed:
    """The error of bytes from the proxy that are no stream of Arrow."""
    return ApiFailed("the columns that came are not of the expected form")


def moved() -> SqlError:
    """The error of definitions that go on changing, or of types that this package does not know."""
    return sql_error(
        "40001",
        "the table's columns are not those that its definition says",
        code="sql_invalid",
        hint="run the statement again; if it fails again, update encrypted-records",
    )


#: The nearest class decides.
_OF_OURS: dict[type[ErsError], str] = {
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
    ErsError: INTERNAL,
}


def state_of(error: ErsError) -> str:
    """The SQLSTATE of an error of this package, such as one that the proxy answers with."""
    if isinstance(error, SqlError):
        return error.sqlstate
    return next(_OF_OURS[kind] for kind in type(error).__mro__ if kind in _OF_OURS)

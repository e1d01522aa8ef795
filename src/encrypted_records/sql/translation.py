"""Errors of DuckDB as errors with a SQLSTATE."""

from __future__ import annotations

import re

import duckdb

from encrypted_records.errors import SqlError
from encrypted_records.sql import failures
from encrypted_records.sql.catalogue import Catalogue

#: Names that a hint lists, and characters of a message, which may quote the whole statement.
_LISTED, _TOLD = 20, 1_000
#: The nearest class decides; those of unknown names follow from the message.
_STATES: tuple[tuple[type[Exception], str, str], ...] = (
    (duckdb.ParserException, failures.SYNTAX, "sql_invalid"),
    (duckdb.InterruptException, failures.CANCELED, "sql_canceled"),
    (duckdb.OutOfMemoryException, failures.OUT_OF_MEMORY, "sql_memory"),
    (duckdb.PermissionException, failures.REFUSED, "sql_refused"),
    (duckdb.ConversionException, failures.BAD_VALUE, "sql_invalid"),
    (duckdb.OutOfRangeException, failures.OUT_OF_RANGE, "sql_invalid"),
    (duckdb.NotImplementedException, failures.NOT_SUPPORTED, "sql_invalid"),
    (duckdb.InternalException, failures.INTERNAL, "sql_invalid"),
    (duckdb.FatalException, failures.INTERNAL, "sql_invalid"),
    (duckdb.Error, failures.INVALID, "sql_invalid"),
)
_UNKNOWN = (
    (re.compile(r"Table with name .* does not exist"), failures.UNKNOWN_TABLE),
    (
        re.compile(r"(?:Scalar|Table|Aggregate|Macro)? ?Function with name .* does not exist"),
        failures.UNKNOWN_FUNCTION,
    ),
    (re.compile(r"Referenced (?:column|table) .* not found"), failures.UNKNOWN_COLUMN),
    (re.compile(r"does not have a column named"), failures.UNKNOWN_COLUMN),
    (re.compile(r"Ambiguous reference"), failures.AMBIGUOUS),
    (re.compile(r"No function matches"), failures.UNKNOWN_FUNCTION),
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
    if state in (failures.UNKNOWN_TABLE, failures.UNKNOWN_COLUMN, failures.UNKNOWN_FUNCTION):
        code = "sql_unknown"
    if state == failures.UNKNOWN_TABLE:
        # DuckDB proposes tables of its own catalogue.
        message = message.split("\nDid you mean")[0]
    if len(message) > _TOLD:
        message = f"{message[:_TOLD]}..."
    return failures.sql_error(
        state, message, code=code, hint=_hint(state, code, catalogue, dataset)
    )


def _hint(state: str, code: str, catalogue: Catalogue, dataset: str | None) -> str:
    if state == failures.UNKNOWN_TABLE:
        return _tables_there(catalogue, dataset)
    if state == failures.UNKNOWN_FUNCTION:
        return "functions are those of DuckDB: https://duckdb.org/docs/sql/functions/overview"
    if code == "sql_memory":
        return failures.NARROWER
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

"""Determines the types of a statement's parameters and results before it runs.

Drivers request them in the extended protocol, and asyncpg cannot encode without them. DuckDB does
not infer parameter types, so each parameter is replaced by a unique literal, and the plan over
empty tables shows the type to which DuckDB would cast it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from encrypted_records import runtime
from encrypted_records.sql.failures import Failure
from encrypted_records.sql.wire.statements import SqlStatement
from encrypted_records.sql.wire.types import (
    BY_ARRAY,
    BY_OID,
    INT8,
    OID,
    TEXT,
    UNKNOWN,
    ColumnType,
    column_type,
)

if TYPE_CHECKING:
    import duckdb

#: Types to try if a text does not fit, the most common first.
_TRIED = ("BIGINT", "INTERVAL", "BIGINT[]", "VARCHAR[]", "DATE[]", "UUID[]", "DOUBLE[]")
#: Maximum parameters whose types the server has to determine.
_MOST_UNKNOWN = 1_000


@dataclass(frozen=True, slots=True)
class Description:
    """``parameters`` are types by number; ``columns`` are names with DuckDB's types."""

    parameters: Sequence[ColumnType]
    columns: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """The session's user, settings and process number, as catalogues show them."""

    user: str
    settings: Mapping[str, str]
    process: int


@dataclass(frozen=True, slots=True)
class ParameterValues:
    """Values of parameters by number as the client sent them, each with its format, and the OIDs of
    their types.
    """

    sql: str
    oids: Sequence[int]
    values: Sequence[tuple[int, bytes | None]] = field(repr=False)


def describe(
    planner: duckdb.DuckDBPyConnection,
    statement: SqlStatement,
    oids: Sequence[int],
    named: Callable[[str], str] = str,
) -> Description:
    """Parameters and columns of a query.

    Args:
        planner: a connection with empty tables of the right types.
        oids: of the parameters whose types the client gives, 0 for others.
        named: returns the name here of a DuckDB type.

    Raises:
        Failure: there are too many parameters, or they are not numbered from 1.
        duckdb.Error: the statement cannot be bound.
    """
    numbers = {token.number for token in _parameters(statement)}
    count = max(numbers, default=0)
    if count > 65_535:
        raise Failure("54023", "a statement has 65535 parameters at most")
    if 0 in numbers:
        raise Failure("42P02", "there is no parameter $0")
    given: dict[int, ColumnType] = {}
    for number, oid in enumerate(oids, 1):
        if (kind := parameter_type(oid)) is not None:
            given[number] = kind
    unknown = sorted(numbers - set(given))
    if len(unknown) > _MOST_UNKNOWN:
        raise Failure(
            "54023", f"more than {_MOST_UNKNOWN} parameters without a type; give them types"
        )

    def casts(sql: str) -> dict[str, str] | None:
        return _casts(planner, sql)

    given |= _found(casts, statement, given, unknown, named)
    total = max(count, len(oids))
    types = [given.get(number, ColumnType(TEXT)) for number in range(1, total + 1)]
    columns = _columns(planner, statement, types)
    return Description(types, [(name, named(kind)) for name, kind in columns])


def parameter_type(oid: int) -> ColumnType | None:
    """The type with this OID; None if the server has to determine it.

    Raises:
        Failure: the type is not supported.
    """
    if oid in (0, UNKNOWN.oid):
        return None
    if oid in BY_OID:
        return ColumnType(BY_OID[oid])
    if oid in BY_ARRAY:
        return ColumnType(BY_ARRAY[oid], True)
    raise Failure("0A000", f"parameters of the type with OID {oid} are not supported")


def _parameters(statement: SqlStatement) -> Iterator[Any]:
    return (token for token in statement.words if token.kind == "parameter")


def _with(statement: SqlStatement, replaced: Mapping[int, str]) -> str:
    """The statement with texts in place of parameters."""
    parts, at, base = [], 0, statement.words[0].start
    for token in _parameters(statement):
        text = replaced.get(token.number)
        if text is not None:
            parts += [statement.sql[at : token.start - base], text]
            at = token.end - base
    return "".join(parts) + statement.sql[at:]


def _null(kind: str) -> str:
    return f"CAST(NULL AS {kind})"


#: The texts in a query, each with its cast type; None if the query cannot be bound.
Casts = Callable[[str], dict[str, str] | None]


def _found(
    casts_of: Casts,
    statement: SqlStatement,
    given: Mapping[int, ColumnType],
    unknown: Sequence[int],
    named: Callable[[str], str],
) -> dict[int, ColumnType]:
    found: dict[int, ColumnType] = {}
    for at, token in enumerate(statement.words):
        if token.kind != "parameter" or token.number in given:
            continue
        if at and statement.words[at - 1].word in ("limit", "offset"):
            found[token.number] = ColumnType(INT8)
        # No text fits an array, but asyncpg needs that type in its own query for types.
        after = [word.text.lower() for word in statement.words[at + 1 : at + 5]]
        if after[:2] == ["::", "oid"]:
            found[token.number] = ColumnType(OID, after[2:] == ["[", "]"])
    left = [number for number in unknown if number not in found]
    if not left:
        return found
    marks = {number: f"{runtime.random_hex(8)}-{number}" for number in left}
    known = {number: _null(kind.duckdb) for number, kind in (*given.items(), *found.items())}
    quoted = {number: f"'{mark}'" for number, mark in marks.items()}
    casts = casts_of(_with(statement, known | quoted))
    if casts is None:
        # At least one parameter accepts no text: try each by itself, with NULL for the others.
        empty = dict.fromkeys(left, "NULL")
        casts = {}
        for number in left:
            casts |= _alone(casts_of, statement, known | empty, number, marks[number])
    for number, mark in marks.items():
        kind = column_type(named(casts.get(mark, "VARCHAR")))
        found[number] = kind if kind is not None else ColumnType(TEXT)
    return found


def _alone(
    casts_of: Casts,
    statement: SqlStatement,
    others: Mapping[int, str],
    number: int,
    mark: str,
) -> dict[str, str]:
    casts = casts_of(_with(statement, {**others, number: f"'{mark}'"}))
    if casts is not None:
        return casts
    for kind in _TRIED:
        if casts_of(_with(statement, {**others, number: _null(kind)})) is not None:
            return {mark: kind}
    return {}


def _casts(planner: duckdb.DuckDBPyConnection, sql: str) -> dict[str, str] | None:
    """The texts in a query, each with its cast type; None if the query cannot be bound."""
    answer = planner.execute("SELECT json_serialize_plan(?::VARCHAR)", [sql]).fetchone()
    plan = json.loads(answer[0]) if answer else {"error": True}
    if plan["error"]:
        return None
    found: dict[str, str] = {}
    pending: list[tuple[Any, str | None]] = [(plan["plans"], None)]
    while pending:
        node, cast = pending.pop()
        if isinstance(node, list):
            pending += ((child, cast) for child in node)
        elif isinstance(node, dict):
            if node.get("expression_class") == "BOUND_CONSTANT":
                text = node.get("value", {}).get("value")
                if isinstance(text, str):
                    found.setdefault(text, cast or "VARCHAR")
                continue
            inner = _name(node["return_type"]) if node.get("type") == "OPERATOR_CAST" else None
            pending += ((child, inner) for child in node.values())
    return found


def _name(kind: Mapping[str, Any]) -> str:
    info = kind.get("type_info") or {}
    match kind["id"]:
        case "DECIMAL":
            return f"DECIMAL({info['width']},{info['scale']})"
        case "LIST":
            return f"{_name(info['child_type'])}[]"
        case name:
            return str(name)


def _columns(
    planner: duckdb.DuckDBPyConnection, statement: SqlStatement, types: Sequence[ColumnType]
) -> list[tuple[str, str]]:
    nulls = {number: _null(kind.duckdb) for number, kind in enumerate(types, 1)}
    if statement.first in ("describe", "explain", "summarize"):
        result = planner.execute(_with(statement, nulls))
        return [(name, str(kind)) for name, kind, *_ in result.description or ()]
    rows = planner.execute(f"DESCRIBE {_with(statement, nulls)}").fetchall()
    return [(row[0], row[1]) for row in rows]

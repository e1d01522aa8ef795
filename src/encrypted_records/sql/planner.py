"""Find the columns of each table that a statement needs, from DuckDB's plan, and translate DuckDB's
errors to errors with a SQLSTATE.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from encrypted_records.errors import SqlError
from encrypted_records.sql import failures
from encrypted_records.sql.catalogue import INTERNAL, Catalogue, SqlTable, in_sql
from encrypted_records.sql.connections import lock, open_closed, views
from encrypted_records.sql.limits import SqlLimits

#: Maximum names in a hint, and maximum characters of a message, which may quote the statement.
_LISTED, _TOLD = 20, 1_000
#: The nearest class decides; for unknown names, the message does.
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
_PIVOT = re.compile(r"\bpivot", re.IGNORECASE)
_UNKNOWN_NAME = re.compile(r'with name "?(\w+)"? does not exist')
#: Functions and types of DuckDB for those of PostgreSQL that it lacks.
_INSTEAD = {
    "btrim": "trim",
    "date_bin": "time_bucket",
    "every": "bool_and",
    "json_agg": "json_group_array",
    "json_build_object": "json_object",
    "jsonb": "JSON",
    "jsonb_agg": "json_group_array",
    "jsonb_build_object": "json_object",
    "to_char": "strftime(value, '%Y-%m-%d')",
    "to_date": "strptime(text, '%Y-%m-%d')",
    "unaccent": "strip_accents",
}


def translate(
    error: Exception, catalogue: Catalogue, dataset: str | None, sql: str = ""
) -> SqlError:
    """DuckDB's error with its message; for unknown names, the hint lists the existing ones.

    Args:
        sql: the statement, if it is known.
    """
    text = str(error)
    if not isinstance(error, duckdb.Error):
        # Arrow passes DuckDB's errors on only as text.
        error = next((kind for start, kind in _BY_TEXT if text.startswith(start)), duckdb.Error)(
            text
        )
    elif "write JSON string: memory allocation failed" in text:  # of a plan
        error = duckdb.OutOfMemoryException(text)
    told, _, place = text.partition("\n\nLINE ")
    message = _KIND.sub("", told.strip())
    state, code = next((state, code) for kind, state, code in _STATES if isinstance(error, kind))
    if isinstance(error, duckdb.CatalogException | duckdb.BinderException):
        state = next((state for form, state in _UNKNOWN if form.search(text)), state)
    if state in (failures.UNKNOWN_TABLE, failures.UNKNOWN_COLUMN, failures.UNKNOWN_FUNCTION):
        code = "sql_unknown"
    if state == failures.UNKNOWN_TABLE:
        # DuckDB suggests tables of its internal catalogue.
        message = message.split("\nDid you mean")[0]
    if state == failures.OUT_OF_MEMORY:
        # DuckDB suggests settings, which nobody can change here.
        message = message.split("\n\n")[0]
    if len(message) > _TOLD:
        message = f"{message[:_TOLD]}..."
    hint = _hint(state, code, message, catalogue, dataset)
    number, _, line = place.partition(":")
    if state == failures.SYNTAX:
        hint = _quoting(sql or line, catalogue)
    if number not in ("", "1"):
        first, *rest = message.split("\n")
        message = "\n".join([f"{first} (line {number})", *rest])
    return failures.sql_error(state, message, code=code, hint=hint)


def _quoting(sql: str, catalogue: Catalogue) -> str:
    """A hint to the names that have to be quoted, if there are any."""
    words = set(re.findall(r'(?<!")\b[\w-]+\b(?!")', sql.casefold()))
    named = [(table.qualified, table.in_sql) for table in catalogue.tables]
    named += [(each.name, each.in_sql) for table in catalogue.tables for each in table.columns]
    found = {quoted for name, quoted in named if words.intersection(name.casefold().split("."))}
    listed = sorted(quoted for quoted in found if '"' in quoted)[:_LISTED]
    return f"keywords and names with hyphens are quoted: {', '.join(listed)}" if listed else ""


def _hint(state: str, code: str, message: str, catalogue: Catalogue, dataset: str | None) -> str:
    found = _UNKNOWN_NAME.search(message)
    if found is not None and found[1].lower() in _INSTEAD:
        return f"in DuckDB's SQL it is {_INSTEAD[found[1].lower()]}"
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
    names = [in_sql(table.name) for table in catalogue.tables if table.dataset == dataset]
    names += [table.in_sql for table in catalogue.tables if table.dataset != dataset]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    sentence = f"tables: {', '.join(names[:_LISTED])}{more}" if names else "there are no tables"
    if catalogue.left_out:
        sentence += (
            f"; several datasets are called {', '.join(catalogue.left_out)}: name an organization"
        )
    return sentence


Parameters = Sequence[object] | Mapping[str, object]

_TABLE = re.compile(rf'memory\."?{INTERNAL}"?\.t(\d+)')
_COLUMN = re.compile(r"\bc(\d+)\b")
#: Nodes of statements that only read.
_READING = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
#: Nodes that limit the number of rows.
_LIMITING = frozenset({"TOP_N", "LIMIT", "STREAMING_LIMIT"})
#: Up to this many first rows, opening each row is faster than reading columns.
MOST_FIRST = 1000
#: Functions in FROM that only compute.
_COMPUTING = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "unnest"})
_NOTHING = failures.sql_error(failures.SYNTAX, "the statement is empty", code="sql_invalid")


@dataclass(frozen=True, slots=True)
class SortColumn:
    """The number of a column, and the sort order by it."""

    column: int
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class First:
    """The first ``limit`` rows of an order after skipping ``offset``; without an order,
    any rows.
    """

    order: tuple[SortColumn, ...]
    limit: int
    offset: int


@dataclass(frozen=True, slots=True)
class TableScan:
    """The rows and columns that a statement needs of one table.

    Attributes:
        first: the first rows that are enough, if the filters are the only conditions on rows.
        columns: by number.
        filters: comparisons that every row has to pass, in DuckDB's notation; empty if the
            statement reads the table twice.
        once: whether the table is read once, from its first row to its last.
    """

    columns: frozenset[int]
    filters: tuple[str, ...]
    once: bool
    first: First | None = None


@dataclass(frozen=True, slots=True)
class SelectStatement:
    """A statement that only reads.

    Attributes:
        tree: the result of DuckDB's parser.
    """

    text: str
    tree: Any

    @property
    def only_computes(self) -> bool:
        """Whether all functions in its FROM clauses are known to have no side effects."""
        functions = [
            part["function"]["function_name"].lower()
            for part in _parts(self.tree)
            if part.get("type") == "TABLE_FUNCTION"
        ]
        return _COMPUTING.issuperset(functions)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The scans of a statement, by the tables' numbers in the catalogue."""

    scans: Mapping[int, TableScan]


class Planner:
    """Plans statements over empty tables."""

    def __init__(self, catalogue: Catalogue, dataset: str | None, limits: SqlLimits) -> None:
        self.catalogue = catalogue
        self.dataset = dataset
        self._connection = open_closed(limits, plans=True)
        lock(self._connection, views(catalogue, dataset))

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _translated(self, sql: str = "") -> Iterator[None]:
        """Translate DuckDB's errors to :class:`SqlError`."""
        try:
            yield
        except duckdb.Error as error:
            raise translate(error, self.catalogue, self.dataset, sql) from None
        except RecursionError:
            # Trees and plans are parsed as JSON, and Python accepts some hundred levels of nesting.
            raise failures.sql_error(
                failures.TOO_MUCH, "the statement is nested too deeply", code="sql_invalid"
            ) from None

    def split(self, text: str) -> list[str]:
        """The statements of a text, without separators.

        Raises:
            SqlError: 42601.
        """
        with self._translated(text):
            return [parsed.query.strip() for parsed in self._parsed(text)]

    def only(self, text: str) -> SelectStatement:
        """The one statement of a text, which must be a SELECT.

        Raises:
            SqlError: 42601; 25006 if it does more than read.
        """
        with self._translated(text):
            statements = self._parsed(text)
            if not statements:
                raise _NOTHING
            if len(statements) > 1:
                raise failures.sql_error(
                    failures.SYNTAX, "a statement of its own is expected, and these are several"
                )
            (statement,) = statements
            select = statement.type == duckdb.StatementType.SELECT
            tree = self.tree(statement.query) if select else None
            if statement.type == duckdb.StatementType.EXPLAIN:
                raise failures.sql_error(
                    failures.READ_ONLY,
                    "EXPLAIN is not supported: only SELECT is possible",
                    code="sql_read_only",
                    hint="a statement fetches the columns that it names, and only rows that match"
                    " its comparisons with values",
                )
            if statement.type == duckdb.StatementType.MULTI and _PIVOT.search(statement.query):
                raise failures.sql_error(
                    failures.NOT_SUPPORTED,
                    "PIVOT has to list the values that become columns",
                    code="sql_invalid",
                    hint="for example PIVOT visit ON year IN (2025, 2026) USING sum(cost)",
                )
            if tree is None or not all(kind in _READING for kind in _node_kinds(tree)):
                raise failures.sql_error(
                    failures.READ_ONLY,
                    "only SELECT is possible: SQL reads records and changes nothing",
                    code="sql_read_only",
                    hint="use ers import, ers record create or the Python client to store records",
                )
            return SelectStatement(str(statement.query).strip().rstrip(";"), tree)

    def _parsed(self, text: str) -> list[duckdb.Statement]:
        try:
            text.encode()
        except UnicodeEncodeError:  # DuckDB's is a TypeError
            raise failures.sql_error(
                failures.SYNTAX, "the statement is not Unicode", code="sql_invalid"
            ) from None
        statements: list[duckdb.Statement] = self._connection.extract_statements(text)
        return statements

    def plan(self, statement: SelectStatement, parameters: Parameters = ()) -> ScanPlan:
        """
        Args:
            statement: the result of :meth:`only`.

        Raises:
            SqlError: it cannot be planned: 42P01, 42703 and so on.
        """
        with self._translated():
            explain = f"EXPLAIN (FORMAT json) {statement.text}"
            rows = self._connection.execute(explain, parameters or None).fetchall()
            ((_, document),) = rows
            roots = json.loads(document)
            nodes = list(_nodes(roots))
        found: dict[int, list[Mapping[str, Any]]] = {}
        for node in nodes:
            name = _TABLE.fullmatch(str(node["extra_info"].get("Table", "")))
            if name is not None:
                found.setdefault(int(name[1]), []).append(node["extra_info"])
        again = any("REC" in node["name"] and "CTE" in node["name"] for node in nodes)
        scans = {number: self._scan(number, infos, again) for number, infos in found.items()}
        if (limited := _limit_of(roots)) is not None and len(scans) == 1:
            ((number, scan),) = scans.items()
            order = _order_of(statement.tree, self.catalogue.tables[number])
            if order is not None:
                scans[number] = replace(scan, first=First(order, *limited))
        return ScanPlan(scans)

    def _scan(self, number: int, infos: Sequence[Mapping[str, Any]], again: bool) -> TableScan:
        count = len(self.catalogue.tables[number].columns)
        # Search the whole node: a column mentioned only in a string is requested needlessly.
        named = {int(at) for info in infos for at in _COLUMN.findall(json.dumps(info))}
        once = len(infos) == 1 and not again
        filters = infos[0].get("Filters", []) if len(infos) == 1 else []
        texts = (filters,) if isinstance(filters, str) else tuple(filters)
        return TableScan(frozenset(at for at in named if at < count), texts, once)

    def tree(self, statement: str) -> Any:
        """A statement as parsed by DuckDB; None if DuckDB cannot serialize it."""
        rows = self._connection.execute(
            "SELECT json_serialize_sql($1::VARCHAR)", [statement]
        ).fetchall()
        read = json.loads(rows[0][0])
        return None if read["error"] else read["statements"]

    def expression(self, text: str) -> Any:
        """A condition as parsed by DuckDB; None if it cannot be parsed."""
        try:
            with self._translated():
                tree = self.tree(f"SELECT 1 WHERE {text}")
        except (SqlError, ValueError):
            return None
        return None if tree is None else tree[0]["node"]["where_clause"]


def _limit_of(roots: Sequence[Mapping[str, Any]]) -> tuple[int, int] | None:
    """Limit and offset of the rows that a plan takes from a scan, if only a sort and expressions of
    single rows lie in between; otherwise None.
    """
    found = None
    left = list(roots)
    while len(left) == 1:
        (node,) = left
        name, info, left = node["name"].strip(), node["extra_info"], node.get("children", [])
        if name in _LIMITING and found is None:
            bounds = [info.get("Top", info.get("Limit")), info.get("Offset", "0")]
            if not all(isinstance(number, str) and number.isdecimal() for number in bounds):
                return None
            found = int(bounds[0]), int(bounds[1])
        elif name in ("SEQ_SCAN", "TABLE_SCAN"):
            return found if found is not None and found[0] and sum(found) <= MOST_FIRST else None
        elif name != "PROJECTION":
            return None
    return None


def _order_of(tree: Any, table: SqlTable) -> tuple[SortColumn, ...] | None:
    """The order of rows of a single-table statement; None for other statements, or if the order is
    not by columns.
    """
    node = tree[0]["node"]
    base = node.get("from_table") or {}
    plain = (
        node.get("type") == "SELECT_NODE"
        and base.get("type") == "BASE_TABLE"
        and not node["cte_map"]["map"]
        and not base["column_name_alias"]
        and not base["sample"]
        and not node["sample"]
    )
    if not plain:
        return None
    *orders, limit = node["modifiers"] or [{}]
    if limit.get("type") != "LIMIT_MODIFIER" or len(orders) > 1:
        return None
    found: list[SortColumn] = []
    for key in orders[0].get("orders", ()) if orders else ():
        column = _sorted_by(key["expression"], node["select_list"], table)
        if column is None:
            return None
        if column not in [other.column for other in found]:
            found.append(
                SortColumn(column, key["type"] == "DESCENDING", key["null_order"] == "NULLS FIRST")
            )
    if orders and orders[0].get("type") != "ORDER_MODIFIER":
        return None
    return tuple(found)


def _sorted_by(tree: Any, listed: Sequence[Any], table: SqlTable) -> int | None:
    """The column that a sort expression refers to; None if that is uncertain."""
    stars = [part for part in listed if part.get("type") == "STAR"]
    if tree.get("type") == "VALUE_CONSTANT" and not stars:
        place = tree["literal"]["text"] if tree["literal"]["kind"] == "INTEGER" else "0"
        tree = listed[int(place) - 1] if 0 < int(place) <= len(listed) else tree
        listed = ()
    if any(_changes(star) for star in stars) or tree.get("type") != "COLUMN_REF":
        return None
    names = tree["column_names"]
    if len(names) == 1:
        # Names of result columns take precedence over names of table columns.
        named = [part for part in listed if _lowered(part.get("alias", "")) == _lowered(names[0])]
        if named:
            (tree, *others) = named
            if others or tree.get("type") != "COLUMN_REF":
                return None
            names = tree["column_names"]
    columns = [_lowered(column.name) for column in table.columns]
    wanted = _lowered(names[-1])
    return columns.index(wanted) if columns.count(wanted) == 1 else None


def _changes(star: Mapping[str, Any]) -> bool:
    """Whether it changes names or values of columns."""
    return bool(
        star.get("columns")
        or star.get("expr")
        or star.get("replace_list")
        or star.get("rename_list")
    )


def _lowered(name: str) -> bytes:
    """The name folded as DuckDB compares names."""
    return name.encode().lower()


def _nodes(roots: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    left = list(roots)
    while left:
        node = left.pop()
        yield node
        left += node.get("children", [])


def _node_kinds(tree: Any) -> Iterator[str]:
    """The kinds of all query nodes in a tree."""
    for part in _parts(tree):
        kind = part.get("type")
        if isinstance(kind, str) and kind.endswith("_NODE"):
            yield kind


def _parts(tree: Any) -> Iterator[Mapping[str, Any]]:
    left = [tree]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            yield part
            left += part.values()
        elif isinstance(part, list):
            left += part

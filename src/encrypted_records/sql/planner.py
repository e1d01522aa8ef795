"""The columns of each table that a statement needs, as DuckDB's own plan of it says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from encrypted_records.errors import SqlError
from encrypted_records.sql import failures
from encrypted_records.sql.catalogue import INTERNAL, Catalogue
from encrypted_records.sql.connections import lock, open_closed, real_tables, views
from encrypted_records.sql.limits import SqlLimits
from encrypted_records.sql.translation import translate

Parameters = Sequence[object] | Mapping[str, object]

_TABLE = re.compile(rf'memory\."?{INTERNAL}"?\.t(\d+)')
_COLUMN = re.compile(r"\bc(\d+)\b")
#: Nodes of a statement that reads.
_READING = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_NOTHING = failures.sql_error(failures.SYNTAX, "the statement is empty", code="sql_invalid")


@dataclass(frozen=True, slots=True)
class Scan:
    """The need of a statement for one table.

    Attributes:
        columns: by number.
        filters: comparisons that every row has to pass, as DuckDB writes them; none where the
            statement reads the table twice.
        once: whether the table is read once, from its first row to its last.
    """

    columns: frozenset[int]
    filters: tuple[str, ...]
    once: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """The scans of a statement, by the tables' numbers in the catalogue."""

    scans: Mapping[int, Scan]


class Planner:
    """Plans statements over empty tables.

    Attributes:
        tables: statements that make all tables, empty, under their own names.
    """

    def __init__(self, catalogue: Catalogue, dataset: str | None, limits: SqlLimits) -> None:
        self.catalogue = catalogue
        self.dataset = dataset
        self.tables = real_tables(catalogue, dataset)
        self._connection = open_closed(limits, plans=True)
        lock(self._connection, views(catalogue, dataset))

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Errors of DuckDB become :class:`SqlError`."""
        try:
            yield
        except duckdb.Error as error:
            raise translate(error, self.catalogue, self.dataset) from None
        except RecursionError:
            # Trees and plans are read as JSON, of which Python takes some hundred levels.
            raise failures.sql_error(
                failures.TOO_MUCH, "the statement is nested too deeply", code="sql_invalid"
            ) from None

    def split(self, text: str) -> list[str]:
        """The statements of a text, without what is between them.

        Raises:
            SqlError: 42601.
        """
        with self._translated():
            return [parsed.query.strip() for parsed in self._parsed(text)]

    def only(self, text: str) -> str:
        """The one statement of a text, which must be a SELECT.

        Raises:
            SqlError: 42601; 25006 where it does more than read.
        """
        with self._translated():
            statements = self._parsed(text)
            if not statements:
                raise _NOTHING
            if len(statements) > 1:
                raise failures.sql_error(
                    failures.SYNTAX, "a statement of its own is expected, and these are several"
                )
            (statement,) = statements
            if statement.type != duckdb.StatementType.SELECT or not self._reads(statement.query):
                raise failures.sql_error(
                    failures.READ_ONLY,
                    "only SELECT is possible: SQL reads records and changes nothing",
                    code="sql_read_only",
                    hint="use ers import, ers record create or the Python client to store records",
                )
            return str(statement.query).strip().rstrip(";")

    def _parsed(self, text: str) -> list[duckdb.Statement]:
        try:
            text.encode()
        except UnicodeEncodeError:  # DuckDB's is a TypeError
            raise failures.sql_error(
                failures.SYNTAX, "the statement is not Unicode", code="sql_invalid"
            ) from None
        statements: list[duckdb.Statement] = self._connection.extract_statements(text)
        return statements

    def plan(self, statement: str, parameters: Parameters = ()) -> Plan:
        """
        Args:
            statement: as :meth:`only` gives it.

        Raises:
            SqlError: it cannot be planned: 42P01, 42703 and so on.
        """
        with self._translated():
            asked = f"EXPLAIN (FORMAT json) {statement}"
            rows = self._connection.execute(asked, parameters or None).fetchall()
            ((_, told),) = rows
            nodes = list(_nodes(json.loads(told)))
        found: dict[int, list[Mapping[str, Any]]] = {}
        for node in nodes:
            name = _TABLE.fullmatch(str(node["extra_info"].get("Table", "")))
            if name is not None:
                found.setdefault(int(name[1]), []).append(node["extra_info"])
        again = any("REC" in node["name"] and "CTE" in node["name"] for node in nodes)
        return Plan({number: self._scan(number, infos, again) for number, infos in found.items()})

    def _scan(self, number: int, infos: Sequence[Mapping[str, Any]], again: bool) -> Scan:
        count = len(self.catalogue.tables[number].columns)
        # All that the node says: columns that are named in a text only are asked for in vain.
        named = {int(at) for info in infos for at in _COLUMN.findall(json.dumps(info))}
        once = len(infos) == 1 and not again
        filters = infos[0].get("Filters", []) if len(infos) == 1 else []
        texts = (filters,) if isinstance(filters, str) else tuple(filters)
        return Scan(frozenset(at for at in named if at < count), texts, once)

    def _reads(self, statement: str) -> bool:
        """Whether each part of a statement only reads."""
        tree = self.tree(statement)
        return tree is not None and all(kind in _READING for kind in _node_kinds(tree))

    def tree(self, statement: str) -> Any:
        """A statement as DuckDB's parser has read it; None where it says that it cannot tell."""
        rows = self._connection.execute(
            "SELECT json_serialize_sql($1::VARCHAR)", [statement]
        ).fetchall()
        read = json.loads(rows[0][0])
        return None if read["error"] else read["statements"]

    def expression(self, text: str) -> Any:
        """A condition as DuckDB's parser reads it; None where it does not."""
        try:
            with self._translated():
                tree = self.tree(f"SELECT 1 WHERE {text}")
        except (SqlError, ValueError):
            return None
        return None if tree is None else tree[0]["node"]["where_clause"]


def _nodes(roots: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    left = list(roots)
    while left:
        node = left.pop()
        yield node
        left += node.get("children", [])


def _node_kinds(tree: Any) -> Iterator[str]:
    """The kinds of all queries within a tree."""
    left = [tree]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            kind = part.get("type")
            if isinstance(kind, str) and kind.endswith("_NODE"):
                yield kind
            left += part.values()
        elif isinstance(part, list):
            left += part

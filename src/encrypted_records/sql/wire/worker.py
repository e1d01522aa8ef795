"""The process of a PostgreSQL session: besides running statements, it answers catalogue queries and
determines the types of parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import duckdb

from encrypted_records.sql import failures
from encrypted_records.sql.planner import Parameters
from encrypted_records.sql.wire import statements as st
from encrypted_records.sql.wire.catalog import PgCatalog, column_name, with_oids
from encrypted_records.sql.wire.parameters import (
    ParameterValues,
    SessionFacts,
    describe,
    parameter_type,
)
from encrypted_records.sql.wire.types import (
    INTERVAL,
    NUMERIC,
    TEXT,
    ColumnType,
    Interval,
    decode_parameter,
)
from encrypted_records.sql.worker import Reply, Worker, as_stream, serve, type_name


class WireWorker(Worker):
    def __init__(self, columns: BinaryIO) -> None:
        super().__init__(columns)
        self._catalog: PgCatalog | None = None

    def prepare(self, session: SessionFacts) -> Reply:
        """Create the catalogues, which takes longer than many statements."""
        self._catalogues(session)
        return None, b""

    def describe(self, session: SessionFacts, sql: str, oids: Sequence[int]) -> Reply:
        """Whether catalogues answer a query; the OIDs of its parameters; its columns."""
        catalog, statement = self._catalogues(session), self._only(sql)
        query = catalog.answers(statement)
        if query is None:
            # The engine decides whether it only reads.
            described = describe(catalog.connection, statement, oids)
        else:
            described = describe(catalog.connection, query, oids, with_oids)
            described = replace(
                described, columns=[(column_name(name), kind) for name, kind in described.columns]
            )
        return [
            query is not None,
            [kind.oid for kind in described.parameters],
            described.columns,
        ], b""

    def ask(self, session: SessionFacts, given: ParameterValues) -> Reply:
        """The columns and rows of a catalogue query; None for other queries."""
        catalog = self._catalogues(session)
        query = catalog.answers(self._only(given.sql))
        if query is None:
            return None, b""
        # Only a single SELECT, so that no statement changes the catalogues' tables.
        (parsed,) = catalog.connection.extract_statements(query.sql)
        if parsed.type != duckdb.StatementType.SELECT:
            raise failures.Failure("25006", "catalogues are read only")
        values = _named(query, given.oids, given.values)
        relation = catalog.connection.sql(query.sql, params=values or None)
        kinds = zip(relation.columns, relation.types, strict=True)
        columns = [[column_name(name), with_oids(type_name(kind))] for name, kind in kinds]
        table = relation.to_arrow_table()
        return columns, as_stream(table.schema, table.to_batches())

    def plan(self, text: str, given: object) -> Reply:
        return super().plan(self._only(text).sql, given)

    def _only(self, sql: str) -> st.SqlStatement:
        """The only statement of a text, without the database in the names of tables, and with
        DuckDB's formats of dates."""
        dataset = self.planner.dataset
        assert dataset is not None, "a session has a dataset"
        tables = {table.name.casefold() for table in self.planner.catalogue.in_dataset(dataset)}
        namesake = dataset.casefold() in tables
        statement = st.only(st.without_database(st.only(sql), dataset, namesake=namesake))
        return st.only(st.with_duckdb_formats(statement))

    def bound(self, parameters: Any) -> Parameters:
        return _named(st.only(parameters.sql), parameters.oids, parameters.values)

    def failed(self, error: Exception) -> dict[str, str]:
        if isinstance(error, failures.Failure):
            error = failures.sql_error(error.state, error.message, hint=error.hint)
        return super().failed(error)

    def _catalogues(self, session: SessionFacts) -> PgCatalog:
        """The catalogues of the present tables."""
        planner = self.planner
        if self._catalog is None or self._catalog.catalogue is not planner.catalogue:
            if self._catalog is not None:
                self._catalog.close()
            assert self._limits is not None
            assert planner.dataset is not None
            self._catalog = PgCatalog(
                planner.catalogue,
                planner.dataset,
                self._limits,
                user=session.user,
                settings=session.settings,
                process=session.process,
            )
        return self._catalog


def _named(
    statement: st.SqlStatement, oids: Sequence[int], values: Sequence[tuple[int, bytes | None]]
) -> dict[str, Any]:
    """The parameters of a statement, by number, with exactly their types.

    Raises:
        Failure: a value is missing, or its bytes do not fit its type.
    """
    used = {token.number for token in statement.words if token.kind == "parameter"}
    for number in used:
        if not 1 <= number <= len(oids):
            raise failures.Failure("42P02", f"there is no parameter ${number}")
    kinds = {number: parameter_type(oids[number - 1]) or ColumnType(TEXT) for number in used}
    found = {}
    for number, kind in sorted(kinds.items()):
        form, data = values[number - 1]
        found[str(number)] = _value(kind, decode_parameter(data, form, kind))
    return found


def _value(kind: ColumnType, value: Any) -> Any:
    if value is None or isinstance(value, str) or kind.element is NUMERIC:
        return value
    if kind.element is INTERVAL and isinstance(value, Interval):
        return duckdb.Value(value.text, "INTERVAL")
    if kind.is_array:
        return [item.text if isinstance(item, Interval) else item for item in value]
    return duckdb.Value(value, kind.duckdb)


if __name__ == "__main__":
    serve(WireWorker)

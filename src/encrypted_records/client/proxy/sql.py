"""SQL on this machine over the records that a proxy returns, with results as data frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from encrypted_records.client.proxy.connection import Connection
from encrypted_records.errors import InvalidSetting
from encrypted_records.sql.limits import STANDARD, SqlLimits, require_sql

if TYPE_CHECKING:
    from encrypted_records.client.proxy.client import ProxyClient


class SqlCalls(Connection):
    async def sql(
        self,
        statement: str,
        parameters: Sequence[object] | Mapping[str, object] = (),
        *,
        dataset: str | None = None,
        organization: str | None = None,
        limits: SqlLimits | None = None,
    ) -> SqlResult:
        """The rows of a SELECT.

        Args:
            parameters: values for ``$1`` or ``?``, or by name for ``$name``.
            dataset: the slug of the dataset whose tables need no qualification.
            organization: the id of the organization whose datasets are included; None for all.
            limits: limits of the statement.

        Raises:
            SqlError: the statement fails; its SQLSTATE gives the kind of error.
            NotInstalled: the extra ``sql`` is missing here, or at the proxy.
        """
        require_sql()
        from encrypted_records.sql.engine import Engine  # noqa: PLC0415 - optional, slow to import
        from encrypted_records.sql.rendering import as_durations  # noqa: PLC0415

        client = cast("ProxyClient", self)
        opened = Engine(
            client, dataset=dataset, organization=organization, limits=limits or STANDARD
        )
        async with opened as engine, await engine.execute(statement, parameters) as result:
            table: Any = await result.table()
            for at, column in enumerate(table.columns):
                table = table.set_column(at, table.column_names[at], as_durations(column))
            types = tuple(column.type for column in result.columns)
            return SqlResult(table, types, dict(result.versions))


class SqlResult:
    """Rows in memory. Iteration yields each row as a dictionary of Python values.

    Attributes:
        columns: the names of the columns.
        types: DuckDB's types, such as ``DECIMAL(18,2)``.
        versions: for each schema that was read, by its path, the version of its log.
    """

    def __init__(self, table: Any, types: tuple[str, ...], versions: Mapping[str, int]) -> None:
        self._table = table
        self.types = types
        self.versions = versions

    @property
    def columns(self) -> list[str]:
        names: list[str] = self._table.column_names
        return names

    def __len__(self) -> int:
        rows: int = self._table.num_rows
        return rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield from self._table.to_pylist()

    def __repr__(self) -> str:
        # Without values, because a repr may end up in a log.
        return f"<{type(self).__name__} {len(self)} rows of {', '.join(self.columns)}>"

    def to_arrow(self) -> Any:
        """A ``pyarrow.Table``."""
        return self._table

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with Arrow columns, so that numbers stay exact."""
        try:
            import pandas  # noqa: PLC0415 - only frames need it
        except ImportError:
            raise InvalidSetting("pandas is not installed", hint="pip install pandas") from None
        return self._table.to_pandas(types_mapper=pandas.ArrowDtype)

    def to_polars(self) -> Any:
        """A ``polars.DataFrame``."""
        try:
            import polars  # noqa: PLC0415 - only frames need it
        except ImportError:
            raise InvalidSetting("polars is not installed", hint="pip install polars") from None
        return polars.from_arrow(self._table)

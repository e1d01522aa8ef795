"""SQL over the records that a proxy shows, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from encrypted_records.client.proxy.connection import Connection
from encrypted_records.client.sql_result import SqlResult
from encrypted_records.sql.extra import require_sql

if TYPE_CHECKING:
    from encrypted_records.client.proxy.client import ProxyClient
    from encrypted_records.sql.limits import SqlLimits


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
            organization: the id of the organization whose datasets count; None is all.
            limits: how much the statement may take.

        Raises:
            SqlError: the statement cannot be run, as its SQLSTATE says.
            NotInstalled: the extra ``sql`` is missing here, or at the proxy.
        """
        require_sql()
        from encrypted_records.sql.engine import Engine  # noqa: PLC0415 - optional, slow to import
        from encrypted_records.sql.limits import STANDARD  # noqa: PLC0415

        client = cast("ProxyClient", self)
        opened = Engine(
            client, dataset=dataset, organization=organization, limits=limits or STANDARD
        )
        async with opened as engine, await engine.execute(statement, parameters) as result:
            table: Any = await result.table()
            types = tuple(column.type for column in result.columns)
            return SqlResult(table, types, dict(result.versions))

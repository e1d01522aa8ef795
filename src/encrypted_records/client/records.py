"""Records beyond storing and searching: measured, exported, changed, deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from encrypted_records.client.connection import Connection, encoded, typed
from encrypted_records.model.ids import reference
from encrypted_records.model.questions import MAX_LIMIT


class Segments(msgspec.Struct, frozen=True):
    """How many index segments are live; ``mini`` are those that direct ingests leave."""

    live: int
    mini: int
    paged: int


class IndexStatus(msgspec.Struct, frozen=True):
    """How the index of a schema stands; ``dead`` rows are of records that are no more."""

    version: int
    records: int
    dead: int
    segments: Segments
    merge_pending: bool


class Records(Connection):
    async def index_status(self, schema: str) -> IndexStatus:
        found = await self._ask("GET", "/api/records/status/", params={"schema": schema})
        return typed(found, IndexStatus)

    async def records(
        self, schema: str, *, limit: int | None = None, sealed: bool = False
    ) -> AsyncIterator[Mapping[str, Any]]:
        """The records of a schema in the order in which they were stored: opened, or as the API
        has them.

        Args:
            limit: the first so many; None is all.
        """
        filters = {"schema": schema, "sealed": "true"} if sealed else {"schema": schema}
        if limit is not None:
            filters["limit"] = str(min(limit, MAX_LIMIT))
        count = 0
        async for one in self._listed("/api/records/", **filters):
            yield one
            count += 1
            if count == limit:
                return

    async def aggregate(
        self, schema: str, measures: Sequence[Mapping[str, Any]], **members: Any
    ) -> Mapping[str, Any]:
        """Measures of the records that a condition selects, maybe by groups.

        Args:
            members: ``where``, ``group_by``, ``limit``, ``order``, as docs/http-api.md has them;
                those that are None are left out.
        """
        body = {"schema": schema, "measures": list(measures), **_said(members)}
        found: Mapping[str, Any] = await self._ask("POST", "/api/records/aggregate/", body)
        return found

    def export(
        self, schema: str, form: str = "ndjson", **members: Any
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Every record that a condition selects, as NDJSON or CSV, in pieces as they come.

        An export that breaks off raises; what came before is not to be used.

        Args:
            members: ``where``, ``order_by``, ``fields``; those that are None are left out.
        """
        body = {"schema": schema, "format": form, **_said(members)}
        return self._transport.stream(
            "POST",
            "/api/records/export/",
            data=encoded(body),
            headers={"Content-Type": "application/json"},
        )

    async def change_record(
        self, record_id: str, data: Mapping[str, Any], *, replace: bool = False
    ) -> Mapping[str, Any]:
        """Change the fields in ``data``, where None removes one; or with ``replace`` all."""
        method = "PUT" if replace else "PATCH"
        path = reference("records", record_id)
        found: Mapping[str, Any] = await self._ask(method, path, {"data": data})
        return found

    async def delete_record(self, record_id: str) -> None:
        await self._ask("DELETE", reference("records", record_id))

    async def delete_matching(self, schema: str, where: Mapping[str, Any], *, confirm: int) -> int:
        """Delete every record that a condition selects; how many.

        Args:
            confirm: how many there have to be.

        Raises:
            Conflict: ``confirm_count``; there are more by now, or fewer, and nothing is deleted.
        """
        found = await self._ask(
            "POST",
            "/api/records/delete/",
            {"schema": schema, "where": where},
            params={"confirm": str(confirm)},
        )
        return int(found["deleted"])


def _said(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}

"""Records beyond storing and searching: measured, exported, changed, deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from encrypted_records.client.proxy.connection import Connection, convert, encode
from encrypted_records.client.transport import ANSWER_SECONDS
from encrypted_records.model.ids import reference
from encrypted_records.model.queries import MAX_LIMIT

#: For which a sorted export may say nothing: a proxy fetches some thousand records a second.
SORTED_EXPORT_SECONDS = 4 * 3600.0


class Segments(msgspec.Struct, frozen=True):
    """The number of live index segments; ``mini`` segments come from direct ingests."""

    live: int
    mini: int
    paged: int


class IndexStatus(msgspec.Struct, frozen=True):
    """The state of a schema's index; ``dead`` rows belong to changed or deleted records."""

    version: int
    records: int
    dead: int
    segments: Segments
    merge_pending: bool


class Upserted(msgspec.Struct, frozen=True):
    """A record as it is stored, and whether it replaced another; ``rounded`` are the fields whose
    values were sent with more decimals than are kept."""

    id: str
    url: str
    schema: str
    replaced: bool
    rounded: tuple[str, ...] = ()


class FoundIn(msgspec.Struct, frozen=True):
    """The answer of one schema of a dataset to a condition: the number of records, and the first of
    them; or which of its fields it is ``missing``; or the problem document of why it was not
    asked."""

    schema: str
    name: str
    slug: str
    count: int | None
    results: list[dict[str, Any]]
    missing: list[str]
    error: dict[str, Any] | None

    def __repr__(self) -> str:
        # Without records: what is shown in passing may end in a log.
        return f"<{type(self).__name__} {self.slug}: {self.count}>"


class _FoundPage(msgspec.Struct):
    next_cursor: str | None
    results: list[FoundIn]


class Records(Connection):
    async def upsert(
        self, schema: str, records: Sequence[Mapping[str, Any]], by: Sequence[str]
    ) -> list[Upserted]:
        """Store at most 100 records, or replace by them the records that have the same values
        of ``by``: all of them, or on any error none.

        Args:
            by: the fields of a set that is unique.
        """
        body = [{"schema": schema, "data": data} for data in records]
        params = {"by": ",".join(by)}
        answer = await self._ask("PUT", "/api/records/", body, params=params, repeatable=True)
        return convert(answer, list[Upserted])

    async def index_status(self, schema: str) -> IndexStatus:
        answer = await self._ask("GET", "/api/records/status/", params={"schema": schema})
        return convert(answer, IndexStatus)

    async def records(
        self, schema: str, *, limit: int | None = None, sealed: bool = False
    ) -> AsyncIterator[Mapping[str, Any]]:
        """The records of a schema in the order in which they were stored: decrypted, or as the API
        stores them if ``sealed``.

        Args:
            limit: maximum number of records; None is all.
        """
        filters = {"schema": schema, "sealed": "true"} if sealed else {"schema": schema}
        if limit is not None:
            filters["limit"] = str(min(limit, MAX_LIMIT))
        count = 0
        async for record in self._list("/api/records/", **filters):
            yield record
            count += 1
            if count == limit:
                return

    async def aggregate(
        self, /, schema: str, measures: Sequence[Mapping[str, Any]], **members: Any
    ) -> Mapping[str, Any]:
        """Measures of the records that a condition selects, maybe by groups.

        Args:
            members: ``where``, ``group_by``, ``limit``, ``order``, as docs/http-api.md has them;
                those that are None are left out.
        """
        body = {"schema": schema, "measures": list(measures), **_said(members)}
        answer: Mapping[str, Any] = await self._ask("POST", "/api/records/aggregate/", body)
        return answer

    async def explain_nothing(
        self, schema: str, where: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        """Each comparison of a condition alone, and what would have been found: ``records``,
        ``count`` and ``comparisons``, as docs/http-api.md has them.

        Args:
            where: as for :meth:`search`; None selects all, by no comparison.
        """
        body = {"schema": schema, **_said({"where": where})}
        answer: Mapping[str, Any] = await self._ask("POST", "/api/records/why/", body)
        return answer

    async def search_dataset(
        self, dataset: str, where: Mapping[str, Any] | None = None, *, limit: int = 10
    ) -> list[FoundIn]:
        """Search every schema of a dataset with one condition, in the order of the schemas' ids.

        Args:
            dataset: its path.
            limit: records shown of each schema, up to 100.
        """
        found: list[FoundIn] = []
        cursor: str | None = None
        while True:
            body = _said({"where": where, "limit": limit, "cursor": cursor})
            answer = await self._ask("POST", f"{dataset}search/", body)
            page = convert(answer, _FoundPage)
            found += page.results
            if page.next_cursor is None or page.next_cursor == cursor:
                return found
            cursor = page.next_cursor

    def export(
        self, /, schema: str, form: str = "ndjson", **members: Any
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Every record that a condition selects, as NDJSON or CSV, in pieces as they come.

        An export that breaks off raises; what came before is not to be used.

        Args:
            members: ``where``, ``order_by``, ``fields``, ``safe_cells``, ``with_schema_id``; those
                that are None are left out.
        """
        body = {"schema": schema, "format": form, **_said(members)}
        # A sorted export has fetched all of its records before the first of them comes.
        silent_seconds = SORTED_EXPORT_SECONDS if members.get("order_by") else ANSWER_SECONDS
        return self._transport.stream(
            "POST",
            "/api/records/export/",
            data=encode(body),
            headers={"Content-Type": "application/json"},
            silent_seconds=silent_seconds,
        )

    def columns(
        self,
        /,
        schema: str,
        fields: Sequence[str],
        where: Mapping[str, Any] | None = None,
        **members: Any,
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Columns of the records that a condition selects, as a stream of Arrow, in pieces as they
        come. All are of one version of the log, which the schema's metadata has as ``log_version``.

        A stream that breaks off raises; what came before is not to be used.

        Args:
            members: ``limit``, ``offset`` and ``order_by``, where the first records are enough;
                those that are None are left out.
        """
        said = _said({"where": where, **members})
        return self._transport.stream(
            "POST",
            "/api/records/columns/",
            data=encode({"schema": schema, "fields": list(fields), **said}),
            headers={"Content-Type": "application/json"},
        )

    async def change_record(
        self, record_id: str, data: Mapping[str, Any], *, replace: bool = False
    ) -> Mapping[str, Any]:
        """Change the fields in ``data``, where None removes one; or with ``replace`` all."""
        method = "PUT" if replace else "PATCH"
        path = reference("records", record_id)
        record: Mapping[str, Any] = await self._ask(method, path, {"data": data})
        return record

    async def delete_record(self, record_id: str) -> None:
        await self._ask("DELETE", reference("records", record_id))

    async def delete_matching(self, schema: str, where: Mapping[str, Any], *, confirm: int) -> int:
        """Delete every record that a condition selects; how many.

        Args:
            confirm: how many there have to be.

        Raises:
            Conflict: ``confirm_count``; there are more by now, or fewer, and nothing is deleted.
        """
        answer = await self._ask(
            "POST",
            "/api/records/delete/",
            {"schema": schema, "where": where},
            params={"confirm": str(confirm)},
        )
        return int(answer["deleted"])


def tell_rounding(counts: Mapping[str, int]) -> str:
    """A sentence with the number of rounded values by field; empty if there are none."""
    told = ", ".join(f"{count:,} of {name}" for name, count in counts.items() if count)
    return f"values were rounded to the decimals that the schema keeps: {told}" if told else ""


def _said(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}

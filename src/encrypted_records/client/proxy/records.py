"""Records beyond storing and searching: list, aggregate, explain, export, change and delete.

The structures are those of all answers about records, of pages of a search too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from encrypted_records.client.proxy.connection import Connection, T, encode, if_match
from encrypted_records.client.transport import ANSWER_SECONDS
from encrypted_records.errors import Malformed, NotFound
from encrypted_records.model.ids import from_text, reference
from encrypted_records.model.queries import MAX_LIMIT
from encrypted_records.model.resources import Count, Id, RecordPath, SchemaPath

#: Maximum silence of a sorted export: a proxy fetches some thousand records a second.
SORTED_EXPORT_SECONDS = 4 * 3600.0


def require_record_id(text: str, hint: str) -> None:
    """
    Args:
        hint: where the caller finds the ids of records.

    Raises:
        NotFound: ``text`` cannot be the id of a record.
    """
    try:
        from_text(text)
    except Malformed:
        raise NotFound("this is not a record id: an id has 22 characters", hint=hint) from None


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record, decrypted: its ``data`` is the values by field; absent fields are left out."""

    id: Id
    url: RecordPath
    schema: SchemaPath
    data: dict[str, Any]

    def __repr__(self) -> str:
        # Without values, because a repr may end up in a log.
        return f"<{type(self).__name__} {self.id}>"


class UpdatedRecord(Record, frozen=True, omit_defaults=True):
    """A record after a change.

    Attributes:
        rounded: fields whose values are stored with fewer decimals than were sent.
    """

    rounded: tuple[str, ...] = ()


class StoredRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record that was stored.

    Attributes:
        rounded: fields whose values are stored with fewer decimals than were sent.
    """

    id: Id
    url: RecordPath
    schema: SchemaPath
    rounded: tuple[str, ...] = ()


class UpsertedRecord(StoredRecord, frozen=True, omit_defaults=True, kw_only=True):
    """A record that was stored, or that replaced another.

    Attributes:
        rounded: fields whose values are stored with fewer decimals than were sent.
    """

    replaced: bool


class DeletedCount(msgspec.Struct, frozen=True):
    """The number of records that were deleted."""

    deleted: Count


class MirrorAge(msgspec.Struct, frozen=True):
    """The age of an answer from a mirror.

    Attributes:
        taken: time of the copy.
        age: its age in seconds.
        newest_commit: time of the newest change in the answer.
    """

    taken: str | None
    age: int | None
    newest_commit: str | None


class SearchPage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A page of the records that match a condition.

    Attributes:
        count: number of records on all pages; None if no count was requested.
        next_cursor: ``cursor`` of the next page; None on the last.
        mirror: present if the proxy reads from a mirror.
    """

    count: Count | None
    next_cursor: str | None
    mirror: MirrorAge | None = None
    results: list[Record]


class FoundIn(msgspec.Struct, frozen=True):
    """The answer of one schema of a dataset to a condition.

    Attributes:
        count: number of records; None if the schema did not answer.
        missing: fields of the condition that the schema does not have.
        error: problem document that says why the schema did not answer; None if it did.
        results: the first records.
    """

    schema: SchemaPath
    name: str
    slug: str
    count: Count | None
    missing: list[str]
    error: dict[str, Any] | None
    results: list[Record]

    def __repr__(self) -> str:
        # Without records, because a repr may end up in a log.
        return f"<{type(self).__name__} {self.slug}: {self.count}>"


class FoundInPage(msgspec.Struct, frozen=True):
    """The answers of some schemas of a dataset, in the order of their ids."""

    next_cursor: str | None
    results: list[FoundIn]


class Reason(msgspec.Struct, frozen=True):
    """A single comparison of a condition.

    Attributes:
        count: number of records that match it alone.
        folded: number that match it in any spelling; None if that was not counted.
        trimmed: number that match it without blanks around its texts; None if not counted.
        never: why no value can match it; None if a value can.
    """

    pointer: str
    field: str
    op: str
    count: Count
    folded: Count | None = None
    trimmed: Count | None = None
    never: str | None = None


class Reasons(msgspec.Struct, frozen=True):
    """Why a condition finds nothing, or little.

    Attributes:
        records: number of stored records.
        count: number of matching records.
    """

    records: Count
    count: Count
    comparisons: list[Reason]


class Segments(msgspec.Struct, frozen=True):
    """The number of live index segments; ``mini`` segments come from direct ingests."""

    live: Count
    mini: Count
    paged: Count


class OpenedRows(msgspec.Struct, frozen=True):
    """Rows of a question.

    Attributes:
        certain: number of rows that the index alone found.
        unsure: number of rows that the index left undecided.
        opened: number of rows that were decrypted.
    """

    certain: Count
    unsure: Count
    opened: Count


class JoinCost(msgspec.Struct, frozen=True):
    """The values of a field of another schema that a condition names.

    Attributes:
        pointer: JSON pointer to them in the question.
        version: version of the other schema's log.
        rows: number of its matching records.
        values: number of their values.
    """

    pointer: str
    schema: SchemaPath
    field: str
    version: Count
    rows: Count
    values: Count


class StageTime(msgspec.Struct, frozen=True):
    """The time that a stage of a question took."""

    stage: str
    milliseconds: float


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a question.

    Attributes:
        version: version of the log.
        records: number of stored records.
        columns: fields whose columns were read.
        scan: ``column`` if distinct values of ``scanned`` were tested singly, else ``ranges``.
        scanned: fields whose distinct values were tested.
        pages: number of index pages.
        requests: number of requests to the API.
    """

    kind: Literal["search", "aggregate"]
    version: Count
    records: Count
    columns: list[str]
    scan: Literal["column", "ranges"]
    scanned: list[str]
    segments: Segments
    pages: Count
    rows: OpenedRows
    requests: Count
    joins: list[JoinCost]
    stages: list[StageTime]


class MeasureResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a measure; which members there are depends on its operator.

    Attributes:
        value: result of a measure with a single result.
        values: percentiles with ``p``, or distinct values with ``count``.
        count: number of distinct values.
        below: number of values below the first bin.
        above: number of values above the last bin.
        bins: bins of a histogram: ``from``, ``to`` and ``count``.
    """

    op: str
    field: str | UnsetType = UNSET
    value: Any = UNSET
    values: list[dict[str, Any]] | UnsetType = UNSET
    count: Count | UnsetType = UNSET
    below: Count | UnsetType = UNSET
    above: Count | UnsetType = UNSET
    bins: list[dict[str, Any]] | UnsetType = UNSET


class Aggregate(msgspec.Struct, frozen=True):
    """Measures of the records that match a condition, in the order of the request."""

    measures: list[MeasureResult]


class MeasuredGroup(msgspec.Struct, frozen=True):
    """Measures of a group; ``group`` has the value of each field that it is of."""

    group: dict[str, Any]
    measures: list[MeasureResult]


class GroupedAggregate(msgspec.Struct, frozen=True):
    """Measures by groups; ``total`` is the number of groups."""

    total: Count
    groups: list[MeasuredGroup]


class MemoryUse(msgspec.Struct, frozen=True):
    """Memory that a cache takes: the number of things in it, and their bytes."""

    count: Count
    bytes: Count


class IndexActivity(msgspec.Struct, frozen=True):
    """The records that were stored over time.

    Attributes:
        days: number of rows stored on each of the last days.
        last: time of the newest change, in seconds since 1970.
        bytes: minimum size of the stored data.
    """

    days: list[Count]
    last: Count | None
    bytes: Count


class IndexStatus(msgspec.Struct, frozen=True):
    """The state of a schema's index.

    Attributes:
        version: version of the log.
        dead: number of rows that belong to changed or deleted records.
        merge_pending: whether a merge is worthwhile.
        memory: memory of the proxy's caches, for all schemas, by their names.
    """

    version: Count
    records: Count
    dead: Count
    segments: Segments
    merge_pending: bool
    memory: dict[str, MemoryUse]
    activity: IndexActivity


class Records(Connection):
    async def upsert(
        self, schema: str, records: Sequence[Mapping[str, Any]], by: Sequence[str]
    ) -> list[UpsertedRecord]:
        """Store at most 100 records, each replacing the record with the same values of ``by``, if
        any: all of them, or on any error none.

        Args:
            by: the fields of a unique set.
        """
        body = [{"schema": schema, "data": data} for data in records]
        params = {"by": ",".join(by)}
        answer = await self._ask("PUT", "/api/records/", body, params=params, repeatable=True)
        return answer.convert(list[UpsertedRecord])

    async def index_status(self, schema: str) -> IndexStatus:
        answer = await self._ask("GET", "/api/records/status/", params={"schema": schema})
        return answer.convert(IndexStatus)

    async def records(self, schema: str, *, limit: int | None = None) -> AsyncIterator[Record]:
        """The records of a schema, decrypted, in the order in which they were stored.

        Args:
            limit: maximum number of records; None is all.
        """
        async for record in self._stored(Record, limit, schema=schema):
            yield record

    async def sealed_records(
        self, schema: str, *, limit: int | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """The same as :meth:`records`, as the API stores them."""
        async for record in self._stored(dict[str, Any], limit, schema=schema, sealed="true"):
            yield record

    async def _stored(self, kind: type[T], limit: int | None, **filters: str) -> AsyncIterator[T]:
        if limit is not None:
            filters["limit"] = str(min(limit, MAX_LIMIT))
        count = 0
        async for record in self._list("/api/records/", kind, **filters):
            yield record
            count += 1
            if count == limit:
                return

    async def record(self, record_id: str) -> tuple[Record, str | None]:
        """The record with this id, decrypted, and its ETag."""
        answer = await self._ask("GET", reference("records", record_id))
        return answer.convert(Record), answer.headers.get("ETag")

    async def sealed_record(self, record_id: str) -> dict[str, Any]:
        """The record with this id, as the API stores it."""
        params = {"sealed": "true"}
        answer = await self._ask("GET", reference("records", record_id), params=params)
        return answer.convert(dict[str, Any])

    async def decrypt(self, sealed: Sequence[Mapping[str, Any]]) -> list[Record]:
        """Decrypt up to 1000 sealed records."""
        answer = await self._ask("POST", "/api/records/decrypt/", sealed, repeatable=True)
        return answer.convert(list[Record])

    async def aggregate(
        self, /, schema: str, measures: Sequence[Mapping[str, Any]], **members: Any
    ) -> Aggregate | GroupedAggregate:
        """Measures of the records that a condition selects, by groups if there is ``group_by``.

        Args:
            members: ``where``, ``group_by``, ``limit``, ``order``, see docs/http-api.md; None
                values are left out.
        """
        body = {"schema": schema, "measures": list(measures), **_given(members)}
        answer = await self._ask("POST", "/api/records/aggregate/", body, repeatable=True)
        if body.get("group_by"):
            return answer.convert(GroupedAggregate)
        return answer.convert(Aggregate)

    async def explain(self, /, schema: str, **members: Any) -> Explanation:
        """The cost of a search or an aggregate, which is answered for it.

        Args:
            members: of the question, see docs/http-api.md; None values are left out.
        """
        body = {"schema": schema, **_given(members)}
        answer = await self._ask("POST", "/api/records/explain/", body, repeatable=True)
        return answer.convert(Explanation)

    async def explain_nothing(self, schema: str, where: Mapping[str, Any] | None) -> Reasons:
        """The effect of each comparison of a condition alone.

        Args:
            where: as for :meth:`search`; None selects all records without a comparison.
        """
        body = {"schema": schema, **_given({"where": where})}
        answer = await self._ask("POST", "/api/records/why/", body, repeatable=True)
        return answer.convert(Reasons)

    async def search_dataset(
        self, dataset: str, where: Mapping[str, Any] | None = None, *, limit: int = 10
    ) -> list[FoundIn]:
        """Search every schema of a dataset with one condition, in the order of the schemas' ids.

        Args:
            dataset: its path.
            limit: maximum records per schema, up to 100.
        """
        found: list[FoundIn] = []
        cursor: str | None = None
        while True:
            body = _given({"where": where, "limit": limit, "cursor": cursor})
            answer = await self._ask("POST", f"{dataset}search/", body, repeatable=True)
            page = answer.convert(FoundInPage)
            found += page.results
            if page.next_cursor is None or page.next_cursor == cursor:
                return found
            cursor = page.next_cursor

    def export(
        self, /, schema: str, form: str = "ndjson", **members: Any
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Every record that a condition selects, as NDJSON or CSV, streamed in pieces.

        An interrupted export raises an error; discard the data received before it.

        Args:
            members: ``where``, ``order_by``, ``fields``, ``safe_cells``, ``with_schema_id``; None
                values are left out.
        """
        body = {"schema": schema, "format": form, **_given(members)}
        # A sorted export fetches all of its records before it sends the first.
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
        """Columns of the records that a condition selects, as an Arrow stream, in pieces. All are
        of one version of the log, which the schema's metadata has as ``log_version``.

        An interrupted stream raises an error; discard the data received before it.

        Args:
            members: ``limit``, ``offset`` and ``order_by``, if the first records are enough; None
                values are left out.
        """
        given = _given({"where": where, **members})
        return self._transport.stream(
            "POST",
            "/api/records/columns/",
            data=encode({"schema": schema, "fields": list(fields), **given}),
            headers={"Content-Type": "application/json"},
        )

    async def change_record(
        self,
        record_id: str,
        data: Mapping[str, Any],
        *,
        replace: bool = False,
        etag: str | None = None,
    ) -> tuple[UpdatedRecord, str | None]:
        """Change the fields in ``data``, where None removes a field; or replace all, with
        ``replace``. Returns the record and its new ETag.

        Args:
            etag: change the record only while this is its ETag.

        Raises:
            PreconditionFailed: it has another one.
        """
        method = "PUT" if replace else "PATCH"
        path = reference("records", record_id)
        answer = await self._ask(method, path, {"data": data}, headers=if_match(etag))
        return answer.convert(UpdatedRecord), answer.headers.get("ETag")

    async def delete_record(self, record_id: str, *, etag: str | None = None) -> None:
        """Delete a record; ``etag`` as for :meth:`change_record`."""
        await self._ask("DELETE", reference("records", record_id), headers=if_match(etag))

    async def delete_matching(self, schema: str, where: Mapping[str, Any], *, confirm: int) -> int:
        """Delete every record that a condition selects; returns their number.

        Args:
            confirm: the expected number.

        Raises:
            Conflict: ``confirm_count``; the number differs now, and nothing is deleted.
        """
        answer = await self._ask(
            "POST",
            "/api/records/delete/",
            {"schema": schema, "where": where},
            params={"confirm": str(confirm)},
        )
        return answer.convert(DeletedCount).deleted


def tell_rounding(counts: Mapping[str, int]) -> str:
    """A sentence with the number of rounded values by field; empty if there are none."""
    counted = ", ".join(f"{count:,} of {name}" for name, count in counts.items() if count)
    return (
        f"values were rounded to the decimals that the schema keeps: {counted}" if counted else ""
    )


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}

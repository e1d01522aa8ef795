"""Records beyond storing and searching: aggregate, export, change, delete and erase.

Erasing removes deleted data from the database, the index and the proxy's caches, at once or by the
retention rule of the schema's definition.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any

import msgspec

from encrypted_records import runtime
from encrypted_records.client.proxy.connection import Connection, convert, encode
from encrypted_records.client.transport import ANSWER_SECONDS
from encrypted_records.errors import ErsError
from encrypted_records.model import strict_json
from encrypted_records.model.ids import reference
from encrypted_records.model.queries import MAX_LIMIT

#: Maximum silence of a sorted export: a proxy fetches some thousand records a second.
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
        # Without records, because a repr may end up in a log.
        return f"<{type(self).__name__} {self.slug}: {self.count}>"


class _FoundPage(msgspec.Struct):
    next_cursor: str | None
    results: list[FoundIn]


class Records(Connection):
    async def upsert(
        self, schema: str, records: Sequence[Mapping[str, Any]], by: Sequence[str]
    ) -> list[Upserted]:
        """Store at most 100 records, each replacing the record with the same values of ``by``, if
        any: all of them, or on any error none.

        Args:
            by: the fields of a unique set.
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
        async for record in self._list("/api/records/", dict[str, Any], **filters):
            yield record
            count += 1
            if count == limit:
                return

    async def aggregate(
        self, /, schema: str, measures: Sequence[Mapping[str, Any]], **members: Any
    ) -> Mapping[str, Any]:
        """Measures of the records that a condition selects, optionally by groups.

        Args:
            members: ``where``, ``group_by``, ``limit``, ``order``, see docs/http-api.md; None
                values are left out.
        """
        body = {"schema": schema, "measures": list(measures), **_said(members)}
        answer: Mapping[str, Any] = await self._ask("POST", "/api/records/aggregate/", body)
        return answer

    async def explain_nothing(
        self, schema: str, where: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        """The effect of each comparison of a condition alone: ``records``, ``count`` and
        ``comparisons``, see docs/http-api.md.

        Args:
            where: as for :meth:`search`; None selects all records without a comparison.
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
            limit: maximum records per schema, up to 100.
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
        """Every record that a condition selects, as NDJSON or CSV, streamed in pieces.

        An interrupted export raises an error; discard the data received before it.

        Args:
            members: ``where``, ``order_by``, ``fields``, ``safe_cells``, ``with_schema_id``; None
                values are left out.
        """
        body = {"schema": schema, "format": form, **_said(members)}
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
        """Change the fields in ``data``, where None removes a field; or replace all, with
        ``replace``.
        """
        method = "PUT" if replace else "PATCH"
        path = reference("records", record_id)
        record: Mapping[str, Any] = await self._ask(method, path, {"data": data})
        return record

    async def delete_record(self, record_id: str) -> None:
        await self._ask("DELETE", reference("records", record_id))

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
        return int(answer["deleted"])


def tell_rounding(counts: Mapping[str, int]) -> str:
    """A sentence with the number of rounded values by field; empty if there are none."""
    told = ", ".join(f"{count:,} of {name}" for name, count in counts.items() if count)
    return f"values were rounded to the decimals that the schema keeps: {told}" if told else ""


def _said(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


#: The index is merged first, which takes minutes for 2**24 records on a slow machine.
ERASE_SECONDS = 3600.0
#: How long to wait for bytes to be erased, and the first and longest polling interval.
WAIT_SECONDS, LOOK_SECONDS, MOST_LOOK_SECONDS = 300.0, 0.5, 5.0
_JSON = {"Content-Type": "application/json"}


class Erasures(Connection):
    async def erasure_cost(self, record_id: str) -> list[dict[str, Any]]:
        """The cost of erasing a record: the number of index segments of its schema to rewrite, and
        of their rows. Nothing is changed.
        """
        path = reference("records", record_id)
        found = await self._ask("DELETE", path, params={"erase": "true", "dry_run": "true"})
        costs: list[dict[str, Any]] = found["costs"]
        return costs

    async def erase_record(self, record_id: str) -> dict[str, Any]:
        """Delete a record and erase it; returns the receipt, see docs/http-api.md."""
        return await self._erase("DELETE", reference("records", record_id), {"erase": "true"})

    async def erase_schema(self, schema: str) -> dict[str, Any]:
        """Erase all deleted and replaced records of a schema, given by its path; returns the
        receipt.
        """
        return await self._erase("POST", f"{schema}erasure/", {})

    async def look_at_erasure(self, schema: str, *, counts: bool = True) -> dict[str, Any]:
        """The remains of deleted and replaced records.

        Args:
            counts: whether to count them; otherwise the answer only has the API's progress.
        """
        params = None if counts else {"counts": "false"}
        found: dict[str, Any] = await self._ask("GET", f"{schema}erasure/", params=params)
        return found

    async def erase_subject(
        self, dataset: str, field: str, value: object, *, confirm: int | None = None
    ) -> dict[str, Any]:
        """Delete and erase every record of a dataset with a value; returns the receipt.

        Args:
            dataset: its path.
            confirm: the expected number of records.

        Raises:
            Conflict: ``confirm_count``; the number differs, and the message gives it.
        """
        params = {} if confirm is None else {"confirm": str(confirm)}
        body = {"field": field, "value": value}
        return await self._erase("POST", f"{dataset}erase/", params, body)

    async def count_subject(self, dataset: str, field: str, value: object) -> dict[str, Any]:
        """The number of records that :meth:`erase_subject` would delete, in total and for each
        schema.
        """
        found: dict[str, Any] = await self._ask(
            "POST",
            f"{dataset}erase/",
            {"field": field, "value": value},
            params={"dry_run": "true"},
            repeatable=True,
        )
        return found

    async def look_at_keys(self, dataset: str) -> dict[str, Any]:
        """The epochs of a dataset's keys, and the schemas with records under older epochs, as
        docs/http-api.md describes them. Nothing is changed.

        Args:
            dataset: its path.

        Raises:
            NotAllowed: ``owners_only``.
        """
        found: dict[str, Any] = await self._ask(
            "POST", f"{dataset}forget/", {"dry_run": True}, repeatable=True
        )
        return found

    async def forget_keys(self, dataset: str) -> dict[str, Any]:
        """Forget a dataset's older keys, and wait until the re-encrypted data is erased; returns
        the same as :meth:`look_at_keys` afterwards.

        ``forgotten`` is false if data is not erased after five minutes: it will be erased later,
        and the call can then be repeated.

        Raises:
            Conflict: ``epoch_in_use``; data is sealed under an older key, or is being read.
                ``nothing_to_forget``, ``epoch_moved``.
            NotAllowed: ``owners_only``.
        """
        until, pause = runtime.monotonic() + WAIT_SECONDS, LOOK_SECONDS
        while True:
            answer = await self._transport.request(
                "POST", f"{dataset}forget/", data=encode({}), headers=_JSON, timeout=ERASE_SECONDS
            )
            found: dict[str, Any] = strict_json.loads(answer.body)
            if found["forgotten"] or runtime.monotonic() >= until:
                return found
            await runtime.sleep(pause)
            pause = min(pause * 1.5, MOST_LOOK_SECONDS)

    async def _erase(
        self, method: str, path: str, params: Mapping[str, str], body: Any = None
    ) -> dict[str, Any]:
        answer = await self._transport.request(
            method,
            path,
            data=None if body is None else encode(body),
            headers={} if body is None else _JSON,
            params=params,
            timeout=ERASE_SECONDS,
        )
        receipt: dict[str, Any] = strict_json.loads(answer.body)
        await self._see_through(receipt)
        return receipt

    async def _see_through(self, receipt: dict[str, Any]) -> None:
        """Wait until the data of a receipt is erased, except data under holds, and record that in
        the receipt. The proxy itself waits for less time than the timeouts of front-end servers.
        """
        until, pause = runtime.monotonic() + WAIT_SECONDS, LOOK_SECONDS
        for schema in receipt.get("schemas", []):
            while (
                not schema["gone"] and not schema["left"]["holds"] and runtime.monotonic() < until
            ):
                await runtime.sleep(pause)
                pause = min(pause * 1.5, MOST_LOOK_SECONDS)
                try:
                    looked = await self.look_at_erasure(schema["schema"], counts=False)
                    if looked["api"]["done"] >= schema["version"] or looked["api"]["holds"]:
                        schema["left"] = (await self.look_at_erasure(schema["schema"]))["api"]
                        schema["gone"] = schema["left"]["done"] >= schema["version"]
                except ErsError:
                    # The record is deleted, but not erased yet: the receipt says both.
                    break
        if "gone" in receipt:
            receipt["gone"] = all(schema["gone"] for schema in receipt["schemas"])


#: The first run reads the ids of all records, and many may be deleted.
RETENTION_SECONDS = 900.0


class Retentions(Connection):
    async def look_at_retention(self, schema: str) -> dict[str, Any]:
        """The number of ``records`` of a schema, named by its path, whose retention period has
        ended: those from days before ``before``. ``retention`` is the rule, None if there is none.
        ``held`` counts further records that are kept because the proxy's clock jumped ahead;
        ``doubt`` gives the reason.
        """
        return await self._retention("GET", schema)

    async def carry_out_retention(
        self, schema: str, *, clock_is_right: bool = False
    ) -> dict[str, Any]:
        """Delete expired records; returns how many were ``deleted``, and how many are ``held`` back
        because the proxy's clock jumped ahead; ``doubt`` gives the reason.

        Args:
            clock_is_right: delete those held back, too, because the clock is right.

        Raises:
            Conflict: ``no_retention``, ``clock_wrong``; nothing was deleted.
            NotAllowed: ``not_writer``.
        """
        return await self._retention(
            "POST", schema, {"clock_is_right": "true"} if clock_is_right else {}
        )

    async def _retention(
        self, method: str, schema: str, params: Mapping[str, str] = MappingProxyType({})
    ) -> dict[str, Any]:
        answer = await self._transport.request(
            method, f"{schema}retention/", params=params, timeout=RETENTION_SECONDS
        )
        found: dict[str, Any] = strict_json.loads(answer.body)
        return found

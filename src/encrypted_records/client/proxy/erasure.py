"""Erase records: a single one, those of a schema or of a person, or by a retention rule; and forget
older keys.

Erasing removes deleted data from the database, the index and the proxy's caches.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from encrypted_records import runtime
from encrypted_records.client.proxy.connection import Connection, T, encode, if_match
from encrypted_records.errors import ErsError
from encrypted_records.model.ids import reference
from encrypted_records.model.resources import Count, ErasureProgress, ErasureState, SchemaPath


class SchemaErasure(msgspec.Struct, frozen=True):
    """The erasure of a schema.

    Attributes:
        version: version of the log up to which data that was deleted or changed is erased.
        log_digest: digest of the log up to there, in hexadecimal.
        merged_rows: number of rows of the index that were written again.
        gone: whether nothing of this data is left.
    """

    schema: SchemaPath
    version: Count
    log_digest: str
    merged_rows: Count
    gone: bool
    left: ErasureState


class SchemaCount(msgspec.Struct, frozen=True):
    """A number of records of a schema."""

    schema: SchemaPath
    records: Count


class MatchingCounts(msgspec.Struct, frozen=True):
    """Records of a dataset with a value, in total and for each schema."""

    records: Count
    counts: list[SchemaCount]


class ErasedData(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The receipt of an erasure; it contains no value.

    Attributes:
        deleted: number of records that were deleted for it.
        records: the same number, if the value of a person was erased.
        counts: number of records of a person in each schema.
        gone: whether nothing is left anywhere.
    """

    deleted: Count | None = None
    records: Count | None = None
    counts: list[SchemaCount] | None = None
    gone: bool
    schemas: list[SchemaErasure]


class SchemaCost(msgspec.Struct, frozen=True):
    """The cost of an erasure: number of index segments of a schema to rewrite, and of their
    rows."""

    schema: SchemaPath
    segments: Count
    rows: Count


class ErasureCosts(msgspec.Struct, frozen=True):
    """The cost of an erasure, for each schema."""

    costs: list[SchemaCost]


class IndexLeft(msgspec.Struct, frozen=True):
    """Remains of deleted or changed records in an index.

    Attributes:
        segments: number of segments with their keys.
        rows: number of such rows.
        since: time of the oldest, in milliseconds since 1970.
    """

    segments: Count
    rows: Count
    since: Count | None


class ErasureLook(msgspec.Struct, frozen=True):
    """Remains of deleted or changed records: in the API's tables, and in the index."""

    api: ErasureState
    index: IndexLeft


class ErasureLookBriefly(msgspec.Struct, frozen=True):
    """The API's progress with an erasure."""

    api: ErasureProgress


class RetentionRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule of a definition.

    Attributes:
        days: number of days after which records expire.
        field: the date from which they are counted; by default, the day of storing.
    """

    days: Count
    field: str | None = None


class Retained(msgspec.Struct, frozen=True, kw_only=True):
    """Members of both answers about a retention rule.

    Attributes:
        retention: the rule; None if there is none.
        before: records from days before this one have expired; None without a rule.
        version: version of the log.
        held: number of further records that are kept because the proxy's clock jumped ahead.
        doubt: reason why records are held; None if none are.
    """

    retention: RetentionRule | None
    before: str | None
    version: Count
    held: Count
    doubt: str | None


class ExpiredRecords(Retained, frozen=True, kw_only=True):
    """Records that are past their schema's retention period."""

    records: Count


class DeletedExpired(Retained, frozen=True, kw_only=True):
    """The number of expired records that were deleted."""

    deleted: Count


class KeysOfSchema(msgspec.Struct, frozen=True):
    """The keys of a schema's records; ``present`` is whether all are under the current key."""

    schema: SchemaPath
    records: Count
    present: bool


class KeysOfDataset(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The epochs of a dataset's keys.

    Attributes:
        epoch: the current epoch.
        oldest: the oldest epoch that is not forgotten.
        forgotten: whether there are older epochs, and all of them are forgotten.
        absent: names of schemas that were signed and that the API does not show.
        erasing: present if re-encrypted data is not erased yet.
    """

    epoch: Count
    oldest: Count
    forgotten: bool
    schemas: list[KeysOfSchema]
    absent: list[str]
    erasing: ErasedData | None = None


#: The index is merged first, which takes minutes for 2**24 records on a slow machine.
ERASE_SECONDS = 3600.0
#: How long to wait for bytes to be erased, and the first and longest polling interval.
WAIT_SECONDS, POLL_INTERVAL, MAX_POLL_INTERVAL = 300.0, 0.5, 5.0
_JSON = {"Content-Type": "application/json"}


class Erasures(Connection):
    async def erasure_cost(self, record_id: str) -> list[SchemaCost]:
        """The cost of erasing a record: the number of index segments of its schema to rewrite, and
        of their rows. Nothing is changed.
        """
        path = reference("records", record_id)
        found = await self._ask("DELETE", path, params={"erase": "true", "dry_run": "true"})
        return found.convert(ErasureCosts).costs

    async def erase_record(self, record_id: str, *, etag: str | None = None) -> ErasedData:
        """Delete a record and erase it; with ``etag``, only while this is its ETag."""
        path = reference("records", record_id)
        return await self._erase("DELETE", path, {"erase": "true"}, headers=if_match(etag))

    async def erase_schema(self, schema: str) -> ErasedData:
        """Erase all deleted and replaced records of a schema, given by its path."""
        return await self._erase("POST", f"{schema}erasure/", {})

    async def look_at_erasure(self, schema: str) -> ErasureLook:
        """The remains of deleted and replaced records."""
        return (await self._ask("GET", f"{schema}erasure/")).convert(ErasureLook)

    async def erasure_progress(self, schema: str) -> ErasureProgress:
        """The API's progress with an erasure, without the counts, which take longer."""
        found = await self._ask("GET", f"{schema}erasure/", params={"counts": "false"})
        return found.convert(ErasureLookBriefly).api

    async def erase_subject(
        self, dataset: str, field: str, value: object, *, confirm: int | None = None
    ) -> ErasedData:
        """Delete and erase every record of a dataset with a value.

        Args:
            dataset: its path.
            confirm: the expected number of records.

        Raises:
            Conflict: ``confirm_count``; the number differs, and the message gives it.
        """
        params = {} if confirm is None else {"confirm": str(confirm)}
        body = {"field": field, "value": value}
        return await self._erase("POST", f"{dataset}erase/", params, body)

    async def count_subject(self, dataset: str, field: str, value: object) -> MatchingCounts:
        """The number of records that :meth:`erase_subject` would delete, in total and for each
        schema.
        """
        found = await self._ask(
            "POST",
            f"{dataset}erase/",
            {"field": field, "value": value},
            params={"dry_run": "true"},
            repeatable=True,
        )
        return found.convert(MatchingCounts)

    async def look_at_keys(self, dataset: str) -> KeysOfDataset:
        """The epochs of a dataset's keys, and the schemas with records under older epochs. Nothing
        is changed.

        Args:
            dataset: its path.

        Raises:
            NotAllowed: ``owners_only``.
        """
        found = await self._ask("POST", f"{dataset}forget/", {"dry_run": True}, repeatable=True)
        return found.convert(KeysOfDataset)

    async def forget_keys(self, dataset: str) -> KeysOfDataset:
        """Forget a dataset's older keys, and wait until the re-encrypted data is erased; returns
        the same as :meth:`look_at_keys` afterwards.

        ``forgotten`` is false if data is not erased after five minutes: it will be erased later,
        and the call can then be repeated.

        Raises:
            Conflict: ``epoch_in_use``; data is sealed under an older key, or is being read.
                ``nothing_to_forget``, ``epoch_moved``.
            NotAllowed: ``owners_only``.
        """
        until, pause = runtime.monotonic() + WAIT_SECONDS, POLL_INTERVAL
        while True:
            answer = await self._transport.request(
                "POST", f"{dataset}forget/", data=encode({}), headers=_JSON, timeout=ERASE_SECONDS
            )
            found = answer.convert(KeysOfDataset)
            if found.forgotten or runtime.monotonic() >= until:
                return found
            await runtime.sleep(pause)
            pause = min(pause * 1.5, MAX_POLL_INTERVAL)

    async def _erase(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: Any = None,
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> ErasedData:
        answer = await self._transport.request(
            method,
            path,
            data=None if body is None else encode(body),
            headers=headers if body is None else {**headers, **_JSON},
            params=params,
            timeout=ERASE_SECONDS,
        )
        receipt = answer.convert(ErasedData)
        # The proxy itself waits for less time than the timeouts of front-end servers.
        until = runtime.monotonic() + WAIT_SECONDS
        schemas = [await self._see_through(schema, until) for schema in receipt.schemas]
        gone = all(schema.gone for schema in schemas)
        return msgspec.structs.replace(receipt, schemas=schemas, gone=gone)

    async def _see_through(self, schema: SchemaErasure, until: float) -> SchemaErasure:
        """Wait until a schema's data is erased, except data under holds; what is left then."""
        pause = POLL_INTERVAL
        while not schema.gone and not schema.left.holds and runtime.monotonic() < until:
            await runtime.sleep(pause)
            pause = min(pause * 1.5, MAX_POLL_INTERVAL)
            try:
                progress = await self.erasure_progress(schema.schema)
                if progress.done >= schema.version or progress.holds:
                    left = (await self.look_at_erasure(schema.schema)).api
                    gone = left.done >= schema.version
                    schema = msgspec.structs.replace(schema, left=left, gone=gone)
            except ErsError:
                # The record is deleted, but not erased yet: the receipt says both.
                break
        return schema


#: The first run reads the ids of all records, and many may be deleted.
RETENTION_SECONDS = 900.0


class Retentions(Connection):
    async def look_at_retention(self, schema: str) -> ExpiredRecords:
        """The number of records of a schema, named by its path, whose retention period has
        ended.
        """
        return await self._retention("GET", schema, ExpiredRecords)

    async def carry_out_retention(
        self, schema: str, *, clock_is_right: bool = False
    ) -> DeletedExpired:
        """Delete expired records.

        Args:
            clock_is_right: delete those held back, too, because the clock is right.

        Raises:
            Conflict: ``no_retention``, ``clock_wrong``; nothing was deleted.
            NotAllowed: ``not_writer``.
        """
        params = {"clock_is_right": "true"} if clock_is_right else {}
        return await self._retention("POST", schema, DeletedExpired, params)

    async def _retention(
        self,
        method: str,
        schema: str,
        kind: type[T],
        params: Mapping[str, str] = MappingProxyType({}),
    ) -> T:
        answer = await self._transport.request(
            method, f"{schema}retention/", params=params, timeout=RETENTION_SECONDS
        )
        return answer.convert(kind)

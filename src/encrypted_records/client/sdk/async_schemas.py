"""Schemas, searches in them, their records and jobs: :class:`AsyncSchema` and what it leads to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic

import msgspec

from encrypted_records import errors
from encrypted_records.client.proxy.changes import Changes
from encrypted_records.client.proxy.connection import ShownSchema, several
from encrypted_records.client.proxy.erasure import DeletedExpired, ErasedData, ExpiredRecords
from encrypted_records.client.proxy.jobs import JobProgress, OnConflict
from encrypted_records.client.proxy.records import Reasons, SearchPage
from encrypted_records.client.proxy.schema_logs import SchemaChange
from encrypted_records.client.proxy.transport import explain
from encrypted_records.client.sdk import condition_language, rows
from encrypted_records.client.sdk.condition_language import (
    Where,
    condition,
    list_fields,
    parse_group,
)
from encrypted_records.client.sdk.event_loop import AsyncLink
from encrypted_records.client.sdk.files import in_words_of_python, job_bar, path_of, require_certain
from encrypted_records.client.sdk.names import Placed
from encrypted_records.client.sdk.rows import (
    AsyncRows,
    Row,
    async_pieces,
    check_record_id,
    read_answer,
    require_etag,
    warn_of_rounding,
)
from encrypted_records.model import strict_json
from encrypted_records.model.ids import reference
from encrypted_records.model.queries import MAX_LIMIT
from encrypted_records.model.samples import FileReading

#: Flaws that an error about a job lists.
_FLAWS = 1000


class AsyncJob:
    """A batch job. It continues when the client disconnects."""

    def __init__(self, link: AsyncLink, id: str) -> None:  # noqa: A002
        self._link = link
        self.id = id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    async def status(self) -> JobProgress:
        return await self._link.proxy.job(self.id)

    async def watch(self) -> AsyncIterator[JobProgress]:
        """Yield the job's present progress, each change, and the final one."""
        async for progress in self._link.proxy.watch(self.id):
            yield progress

    async def wait(self, *, progress: bool = False) -> JobProgress:
        """Wait until the job has completed; returns its final state, and warns
        (:class:`.ValuesRounded`) if values were rounded.

        Args:
            progress: show a bar on a terminal.

        Raises:
            InvalidRecords: rows are invalid; ``flaws`` lists them.
            Conflict: ``not_unique``; other records have values of unique fields; ``flaws`` lists
                them.
            ErsError: the job failed for another reason.
        """
        with job_bar(shown=progress) as move:
            async for state in self.watch():
                move(state.processed, state.total or None)
        if state.status == "completed":
            try:
                rounded = (await self._link.proxy.job_about(self.id)).rounded
            except errors.Unavailable:
                # Its rows are stored: an error would have them sent again.
                warn_of_rounding(None)
            else:
                warn_of_rounding(rounded)
            return state
        flaws = await self.flaws()
        if {flaw.code for flaw in flaws} == {"not_unique"}:
            raise explain(
                errors.Conflict(
                    "rows have unique values that other records already have; nothing was stored",
                    code="not_unique",
                    flaws=flaws,
                )
            )
        if flaws:
            raise explain(
                errors.InvalidRecords("rows were rejected, and nothing was stored", flaws=flaws)
            )
        raise errors.ErsError(state.error or "the job failed", code="job_failed")

    async def flaws(self) -> tuple[errors.Flaw, ...]:
        """Errors of rows, up to the first thousand."""
        flaws = []
        async for row in self._link.proxy.job_errors(self.id):
            flaws.append(errors.Flaw(row.code, row.detail, row=row.row, field=row.field))
            if len(flaws) == _FLAWS:
                break
        return tuple(flaws)

    async def cancel(self) -> None:
        """Cancel the job: nothing of it is stored. A job that has ended is deleted from the
        list.
        """
        await self._link.proxy.cancel_job(self.id)


class AsyncRecord(Mapping[str, Any]):
    """A record, opened: field names and values.

    Attributes:
        data: the same.
        schema: its path.
        etag: of the record as it was read or changed; None if a search found it.
    """

    def __init__(
        self,
        link: AsyncLink,
        id: str,  # noqa: A002
        schema: str,
        data: Mapping[str, Any],
        etag: str | None = None,
    ) -> None:
        self._link = link
        self.id = id
        self.schema = schema
        self.data = data
        self.etag = etag

    def __repr__(self) -> str:
        # Without values: what is shown in passing may end in a log.
        return f"<{type(self).__name__} {self.id}: {', '.join(self.data)}>"

    def __getitem__(self, field: str) -> Any:
        return self.data[field]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    @property
    def url(self) -> str:
        """The path of the record."""
        return reference("records", self.id)

    async def update(
        self, data: Mapping[str, Any], *, replace: bool = False, unchanged: bool = False
    ) -> None:
        """Change the fields in ``data``; None removes a field. With ``replace``, change all
        fields.

        Args:
            unchanged: only if nobody has changed the record since it was read by its id, or changed
                here.

        Raises:
            PreconditionFailed: somebody has; nothing is changed.
        """
        etag = require_etag(self.etag) if unchanged else None
        record, self.etag = await self._link.proxy.change_record(
            self.id, data, replace=replace, etag=etag
        )
        self.data = record.data
        warn_of_rounding(record.rounded)

    async def delete(self, *, erase: bool = False, unchanged: bool = False) -> ErasedData | None:
        """Delete the record.

        Args:
            erase: also erase the bytes now, and wait; returns the receipt, whose ``gone`` says
                whether all bytes are erased, and otherwise which are left and who needs them.
            unchanged: as for :meth:`update`.
        """
        etag = require_etag(self.etag) if unchanged else None
        if erase:
            return await self._link.proxy.erase_record(self.id, etag=etag)
        await self._link.proxy.delete_record(self.id, etag=etag)
        return None


class AsyncNamed(Generic[Placed]):
    """The common base of datasets and schemas; ``resource`` is the service's answer."""

    def __init__(self, link: AsyncLink, shown: Placed) -> None:
        self._link = link
        self.resource: Placed = shown

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.slug}>"

    @property
    def id(self) -> str:
        return self.resource.id

    @property
    def members(self) -> Mapping[str, Any]:
        """The object's JSON, as docs/http-api.md describes it."""
        members: Mapping[str, Any] = strict_json.loads(strict_json.encode(self.resource))
        return members

    @property
    def url(self) -> str:
        """The path of the object."""
        return self.resource.url

    @property
    def name(self) -> str:
        return self.resource.name

    @property
    def slug(self) -> str:
        return self.resource.slug

    @property
    def description(self) -> str:
        return self.resource.description

    async def update(
        self, *, name: str | None = None, slug: str | None = None, description: str | None = None
    ) -> None:
        """Change only the given members."""
        self.resource = await self._link.proxy.update(
            self.resource, name=name, slug=slug, description=description
        )

    async def delete(self, *, cascade: bool = False) -> None:
        """Delete the object.

        Args:
            cascade: also delete its content; without this, an object with content is not deleted.
        """
        await self._link.proxy.delete(self.url, cascade=cascade)


class AsyncCare(AsyncNamed[ShownSchema]):
    """The maintenance methods of a schema."""

    async def reseal(self) -> AsyncJob:
        """Re-encrypt all records under the dataset's newest key; returns the job.

        Raises:
            Conflict: ``reseal_under_way``, ``nothing_to_reseal``.
        """
        return AsyncJob(self._link, await self._link.proxy.reseal_schema(self.url))

    async def erase_deleted(self) -> ErasedData:
        """Erase all deleted and changed data now, and wait; returns the receipt, whose ``gone``
        tells whether all of it is erased.
        """
        return await self._link.proxy.erase_schema(self.url)

    async def look_at_retention(self) -> ExpiredRecords:
        """The retention rule of the definition, and the number of records that it would delete now.
        Nothing is deleted.
        """
        return await self._link.proxy.look_at_retention(self.url)

    async def carry_out_retention(self, *, clock_is_right: bool = False) -> DeletedExpired:
        """Delete the records whose retention period has ended; returns how many were deleted, and
        how many are held back because the proxy's clock jumped ahead.

        Proxies do this once a day by themselves, when a user with the right to write searches or
        stores.

        Args:
            clock_is_right: confirm that the clock is right, and delete the held records too.

        Raises:
            Conflict: ``no_retention``, ``clock_wrong``; nothing was deleted.
            NotAllowed: ``not_writer``.
        """
        return await self._link.proxy.carry_out_retention(self.url, clock_is_right=clock_is_right)


class AsyncSchema(AsyncCare):
    """A schema. ``notes`` are remarks about its fields, if it was created from a frame or a
    class.
    """

    def __init__(
        self, link: AsyncLink, shown: ShownSchema, notes: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        super().__init__(link, shown)
        self.notes = notes

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.slug}: {', '.join(self.definition['properties'])}>"

    @property
    def definition(self) -> Mapping[str, Any]:
        return self.resource.definition

    async def change(
        self,
        definition: Mapping[str, Any],
        *,
        renames: Mapping[str, str] | None = None,
        drops: str | Sequence[str] = (),
        replaces: Mapping[str, Any] | None = None,
        dry_run: bool = False,
    ) -> SchemaChange:
        """Change the schema's definition and wait until the change is done; or only report what it
        takes.

        If all records have to be re-encrypted, a job does that; it continues if this call is
        cancelled.

        Args:
            renames: the new name of each renamed field, and its present name.
            drops: present field or fields whose values may be deleted.
            replaces: the definition that the new one was made from, such as ``schema.definition``;
                None accepts any present definition.
            dry_run: report what the change would take and what prevents it, and change nothing.

        Raises:
            Conflict: ``needs_reencryption``; stored records do not fit, nothing has changed.
            PreconditionFailed: the definition has changed since ``replaces``.
            ErsError: the job failed; nothing has changed.
        """
        plan = await self._link.proxy.change_schema(
            *(self.url, definition),
            renames=renames,
            drops=several(drops),
            replaces=replaces,
            dry_run=dry_run,
        )
        if plan.job_id is not None:
            await AsyncJob(self._link, plan.job_id).wait()
            # Titles and descriptions are no part of what was sealed for.
            await self._link.proxy.change_schema(self.url, definition)
            plan = msgspec.structs.replace(plan, applied=True)
        if plan.applied:
            self.resource = await self._link.proxy.read(ShownSchema, self.url)
        return plan

    async def ingest(
        self, rows: AsyncRows, *, skip_invalid: bool = False, progress: bool = False
    ) -> int:
        """Store any number of rows, all or, on any error, none; returns the number of stored rows.

        Up to 100 rows are sent in one request, which is retried under one idempotency key. More
        rows, or rows of more than 15 MiB, become a job, which resumes after an interruption. So no
        row is stored twice. If the source of the rows fails, the job is cancelled.

        Args:
            rows: field names and values; a generator is read while it is sent. Or a frame of pandas
                or Polars, or a table of Arrow, whose missing values are absent.
            skip_invalid: store the good rows where some are bad, instead of nothing.
            progress: show a bar on a terminal.

        Raises:
            InvalidRecords: rows do not fit; ``flaws`` says which.
        """
        few, job = await self._send_rows(rows, direct=not skip_invalid, skip_invalid=skip_invalid)
        if few:
            created = await self._link.proxy.ingest(self.url, few)
            warn_of_rounding([name for record in created for name in record.rounded])
        if job is None:
            return len(few)
        done = await job.wait(progress=progress)
        rejected = (await self._link.proxy.job_about(job.id)).bad_rows if skip_invalid else 0
        return done.total - rejected

    async def upsert(
        self, rows: AsyncRows | Path | str, *, by: str | Sequence[str], progress: bool = False
    ) -> int:
        """Store any number of rows; a row replaces the record with the same values of ``by``. All
        or, on any error, none are stored; returns the number of replaced records.

        Up to 100 rows of up to 15 MiB go in one request; more, and files, become a job.

        Args:
            rows: as for :meth:`ingest`, or the path of a file as for :meth:`upload`.
            by: the field or fields of a unique set of the definition.
            progress: show a bar on a terminal.

        Raises:
            InvalidRecords: rows do not fit; ``flaws`` says which.
            Conflict: ``not_unique``; other rows, or records that are not replaced, have the same
                values of a unique set.
        """
        fields = several(by)
        few: list[Row] = []
        job: AsyncJob | None
        if isinstance(rows, Path | str):
            job = await self.upload(rows, on_conflict="replace", by=fields)
        else:
            few, job = await self._send_rows(rows, on_conflict="replace", by=fields)
        if few:
            stored = await self._link.proxy.upsert(self.url, few, fields)
            warn_of_rounding([name for record in stored for name in record.rounded])
            return len([record for record in stored if record.replaced])
        if job is None:
            return 0
        await job.wait(progress=progress)
        return (await self._link.proxy.job_about(job.id)).replaced

    async def _send_rows(
        self,
        rows: AsyncRows,
        *,
        direct: bool = True,
        skip_invalid: bool = False,
        on_conflict: OnConflict | None = None,
        by: str | Sequence[str] = (),
    ) -> tuple[list[Row], AsyncJob | None]:
        """Send rows, and begin the job that stores them. If they fit in one request, they are
        returned instead, and nothing is sent.

        If the rows cannot all be sent, their upload and its job end.

        Args:
            direct: whether they may be returned.
        """
        upload, offset = None, 0
        try:
            async for piece in async_pieces(
                rows, self._link.proxy.limits.rows_bytes, self.definition
            ):
                if piece.rows and direct:
                    return piece.rows, None
                if upload is None and not piece.body:
                    return [], None
                if upload is None:
                    upload = await self._link.proxy.begin_stream(
                        "rows.ndjson",
                        schema=self.id,
                        skip_invalid=skip_invalid,
                        on_conflict=on_conflict,
                        by=by,
                    )
                offset = await self._link.proxy.append(
                    upload[0], offset, piece.body, is_last=piece.is_last
                )
        except BaseException:  # also of the caller's generator, and Ctrl-C
            if upload is not None:
                await self._link.proxy.abandon_upload(upload[0])
            raise
        assert upload is not None  # the last piece is always there
        return [], AsyncJob(self._link, upload[1])

    async def upload(
        self,
        path: Path | str,
        *,
        skip_invalid: bool = False,
        batch_size: int | None = None,
        on_conflict: OnConflict | None = None,
        by: str | Sequence[str] = (),
        again: bool = False,
    ) -> AsyncJob:
        """Upload a file of CSV, JSON or JSON lines, of any size, or a pipe, and begin the job that
        stores it.

        After a broken connection, the upload resumes.

        Args:
            skip_invalid, batch_size, on_conflict, by: as for :meth:`Jobs.upload`.
            again: store the file even if a job of the last thirty days has stored it.

        Raises:
            Conflict: ``uploaded_before``; the named job stores this file, or has stored it. Not
                raised with ``again``, or if ``on_conflict`` is ``skip`` or ``replace``. The job of
                a pipe fails instead.
        """
        job = await self._link.proxy.upload_file(
            path_of(path),
            schema=self.id,
            batch_size=batch_size,
            skip_invalid=skip_invalid,
            on_conflict=on_conflict,
            by=by,
            again=again,
        )
        return AsyncJob(self._link, job)

    async def import_file(
        self,
        path: Path | str,
        *,
        reading: Mapping[str, Any] | None = None,
        kept: bool = True,
        keep: bool = False,
        skip_invalid: bool = False,
        again: bool = False,
        progress: bool = False,
    ) -> AsyncImportedFile:
        """Store the rows of a file, read like the schema's previous file, as ``ers import FILE
        --schema SCHEMA`` does. Without a previous file, text fields get the cells as written, and
        the reading is kept for the next file.

        Args:
            reading: as for :meth:`.AsyncDataset.import_file`; it overrides the kept reading.
            kept: use the schema's kept reading, if there is one.
            keep: keep the reading of this file for the next files, instead of the previous reading.
            skip_invalid, progress: as for :meth:`.AsyncDataset.import_file`.
            again: as for :meth:`upload`.

        Raises:
            ReadingRefused: also if the file differs from the previous file in ways that may change
                values; the hint is the ``reading`` that accepts it.
            ReadingQuestion, InvalidRecords: as :meth:`.AsyncDataset.import_file`.
            Conflict: ``uploaded_before``.
        """
        where = path_of(path)
        try:
            found = await self._link.proxy.look_at_file(where, reading, schema=self.id, kept=kept)
        except errors.ReadingRefused as error:
            raise in_words_of_python(error) from None
        require_certain(found)
        return await self.store_file(
            where,
            found,
            keeps=keep or (kept and not found.kept),
            skip_invalid=skip_invalid,
            again=again,
            progress=progress,
        )

    async def store_file(
        self,
        path: Path,
        found: FileReading,
        *,
        keeps: bool,
        skip_invalid: bool,
        again: bool,
        progress: bool,
    ) -> AsyncImportedFile:
        """Store the rows of a file with a detected reading, and wait.

        Args:
            keeps: keep the reading for the schema's next files, once the rows are stored.
        """
        job = AsyncJob(
            self._link,
            await self._link.proxy.upload_file(
                path,
                schema=self.id,
                skip_invalid=skip_invalid,
                again=again,
                reading=found.recipe,
            ),
        )
        done = await job.wait(progress=progress)
        rejected = (await self._link.proxy.job_about(job.id)).bad_rows if skip_invalid else 0
        stored = done.total - rejected
        if keeps and stored:
            await self._link.proxy.keep_reading(self.id, found.reading)
        return AsyncImportedFile(self, job, stored, rejected, found)

    def search(
        self,
        where: Where = None,
        *,
        order_by: str | Sequence[str] | None = None,
        fields: str | Sequence[str] | None = None,
        limit: int | None = None,
    ) -> AsyncSearch:
        """Search the records of the schema; the request is sent when results are first read.

        Args:
            where: see :data:`Where`; None selects all.
            order_by: a field name, or several; a leading ``-`` means descending order.
            fields: the field or fields to return; None returns all.
            limit: maximum number of records; None is all.

        Raises:
            InvalidQuery: an expression cannot be understood, or the limit is below 0.
        """
        if limit is not None and limit < 0:
            raise errors.InvalidQuery("the limit is below 0", hint="use None for all records")
        return AsyncSearch(self, where, order_by, fields, limit)

    async def get(self, id: str) -> AsyncRecord:  # noqa: A002
        """The record with this id.

        Raises:
            NotFound: this schema has no such record.
        """
        check_record_id(id)
        record, etag = await self._link.proxy.record(id)
        if record.schema != self.url:
            raise errors.NotFound("there is no such record in this schema")
        return AsyncRecord(self._link, record.id, record.schema, record.data, etag)

    async def count(self, where: Where = None) -> int:
        """The number of matching records. No record is opened."""
        answer = await self._link.proxy.search(self.url, where=condition(where), limit=0)
        return answer.count or 0

    async def why(self, where: Where) -> Reasons:
        """Explain why a condition finds nothing, or little: the result of each comparison alone,
        the results of other spellings, and comparisons that cannot match.
        """
        return await self._link.proxy.explain_nothing(self.url, condition(where))

    async def aggregate(
        self, /, *measures: str, where: Where = None, raw: bool = False, **options: Any
    ) -> Any:
        """Measures of the matching records, computed from the index.

        Returns the result of a single measure; for several measures :class:`.Measures`, which has
        each by its text; with ``group_by`` :class:`.Groups`, which can be converted to a frame.

        Args:
            measures: such as ``"avg(age)"``, ``"percentile(age, 50, 90)"`` or ``"count"``.
            raw: return the answer as described in docs/http-api.md.
            options: ``group_by``, ``order``, ``limit``, as described in docs/http-api.md.
        """
        texts = measures or ("count",)
        parsed = [condition_language.parse_measure(text) for text in texts]
        if isinstance(options.get("group_by"), str):
            options["group_by"] = [options["group_by"]]
        if options.get("group_by"):
            options["group_by"] = [
                parse_group(group) if isinstance(group, str) else group
                for group in options["group_by"]
            ]
        answer = msgspec.to_builtins(
            await self._link.proxy.aggregate(self.url, parsed, where=condition(where), **options),
            builtin_types=(Decimal,),
        )
        return answer if raw else read_answer(answer, texts, options.get("group_by"))

    async def changes(
        self, cursor: str | None = None, *, follow: bool = True
    ) -> AsyncIterator[Changes]:
        """Follow changes of the records as they happen, in batches. A program that applies all of
        them has the same records as a search whenever they are ``current``.

        Args:
            cursor: the cursor of the last applied changes, or ``"now"``; None begins with all
                stored records.
            follow: wait for further changes without end.

        Raises:
            Gone: ``start_again``; drop your copy, and begin without a cursor.
        """
        async for page in self._link.proxy.changes(self.url, cursor, follow=follow):
            yield page

    async def delete_matching(self, where: Mapping[str, Any] | str, *, confirm: int) -> int:
        """Delete the matching records; returns their number.

        Args:
            confirm: the expected number, such as from :meth:`count`; if it differs, nothing is
                deleted.
        """
        query = condition(where) or {}
        return await self._link.proxy.delete_matching(self.url, query, confirm=confirm)


@dataclass(frozen=True)
class AsyncImportedFile:
    """The result of an import: ``stored`` rows are in ``schema``, ``rejected`` rows were invalid;
    ``reading`` describes how the file and its cells were read."""

    schema: AsyncSchema
    job: AsyncJob
    stored: int
    rejected: int
    reading: FileReading


class AsyncSearch:
    """Records that match a condition, fetched page by page while they are read."""

    def __init__(
        self,
        schema: AsyncSchema,
        where: Where,
        order_by: str | Sequence[str] | None,
        fields: str | Sequence[str] | None,
        limit: int | None,
    ) -> None:
        self._link = schema._link
        self._schema = schema
        self._where = condition(where)
        self._order_by = several(order_by)
        self._fields = several(fields)
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[AsyncRecord]:
        cursor, left = None, self._limit
        while left != 0:
            page = await self._page(MAX_LIMIT if left is None else min(left, MAX_LIMIT), cursor)
            for result in page.results:
                yield AsyncRecord(self._link, result.id, result.schema, result.data)
            cursor = page.next_cursor
            left = None if left is None else left - len(page.results)
            if cursor is None:
                return

    async def _page(self, limit: int, cursor: str | None = None) -> SearchPage:
        return await self._link.proxy.search(
            self._schema.url,
            where=self._where,
            order_by=self._order_by,
            fields=self._fields,
            limit=limit,
            cursor=cursor,
            count=False,
        )

    def __repr__(self) -> str:
        # Without values: what is searched for may be somebody's diagnosis.
        by = f" by {fields}" if (fields := list_fields(self._where)) else ""
        most = "" if self._limit is None else f", {self._limit} at most"
        return f"<{type(self).__name__} of {self._schema.slug}{by}{most}>"

    async def first(self) -> AsyncRecord | None:
        """The first record, or None if there is none. No other record is opened."""
        if self._limit == 0:
            return None
        found = (await self._page(1)).results
        return (
            AsyncRecord(self._link, found[0].id, found[0].schema, found[0].data) if found else None
        )

    async def count_all(self) -> int:
        """The number of records in the result. They are counted now, without opening them."""
        answer = await self._link.proxy.search(self._schema.url, where=self._where, limit=0)
        count = answer.count or 0
        return count if self._limit is None else min(count, self._limit)

    async def to_arrow(self) -> Any:
        """All records as a ``pyarrow.Table``, exact; absent values are nulls."""
        return rows.to_arrow(await self._data(), self._schema.definition, self._fields)

    async def to_pandas(self) -> Any:
        """All records as a ``pandas.DataFrame``, with the types that docs/python.md lists; numbers
        with decimals are float64, which may round them."""
        return rows.to_pandas(await self._data(), self._schema.definition, self._fields)

    async def to_polars(self) -> Any:
        """All records as a ``polars.DataFrame``, as exact as :meth:`to_arrow`."""
        return rows.to_polars(await self._data(), self._schema.definition, self._fields)

    async def _data(self) -> list[Mapping[str, Any]]:
        return [record.data async for record in self]

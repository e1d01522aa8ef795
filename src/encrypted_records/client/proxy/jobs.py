"""Batch jobs: any number of records, stored all or none, and their progress."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal, TypedDict, Unpack

import msgspec

from encrypted_records import runtime
from encrypted_records.client.messages import Body
from encrypted_records.client.proxy.connection import Connection, several
from encrypted_records.errors import ApiFailed, Unavailable
from encrypted_records.model.resources import Count, Id, ListPage, Uuid
from encrypted_records.model.samples import Reading

JobState = Literal["uploading", "processing", "completed", "failed"]
#: A job stores the records of an upload, or reseals stored records.
Work = Literal["store", "reseal"]
#: Handling of rows whose values of unique fields another record has.
OnConflict = Literal["fail", "skip", "replace"]

#: Seconds before a watcher reconnects.
_PAUSE_SECONDS = 1.0


class JobProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a job.

    Attributes:
        processed: number of records that are stored so far.
        total: number of records.
        current_batch: from 1 on; 0 before the first.
        error: why the job failed; absent if it did not.
    """

    status: JobState
    processed: Count
    total: Count
    current_batch: Count
    total_batches: Count
    error: str | None = None

    @property
    def has_ended(self) -> bool:
        return self.status in ("completed", "failed")


class BegunJob(msgspec.Struct, frozen=True):
    """A job that has begun."""

    job_id: Uuid


class Job(JobProgress, frozen=True, omit_defaults=True, kw_only=True):
    """A job: its progress, and what else is known of it. Times are in seconds since 1970.

    Attributes:
        file: name of the file, if its sender gave one.
        schemas: ids of the schemas of its records.
        size: bytes of the upload; 0 until it is complete.
        bad_rows: number of rows that are not valid, or are left out because of others' values.
        replaced: number of rows that replaced a record.
        rounded: by field, the number of values stored with fewer decimals than were sent.
        packs: number of pieces of the index of a large job.
        packed: number of those pieces that are built.
        waits: reason why the job is waiting; None if it is not.
        received: time at which all bytes had arrived.
        checked: time at which all rows were checked.
        undone: time at which the user deleted the stored records.
    """

    job_id: Uuid
    work: Work
    file: str | None
    schemas: list[Id]
    size: Count
    bad_rows: Count
    replaced: Count
    rounded: dict[str, Count]
    packs: Count
    packed: Count
    waits: str | None
    created: float
    received: float | None
    checked: float | None
    finished: float | None
    undone: float | None


class JobPage(ListPage[Job], frozen=True):
    """A page of jobs, the newest first."""


class RowError(msgspec.Struct, frozen=True):
    """An error in a row of a job, or of one of its fields; docs/errors.md explains ``code``."""

    row: int | None
    field: str | None
    code: str
    detail: str


class RowErrorPage(ListPage[RowError], frozen=True):
    """A page of the errors of a job's rows; ``rows`` is the number of rows that have any."""

    rows: Count


class InvalidRow(msgspec.Struct, frozen=True):
    """A row that is not valid; ``data`` are its cells by column."""

    row: Count
    data: dict[str, str]


class InvalidRows(msgspec.Struct, frozen=True):
    """The first rows of a job that are not valid."""

    results: list[InvalidRow]


class UnreadCell(msgspec.Struct, frozen=True):
    """A cell that the reading of its file cannot read."""

    row: int | None
    field: str | None
    detail: str


class JobReading(msgspec.Struct, frozen=True, kw_only=True):
    """How the file of a job was read, and how its cells were changed.

    Attributes:
        reading: how the bytes became rows and values.
        rows: number of rows of the file.
        bad_rows: number of rows that are not valid.
        rewritten: by field, the number of cells that are stored in another spelling.
        absent: by field, the texts of cells without a value, and how many there are of each.
        rounded: by field, the number of values stored with fewer decimals than were sent.
        short_rows: number of rows without their last cells.
        valueless_rows: number of rows that are left out because they have no values.
        above: number of rows left out above the table.
        below: number of rows left out below the table.
        unread: the first cells that could not be read.
    """

    reading: Reading
    rows: Count
    bad_rows: Count
    rewritten: dict[str, Count]
    absent: dict[str, dict[str, Count]]
    rounded: dict[str, Count]
    short_rows: Count
    valueless_rows: Count
    above: Count
    below: Count
    unread: list[UnreadCell]


class UnchangedRecords(msgspec.Struct, frozen=True):
    """The number of a job's records that are still as the job stored them."""

    count: Count


class UploadOptions(TypedDict, total=False):
    """How the records of an upload are stored.

    Attributes:
        schema: id or path of the schema of records that name none, and of CSV.
        batch_size: the unit of progress.
        skip_invalid: store the valid rows if some are invalid, instead of nothing.
        on_conflict: handling of rows whose values of unique fields other records have; by default,
            they are invalid.
        by: the fields of a unique set, by which a row finds the record that it replaces.
        again: store them once more, if the same bytes were stored in the schema before.
        reading: how the bytes are read, from ``detect``: the JSON of a recipe.
    """

    schema: str | None
    batch_size: int | None
    skip_invalid: bool
    on_conflict: OnConflict | None
    by: str | Sequence[str]
    again: bool
    reading: bytes | None


class Jobs(Connection):
    async def upload(
        self, body: Body, media_type: str, *, filename: str = "", **options: Unpack[UploadOptions]
    ) -> str:
        """Begin a job with any number of records, in one request; returns its id.

        Args:
            body: bytes, or a stream of them.
            media_type: ``application/json`` (an array of records), ``application/x-ndjson`` (one
                per line) or ``text/csv``.
            filename: name of the source file; only the proxy stores it.
            options: :class:`UploadOptions`; ``again`` is true unless it is given.

        Raises:
            Conflict: ``uploaded_before``, unless ``again`` is true.
        """
        metadata = file_metadata(options, again=True)
        metadata |= {"filename": filename} if filename else {}
        answer = await self._transport.request(
            "POST",
            "/api/jobs/upload/",
            data=body,
            headers={
                "Content-Type": media_type,
                **job_headers(options),
                **upload_metadata(metadata),
            },
            params=target_names(options),
        )
        return answer.convert(BegunJob).job_id

    async def jobs(self) -> AsyncIterator[Job]:
        """The account's jobs, the newest first."""
        async for job in self._list("/api/jobs/", Job):
            yield job

    async def job_about(self, job_id: str) -> Job:
        """A job's progress, and further details of it."""
        return (await self._ask("GET", f"/api/jobs/{job_id}/about/")).convert(Job)

    async def job(self, job_id: str) -> JobProgress:
        answer = await self._transport.request("GET", f"/api/jobs/{job_id}/")
        return answer.convert(JobProgress)

    async def job_errors(self, job_id: str) -> AsyncIterator[RowError]:
        """Errors of rows, in the order of the rows."""
        async for error in self._list(f"/api/jobs/{job_id}/errors/", RowError):
            yield error

    async def job_reading(self, job_id: str) -> JobReading:
        """The reading of a job's file, and the results for its cells.

        Raises:
            NotFound: the job has no reading.
        """
        return (await self._ask("GET", f"/api/jobs/{job_id}/reading/")).convert(JobReading)

    async def cancel_job(self, job_id: str) -> None:
        """Cancel a job, which then stores nothing, or delete a job that has ended."""
        await self._transport.request("DELETE", f"/api/jobs/{job_id}/")

    async def watch(self, job_id: str) -> AsyncIterator[JobProgress]:
        """The job's present progress and its changes up to the last, by WebSocket.

        A broken connection is reopened. Leaving does not affect the job.

        Raises:
            Unavailable: the proxy does not answer, or, once it did, has not answered for as long
                as an upload waits for it.
        """
        pauses: list[float] = []
        while True:
            try:
                progress = await self.job(job_id)
            except Unavailable as error:
                if not pauses:
                    raise
                await self._pause(error.retry_after or pauses.pop(0))
                continue
            pauses = list(self.limits.upload_pauses)
            yield progress
            if progress.has_ended:
                return
            try:
                async for text in self._transport.messages(f"/api/ws/jobs/{job_id}/"):
                    progress = _progress(text)
                    yield progress
                    if progress.has_ended:
                        return
            except Unavailable:
                pass  # a proxy that is gone permanently shows above
            await runtime.sleep(_PAUSE_SECONDS)

    async def wait(self, job_id: str) -> JobProgress:
        """The job's final state."""
        async for progress in self.watch(job_id):
            last = progress
        return last


def job_headers(options: UploadOptions) -> dict[str, str]:
    """The headers with the options of a job."""
    size, on_conflict = options.get("batch_size"), options.get("on_conflict")
    headers = {} if size is None else {"X-Batch-Size": str(size)}
    headers |= {} if on_conflict is None else {"X-On-Conflict": on_conflict}
    return headers | ({"X-On-Invalid": "skip"} if options.get("skip_invalid") else {})


def file_metadata(options: UploadOptions, *, again: bool) -> dict[str, str]:
    """The metadata that say how a file is read, and how bytes are handled that the proxy has stored
    before. Rows that replace others, or are skipped for them, are stored only once in any case.

    Args:
        again: if the options do not say it.
    """
    reading, on_conflict = options.get("reading"), options.get("on_conflict")
    metadata = {} if reading is None else {"reading": reading.decode()}
    is_once = not options.get("again", again) and on_conflict not in ("skip", "replace")
    return metadata | ({"on_repeat": "refuse"} if is_once else {})


def target_names(options: UploadOptions) -> dict[str, str]:
    """The names of the schema, and of the unique set that finds records to replace."""
    schema, by = options.get("schema"), options.get("by")
    names = {} if schema is None else {"schema": schema}
    return names | ({"by": ",".join(several(by))} if by else {})


def upload_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """The header with a file's metadata."""
    pairs = (
        f"{name} {base64.b64encode(text.encode()).decode()}" for name, text in metadata.items()
    )
    return {"Upload-Metadata": ",".join(pairs)} if metadata else {}


def _progress(text: str) -> JobProgress:
    try:
        return msgspec.json.decode(text, type=JobProgress)
    except msgspec.DecodeError:
        raise ApiFailed("the message contains no progress of a job") from None

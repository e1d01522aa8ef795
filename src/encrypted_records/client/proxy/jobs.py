"""Batch jobs: any number of records, stored all or none, and their progress."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from encrypted_records import runtime
from encrypted_records.client.messages import Body
from encrypted_records.client.proxy.connection import Connection, convert
from encrypted_records.errors import ApiFailed, Unavailable

#: Handling of rows whose values of unique fields another record has.
OnConflict = Literal["fail", "skip", "replace"]

#: Seconds before a watcher reconnects.
_PAUSE_SECONDS = 1.0


class JobProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a job; ``error`` is present if it failed."""

    status: str
    processed: int
    total: int
    current_batch: int
    total_batches: int
    error: str | None = None

    @property
    def has_ended(self) -> bool:
        return self.status in ("completed", "failed")


class _Rejected(msgspec.Struct, frozen=True):
    rows: int


class _About(msgspec.Struct, frozen=True):
    replaced: int
    rounded: dict[str, int]


class Jobs(Connection):
    async def upload(
        self,
        body: Body,
        media_type: str,
        *,
        schema: str | None = None,
        batch_size: int | None = None,
        skip_invalid: bool = False,
        on_conflict: OnConflict | None = None,
        by: Sequence[str] = (),
        again: bool = True,
        filename: str = "",
        reading: bytes | None = None,
    ) -> str:
        """Begin a job with any number of records, in one request; returns its id.

        Args:
            body: bytes, or a stream of them.
            media_type: ``application/json`` (an array of records), ``application/x-ndjson`` (one
                per line) or ``text/csv``.
            schema: id or path of the schema of records that name none, and of CSV.
            batch_size: the unit of progress.
            skip_invalid: store the valid rows if some are invalid, instead of nothing.
            on_conflict: handling of rows whose values of unique fields other records have; by
                default, they are invalid.
            by: the fields of a unique set, by which a row finds the record that it replaces.
            again: store them once more, if the same bytes were stored in the schema before.
            filename: name of the source file; only the proxy stores it.
            reading: how the bytes are read, from ``detect``: the JSON of a recipe.

        Raises:
            Conflict: ``uploaded_before``, unless ``again`` is true.
        """
        told = on_repeat(on_conflict, again=again) | ({"filename": filename} if filename else {})
        told |= name_reading(reading)
        answer = await self._transport.request(
            "POST",
            "/api/jobs/upload/",
            data=body,
            headers={
                "Content-Type": media_type,
                **job_headers(batch_size, skip_invalid, on_conflict),
                **upload_metadata(told),
            },
            params=name_schema(schema) | name_set(by),
        )
        try:
            return str(answer.json()["job_id"])
        except (KeyError, TypeError):
            raise ApiFailed("the answer names no job") from None

    async def jobs(self) -> AsyncIterator[Mapping[str, Any]]:
        """The account's jobs, the newest first: ``job_id`` and the members of JobProgress."""
        async for job in self._list("/api/jobs/"):
            yield job

    async def job_about(self, job_id: str) -> Mapping[str, Any]:
        """A job's progress, and further details of it."""
        answer = await self._ask("GET", f"/api/jobs/{job_id}/about/")
        return convert(answer, dict[str, Any])

    async def job(self, job_id: str) -> JobProgress:
        answer = await self._transport.request("GET", f"/api/jobs/{job_id}/")
        return answer.convert(JobProgress)  # type: ignore[no-any-return] # convert() checks it

    async def rounded_values(self, job_id: str) -> dict[str, int]:
        """The number of rounded values of a job by field, stored with fewer decimals than were
        sent.
        """
        answer = await self._ask("GET", f"/api/jobs/{job_id}/about/")
        return convert(answer, _About).rounded

    async def replaced_records(self, job_id: str) -> int:
        """The number of records that the job's rows replaced."""
        answer = await self._ask("GET", f"/api/jobs/{job_id}/about/")
        return convert(answer, _About).replaced

    async def job_errors(self, job_id: str) -> AsyncIterator[Mapping[str, Any]]:
        """Errors of rows: ``row``, ``field``, ``code``, ``detail``."""
        async for error in self._list(f"/api/jobs/{job_id}/errors/"):
            yield error

    async def job_reading(self, job_id: str) -> Mapping[str, Any]:
        """The reading of a job's file, and the results for its cells.

        Raises:
            NotFound: the job has no reading.
        """
        answer = await self._ask("GET", f"/api/jobs/{job_id}/reading/")
        return convert(answer, dict[str, Any])

    async def rejected_rows(self, job_id: str) -> int:
        """The number of rejected rows of a job."""
        answer = await self._ask("GET", f"/api/jobs/{job_id}/errors/", params={"limit": "1"})
        return convert(answer, _Rejected).rows

    async def cancel_job(self, job_id: str) -> None:
        """Cancel a job, which then stores nothing, or delete a job that has ended."""
        await self._transport.request("DELETE", f"/api/jobs/{job_id}/")

    async def watch(self, job_id: str) -> AsyncIterator[JobProgress]:
        """The job's present progress and its changes up to the last, by WebSocket.

        A broken connection is reopened. Leaving does not affect the job.
        """
        while True:
            progress = await self.job(job_id)
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


def job_headers(
    batch_size: int | None, skip_invalid: bool, on_conflict: OnConflict | None = None
) -> dict[str, str]:
    """The headers with the options of a job."""
    headers = {} if batch_size is None else {"X-Batch-Size": str(batch_size)}
    headers |= {} if on_conflict is None else {"X-On-Conflict": on_conflict}
    return headers | ({"X-On-Invalid": "skip"} if skip_invalid else {})


def on_repeat(on_conflict: OnConflict | None, *, again: bool) -> dict[str, str]:
    """The member that tells the proxy how to handle bytes that it has stored before. Rows that
    replace others, or are skipped for them, are stored only once in any case.
    """
    return {} if again or on_conflict in ("skip", "replace") else {"on_repeat": "refuse"}


def upload_metadata(told: Mapping[str, str]) -> dict[str, str]:
    """The header with a file's metadata."""
    pairs = (f"{name} {base64.b64encode(text.encode()).decode()}" for name, text in told.items())
    return {"Upload-Metadata": ",".join(pairs)} if told else {}


def name_schema(schema: str | None) -> dict[str, str]:
    return {} if schema is None else {"schema": schema}


def name_reading(reading: bytes | None) -> dict[str, str]:
    return {} if reading is None else {"reading": reading.decode()}


def name_set(by: Sequence[str]) -> dict[str, str]:
    return {"by": ",".join(by)} if by else {}


def _progress(text: str) -> JobProgress:
    try:
        return msgspec.json.decode(text, type=JobProgress)
    except msgspec.DecodeError:
        raise ApiFailed("the message contains no progress of a job") from None

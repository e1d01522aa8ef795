"""Batch jobs, which store any number of records: sent from a file, waited for, and ``ers job``."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import click
import msgspec

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.input.upload_sources import KINDS, FileSource
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, row_of, takes_output
from encrypted_records.cli.state_file import StateFile
from encrypted_records.cli.terminal import DONE, FAILED, REJECTED, say, warn
from encrypted_records.client.proxy.jobs import JobProgress, OnConflict, UploadOptions
from encrypted_records.client.proxy.records import tell_rounding
from encrypted_records.client.proxy.uploads import LocalFile
from encrypted_records.client.sdk.files import Moved, bar, job_bar
from encrypted_records.errors import (
    BadInput,
    ErsError,
    InvalidSetting,
    NotFound,
    Unavailable,
    UploadedBefore,
)

Command = TypeVar("Command", bound=Callable[..., Any])

again_option = click.option(
    "--again",
    is_flag=True,
    help="Store the file once more, even if the same file was stored in the last thirty days.",
)

#: Flaws that are shown when a job fails; ers job errors lists all.
_SHOWN = 5


@dataclass(frozen=True)
class JobFlags:
    """The options of :func:`takes_job_options`: how the records of a file are stored.

    Attributes:
        exact: read the file as the HTTP API does, instead of detecting how it is written.
        kind: format of the file, one of KINDS; None is what its name and first bytes say.
    """

    exact: bool = False
    kind: str | None = None
    batch_size: int | None = None
    on_conflict: OnConflict | None = None
    by: tuple[str, ...] = ()
    detach: bool = False
    again: bool = False

    def order(
        self, schema: str | None, *, skip_invalid: bool, reading: bytes | None = None
    ) -> UploadOptions:
        return {
            "schema": schema,
            "batch_size": self.batch_size,
            "skip_invalid": skip_invalid,
            "on_conflict": self.on_conflict,
            "by": self.by,
            "again": self.again,
            "reading": reading,
        }


#: Errors that say that a file is not written in the format of the HTTP API.
_OF_FORM = frozenset({"csv_header", "file_type"})


async def upload_exactly(
    session: CommandSession,
    source: FileSource,
    options: JobFlags,
    schema: str | None,
    output: Output,
    *,
    skip_invalid: bool,
) -> int:
    """Send a file in the format of the HTTP API, and wait for its job unless --detach was given;
    returns the exit code.

    Args:
        schema: id of the schema of records that name none.
    """
    try:
        job = await send(session, source, options.order(schema, skip_invalid=skip_invalid))
    except UploadedBefore as error:
        job = await going_on(session, error)
    except BadInput as error:
        if error.reason in _OF_FORM:
            error.hint = "without --exact, ers import detects how the file is written"
        raise
    return detached(job) if options.detach else await finish(session, job, output)


def detached(job: str) -> int:
    """Print the id of a job that runs in the background; returns the exit code."""
    say(job)
    return DONE


def takes_job_options(command: Command) -> Command:
    """Give a command the options of a job; hand it the :class:`JobFlags` that they mean."""

    @functools.wraps(command)
    def call(**values: Any) -> Any:
        flags = JobFlags(**{field.name: values.pop(field.name) for field in fields(JobFlags)})
        if flags.by and flags.on_conflict != "replace":
            raise InvalidSetting(
                "--by names the records to replace, and nothing is to be replaced",
                hint="add --on-conflict replace, or leave out --by",
            )
        return command(job=flags, **values)

    wrapped: Any = call
    for option in (
        again_option,
        click.option("--detach", is_flag=True, help="Do not wait for the end of the job."),
        click.option(
            "--by",
            multiple=True,
            metavar="FIELD",
            help="Unique field that finds the record to replace; repeat for a set of fields.",
        ),
        click.option(
            "--on-conflict",
            type=click.Choice(["fail", "skip", "replace"]),
            help="Handling of rows whose unique values already exist (default: treat them as"
            " invalid).",
        ),
        click.option(
            "--batch-size",
            type=click.IntRange(1, 1000),
            help="Rows per progress step (default: 10).",
        ),
        click.option(
            "--format",
            "kind",
            type=click.Choice(list(KINDS)),
            help="Format of the file, with --exact (default: by its name).",
        ),
        click.option(
            "--exact",
            is_flag=True,
            help="Read the file as the HTTP API does: names in the first row, commas, UTF-8, ISO"
            " dates (default: only for pipes, exports, Parquet and Arrow).",
        ),
    ):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return] # click's decorators return Any


async def send(session: CommandSession, source: FileSource, order: UploadOptions) -> str:
    """Send all of a source; the id of its job. A large file can go on after an interruption."""
    large = source.size is not None and source.size >= session.limits.resumable_bytes
    if source.file is not None and large:
        return await _send_file(session, source.file, source.media_type, order)
    pieces = _in_thread(source)
    return await send_pieces(
        session, pieces, source.media_type, order, source.size, filename=source.name
    )


async def send_pieces(
    session: CommandSession,
    pieces: AsyncIterator[bytes],
    media_type: str,
    order: UploadOptions,
    size: int | None = None,
    filename: str = "",
) -> str:
    """Send what comes in one request; the id of its job. What fails on the way stores nothing."""
    flawed: list[ErsError] = []
    with bar("uploading", of_bytes=True) as move:
        body = _moving(pieces, size, move, flawed)
        try:
            return await session.client.upload(body, media_type, **order, filename=filename)
        except Unavailable:
            # A failing source ends the connection; its error is the reason.
            if flawed:
                raise flawed[0] from None
            raise


async def _in_thread(source: FileSource) -> AsyncIterator[bytes]:
    pieces = source.pieces()
    while piece := await asyncio.to_thread(next, pieces, b""):
        yield piece


async def _moving(
    pieces: AsyncIterator[bytes], size: int | None, move: Moved, flawed: list[ErsError]
) -> AsyncIterator[bytes]:
    done = 0
    try:
        async for piece in pieces:
            done += len(piece)
            move(done, size)
            yield piece
    except ErsError as error:
        flawed.append(error)
        raise


class StartedUpload(msgspec.Struct, frozen=True):
    """An upload under way: its path at the proxy, and its job."""

    upload: str
    job: str


async def _send_file(
    session: CommandSession, file: LocalFile, media_type: str, order: UploadOptions
) -> str:
    begun = StateFile("uploads", StartedUpload)
    size = file.size or 0
    key = f"{session.address} {order['schema']} {order['skip_invalid']} {file.mark}"
    if order["again"]:
        key = f"again {key}"
    if (reading := order["reading"]) is not None:
        key = f"{hashlib.sha256(reading).hexdigest()[:16]} {key}"
    if on_conflict := order["on_conflict"]:
        key = f"{on_conflict} {','.join(order['by'])} {key}"
    begun_upload = begun.read().get(key)
    if begun_upload is not None:
        try:
            reached = await session.client.upload_offset(begun_upload.upload)
            warn(f"resuming an upload: {reached * 100 // max(size, 1)} % has arrived already")
        except NotFound:  # it has expired, or its job was cancelled
            begun_upload = None
    if begun_upload is None:
        begun_upload = StartedUpload(*await session.client.begin_upload(file, media_type, **order))
        begun.put(key, begun_upload)
    try:
        with bar("uploading", of_bytes=True) as move:
            await session.client.send_upload(
                begun_upload.upload, file, on_offset=lambda offset: move(offset, size)
            )
    except (asyncio.CancelledError, Unavailable):
        warn("the upload is not complete; run the same command to resume it")
        raise
    begun.put(key, None)
    return begun_upload.job


async def going_on(session: CommandSession, error: UploadedBefore) -> str:
    """The job that stores this file at present, begun by a command that was interrupted.

    Raises:
        UploadedBefore: it has stored the file.
    """
    try:
        if not (await session.client.job(error.job_id)).has_ended:
            warn(f"job {error.job_id} is already storing this file; this is its progress")
            return error.job_id
    except NotFound:  # somebody has cancelled it just now
        pass
    hint = f"to store it again: --again; to see that job: ers job get {error.job_id}"
    raise UploadedBefore.by(error.job_id, error.message, hint=hint) from None


async def finish(session: CommandSession, job: str, output: Output) -> int:
    """Show a job's progress until it ends, then its result; the exit code."""
    try:
        with job_bar() as move:
            async for progress in session.client.watch(job):
                move(progress.processed, progress.total or None)
    except asyncio.CancelledError:
        warn(f"the job goes on; watch it with: ers job watch {job}")
        raise
    about = await session.client.job_about(job)
    remarks: dict[str, Any] = {"replaced": about.replaced} if about.replaced else {}
    remarks |= {"rounded": about.rounded} if about.rounded else {}
    output.write_object({"job_id": job, **row_of(progress), **remarks}, times={"error"})
    warn_of_rounding(about.rounded)
    return await exit_code(session, job, progress)


def warn_of_rounding(fields: Iterable[str] | Mapping[str, int]) -> None:
    """Print the number of rounded values of each field on stderr.

    Args:
        fields: of each such value its field, or the fields with how many of their values.
    """
    if warning := tell_rounding(Counter(fields)):
        warn(warning)


async def exit_code(session: CommandSession, job: str, last: JobProgress) -> int:
    """The exit code of a command for a finished job; explains on stderr why it is not 0."""
    rejected, is_stored = 0, last.status == "completed"
    async for flaw in session.client.job_errors(job):
        rejected += 1
        if rejected <= _SHOWN:
            location = f"row {flaw.row}" + (f", {flaw.field}" if flaw.field else "")
            warn(f"  {location}: {flaw.detail}")
    if rejected:
        stored = "the other rows were stored" if is_stored else "nothing was stored"
        warn(f"rows were rejected, {stored}; list all errors with: ers job errors {job}")
        if last.error and last.error.endswith("(invalid_records)"):
            warn("ers import with --skip-invalid stores the other rows")
        if last.error and last.error.endswith("(not_unique)"):
            warn(
                "ers import with --on-conflict skip stores the other rows; with --on-conflict"
                " replace these rows replace the records that have their values"
            )
        return REJECTED
    return DONE if is_stored else FAILED


_COLUMNS = ("job_id", "status", "processed", "total", "error")
_PROGRESS = (*_COLUMNS[:4], "current_batch", "total_batches", "error")
#: Shown where there is something to show.
_BESIDE = ("replaced", "rounded", "packs", "packed", "waits")
_JOB = click.argument("job", metavar="JOB")


@click.group(cls=CommandGroup, renamed={"status": "get", "upload": "ers import --exact"})
def job() -> None:
    """Follow batch jobs, which check a file as a whole and store all of it or nothing. ers import
    starts them."""


@job.command("list", short_help="List your jobs, newest first.")
@connected()
@takes_output
async def list_(session: CommandSession, output: Output) -> None:
    """List your jobs of the last thirty days, newest first.

    \b
    Example:
      ers job list
    """
    await output.many(session.client.jobs(), _COLUMNS, called="jobs", times={"error"})


@job.command(short_help="Show the progress of a job.")
@_JOB
@connected()
@takes_output
async def get(session: CommandSession, job: str, output: Output) -> None:
    """Show the progress of a job; for a large job also how many pieces of its index are packed, for
    a waiting job the reason, how many records its rows have replaced, and by field how many values
    are stored with fewer decimals than were sent.

    \b
    Example:
      ers job get "$JOB"
    """
    about = row_of(await session.client.job_about(job))
    shown = {name: about[name] for name in _PROGRESS if name in about}
    beside = {name: about[name] for name in _BESIDE if about[name]}
    output.write_object(shown | beside, times={"error"})


@job.command(short_help="Wait for the end of a job.")
@_JOB
@connected()
@takes_output
async def watch(session: CommandSession, job: str, output: Output) -> int:
    """Show the progress of a job until it ends, with the exit codes of ers import. Ctrl-C stops
    watching, not the job.

    \b
    Example:
      ers job watch "$JOB"
    """
    return await finish(session, job, output)


@job.command(short_help="Cancel a job; it stores nothing.")
@_JOB
@connected()
async def cancel(session: CommandSession, job: str) -> None:
    """Cancel a job, which then stores nothing. A job that has ended is removed from the list.

    \b
    Example:
      ers job cancel "$(ers import people.csv --schema patient --yes --detach)"
    """
    await session.client.cancel_job(job)
    say("Cancelled.")


@job.command(short_help="List rows that were not valid.")
@_JOB
@connected()
@takes_output
async def errors(session: CommandSession, job: str, output: Output) -> None:
    """List the rows of a job that are not valid: row, field and reason.

    \b
    Example:
      ers job errors "$JOB" --output csv
    """
    columns = ("row", "field", "code", "detail")
    await output.many(session.client.job_errors(job), columns, called="invalid rows")

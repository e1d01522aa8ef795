"""``ers job``: batch jobs, which store any number of records."""

from __future__ import annotations

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands.upload_job import JobUpload, finish, takes_upload
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import say

_COLUMNS = ("job_id", "status", "processed", "total", "error")
_PROGRESS = (*_COLUMNS[:4], "current_batch", "total_batches", "error")
#: Shown where there is something to show.
_BESIDE = ("rounded", "packs", "packed", "waits")
_JOB = click.argument("job", metavar="JOB")


@click.group(
    cls=CommandGroup,
    renamed={"status": "get"},
    short_help="Upload files of any size, and follow the jobs that store them.",
)
def job() -> None:
    """Manage batch jobs, which check an upload as a whole and store all of it or nothing."""


@job.command(short_help="Upload a file of records, and wait until they are stored.")
@takes_upload
@connected(organization=True)
@takes_output
async def upload(session: CommandSession, upload: JobUpload, output: Output) -> int:
    """Upload a file of any size and wait until its records are stored: CSV, a JSON array, JSON
    lines, Parquet or Arrow; - for standard input.

    All rows are checked before any is stored. If a large upload is interrupted, the same command
    resumes it. After the upload, Ctrl-C leaves the job running. The exit code is 0 if the job
    completed, 6 if rows were rejected.

    \b
    Examples:
      ers job upload people.csv --schema patient
      ers record search --schema patient --all -o csv | ers job upload - --schema medical/copy
    """
    return await upload.run(session, output)


@job.command("list", short_help="List your jobs, newest first.")
@connected()
@takes_output
async def list_(session: CommandSession, output: Output) -> None:
    """List your jobs of the last thirty days, newest first.

    \b
    Example:
      ers job list
    """
    await output.many(session.client.jobs(), _COLUMNS, called="jobs")


@job.command(short_help="Show the progress of a job.")
@_JOB
@connected()
@takes_output
async def get(session: CommandSession, job: str, output: Output) -> None:
    """Show the progress of a job; for a large job also how many pieces of its index are packed, for
    a waiting job the reason, and by field how many values are stored with fewer decimals than were
    sent.

    \b
    Example:
      ers job get "$JOB"
    """
    about = await session.client.job_about(job)
    shown = {name: about[name] for name in _PROGRESS if name in about}
    output.write_one(shown | {name: about[name] for name in _BESIDE if about[name]})


@job.command(short_help="Wait for the end of a job.")
@_JOB
@connected()
@takes_output
async def watch(session: CommandSession, job: str, output: Output) -> int:
    """Show the progress of a job until it ends, with the exit codes of ers job upload. Ctrl-C stops
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
      ers job cancel "$(ers job upload people.csv --schema patient --detach)"
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

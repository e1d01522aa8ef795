"""``ers job``: batch jobs, which store any number of records."""

from __future__ import annotations

import click

from encrypted_records.cli.commands.upload_job import JobUpload, finish, takes_upload
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import say

_COLUMNS = ("job_id", "status", "processed", "total", "error")
_PROGRESS = (*_COLUMNS[:4], "current_batch", "total_batches", "error")
#: Shown where there is something to show.
_BESIDE = ("rounded", "packs", "packed", "waits")
_JOB = click.argument("job", metavar="JOB")


@click.group(short_help="Upload any number of records, and follow the jobs that store them.")
def job() -> None:
    """Batch jobs: they check an upload as a whole, and store all of it or nothing."""


@job.command(short_help="Upload a file of records and see it stored.")
@takes_upload
@connected(organization=True)
@takes_output
async def upload(session: CommandSession, upload: JobUpload, output: Output) -> int:
    """Upload a file of any size and wait until its records are stored: CSV, a JSON array, JSON
    lines, Parquet or Arrow; - is standard input.

    All rows are checked before any is stored. Large files are sent so that the same command goes
    on after an interruption. Once a file is uploaded, Ctrl-C leaves its job running. The exit code
    is 0 when the job completed, 6 when rows were rejected.

    \b
    Examples:
      ers job upload people.csv --schema patient
      ers record search --schema patient --all -o csv | ers job upload - --schema medical/copy
    """
    return await upload.run(session, output)


@job.command("list", short_help="List your jobs, the newest first.")
@connected()
@takes_output
async def list_(session: CommandSession, output: Output) -> None:
    """List your jobs of the last thirty days, the newest first.

    \b
    Example:
      ers job list
    """
    await output.many(session.client.jobs(), _COLUMNS, called="jobs")


@job.command(short_help="Show how far a job has come.")
@_JOB
@connected()
@takes_output
async def status(session: CommandSession, job: str, output: Output) -> None:
    """Show how far a job has come. Of a large one: in how many pieces its index is packed when all
    is stored, and how many are; of one that waits, why; and by field how many values are stored
    with fewer decimals than were sent.

    \b
    Example:
      ers job status "$JOB"
    """
    about = await session.client.job_about(job)
    shown = {name: about[name] for name in _PROGRESS if name in about}
    output.write_one(shown | {name: about[name] for name in _BESIDE if about[name]})


@job.command(short_help="Wait until a job has ended.")
@_JOB
@connected()
@takes_output
async def watch(session: CommandSession, job: str, output: Output) -> int:
    """Show a job's progress until it ends; exit code as of ers job upload. Ctrl-C stops watching,
    not the job.

    \b
    Example:
      ers job watch "$JOB"
    """
    return await finish(session, job, output)


@job.command(short_help="Cancel a job; nothing of it is stored.")
@_JOB
@connected()
async def cancel(session: CommandSession, job: str) -> None:
    """Cancel a job, of which then nothing is stored; one that has ended is forgotten.

    \b
    Example:
      ers job cancel "$(ers job upload people.csv --schema patient --detach)"
    """
    await session.client.cancel_job(job)
    say("Cancelled.")


@job.command(short_help="List the rows that do not fit.")
@_JOB
@connected()
@takes_output
async def errors(session: CommandSession, job: str, output: Output) -> None:
    """List the rows of a job that do not fit their schema: row, field, and what is wrong.

    \b
    Example:
      ers job errors "$JOB" --output csv
    """
    columns = ("row", "field", "code", "detail")
    await output.many(session.client.job_errors(job), columns, called="rows that do not fit")

"""``ers job``: batch jobs, which store any number of records."""

from __future__ import annotations

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands.upload_job import finish
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
    renamed={"status": "get", "upload": "ers import --exact"},
    short_help="Follow or cancel the jobs that store files.",
)
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
    a waiting job the reason, and by field how many values are stored with fewer decimals than were
    sent.

    \b
    Example:
      ers job get "$JOB"
    """
    about = await session.client.job_about(job)
    shown = {name: about[name] for name in _PROGRESS if name in about}
    beside = {name: about[name] for name in _BESIDE if about[name]}
    output.write_one(shown | beside, times={"error"})


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

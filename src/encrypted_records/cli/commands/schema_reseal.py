"""``ers schema reseal`` and ``ers dataset reseal``: all records of schemas, sealed again."""

from __future__ import annotations

from typing import Any

import click

from encrypted_records.cli.commands.upload_job import finish
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import DONE, say, warn
from encrypted_records.errors import Conflict


async def see_through(
    session: CommandSession, url: str, definition: Any, job: str, output: Output
) -> int:
    """Wait for the job that seals all records for a definition; the exit code."""
    code = await finish(session, job, output)
    if code == DONE:
        # Titles and descriptions are no part of what was sealed for.
        await session.client.change_schema(url, definition)
    return code


@click.command(short_help="Seal all records again, under the present key.")
@click.argument("schema")
@click.option("--detach", is_flag=True, help="Print the job's id, and do not wait for it.")
@connected(organization=True)
@takes_output
async def reseal(session: CommandSession, schema: str, detach: bool, output: Output) -> int:
    """Seal all records of a schema again, as a job: under the newest key of its dataset, as after
    somebody was removed, and at the lengths that its definition asks for by now.

    Reads and writes go on meanwhile. A user who kept an older key and an older copy of the data
    still opens that copy. Ctrl-C leaves the job running.

    \b
    Example:
      ers schema reseal patient
    """
    resource = await session.names.schema(schema)
    job = await session.client.reseal_schema(resource["url"])
    if detach:
        say(job)
        return DONE
    return await finish(session, job, output)


@click.command("reseal", short_help="Seal all records of all its schemas again.")
@click.argument("dataset")
@connected(organization=True)
@takes_output
async def reseal_dataset(session: CommandSession, dataset: str, output: Output) -> int:
    """Seal all records of every schema of a dataset again, one schema after another, each by a job:
    as ers schema reseal does it. Schemas without records are left out. The dataset's older keys are
    granted to its members as before, since they prove what the logs say of the time before.

    \b
    Example:
      ers dataset reseal medical
    """
    resource = await session.names.dataset(dataset)
    codes = [DONE]
    async for one in session.client.listing("schemas", dataset=resource["id"]):
        try:
            job = await session.client.reseal_schema(one["url"])
        except Conflict as error:
            if error.reason != "nothing_to_reseal":
                raise
            continue
        warn(f"{one['slug']}:")
        codes.append(await finish(session, job, output))
    return max(codes)

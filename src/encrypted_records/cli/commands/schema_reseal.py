"""``ers schema reseal`` and ``ers dataset reseal``: all records of schemas, sealed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from encrypted_records.cli.commands.upload_job import finish
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import DONE, FAILED, confirm, format_count, say, warn
from encrypted_records.errors import Conflict, SchemaUnsigned


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
@click.option("--forget", is_flag=True, help="Then have members' grants lack all older keys.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
@takes_output
async def reseal_dataset(
    session: CommandSession, dataset: str, forget: bool, yes: bool, output: Output
) -> int:
    """Seal all records of every schema of a dataset again, one schema after another, each by a job:
    as ers schema reseal does it. Schemas without records are left out. The dataset's older keys are
    granted to its members as before, since they prove what the logs say of the time before.

    With --forget, which is an owner's, only schemas that have something under an older key are
    sealed again; what they had before is erased; and then the API and all proxies drop the older
    keys. What the logs say of the time before is proven by signatures alone from then on. A user
    who kept an older grant and an older copy of the data still opens that copy. It can be repeated
    after any interruption.

    \b
    Examples:
      ers dataset reseal medical
      ers dataset reseal medical --forget --yes
    """
    resource = await session.names.dataset(dataset)
    if forget:
        return await _forget(session, resource, output, yes=yes)
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


async def _forget(
    session: CommandSession, resource: Mapping[str, Any], output: Output, *, yes: bool
) -> int:
    """Seal again what is under older keys, and have these forgotten; the exit code."""
    url, path = resource["url"], await session.names.path_of_dataset(resource)
    keys = await session.client.look_at_keys(url)
    if keys["absent"] and not keys["forgotten"]:
        raise SchemaUnsigned(
            f"the API shows no schema {', '.join(keys['absent'])}, which was signed in {path}",
            hint="what it has would open with no key any more; if it was deleted, an owner frees"
            " its name: ers api DELETE /api/schemas/ID/",
        )
    older = [one for one in keys["schemas"] if not one["present"]]
    if not keys["forgotten"]:
        say(
            "A user who kept an older grant and an older copy of the data still opens that copy."
            " Nobody else opens anything with the older keys."
        )
        records = format_count(sum(one["records"] for one in older), "record")
        confirm(
            f"Seal {records} of {path} again, and forget all keys before epoch {keys['epoch']}?",
            yes=yes,
            undone="nothing was changed",
        )
    for one in older:
        warn(f"{one['schema']}:")
        code = await finish(session, await session.client.reseal_schema(one["schema"]), output)
        if code != DONE:
            return code
    done = await session.client.forget_keys(url)
    if not done["forgotten"]:
        warn("What was sealed again is not erased yet. It goes by itself; then repeat the command.")
        return FAILED
    say(f"The keys of {path} before epoch {done['epoch']} are forgotten.")
    return DONE

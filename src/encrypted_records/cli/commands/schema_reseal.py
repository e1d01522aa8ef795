"""``ers schema reseal`` and ``ers dataset reseal``: all records of schemas, sealed again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from encrypted_records.cli.commands.upload_job import finish
from encrypted_records.cli.login.session import (
    DATASET,
    SCHEMA,
    CommandSession,
    connected,
)
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


@click.command(short_help="Encrypt all records again under the current key.")
@click.argument("schema", type=SCHEMA)
@click.option("--detach", is_flag=True, help="Print the job's id without waiting for its end.")
@connected(organization=True)
@takes_output
async def reseal(session: CommandSession, schema: str, detach: bool, output: Output) -> int:
    """Encrypt all records of a schema again, as a job, under the newest key of its dataset and with
    the lengths of its current definition.

    Reads and writes continue meanwhile. Someone who kept an older key and an older copy of the data
    can still decrypt that copy. Ctrl-C leaves the job running.

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


@click.command("reseal", short_help="Encrypt all records of all its schemas again.")
@click.argument("dataset", type=DATASET)
@click.option("--forget", is_flag=True, help="Then remove all older keys from the members' grants.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
@takes_output
async def reseal_dataset(
    session: CommandSession, dataset: str, forget: bool, yes: bool, output: Output
) -> int:
    """Encrypt all records of every schema of a dataset again, one schema after another, each by a
    job, as ers schema reseal does. Schemas without records are skipped. Members keep the dataset's
    older keys, which verify the earlier part of the logs.

    With --forget, for owners: encrypt only schemas that have data under an older key, erase the
    earlier ciphertext, and then delete the older keys from the API and all proxies. From then on
    signatures alone verify the earlier part of the logs. Someone who kept an older grant and an
    older copy of the data can still decrypt that copy. The command can be repeated after any
    interruption.

    \b
    Examples:
      ers dataset reseal medical
      ers dataset reseal medical --forget --yes
    """
    resource = await session.names.dataset(dataset)
    if forget:
        return await _forget(session, resource, output, yes=yes)
    codes = [DONE]
    async for schema in session.client.listing("schemas", dataset=resource["id"]):
        try:
            job = await session.client.reseal_schema(schema["url"])
        except Conflict as error:
            if error.reason != "nothing_to_reseal":
                raise
            continue
        warn(f"{schema['slug']}:")
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
            f"the API does not show the schema {', '.join(keys['absent'])}, which was"
            f" signed in {path}",
            hint="without the older keys, its records could no longer be decrypted; if it was"
            " deleted, an owner can free its name: ers api DELETE /api/schemas/ID/",
        )
    older = [schema for schema in keys["schemas"] if not schema["present"]]
    if not keys["forgotten"]:
        say(
            "Someone who kept an older grant and an older copy of the data can still decrypt that"
            " copy. Otherwise the older keys decrypt nothing."
        )
        records = format_count(sum(group["records"] for group in older), "record")
        confirm(
            f"Encrypt {records} of {path} again, and forget all keys before epoch {keys['epoch']}?",
            yes=yes,
            undone="nothing was changed",
        )
    for schema in older:
        warn(f"{schema['schema']}:")
        code = await finish(session, await session.client.reseal_schema(schema["schema"]), output)
        if code != DONE:
            return code
    done = await session.client.forget_keys(url)
    if not done["forgotten"]:
        warn(
            "The earlier ciphertext is not erased yet. This happens by itself; then repeat the"
            " command."
        )
        return FAILED
    say(f"The keys of {path} before epoch {done['epoch']} are forgotten.")
    return DONE

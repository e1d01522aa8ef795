"""``ers record update`` and ``delete``: change what is stored."""

from __future__ import annotations

from itertools import islice

import click

from encrypted_records.cli.commands.conditions import question
from encrypted_records.cli.commands.erasures import cost_line, say_erased
from encrypted_records.cli.commands.record.options import FILE, dataset_option
from encrypted_records.cli.commands.upload_job import warn_of_rounding
from encrypted_records.cli.input.files import objects_in
from encrypted_records.cli.login.session import (
    SCHEMA,
    CommandSession,
    connected,
)
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import confirm, format_count, say
from encrypted_records.errors import InvalidSetting


@click.command(short_help="Change fields of a record.")
@click.argument("id")
@click.option(
    "--file", type=FILE, required=True, help="File with a JSON object; - for standard input."
)
@click.option(
    "--replace", is_flag=True, help="Replace the whole record instead of changing the given fields."
)
@connected()
@takes_output
async def update(
    session: CommandSession,
    id: str,  # noqa: A002
    file: str,
    replace: bool,
    output: Output,
) -> None:
    """Change the fields of a record that a JSON object contains; null removes a field. The id
    stays.

    \b
    Example:
      echo '{"age": 37}' | ers record update "$RECORD" --file -
    """
    objects = list(islice(objects_in(file), 2))
    if len(objects) != 1 or not isinstance(objects[0], dict):
        raise InvalidSetting(f"expected one JSON object in {file}")
    record = await session.client.change_record(id, objects[0], replace=replace)
    output.write_one(record["data"] if output.form in ("table", "csv") else record)
    warn_of_rounding(record.get("rounded", ()))


@click.command(short_help="Delete a record, or all that match a condition.")
@click.argument("id", required=False)
@click.option(
    "--schema", type=SCHEMA, metavar="NAME", help="Schema of the records that --matching selects."
)
@dataset_option
@click.option(
    "--matching", metavar="EXPRESSION", help="Delete all records that match this condition."
)
@click.option(
    "--erase", is_flag=True, help="Erase the ciphertext at once, and wait until it is gone."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def delete(
    session: CommandSession,
    id: str | None,  # noqa: A002
    schema: str | None,
    dataset: str | None,
    matching: str | None,
    erase: bool,
    yes: bool,
) -> None:
    """Delete the record with this id, or all records of a schema that match a condition. They are
    counted first, and deleted only if the number is still the same. With --erase, the command says
    how much of the index will be rewritten, and at the end whether the ciphertext is gone.

    \b
    Examples:
      ers record delete "$OLD" --yes
      ers record delete --schema patient --matching 'age > 120' --yes
      ers record delete "$OLDER" --erase --yes
    """
    if (id is None) == (schema is None) or (schema is None) != (matching is None):
        raise click.UsageError("name an id, or --schema and --matching")
    if id is not None and erase:
        for cost in await session.client.erasure_cost(id):
            say(cost_line(cost["segments"], cost["rows"]))
        confirm(f"Delete and erase the record {id}?", yes=yes, undone="nothing was deleted")
        say_erased(await session.client.erase_record(id))
        return
    if id is not None:
        confirm(f"Delete the record {id}?", yes=yes, undone="nothing was deleted")
        await session.client.delete_record(id)
        say("Deleted 1 record.")
        return
    resource, condition, _known = await question(session, schema or "", dataset, matching, None)
    count = (await session.client.search(resource["url"], where=condition, limit=0)).count or 0
    if not count:
        say("No record matches; nothing was deleted.")
        return
    confirm(f"Delete {format_count(count, 'record')}?", yes=yes, undone="nothing was deleted")
    deleted = await session.client.delete_matching(resource["url"], condition or {}, confirm=count)
    say(f"Deleted {format_count(deleted, 'record')}.")
    if erase:
        say_erased(await session.client.erase_schema(resource["url"]))

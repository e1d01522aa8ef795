"""``ers subject``: the stored data of a person."""

from __future__ import annotations

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands.erasures import say_erased
from encrypted_records.cli.login.session import (
    DATASET,
    CommandSession,
    connected,
)
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import confirm as ask
from encrypted_records.cli.terminal import format_count, say


@click.group(cls=CommandGroup, short_help="Erase a person from all schemas of a dataset.")
def subject() -> None:
    """Erase a person that records of several schemas are about."""


@subject.command(short_help="Delete and erase all records with this value.")
@click.argument("field_value", metavar="FIELD=VALUE")
@click.option(
    "--dataset", type=DATASET, required=True, metavar="NAME", help="Dataset of the records."
)
@click.option("--confirm", type=click.IntRange(min=0), help="Number of records that must match.")
@click.option("--yes", is_flag=True, help="Do not ask; requires --confirm.")
@connected(organization=True)
@takes_output
async def erase(
    session: CommandSession,
    field_value: str,
    dataset: str,
    confirm: int | None,
    yes: bool,
    output: Output,
) -> None:
    """Delete every record with this value in all schemas of a dataset that have the field, and
    erase the ciphertext. Records are counted first, and deleted only if the number is still the
    same. The receipt states the number per schema, with versions and digests of the logs, and
    contains no value.

    \b
    Examples:
      ers subject erase --dataset people email=ada@example.org
      ers subject erase --dataset people email=ada@example.org --confirm 3 --yes --output json
    """
    field, equals, value = field_value.partition("=")
    if not (field and equals):
        raise click.UsageError("name a field and its value: email=ada@example.org")
    if yes and confirm is None:
        raise click.UsageError("--yes needs --confirm, with the number of records")
    url = (await session.names.dataset(dataset))["url"]
    count = confirm
    if not count:
        found = await session.client.count_subject(url, field, value)
        if not found["records"]:
            say("No record matches; nothing was deleted.")
            return
        for schema in found["counts"]:
            say(f"{schema['schema']}: {format_count(schema['records'], 'record')}")
        # Who said that there are none is told that there are.
        count = int(found["records"]) if confirm is None else confirm
    ask(
        f"Delete and erase {format_count(count, 'record')}?",
        yes=yes,
        undone="nothing was deleted",
    )
    receipt = await session.client.erase_subject(url, field, value, confirm=count)
    if output.form == "table":
        for schema in receipt["counts"]:
            say(f"{schema['schema']}: {format_count(schema['records'], 'record')} deleted")
        say_erased(receipt)
    else:
        output.write_one(receipt)

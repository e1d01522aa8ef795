"""The end of records: ``ers retention`` by their age, ``ers subject`` of one person."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.login.session import DATASET, SCHEMA, CommandSession, connected
from encrypted_records.cli.output import Output, row_of, takes_output
from encrypted_records.cli.terminal import DONE, REFUSED, format_count, report, say, warn
from encrypted_records.cli.terminal import confirm as ask
from encrypted_records.errors import ErsError, KeyMissing, NotFound

if TYPE_CHECKING:
    from encrypted_records.client.proxy.erasure import ErasedData, ExpiredRecords, Retained

#: PostgreSQL keeps deleted bytes in its files until then.
_VACUUM = (
    "PostgreSQL keeps deleted bytes in its files until an operator has run VACUUM FULL there"
    " (docs/operations.md, Erasure)."
)


def cost_line(segments: int, rows: int) -> str:
    """A line with the cost of an erasure."""
    return (
        f"Erasing rewrites {format_count(segments, 'segment')} of the index, with"
        f" {format_count(rows, 'row')} in all."
    )


def say_erased(receipt: ErasedData) -> None:
    """Report the result of an erasure; for remaining data, also the readers that need it."""
    if receipt.deleted is not None:
        say(f"Deleted {format_count(receipt.deleted, 'record')}.")
    for schema in receipt.schemas:
        left = schema.left
        if schema.gone:
            say(f"Erased, up to version {schema.version} of {schema.schema}.")
            if left.database == "postgresql":
                say(_VACUUM)
            continue
        counts = (left.rows, left.segments, left.groups)
        # Data that is gone from the tables may be in objects, or in what an API keeps of them.
        remaining = format_count(left.rows, "row") if any(counts) else "objects, or copies of them"
        say(f"Not erased yet in {schema.schema}: {remaining}.")
        for hold in left.holds:
            say(f"  {hold.email} still reads version {hold.version} ({hold.reason}).")
        if not left.holds:
            say("  It will be erased automatically; ers doctor shows what is still left.")


_IF_RIGHT = (
    "set the clock of the proxy's machine, or let the proxy run for a day; if the clock is right:"
    " ers retention run --clock-is-right"
)


@click.group(cls=CommandGroup)
def retention() -> None:
    """Manage how long records are kept. The rule is in the schema's definition, at its root: with
    "retention": {"days": 365} records expire by the day on which they were first stored, with
    {"field": "seen", "days": 365} by one of their dates. ers schema change sets it."""


@retention.command(short_help="Show how many records have expired, without deleting them.")
@click.argument("schema", type=SCHEMA)
@connected(organization=True)
@takes_output
async def get(session: CommandSession, schema: str, output: Output) -> None:
    """Show the retention period of a schema, and how many records are due for deletion.

    \b
    Example:
      ers retention get patient
    """
    url = (await session.names.schema(schema)).url
    due = await session.client.look_at_retention(url)
    if output.form == "table":
        say(_line_of(due))
    else:
        output.write_object(due)
    _warn_of(due, schema)


@retention.command(short_help="Delete records past their retention period now.")
@click.argument("schemas", type=SCHEMA, metavar="[SCHEMA]...", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Show how many records would be deleted.")
@click.option(
    "--clock-is-right",
    is_flag=True,
    help="Confirm the proxy's clock, and also delete records held back since it jumped ahead.",
)
@connected(organization=True)
@takes_output
async def run(
    session: CommandSession,
    schemas: tuple[str, ...],
    dry_run: bool,
    clock_is_right: bool,
    output: Output,
) -> int:
    """Delete records past the retention period in their schema's signed definition; without SCHEMA,
    in every schema with such a rule. Schemas that cannot be read here are named. Proxies do this by
    themselves once a day, when somebody with the right to write searches or stores there; otherwise
    run it from cron, with a service's secret key. The ciphertext is erased later, as after any
    deletion. If the clock of the proxy's machine jumped ahead, or the machine was off for more than
    a day, those days do not count until the proxy has run for a day or --clock-is-right confirms
    the clock. Records held back for that reason are counted (held), and the exit code is 4.

    \b
    Examples:
      ers retention run patient --dry-run
      ers retention run
    """
    named = [await session.names.schema(schema) for schema in schemas]
    names_by_path = {entry.url: entry.slug for entry in named} or await _names_of_all(session)
    codes, closed = [DONE], list[str]()

    async def found() -> AsyncIterator[Mapping[str, Any]]:
        for url, name in names_by_path.items():
            try:
                # The proxy's verified rule: the API's list may hide or invent rules.
                due: Retained = await session.client.look_at_retention(url)
                if due.retention is None and not named:
                    continue
                if not dry_run:
                    due = await session.client.carry_out_retention(
                        url, clock_is_right=clock_is_right
                    )
            except (KeyMissing, NotFound) as error:
                if named:
                    codes.append(report(error))
                else:
                    closed.append(name)
            except ErsError as error:
                # The other schemas have theirs all the same.
                codes.append(report(error))
            else:
                if _warn_of(due, name) and not dry_run:
                    codes.append(REFUSED)
                yield {"schema": name, **row_of(due)}

    columns = ("schema", "before", "records" if dry_run else "deleted", "held")
    await output.many(found(), columns, called="schemas with a retention")
    if closed:
        warn(f"{format_count(len(closed), 'schema')} cannot be read here: {', '.join(closed)}")
    return max(codes)


async def _names_of_all(session: CommandSession) -> dict[str, str]:
    """Names of all schemas by their paths: those that the API lists, and those that were signed."""
    found = {schema.url: schema.slug async for schema in session.names.schemas()}
    for organization in await session.names.organizations():
        try:
            signed = (await session.client.people(organization)).datasets
        except ErsError:
            continue  # whose roster is not to be had; each schema's log says what holds for it
        for dataset in signed:
            found |= {
                schema.schema: found.get(schema.schema, schema.name) for schema in dataset.schemas
            }
    return found


def _warn_of(due: Retained, schema: str) -> bool:
    """Say that records are held back, where some are."""
    if not due.held:
        return False
    warn(f"{format_count(due.held, 'record')} of {schema} held back: {due.doubt}")
    warn(f"hint: {_IF_RIGHT}")
    return True


def _line_of(due: ExpiredRecords) -> str:
    rule = due.retention
    if rule is None:
        return "Records are kept until somebody deletes them."
    since = rule.field or "the day on which they were first stored"
    return (
        f"Records expire {format_count(rule.days, 'day')} after {since}:"
        f" {format_count(due.records, 'record')} so far, from before {due.before}."
    )


@click.group(cls=CommandGroup)
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
    url = (await session.names.dataset(dataset)).url
    count = confirm
    if not count:
        found = await session.client.count_subject(url, field, value)
        if not found.records:
            say("No record matches; nothing was deleted.")
            return
        for schema in found.counts:
            say(f"{schema.schema}: {format_count(schema.records, 'record')}")
        # A wrong --confirm is refused with the actual number.
        count = found.records if confirm is None else confirm
    ask(
        f"Delete and erase {format_count(count, 'record')}?",
        yes=yes,
        undone="nothing was deleted",
    )
    receipt = await session.client.erase_subject(url, field, value, confirm=count)
    if output.form == "table":
        for schema in receipt.counts or ():
            say(f"{schema.schema}: {format_count(schema.records, 'record')} deleted")
        say_erased(receipt)
    else:
        output.write_object(receipt)

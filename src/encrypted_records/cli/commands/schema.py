"""``ers schema``: what records look like, what a change of it takes, and what a file suggests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands.dataset import get_or_create_option, reseal, see_through
from encrypted_records.cli.commands.import_file import ReadingOptions, propose, takes_form
from encrypted_records.cli.commands.schema_log import (
    lost_change_lines,
    repair,
    show_standing,
    sign,
    verify,
)
from encrypted_records.cli.input.files import (
    open_input,
    open_result,
    read_definition,
    read_sample,
    sample_of,
)
from encrypted_records.cli.input.importer import WantedRules, takes_wanted_rules, tell_of
from encrypted_records.cli.input.upload_sources import COLUMNAR, is_exact
from encrypted_records.cli.login.proofs import with_proof
from encrypted_records.cli.login.session import DATASET, SCHEMA, CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.settings import ProfileOption
from encrypted_records.cli.terminal import DONE, REFUSED, TIMES, confirm, format_count, say, warn
from encrypted_records.errors import Conflict, ErsError, InvalidSetting
from encrypted_records.model import strict_json

if TYPE_CHECKING:
    from encrypted_records.client.proxy.schema_logs import SchemaChange
    from encrypted_records.model.samples import CostEstimate, LengthAttack, PaddingCost

_TAKES = {
    "commit": "at once",
    "proof": "stored records are checked first",
    "reseal": "a job encrypts all records again",
}


def read_renames(given: tuple[str, ...]) -> dict[str, str]:
    """NEW=OLD of each, by the new name.

    Raises:
        click.BadParameter: one is not so.
    """
    renames = {}
    for pair in given:
        new, equals, old = pair.partition("=")
        if not equals or not new or not old:
            raise click.BadParameter(f"{pair!r} is not NEW=OLD", param_hint="--rename")
        renames[new] = old
    return renames


def lines_of(plan: SchemaChange) -> Iterator[str]:
    """The changes of a definition, a line for each, with what prevents it in the lines below."""
    if not plan.changes:
        yield "Only titles and descriptions change."
        return
    for change in plan.changes:
        yield f"{change.pointer}: {change.detail} ({_TAKES[change.takes]})"
        if count := change.records:
            where = "all of them"
            if change.where is not None:
                where = f"find them with {strict_json.encode(change.where).decode()}"
            yield f"  {count} of {plan.records} records prevent it: {where}"
            if change.code == "field_removed":
                name = change.field
                yield f"  --drop {name} loses its values; --rename NEW={name} keeps them"
    if plan.old_enough is not None:
        yield f"{format_count(plan.old_enough, 'record')} would expire at once."
    if plan.takes == "proof":
        yield f"Comparing {plan.records} records took {plan.seconds} s."
    if plan.takes == "reseal" and plan.possible:
        yield f"Encrypting {plan.records} records again takes about {plan.seconds} s."


def read_length(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    if not (name and number.isascii() and number.isdecimal()):
        raise click.BadParameter("expected FIELD=BYTES, such as name=20", param_hint="--length")
    return name, int(number)


def show_estimate(estimated: CostEstimate) -> None:
    per_record = estimated.bytes_per_record
    say(f"{estimated.records} records need {_size(estimated.bytes)} in the API's database,")
    say(
        f"{per_record.total} bytes each: {per_record.sealed} of encrypted record,"
        f" {per_record.index} in the index."
    )
    say(f"Encrypting them takes one core of this machine about {estimated.seconds:.0f} s.")
    sample = estimated.sample
    if sample is not None:
        say(f"In {sample.rows} rows of the sample, padding costs {_cost(sample.padding)}.")
        if sample.refused:
            warn(f"{sample.refused} rows of the sample do not match the schema")
    say()
    for field in estimated.fields:
        say(f"{field.name}: {field.sealed_bytes} + {field.index_bytes} bytes")
        if field.lengths is not None:
            _show_lengths(field.lengths)
        say(f"  the API sees: {field.reveals.api}")
        say(f"  never, from stored data: {field.reveals.api_never}")
        say(f"  by watching requests: {field.reveals.api_watching}")


def _show_lengths(found: LengthAttack) -> None:
    lengths_text = f"; its own lengths reveal {found.bits} bits" if found.bits else ""
    say(
        f"  lengths: an attacker who knows other rows guesses {_percent(found.attack)} of the"
        f" values from the stored lengths, and {_percent(found.guess)} from the most frequent"
        f" value alone{lengths_text}"
    )
    say(f"  padding costs {_cost(found.padding)}")
    if found.pad_to is not None:
        more = _cost(found.pad_to_adds)
        say(f'  "padTo": {found.pad_to} would hide the lengths, for {more} more')


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _cost(added: PaddingCost) -> str:
    return f"{added.bytes} bytes a record ({added.percent} %)"


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("the loop returns")


@click.command(short_help="Propose a definition for the data in a file.")
@click.argument("file", type=click.Path(allow_dash=True, dir_okay=False))
@click.option(
    "--reading",
    "into",
    metavar="OUT.json",
    help="File to write the reading of the file to, in JSON.",
)
@takes_wanted_rules
@takes_form
@connected()
async def infer(
    session: CommandSession,
    file: str,
    into: str | None,
    rules: WantedRules,
    reading: ReadingOptions,
) -> None:
    """Propose a JSON Schema for a file as people have it, of CSV in whatever form, JSON, or a
    workbook, which is read as ers import reads it. The definition goes to standard output, how the
    file is read to standard error. Nothing is stored.

    It contains no value of the file and forbids none of its type, unless options ask for more.
    Pipes and files that ers record export or search wrote are read exactly.

    \b
    Examples:
      ers schema infer people.csv > people.schema.json
      ers schema infer people.csv --enum city --required name
      ers schema infer people.csv --reading people.reading.json > people.schema.json
    """
    source = await asyncio.to_thread(open_input, file)
    if source.path.suffix.lower() in COLUMNAR:
        raise InvalidSetting(
            "columns of Parquet and Arrow have declared types",
            hint="ers import makes a schema of them: ers import FILE --dataset NAME",
        )
    if not is_exact(source, names_schema=True):
        proposed, found = await propose(session, source, reading, rules)
        if into is not None:
            with open_result(into) as out:
                out.write(found.recipe + b"\n")
        Output("json").write_object(proposed)
        return
    if into is not None or reading != ReadingOptions():
        raise InvalidSetting(
            "this file is read exactly: options that describe another form do not apply",
            hint="leave them out, or save the pipe to a file first",
        )
    body, media_type = await asyncio.to_thread(sample_of, source)
    inferred = await session.client.infer(body, media_type, tight=rules.tight)
    definition = dict(inferred.schema)
    notes = {field.name: field for field in inferred.fields}
    rules.apply(definition, notes)
    Output("json").write_object(definition)
    tell_of(notes, definition)


_COLUMNS = ("slug", "name", "id", "dataset", "created")
_slug = click.option("--slug", help="Short name for addresses (default: made from the name).")
_description = click.option("--description", help="Description of the records.")
_FILE = click.Path(allow_dash=True, dir_okay=False)


@click.group(cls=CommandGroup)
def schema() -> None:
    """Schemas: the fields of a table and their rules.

    A schema is named by its slug, name or id, or with dataset and organization:
    acme/medical/patient.
    """


@schema.command("list", short_help="List schemas.")
@click.option("--dataset", type=DATASET, metavar="NAME", help="Only schemas of this dataset.")
@connected(organization=True)
@takes_output
async def list_(session: CommandSession, dataset: str | None, output: Output) -> None:
    """List the schemas of a dataset or an organization, or all that you can reach.

    \b
    Example:
      ers schema list --dataset medical
    """
    schemas = session.names.schemas(await session.names.dataset(dataset) if dataset else None)
    named = await session.slugs("datasets") if output.form == "table" else {}

    def cells(schema: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**schema, "dataset": named.get(schema["dataset"], schema["dataset"])}

    if not await output.many(schemas, _COLUMNS, cells, called="schemas", times=TIMES):
        await session.tell_of_invitations()


@schema.command(short_help="Show a schema.")
@click.argument("schema", type=SCHEMA)
@click.option("--definition", is_flag=True, help="Print only the JSON Schema, as it was given.")
@click.option("--reading", is_flag=True, help="Print only the kept reading of its files.")
@connected(organization=True)
@takes_output
async def get(
    session: CommandSession, schema: str, definition: bool, reading: bool, output: Output
) -> None:
    """Show a schema.

    \b
    Example:
      ers schema get acme/medical/patient --definition
    """
    resource = await session.names.schema(schema)
    if reading:
        Output("json").write_object(await session.client.kept_reading(resource.id))
    elif definition:
        Output("json").write_object(resource.definition)
    else:
        shown = await session.with_slugs(resource) if output.form == "table" else resource
        output.write_object(shown, times=TIMES)


@schema.command(short_help="Create a schema.")
@click.option(
    "--dataset",
    type=DATASET,
    cls=ProfileOption,
    metavar="NAME",
    required=True,
    help="Slug, name or id of the dataset.",
)
@click.option("--name", required=True, help="Name to display.")
@_slug
@_description
@click.option(
    "--file", type=_FILE, required=True, help="File with the JSON Schema; - for standard input."
)
@get_or_create_option
@connected(organization=True)
@takes_output
async def create(
    session: CommandSession,
    dataset: str,
    name: str,
    slug: str | None,
    description: str | None,
    file: str,
    get_or_create: bool,
    output: Output,
) -> None:
    """Create a schema from a file with a JSON Schema; docs/http-api.md lists the supported
    keywords. A second schema with the same name in the dataset needs its own slug.

    \b
    Example:
      ers schema create --dataset medical --name Visit --slug visit --file visit.json
    """
    definition = read_definition(file)
    output.write_object(
        await session.names.create_schema(
            *(await session.names.dataset(dataset), name, definition),
            slug=slug,
            description=description,
            get_or_create=get_or_create,
        )
    )


@schema.command(short_help="Change name, slug, description or definition.")
@click.argument("schema", type=SCHEMA)
@click.option("--name", help="New name.")
@_slug
@_description
@click.option("--file", type=_FILE, help="File with the new JSON Schema; - for standard input.")
@connected(organization=True)
@takes_output
async def update(
    session: CommandSession,
    schema: str,
    name: str | None,
    slug: str | None,
    description: str | None,
    file: str | None,
    output: Output,
) -> None:
    """Change a schema. Everything that is not named stays.

    Use ers schema change to change the definition of a schema with records.

    \b
    Example:
      ers schema update patient --description "One row per admission"
    """
    definition = None if file is None else read_definition(file)
    resource = await session.names.schema(schema)
    output.write_object(
        await session.client.update(
            resource, name=name, slug=slug, description=description, schema=definition
        )
    )


@schema.command(short_help="Show what a change of definition requires, and apply it.")
@click.argument("schema", type=SCHEMA)
@click.option(
    "--file", type=_FILE, required=True, help="File with the new JSON Schema; - for standard input."
)
@click.option(
    "--rename",
    "renames",
    multiple=True,
    metavar="NEW=OLD",
    help="Field that has a new name in the file; may be repeated.",
)
@click.option("--drop", "drops", multiple=True, help="Field to delete; may be repeated.")
@click.option("--apply", is_flag=True, help="Apply the change if nothing prevents it.")
@click.option("--yes", is_flag=True, help="Do not ask before a new retention rule deletes records.")
@connected(organization=True)
@takes_output
async def change(
    session: CommandSession,
    schema: str,
    file: str,
    renames: tuple[str, ...],
    drops: tuple[str, ...],
    apply: bool,
    yes: bool,
    output: Output,
) -> int:
    """Show what a change of definition requires for a schema with records, and apply it with
    --apply.

    Wider bounds, more decimals, optional fields, looser rules and renamed fields are applied at
    once. A stricter rule is compared with the stored records; if some do not satisfy it, the
    command shows their number and a search that finds them, and the exit code is 4. Changing a type
    or format, reducing decimals or deleting a field encrypts all records again: --apply waits for
    that job, and Ctrl-C leaves it running.

    \b
    Example:
      ers schema change patient --file new.json --rename surname=name --apply
    """
    definition, named = read_definition(file), read_renames(renames)
    resource = await session.names.schema(schema)
    url, ask = resource.url, partial(session.client.change_schema, replaces=resource.definition)
    plan = await ask(url, definition, renames=named, drops=drops, dry_run=True)
    possible = plan.possible
    if possible and apply:
        if going := plan.old_enough:
            goes = f"{format_count(going, 'record')} would expire at once"
            confirm(f"{goes}. Apply the change?", yes=yes, why=goes)
        plan = await ask(url, definition, renames=named, drops=drops)
        if plan.job_id is not None:
            return await see_through(session, url, definition, plan.job_id, output)
    if output.form == "table":
        for line in lines_of(plan):
            say(line)
        if possible:
            say(
                "The change is applied."
                if apply
                else "Nothing was changed; add --apply to apply it."
            )
    else:
        output.write_object(plan)
    if apply and not possible:
        warn("Nothing was changed: some records prevent it, as listed above.")
    return DONE if possible else REFUSED


@schema.command(short_help="Delete a schema.")
@click.argument("schema", type=SCHEMA)
@click.option("--cascade", is_flag=True, help="Also delete all its records.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def delete(session: CommandSession, schema: str, cascade: bool, yes: bool) -> None:
    """Delete a schema. A schema with records is deleted only with --cascade.

    \b
    Example:
      ers schema delete acme/medical/draft --yes
    """
    resource = await session.names.schema(schema)
    path = await session.names.path_of(resource)
    if not cascade and await _has_records(session, resource.url):
        raise Conflict(
            f"{path} has records",
            code="schema_not_empty",
            hint="delete them first, or repeat with --cascade",
        )
    with_all = ", with all its records" if cascade else ""
    confirm(f"Delete {path}{with_all}?", yes=yes, undone="nothing was deleted")
    await session.client.delete(resource.url, cascade=cascade)
    say(f"Deleted {path}.")


async def _has_records(session: CommandSession, url: str) -> bool:
    # If the log cannot be read, for instance because it is broken, the service decides.
    with suppress(ErsError):
        async for _ in session.client.sealed_records(url, limit=1):
            return True
    return False


@schema.command(short_help="Show how far a schema's log is valid.")
@click.argument("schema", type=SCHEMA)
@click.option("--at", type=click.IntRange(0), help="Also show the digest of this version.")
@connected(organization=True)
@takes_output
async def status(session: CommandSession, schema: str, at: int | None, output: Output) -> int:
    """Show how far the log of a schema is valid, and how it relates to what this proxy has seen.

    Version and digest identify the end of the log: two people whose proxies show the same have seen
    the same changes. If one of them is ahead, --at shows the digest at the other's version. The
    exit code is 4 if there is a problem.

    \b
    Example:
      ers schema status patient
    """
    resource = await session.names.schema(schema)
    standing = await session.client.log_standing(resource.url, version=at)
    if output.form == "table":
        show_standing(standing)
    else:
        output.write_object(standing)
    return DONE if standing.state == "whole" else REFUSED


@schema.command("accept-log", short_help="Accept a log that lacks commits this proxy has seen.")
@click.argument("schema", type=SCHEMA)
@click.option("--forked", is_flag=True, help="Also accept a log that has diverged.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def accept_log(session: CommandSession, schema: str, forked: bool, yes: bool) -> None:
    """Accept a log that is older than the log this proxy has seen, as after restoring a backup. The
    command shows which changes are lost, asks, and needs a proof: your password, or the passphrase
    of your keyring. The decision counts for you alone; other users of the proxy are told and decide
    for themselves. A log that cannot be verified is never accepted.

    \b
    Example:
      ers schema accept-log patient --yes
    """
    resource = await session.names.schema(schema)
    path = await session.names.path_of(resource)
    standing = await session.client.log_standing(resource.url)
    if standing.state == "whole":
        say(
            f"There is nothing to accept: the log of {path} contains everything that this"
            " proxy has seen."
        )
        return
    if standing.state == "older" or (forked and standing.state in ("forked", "unclear")):
        for line in lost_change_lines(standing):
            warn(line)
        confirm(f"Accept this log of {path}?", yes=yes, undone="nothing was accepted")
    # In all other states the proxy refuses, with a reason.
    await with_proof(
        session,
        session.client.accept_log,
        resource.url,
        version=standing.version,
        digest=standing.digest,
        forked=forked,
    )
    say(f"Accepted: {path} is at version {standing.version}, {standing.records} records.")


@schema.command(short_help="Estimate what a schema will cost and reveal.")
@click.argument("schema", type=SCHEMA, required=False)
@click.option("--file", type=_FILE, help="File with a JSON Schema that does not exist yet.")
@click.option(
    "--sample",
    type=_FILE,
    help="File with sample rows in CSV, JSON or NDJSON; - for standard input. Without a schema,"
    " one is inferred.",
)
@click.option("--records", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option(
    "--length",
    "lengths",
    multiple=True,
    metavar="FIELD=BYTES",
    help="Typical length of a string field (default: 12); may be repeated.",
)
@connected(organization=True)
@takes_output
async def estimate(
    session: CommandSession,
    schema: str | None,
    file: str | None,
    sample: str | None,
    records: int,
    lengths: tuple[str, ...],
    output: Output,
) -> None:
    """Estimate how much space and time the records of a schema will take, and what the API learns
    of them.

    With a sample, also show what stored lengths reveal of each field, by an attack on the sample,
    and what padding costs. The sample stays on this machine and is not stored.

    \b
    Example:
      ers schema estimate patient --records 1000000 --length name=20
      ers schema estimate --sample people.csv
    """
    if (schema is not None and file is not None) or not (schema or file or sample):
        raise click.UsageError("name either a schema or --file, or a --sample to infer one from")
    rows = None if sample is None else await asyncio.to_thread(read_sample, sample)
    definition: Any
    if file is not None:
        definition = read_definition(file)
    elif schema is not None:
        definition = (await session.names.schema(schema)).definition
    else:
        assert rows is not None
        definition = (await session.client.infer(*rows)).schema
    typical = dict(map(read_length, lengths))
    estimated = await session.client.estimate(definition, records, typical, rows)
    if output.form == "table":
        show_estimate(estimated)
    else:
        output.write_object(estimated)


schema.add_command(infer)
schema.add_command(verify)
schema.add_command(sign)
schema.add_command(reseal)
schema.add_command(repair)

"""``ers dataset``: groups of schemas; and ``reseal``, which seals all records of a schema again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands.job import finish
from encrypted_records.cli.commands.selection import parse_condition, where_option
from encrypted_records.cli.commands.share import COLUMNS_OF_LISTED, people_of_all, rows_of_listed
from encrypted_records.cli.login.session import DATASET, SCHEMA, CommandSession, connected
from encrypted_records.cli.output import Output, row_of, takes_output
from encrypted_records.cli.terminal import DONE, FAILED, TIMES, confirm, format_count, say, warn
from encrypted_records.errors import Conflict, SchemaUnsigned

if TYPE_CHECKING:
    from encrypted_records.client.proxy.connection import ShownDataset
    from encrypted_records.client.proxy.records import FoundIn


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
    job = await session.client.reseal_schema(resource.url)
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
    async for schema in session.names.schemas(resource):
        try:
            job = await session.client.reseal_schema(schema.url)
        except Conflict as error:
            if error.reason != "nothing_to_reseal":
                raise
            continue
        warn(f"{schema.slug}:")
        codes.append(await finish(session, job, output))
    return max(codes)


async def _forget(
    session: CommandSession, resource: ShownDataset, output: Output, *, yes: bool
) -> int:
    """Seal again what is under older keys, and have these forgotten; the exit code."""
    url, path = resource.url, await session.names.path_of(resource)
    keys = await session.client.look_at_keys(url)
    if keys.absent and not keys.forgotten:
        raise SchemaUnsigned(
            f"the API does not show the schema {', '.join(keys.absent)}, which was"
            f" signed in {path}",
            hint="without the older keys, its records could no longer be decrypted; if it was"
            " deleted, an owner can free its name: ers api DELETE /api/schemas/ID/",
        )
    older = [schema for schema in keys.schemas if not schema.present]
    if not keys.forgotten:
        say(
            "Someone who kept an older grant and an older copy of the data can still decrypt that"
            " copy. Otherwise the older keys decrypt nothing."
        )
        records = format_count(sum(group.records for group in older), "record")
        confirm(
            f"Encrypt {records} of {path} again, and forget all keys before epoch {keys.epoch}?",
            yes=yes,
            undone="nothing was changed",
        )
    for schema in older:
        warn(f"{schema.schema}:")
        code = await finish(session, await session.client.reseal_schema(schema.schema), output)
        if code != DONE:
            return code
    done = await session.client.forget_keys(url)
    if not done.forgotten:
        warn(
            "The earlier ciphertext is not erased yet. This happens by itself; then repeat the"
            " command."
        )
        return FAILED
    say(f"The keys of {path} before epoch {done.epoch} are forgotten.")
    return DONE


_COLUMNS = ("slug", "name", "id", "created")
_FOUND = ("slug", "name", "count", "note")
_slug = click.option("--slug", help="Short name for addresses (default: made from the name).")
_description = click.option("--description", help="Description of the dataset.")
get_or_create_option = click.option(
    "--get-or-create", is_flag=True, help="Show the existing one if slug or name is taken."
)


@click.group(cls=CommandGroup)
def dataset() -> None:
    """Manage datasets: groups of schemas in an organization.

    A dataset is named by its slug, name or id, or with its organization: acme/medical.
    """


@dataset.command("list", short_help="List datasets.")
@click.option("--listed", is_flag=True, help="Only datasets for which you can ask for access.")
@connected(organization=True)
@takes_output
async def list_(session: CommandSession, output: Output, listed: bool) -> None:
    """List the datasets of one or all of your organizations that you can use. With --listed, show
    their datasets that are not fully shared with you and that you can ask for, with your request if
    there is one, and the owners who decide.

    \b
    Examples:
      ers dataset list --organization acme
      ers dataset list --listed
    """
    if listed:
        organizations = await people_of_all(session)
        rows = [row for people in organizations for row in rows_of_listed(people)]
        await output.many(rows, COLUMNS_OF_LISTED, called="datasets")
        return
    datasets = session.names.datasets()
    if not await output.many(datasets, _COLUMNS, called="datasets", times=TIMES):
        await session.tell_of_invitations()


@dataset.command(short_help="Show a dataset.")
@click.argument("dataset", type=DATASET)
@connected(organization=True)
@takes_output
async def get(session: CommandSession, dataset: str, output: Output) -> None:
    """Show a dataset.

    \b
    Example:
      ers dataset get medical
    """
    found = await session.names.dataset(dataset)
    shown = await session.with_slugs(found) if output.form == "table" else found
    output.write_object(shown, times=TIMES)


@dataset.command(short_help="Search all schemas of a dataset.")
@click.argument("dataset", type=DATASET)
@click.argument("expression", required=False)
@where_option
@click.option(
    "--limit",
    type=click.IntRange(0, 100),
    default=10,
    show_default=True,
    help="Maximum number of records shown per schema.",
)
@connected(organization=True)
@takes_output
async def search(
    session: CommandSession,
    dataset: str,
    expression: str | None,
    where: str | None,
    limit: int,
    output: Output,
) -> None:
    """Count the records that match EXPRESSION in every schema of a dataset that has its fields.

    Tables show the counts; JSON also contains the first records, and names the fields that a schema
    lacks.

    \b
    Examples:
      ers dataset search medical 'email = "ada@example.org"'
      ers dataset search medical 'seen >= 2026-01-01' --output json --limit 3
    """
    condition = parse_condition(expression, where)
    resource = await session.names.dataset(dataset)
    shown = 0 if output.form in ("table", "csv") else limit

    found = await session.client.search_dataset(resource.url, condition, limit=shown)
    await output.many(map(_row, found), _FOUND, called="schemas")


def _row(found: FoundIn) -> dict[str, Any]:
    from msgspec.structs import asdict  # noqa: PLC0415 - slow to import

    why = f"has no {', '.join(found.missing)}" if found.missing else ""
    if found.error is not None:
        why = str(found.error.get("detail", "")).partition("\n")[0]
    return {**asdict(found), "note": why}


@dataset.command(short_help="Create a dataset.")
@click.option("--name", required=True, help="Name to display.")
@_slug
@_description
@get_or_create_option
@connected(organization=True)
@takes_output
async def create(
    session: CommandSession,
    name: str,
    slug: str | None,
    description: str | None,
    get_or_create: bool,
    output: Output,
) -> None:
    """Create a dataset. A second dataset with the same name needs its own slug.

    \b
    Example:
      ers dataset create --organization acme --name "Field trials" --slug trials
    """
    output.write_object(
        await session.names.create_dataset(
            name, slug=slug, description=description, get_or_create=get_or_create
        )
    )


@dataset.command(short_help="Change name, slug or description.")
@click.argument("dataset", type=DATASET)
@click.option("--name", help="New name.")
@_slug
@_description
@click.option(
    "--listed/--unlisted",
    default=None,
    help="Let members ask for access with `ers share ask`, or end that (default: unlisted).",
)
@connected(organization=True)
@takes_output
async def update(
    session: CommandSession,
    dataset: str,
    name: str | None,
    slug: str | None,
    description: str | None,
    listed: bool | None,
    output: Output,
) -> None:
    """Change a dataset's name, slug or description, or whether members can ask for access.
    Everything else stays.

    A listed dataset is shown to all members by `ers dataset list --listed`, with its name and slug.
    Owners decide on requests; nobody gets access by asking.

    \b
    Example:
      ers dataset update medical --description "Anonymised admissions"
    """
    resource = await session.names.dataset(dataset)
    changes = {"name": name, "slug": slug, "description": description}
    if listed is None or any(value is not None for value in changes.values()):
        resource = await session.client.update(resource, **changes)
    if listed is not None:
        await session.client.list_dataset(resource.url, listed=listed)
    output.write_object(row_of(resource) | ({} if listed is None else {"listed": listed}))


@dataset.command(short_help="Delete a dataset.")
@click.argument("dataset", type=DATASET)
@click.option("--cascade", is_flag=True, help="Also delete its schemas and all their records.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def delete(session: CommandSession, dataset: str, cascade: bool, yes: bool) -> None:
    """Delete a dataset. A dataset with schemas is deleted only with --cascade.

    \b
    Example:
      ers dataset delete archive --yes
    """
    resource = await session.names.dataset(dataset)
    path = await session.names.path_of(resource)
    schemas = 0
    async for _ in session.names.schemas(resource):
        schemas += 1
    if schemas and not cascade:
        raise Conflict(
            f"{path} has {format_count(schemas, 'schema')}",
            code="dataset_not_empty",
            hint="delete them first, or repeat with --cascade, which deletes them and all their"
            " records",
        )
    with_all = f", with {format_count(schemas, 'schema')} and all records" if schemas else ""
    confirm(f"Delete {path}{with_all}?", yes=yes, undone="nothing was deleted")
    await session.client.delete(resource.url, cascade=cascade)
    say(f"Deleted {path}.")


dataset.add_command(reseal_dataset)

"""``ers dataset``: groups of schemas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands.conditions import parse_condition
from encrypted_records.cli.commands.record.options import where_option
from encrypted_records.cli.commands.schema_reseal import reseal_dataset
from encrypted_records.cli.commands.shares import (
    COLUMNS_OF_LISTED,
    each,
    people_of_all,
    rows_of_listed,
)
from encrypted_records.cli.login.session import (
    DATASET,
    CommandSession,
    connected,
)
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import confirm, format_count, say
from encrypted_records.cli.times import TIMES
from encrypted_records.errors import Conflict

if TYPE_CHECKING:
    from encrypted_records.client.proxy.records import FoundIn

_COLUMNS = ("slug", "name", "id", "created")
_FOUND = ("slug", "name", "count", "note")
_slug = click.option("--slug", help="Short name for addresses (default: made from the name).")
_description = click.option("--description", help="Description of the dataset.")
get_or_create_option = click.option(
    "--get-or-create", is_flag=True, help="Show the existing one if slug or name is taken."
)


@click.group(cls=CommandGroup, short_help="List, create, change or delete datasets.")
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
        every = await people_of_all(session)
        rows = [row for people in every for row in rows_of_listed(people)]
        await output.many(each(rows), COLUMNS_OF_LISTED, called="datasets")
        return
    filters = await session.names.in_organization()
    datasets = session.client.listing("datasets", **filters)
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
    output.write_one(shown, times=TIMES)


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

    async def rows() -> AsyncIterator[dict[str, Any]]:
        for counted in await session.client.search_dataset(resource["url"], condition, limit=shown):
            yield _row(counted)

    await output.many(rows(), _FOUND, called="schemas")


def _row(found: FoundIn) -> dict[str, Any]:
    why = f"has no {', '.join(found.missing)}" if found.missing else ""
    if found.error is not None:
        why = str(found.error.get("detail", "")).partition("\n")[0]
    return {
        "schema": found.schema,
        "slug": found.slug,
        "name": found.name,
        "count": found.count,
        "missing": found.missing,
        "note": why,
        "error": found.error,
        "results": found.results,
    }


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
    organization = await session.names.organization()
    within = {"organization": organization["id"]}
    made = await session.names.existing("datasets", within, name, slug, wanted=get_or_create)
    if made is None:
        made = await session.client.create(
            "datasets",
            name=name,
            organization=organization["url"],
            slug=slug,
            description=description,
        )
    output.write_one(made)


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
        resource = await session.client.change(resource["url"], **changes)
    if listed is not None:
        await session.client.list_dataset(resource["url"], listed=listed)
        resource = {**resource, "listed": listed}
    output.write_one(resource)


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
    path = await session.names.path_of_dataset(resource)
    schemas = 0
    async for _one in session.client.listing("schemas", dataset=resource["id"]):
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
    await session.client.delete(resource["url"], cascade=cascade)
    say(f"Deleted {path}.")


dataset.add_command(reseal_dataset)

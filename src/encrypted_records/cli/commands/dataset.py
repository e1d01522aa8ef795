"""``ers dataset``: groups of schemas."""

from __future__ import annotations

import click

from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.session import Session, connected
from encrypted_records.cli.terminal import confirm, say

_COLUMNS = ("slug", "name", "id", "created")
_slug = click.option("--slug", help="Short name for addresses; made from the name if left out.")
_description = click.option("--description", help="What it holds.")


@click.group(short_help="List, make, change or delete datasets.")
def dataset() -> None:
    """Datasets: groups of schemas in an organization.

    A dataset is named by its slug, name or id, or with its organization: acme/medical.
    """


@dataset.command("list", short_help="List datasets.")
@connected(organization=True)
@takes_output
async def list_(session: Session, output: Output) -> None:
    """List the datasets of an organization, or of all of yours.

    \b
    Example:
      ers dataset list --organization acme
    """
    filters = await session.names.in_organization()
    await output.many(session.client.listing("datasets", **filters), _COLUMNS)


@dataset.command(short_help="Show one.")
@click.argument("dataset")
@connected(organization=True)
@takes_output
async def get(session: Session, dataset: str, output: Output) -> None:
    """Show a dataset.

    \b
    Example:
      ers dataset get medical
    """
    output.one(await session.names.dataset(dataset))


@dataset.command(short_help="Make one.")
@click.option("--name", required=True, help="Name for people.")
@_slug
@_description
@connected(organization=True)
@takes_output
async def create(
    session: Session, name: str, slug: str | None, description: str | None, output: Output
) -> None:
    """Make a dataset.

    \b
    Example:
      ers dataset create --organization acme --name "Field trials" --slug trials
    """
    organization = (await session.names.organization())["url"]
    output.one(
        await session.client.create(
            "datasets", name=name, organization=organization, slug=slug, description=description
        )
    )


@dataset.command(short_help="Change name, slug or description.")
@click.argument("dataset")
@click.option("--name", help="New name.")
@_slug
@_description
@connected(organization=True)
@takes_output
async def update(
    session: Session,
    dataset: str,
    name: str | None,
    slug: str | None,
    description: str | None,
    output: Output,
) -> None:
    """Change a dataset's name, slug or description; what is left out stays.

    \b
    Example:
      ers dataset update medical --description "Anonymised admissions"
    """
    found = await session.names.dataset(dataset)
    output.one(
        await session.client.change(found["url"], name=name, slug=slug, description=description)
    )


@dataset.command(short_help="Delete one.")
@click.argument("dataset")
@click.option("--cascade", is_flag=True, help="Also its schemas, with all their records.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def delete(session: Session, dataset: str, cascade: bool, yes: bool) -> None:
    """Delete a dataset. One that has schemas is kept, unless --cascade says otherwise.

    \b
    Example:
      ers dataset delete archive --yes
    """
    found = await session.names.dataset(dataset)
    path = await session.names.path_of_dataset(found)
    confirm(f"Delete {path}{', with all schemas and records' if cascade else ''}?", yes=yes)
    await session.client.delete(found["url"], cascade=cascade)
    say(f"Deleted {path}.")

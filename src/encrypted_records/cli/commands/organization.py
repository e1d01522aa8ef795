"""``ers organization``: what datasets, schemas and records belong to."""

from __future__ import annotations

import click

from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.session import Session, connected

_COLUMNS = ("slug", "name", "id", "created")


@click.group(short_help="List, show or rename organizations.")
def organization() -> None:
    """Organizations: what datasets, schemas and records belong to."""


@organization.command("list", short_help="List the organizations that you belong to.")
@connected()
@takes_output
async def list_(session: Session, output: Output) -> None:
    """List the organizations that you belong to.

    \b
    Example:
      ers organization list
    """
    await output.many(session.client.listing("organizations"), _COLUMNS)


@organization.command(short_help="Show one.")
@click.argument("name", required=False)
@connected(organization=True)
@takes_output
async def get(session: Session, name: str | None, output: Output) -> None:
    """Show the organization NAME (a slug, name or id), or the only one you have.

    \b
    Example:
      ers organization get acme
    """
    output.one(await session.names.organization(name))


@organization.command(short_help="Rename one that you own.")
@click.argument("name", required=False)
@click.option("--name", "new_name", required=True, help="Its new name. The slug stays.")
@connected(organization=True)
@takes_output
async def update(session: Session, name: str | None, new_name: str, output: Output) -> None:
    """Rename the organization NAME (a slug, name or id), or the only one you have.

    \b
    Example:
      ers organization update --name Acme
    """
    found = await session.names.organization(name)
    output.one(await session.client.change(found["url"], name=new_name))

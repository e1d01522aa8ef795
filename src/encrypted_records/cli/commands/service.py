"""``ers service``: programs with a standing of their own in an organization."""

from __future__ import annotations

import time
from datetime import timedelta

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands.share import (
    ROLES,
    member_named,
    schema_option,
    tell,
    wanted_share,
)
from encrypted_records.cli.commands.shares import each, minute_of
from encrypted_records.cli.commands.token import Lifetime
from encrypted_records.cli.login.proofs import call_with_proof
from encrypted_records.cli.login.session import (
    DATASET,
    CommandSession,
    connected,
)
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import confirm, say, warn
from encrypted_records.cli.times import TIMES

_COLUMNS = ("name", "shares", "expires", "last_used", "admitted_by", "id")


@click.group(
    cls=CommandGroup, short_help="Create, list or delete services: programs with their own keys."
)
def service() -> None:
    """Manage services: programs that read or write datasets with their own keys.

    A service is one secret key, shown once. It is in the organization's roster like a person and is
    removed like one. Programs show the key to a proxy: ers reads it from ERS_SERVICE, HTTP clients
    send it as a Bearer credential. Never send it to the API.
    """


@service.command(short_help="Create a service, and print its secret key.")
@click.argument("name")
@click.option("--dataset", type=DATASET, required=True, help="Dataset to share: slug, name or id.")
@schema_option
@click.option("--role", type=click.Choice(ROLES), default="reader", show_default=True)
@click.option(
    "--expires",
    type=Lifetime(),
    help="Time until the service expires, such as 30d (default: never).",
)
@connected(organization=True)
async def create(
    session: CommandSession,
    name: str,
    dataset: str,
    schemas: tuple[str, ...],
    role: str,
    expires: timedelta | None,
) -> None:
    """Create the service NAME, admit it to a dataset, and print its secret key once. ers reads the
    key from ERS_SERVICE.

    \b
    Example:
      (umask 077; ers service create nightly --dataset medical --role reader > nightly.key)
    """
    organization = (await session.names.organization())["url"]
    share = await wanted_share(session, dataset, schemas, role)
    until = None if expires is None else int(time.time() + expires.total_seconds())
    made = await call_with_proof(
        session,
        lambda proof: session.client.create_service(
            organization, name, [share], expires=until, proof=proof
        ),
    )
    say(made.key)
    warn(f"This is service {made.id}; its secret key is not shown again.")


@service.command("list", short_help="List the services.")
@connected(organization=True)
@takes_output
async def list_(session: CommandSession, output: Output) -> None:
    """List the organization's services and what they can read and write.

    \b
    Example:
      ers service list
    """
    people = await session.client.people((await session.names.organization())["url"])
    rows = [
        {
            "name": person.name,
            "shares": ", ".join(f"{each.name} ({each.role})" for each in person.shares),
            "expires": person.expires,
            "last_used": minute_of(person.last_used),
            "admitted_by": person.admitted_by,
            "id": person.id,
        }
        for person in people.people
        if person.type == "service"
    ]
    await output.many(each(rows), _COLUMNS, called="services", times=TIMES)


@service.command(short_help="Delete a service.")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def delete(session: CommandSession, name: str, yes: bool) -> int:
    """Delete the service NAME (or an id). The keys of its datasets are rotated.

    \b
    Example:
      ers service delete nightly --yes
    """
    who = await member_named(session, name)
    confirm(f"Delete the service {name}?", yes=yes, undone="nothing was deleted")
    organization = (await session.names.organization())["url"]
    code = tell(await session.client.remove_person(organization, who))
    say(f"Deleted {name}.")
    return code

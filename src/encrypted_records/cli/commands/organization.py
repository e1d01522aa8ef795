"""``ers organization``: what datasets, schemas and records belong to."""

from __future__ import annotations

import click

from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.session import Session, connected
from encrypted_records.cli.terminal import confirm, say
from encrypted_records.errors import NotFound

_COLUMNS = ("slug", "name", "id", "created")
_ROLES = ("owner", "member")


@click.group(short_help="List, show, rename organizations; members, invitations, audit log.")
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


@organization.command("audit-log", short_help="Show who did what, the newest first.")
@click.argument("name", required=False)
@click.option("--action", metavar="ACTION", help="Only this, such as member.joined.")
@connected(organization=True)
@takes_output
async def audit_log(session: Session, name: str | None, action: str | None, output: Output) -> None:
    """Show who did what in an organization that you own, the newest first. It holds no values.

    \b
    Example:
      ers organization audit-log --action schema.created
    """
    found = await session.names.organization(name)
    filters = {} if action is None else {"action": action}
    entries = session.client.listing(f"organizations/{found['id']}/audit-log", **filters)
    await output.many(entries, ("created", "email", "action", "subject", "source"))


@organization.group(short_help="See, change or remove members.")
def member() -> None:
    """Members: they reach all datasets of the organization, and owners change it."""


@member.command("list", short_help="List the members.")
@connected(organization=True)
@takes_output
async def list_members(session: Session, output: Output) -> None:
    """List the members of an organization.

    \b
    Example:
      ers organization member list
    """
    found = await session.names.organization()
    members = session.client.listing(f"organizations/{found['id']}/members")
    await output.many(members, ("email", "role", "created"))


@member.command("update", short_help="Make a member an owner, or no owner.")
@click.argument("email")
@click.option("--role", type=click.Choice(_ROLES), required=True)
@connected(organization=True)
@takes_output
async def update_member(session: Session, email: str, role: str, output: Output) -> None:
    """Change the role of a member of an organization that you own.

    \b
    Example:
      ers organization member update ada@example.org --role owner
    """
    output.one(await session.client.change(await _member(session, email), role=role))


@member.command("delete", short_help="Remove a member, or leave.")
@click.argument("email")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def delete_member(session: Session, email: str, yes: bool) -> None:
    """Remove a member of an organization that you own, or leave it yourself.

    \b
    Example:
      ers organization member delete guest@example.org --yes
    """
    url = await _member(session, email)
    confirm(f"Remove {email}?", yes=yes)
    await session.client.delete(url)
    say(f"Removed {email}.")


async def _member(session: Session, email: str) -> str:
    """The path of a membership."""
    found = await session.names.organization()
    members = session.client.listing(f"organizations/{found['id']}/members")
    async for one in members:
        if one["email"].casefold() == email.casefold():
            return str(one["url"])
    raise NotFound(f"{email} is no member of {found['slug']}", hint="ers organization member list")


@organization.group(short_help="Invite people, or accept an invitation.")
def invitation() -> None:
    """Invitations: how people come to belong to an organization."""


@invitation.command("list", short_help="List those for you, or of your organization.")
@click.option("--mine", is_flag=True, help="Those for your own address.")
@connected(organization=True)
@takes_output
async def list_invitations(session: Session, mine: bool, output: Output) -> None:
    """List the invitations to an organization that you own, or those for your own address.

    \b
    Examples:
      ers organization invitation list
      ers organization invitation list --mine
    """
    collection = "invitations"
    if not mine:
        collection = f"organizations/{(await session.names.organization())['id']}/invitations"
    columns = ("id", "email", "role", "organization_name", "invited_by", "expires")
    await output.many(session.client.listing(collection), columns)


@invitation.command("create", short_help="Invite somebody by e-mail.")
@click.argument("email")
@click.option("--role", type=click.Choice(_ROLES), help="member if left out.")
@connected(organization=True)
@takes_output
async def create_invitation(session: Session, email: str, role: str | None, output: Output) -> None:
    """Invite somebody to an organization that you own. A message goes to the address.

    \b
    Example:
      ers organization invitation create grace@example.org --role member
    """
    found = await session.names.organization()
    collection = f"organizations/{found['id']}/invitations"
    output.one(await session.client.create(collection, email=email, role=role))


@invitation.command("accept", short_help="Accept one.")
@click.argument("id")
@connected()
@takes_output
async def accept_invitation(session: Session, id: str, output: Output) -> None:  # noqa: A002
    """Accept the invitation of an id, as ers organization invitation list --mine shows it.

    \b
    Example:
      ers organization invitation accept "$INVITATION"
    """
    output.one(await session.client.create(f"invitations/{id}/accept"))


@invitation.command("delete", short_help="Withdraw or decline one.")
@click.argument("id")
@connected(organization=True)
async def delete_invitation(session: Session, id: str) -> None:  # noqa: A002
    """Withdraw an invitation to an organization that you own, or decline one for you.

    \b
    Example:
      ers organization invitation delete "$SENT"
    """
    try:
        await session.client.delete(f"/api/invitations/{id}/")
    except NotFound:  # not for this address, so it is to be withdrawn
        found = await session.names.organization()
        await session.client.delete(f"{found['url']}invitations/{id}/")
    say("Deleted.")

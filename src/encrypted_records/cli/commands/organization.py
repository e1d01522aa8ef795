"""``ers organization``: what datasets, schemas and records belong to, and who its members are;
``ers service``: programs that are members with rights of their own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands import share as sharing
from encrypted_records.cli.commands.account import Lifetime
from encrypted_records.cli.login.proofs import with_proof
from encrypted_records.cli.login.session import DATASET, CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import DONE, TIMES, confirm, say, warn
from encrypted_records.client.proxy.sharing import People
from encrypted_records.errors import ErsError, InvalidSetting, NotFound

_COLUMNS = ("slug", "name", "id", "created")
_ROLES = ("owner", "member")
#: Codes of the errors that somebody meets who is not in the roster, or whose keys are not here.
_OUTSIDE = frozenset({"not_admitted", "key_missing", "identity_replaced"})


@click.group(cls=CommandGroup)
def organization() -> None:
    """Manage organizations, which own datasets, schemas and records."""


@organization.command("list", short_help="List the organizations that you belong to.")
@connected()
@takes_output
async def list_(session: CommandSession, output: Output) -> None:
    """List the organizations that you belong to.

    \b
    Example:
      ers organization list
    """
    organizations = session.client.organizations()
    await output.many(organizations, _COLUMNS, called="organizations", times=TIMES)


@organization.command(short_help="Show an organization.")
@click.argument("name", required=False)
@connected(organization=True)
@takes_output
async def get(session: CommandSession, name: str | None, output: Output) -> None:
    """Show the organization NAME (a slug, name or id), or your only one.

    \b
    Example:
      ers organization get acme
    """
    output.write_object(await session.names.organization(name), times=TIMES)


@organization.command(short_help="Rename an organization that you own.")
@click.argument("name", required=False)
@click.option("--name", "new_name", required=True, help="New name; the slug stays.")
@connected(organization=True)
@takes_output
async def update(session: CommandSession, name: str | None, new_name: str, output: Output) -> None:
    """Rename the organization NAME (a slug, name or id), or your only one.

    \b
    Example:
      ers organization update --name Acme
    """
    organization = await session.names.organization(name)
    output.write_object(await session.client.update(organization, name=new_name))


@organization.command("audit-log", short_help="Show who did what, the newest first.")
@click.argument("name", required=False)
@click.option("--action", metavar="ACTION", help="Only this action, such as member.joined.")
@click.option("--without", metavar="ACTION", help="All but this action, such as records.read.")
@click.option("--user", metavar="EMAIL", help="Only actions of this present or former member.")
@click.option("--until", metavar="DAY", help="Only until this day (UTC), such as 2026-03-31.")
@connected(organization=True)
@takes_output
async def audit_log(
    session: CommandSession,
    name: str | None,
    user: str | None,
    output: Output,
    **options: str | None,
) -> None:
    """Show who did what in an organization that you own, newest first. The log contains no values.

    \b
    Examples:
      ers organization audit-log --action schema.created
      ers organization audit-log --user ada@example.org --without records.read
    """
    organization = await session.names.organization(name)
    url = f"organizations/{organization.id}"
    filters = {key: value for key, value in options.items() if value is not None}
    if user is not None:
        filters["user"] = await _user_of(session, url, user)
    entries = session.client.listing(f"{url}/audit-log", **filters)
    columns = ("created", "email", "action", "subject", "source")
    named: dict[str, str] = {}
    if output.form == "table":
        named = {organization.url: organization.slug}
        named |= await session.slugs("datasets") | await session.slugs("schemas")
        members = session.client.listing(f"{url}/members")
        named |= {member["user"]: member["email"] async for member in members}

    def cells(entry: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**entry, "subject": named.get(entry["subject"], entry["subject"])}

    await output.many(entries, columns, cells, called="entries", times=TIMES)


async def _user_of(session: CommandSession, organization: str, email: str) -> str:
    """The path of a present or former member of an organization.

    Raises:
        NotFound: no member with that address is known.
    """
    joined = session.client.listing(f"{organization}/audit-log", action="member.joined")
    for listed in (session.client.listing(f"{organization}/members"), joined):
        async for person in listed:
            if (person["email"] or "").casefold() == email.casefold():
                return str(person["user"])
    raise NotFound(
        f"nobody with the address {email} is or was in this organization",
        hint="ers organization member list shows the members; the log has the others for a year",
    )


@organization.command(
    short_help="Become an owner with the recovery words of an owner who lost access."
)
@connected(organization=True)
async def recover(session: CommandSession) -> None:
    """Become an owner of an organization whose last owner lost access, with that owner's recovery
    phrases: one phrase a line on standard input, all versions, oldest first. Before that, the
    operator of the API has to make you an owner with `ers api owner`. The words are not stored.

    \b
    Example:
      ers organization recover < phrases.txt
    """
    url = (await session.names.organization()).url
    phrases = [line for line in sys.stdin.read(100_000).splitlines() if line.strip()]
    by = await with_proof(session, session.client.recover_organization, url, phrases)
    say(f"You own the organization now, with the keys of {by}. To remove {by}:")
    say(f"  ers organization member delete {by}")


@organization.group(short_help="List, change or remove members.")
def member() -> None:
    """Manage members of an organization."""


@member.command("list", short_help="List the members.")
@connected(organization=True)
@takes_output
async def list_members(session: CommandSession, output: Output) -> None:
    """List the members of an organization, as reported by the API. Where datasets are shared, the
    signed roster decides who is a member: see `ers share list`.

    \b
    Example:
      ers organization member list
    """
    organization = await session.names.organization()
    members = session.client.listing(f"organizations/{organization.id}/members")
    await output.many(members, ("email", "role", "created"), called="members", times=TIMES)
    await session.tell_of_invitations()


@member.command("update", short_help="Change a member's role or address.")
@click.argument("email")
@click.option("--role", type=click.Choice(_ROLES), help="New role.")
@click.option("--email", "new_email", help="New address in the signed roster.")
@connected(organization=True)
@takes_output
async def update_member(
    session: CommandSession, email: str, role: str | None, new_email: str | None, output: Output
) -> int:
    """Change the role of a member of an organization that you own, or the address that the signed
    roster has of them. Members who have changed their address keep the earlier one in the roster
    until you sign the new one: ask them first, because the API alone reports it.

    \b
    Example:
      ers organization member update ada@example.org --role owner
    """
    if (role is None) == (new_email is None):
        raise click.UsageError("give either --role or --email")
    organization = (await session.names.organization()).url
    who = await _signed_member(session, organization, email)
    client = session.client
    if new_email is not None:
        if who is None:
            raise NotFound(
                f"no signed roster has a member with the address {email}",
                hint="ers share list shows the signed members; without a roster, the address is"
                " the account's own",
            )
        settled = await with_proof(session, client.change_address, organization, who, new_email)
        code = sharing.tell(settled)
        output.write_object({"email": new_email})
        return code
    assert role is not None
    if who is None:
        output.write_object(await client.change(await _member(session, email), role=role))
        return DONE
    settled = await with_proof(session, client.change_role, organization, who, role)
    code = sharing.tell(settled)
    output.write_object({"email": email, "role": role})
    return code


@member.command("delete", short_help="Remove a member, or leave.")
@click.argument("email")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def delete_member(session: CommandSession, email: str, yes: bool) -> int:
    """Remove a member of an organization that you own, or leave it yourself. Keys of datasets
    shared with them are rotated; they may have kept copies of earlier records.

    \b
    Example:
      ers organization member delete guest@example.org --yes
    """
    organization = (await session.names.organization()).url
    who = await _signed_member(session, organization, email)
    url = await _member(session, email) if who is None else ""
    confirm(f"Remove {email}?", yes=yes, undone="nobody was removed")
    code = DONE
    if who is None:
        await session.client.delete(url)
    else:
        code = sharing.tell(await session.client.remove_person(organization, who))
        sharing.say_kept(email)
    say(f"Removed {email}.")
    return code


async def _signed_member(session: CommandSession, organization: str, email: str) -> str | None:
    """The id of the member with an address in the roster; None if there is no such member or no
    roster.

    Only an entry changes the roster: the API's claim that a member is gone, or is an owner, has no
    effect.
    """
    people = await _roster_people(session, organization)
    return sharing.named_member(people, email) if people is not None else None


async def _roster_people(session: CommandSession, organization: str) -> People | None:
    """The organization by its roster; None if the user is not a member, or it cannot be read from
    here.
    """
    try:
        people: People = await session.client.people(organization)
    except ErsError as error:
        if error.reason not in _OUTSIDE or error.from_api:
            raise
        return None
    return people


async def _member(session: CommandSession, email: str) -> str:
    """The path of a membership.

    Raises:
        NotFound: the API has none of that address.
    """
    organization = await session.names.organization()
    members = session.client.listing(f"organizations/{organization.id}/members")
    async for found in members:
        if found["email"].casefold() == email.casefold():
            return str(found["url"])
    raise NotFound(
        f"{email} is not a member of {organization.slug}", hint="ers organization member list"
    )


@organization.group(short_help="Invite people, or accept an invitation.")
def invitation() -> None:
    """Manage invitations to an organization."""


@invitation.command("list", short_help="List invitations to you or from your organization.")
@click.option("--mine", is_flag=True, help="Invitations to your own address.")
@connected(organization=True)
@takes_output
async def list_invitations(session: CommandSession, mine: bool, output: Output) -> None:
    """List invitations to an organization that you own, or to your own address.

    \b
    Examples:
      ers organization invitation list
      ers organization invitation list --mine
    """
    collection = "invitations"
    if not mine:
        collection = f"organizations/{(await session.names.organization()).id}/invitations"
    columns = ("id", "email", "role", "organization_name", "invited_by", "expires")
    await output.many(
        session.client.listing(collection), columns, called="invitations", times=TIMES
    )
    if not mine:
        await session.tell_of_invitations()


@invitation.command("create", short_help="Invite a person by e-mail.")
@click.argument("email")
@click.option("--role", type=click.Choice(_ROLES), help="Role of the person (default: member).")
@connected(organization=True)
@takes_output
async def create_invitation(
    session: CommandSession, email: str, role: str | None, output: Output
) -> None:
    """Invite a person to an organization that you own. They receive a message.

    \b
    Example:
      ers organization invitation create grace@example.org --role member
    """
    organization = await session.names.organization()
    collection = f"organizations/{organization.id}/invitations"
    output.write_object(await session.client.create(collection, email=email, role=role))


@invitation.command("accept", short_help="Accept an invitation.")
@click.argument("id")
@connected()
@takes_output
async def accept_invitation(session: CommandSession, id: str, output: Output) -> None:  # noqa: A002
    """Accept the invitation with this id, as shown by ers organization invitation list --mine.

    \b
    Example:
      ers organization invitation accept "$INVITATION"
    """
    output.write_object(await session.client.create(f"invitations/{id}/accept"))


@invitation.command("delete", short_help="Withdraw or decline an invitation.")
@click.argument("id")
@connected(organization=True)
async def delete_invitation(session: CommandSession, id: str) -> int:  # noqa: A002
    """Withdraw an invitation to an organization that you own, or decline one to you.

    \b
    Example:
      ers organization invitation delete "$SENT"
    """
    organization = await _signed_invitation(session, id)
    code = DONE
    if organization is not None:
        code = sharing.tell(await session.client.remove_person(organization, id))
    else:
        try:
            await session.client.delete(f"/api/invitations/{id}/")
        except NotFound:  # not for this address, so it is to be withdrawn
            organization = (await session.names.organization()).url
            await session.client.delete(f"{organization}invitations/{id}/")
    say("Deleted.")
    return code


async def _signed_invitation(session: CommandSession, invitation: str) -> str | None:
    """The organization whose roster has it open, and that the caller owns: there it is withdrawn by
    an entry alone. None: it is the API's, or the caller's to decline."""
    try:
        organization = (await session.names.organization()).url
    except (NotFound, InvalidSetting):
        return None
    people = await _roster_people(session, organization)
    if people is None or not any(person.you and person.role == "owner" for person in people.people):
        return None
    return organization if any(listed.id == invitation for listed in people.invitations) else None


_SERVICE_COLUMNS = ("name", "shares", "expires", "last_used", "admitted_by", "id")


@click.group(cls=CommandGroup)
def service() -> None:
    """Manage services: programs that read or write datasets with their own keys.

    A service is one secret key, shown once. It is in the organization's roster like a person and is
    removed like one. Programs show the key to a proxy: ers reads it from ERS_SERVICE, HTTP clients
    send it as a Bearer credential. Never send it to the API.
    """


@service.command("create", short_help="Create a service, and print its secret key.")
@click.argument("name")
@click.option("--dataset", type=DATASET, required=True, help="Dataset to share: slug, name or id.")
@sharing.schema_option
@click.option("--role", type=click.Choice(sharing.ROLES), default="reader", show_default=True)
@click.option(
    "--expires",
    type=Lifetime(),
    help="Time until the service expires, such as 30d (default: never).",
)
@connected(organization=True)
async def create_service(
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
    organization = (await session.names.organization()).url
    share = await sharing.wanted_share(session, dataset, schemas, role)
    until = None if expires is None else int(time.time() + expires.total_seconds())
    made = await with_proof(
        session, session.client.create_service, organization, name, [share], expires=until
    )
    say(made.key)
    warn(f"This is service {made.id}; its secret key is not shown again.")


@service.command("list", short_help="List the services.")
@connected(organization=True)
@takes_output
async def list_services(session: CommandSession, output: Output) -> None:
    """List the organization's services and what they can read and write.

    \b
    Example:
      ers service list
    """
    people = await session.client.people((await session.names.organization()).url)
    rows = [
        {
            "name": person.name,
            "shares": ", ".join(f"{each.name} ({each.role})" for each in person.shares),
            "expires": person.expires,
            "last_used": sharing.minute_of(person.last_used),
            "admitted_by": person.admitted_by,
            "id": person.id,
        }
        for person in people.people
        if person.type == "service"
    ]
    await output.many(rows, _SERVICE_COLUMNS, called="services", times=TIMES)


@service.command("delete", short_help="Delete a service.")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def delete_service(session: CommandSession, name: str, yes: bool) -> int:
    """Delete the service NAME (or an id). The keys of its datasets are rotated.

    \b
    Example:
      ers service delete nightly --yes
    """
    who = await sharing.member_named(session, name)
    confirm(f"Delete the service {name}?", yes=yes, undone="nothing was deleted")
    organization = (await session.names.organization()).url
    code = sharing.tell(await session.client.remove_person(organization, who))
    say(f"Deleted {name}.")
    return code

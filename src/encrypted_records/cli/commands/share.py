"""``ers share``: who reads and writes what, and changing it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import click
import msgspec

from encrypted_records.cli.commands.shares import (
    COLUMNS,
    COLUMNS_OF_READERS,
    Place,
    remarks_of,
    rows_of,
    rows_of_readers,
    shares_told,
)
from encrypted_records.cli.login.proofs import ask_secret, call_with_proof
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.profiles import FORMATS
from encrypted_records.cli.terminal import DONE, REFUSED, confirm, say, warn
from encrypted_records.client.proxy.sharing import People, Settled
from encrypted_records.errors import InvalidSetting, NotFound

ROLES = ("reader", "writer")
#: How long --wait waits for an answer, and how often it looks.
_WAIT_SECONDS, _LOOK_SECONDS = 7 * 86_400, 5.0

dataset_option = click.option("--dataset", required=True, help="Its slug, name or id.")
schema_option = click.option(
    "--schema", "schemas", multiple=True, help="This schema alone; may be repeated."
)


@click.group(short_help="Share datasets with people; see who reads and writes what.")
def share() -> None:
    """Sharing: people read and write the same datasets, each with a keyring of their own.

    \b
    A dataset has a key. Readers read it, writers also store into it; owners of the organization are
    in every dataset and decide who else is. Invite somebody with `ers share invite`, and tell them
    the twelve words by phone or in person. They enter them with `ers share accept`. When somebody
    leaves, each dataset they were in gets a new key; what they could read before, they may have
    copied.
    """


@share.command("list", short_help="Show who reads and writes what.")
@click.argument("dataset", required=False)
@click.option("--schema", help="Only who reads this schema of it.")
@connected(organization=True)
@takes_output
async def list_(
    session: CommandSession, output: Output, dataset: str | None, schema: str | None
) -> None:
    """Show who is in the organization, with what they read and write, by its signed roster; who was
    invited, and what is due. Of a DATASET, or one schema of it, only who reads it, as what, and
    since when. Owners see when services were last used, and whose account is gone, by the API's
    word. The eight words at the end are the same for everybody who sees the very same roster.

    \b
    Example:
      ers share list
      ers share list medical
    """
    if dataset is None and schema is not None:
        raise InvalidSetting("--schema needs the dataset that it is in", hint="name it first")
    place = None
    if dataset is not None:
        found = await session.names.dataset(dataset)
        named = await session.names.schema(schema, dataset) if schema is not None else None
        place = Place(found["organization"], found["url"], named["url"] if named else None)
    people = await _people(session, place.organization if place else None)
    rows = rows_of(people) if place is None else rows_of_readers(people, place)
    await output.many(
        each(rows), COLUMNS if place is None else COLUMNS_OF_READERS, called="members"
    )
    for line in remarks_of(people, place):
        warn(line)
    await session.tell_of_invitations()


@share.command(short_help="Invite somebody, by twelve words.")
@click.argument("email")
@click.option("--dataset", help="Share this one: its slug, name or id.")
@schema_option
@click.option("--role", type=click.Choice(ROLES), default="reader", show_default=True)
@click.option("--new", is_flag=True, help="A new account: a former member had this address.")
@click.option("--wait", is_flag=True, help="Wait for the answer, and let them in.")
@click.option(
    "--output",
    "-o",
    "form",
    type=click.Choice(FORMATS),
    help="Id, words and end of the invitation in this form, instead of the words alone.",
)
@connected(organization=True)
async def invite(
    session: CommandSession,
    email: str,
    dataset: str | None,
    schemas: tuple[str, ...],
    role: str,
    new: bool,
    wait: bool,
    form: str | None,
) -> int:
    """Invite EMAIL to a dataset, and print twelve words, once. Tell them by phone or in person; the
    message that goes to the address does not have them. Who enters them with `ers share accept` is
    let in by your proxy, or any other owner's: with --wait by this command, else with
    `ers share settle`.

    Somebody in the organization who has lost their keyring is invited again in the same way. They
    get what they had if --dataset is left out. With --new, an account is invited that never was in
    the organization: EMAIL was somebody else's, or their account is gone and they made another.

    A second invitation of an address replaces the first, and stderr says what the first one shared:
    share the rest with `ers share set` when they are in.

    \b
    Example:
      ers share invite grace@example.org --dataset medical --role reader
    """
    output = None if form is None else Output(form)
    organization = (await session.names.organization())["url"]
    shares = None
    if dataset is not None:
        shares = [await wanted_share(session, dataset, schemas, role)]
    elif schemas:
        raise InvalidSetting("--schema needs the --dataset that it is in", hint="add --dataset")
    made = await call_with_proof(
        session,
        lambda proof: session.client.invite(organization, email, shares, new=new, proof=proof),
    )
    if output is None:
        say(made.words)
    else:
        output.write_one(msgspec.to_builtins(made))
    if made.replaced is not None:
        warn(
            f"This replaces the invitation {made.replaced.id} of {email}, whose words do nothing"
            f" more. It shared: {shares_told(made.replaced.shares)}. To share that as well, once"
            f" they are in: ers share set {email}"
        )
    warn(f"Tell {email} these words, by phone or in person; they are not shown again. With them:")
    warn(f"  ers share accept {made.id}")
    return await _await_admission(session, organization, made.id) if wait else DONE


async def _await_admission(session: CommandSession, organization: str, invitation: str) -> int:
    deadline = time.monotonic() + _WAIT_SECONDS
    code = DONE
    while time.monotonic() < deadline:
        code = tell(await session.client.settle(organization))
        people = await session.client.people(organization)
        if all(one.id != invitation or one.status == "expired" for one in people.invitations):
            return code
        await asyncio.sleep(_LOOK_SECONDS)
    return code


@share.command(short_help="Enter the words of an invitation.")
@click.argument("id", metavar="ID")
@connected()
async def accept(session: CommandSession, id: str) -> None:  # noqa: A002 - as the message calls it
    """Answer the invitation ID with its twelve words: asked for, or the next line of standard
    input. A keyring is made where you have none. An owner's proxy lets you in then.

    \b
    Example:
      ers share accept "$INVITATION" < words.txt
    """
    words = ask_secret("The twelve words")
    if (await session.client.devices()).keyring is None:
        session.make_device()  # the keyring that is made takes it in
    joined = await session.client.answer_invitation(id, words)
    say(f"Answered. You are let in when a proxy of an owner sees it: {joined.invited_by}.")


@share.command("set", short_help="Share a dataset with a member, or change how.")
@click.argument("member")
@dataset_option
@schema_option
@click.option("--role", type=click.Choice(ROLES), required=True)
@connected(organization=True)
async def set_(
    session: CommandSession, member: str, dataset: str, schemas: tuple[str, ...], role: str
) -> int:
    """Share a dataset with MEMBER (an address, a service's name, or an id), in place of what was
    shared of it. Where that is less than before, the dataset gets a new key.

    \b
    Example:
      ers share set grace@example.org --dataset medical --role writer
    """
    who = await member_named(session, member)
    wanted = await wanted_share(session, dataset, schemas, role)
    settled = await call_with_proof(
        session,
        lambda proof: session.client.share(
            wanted["dataset"], who, wanted["role"], wanted.get("schemas"), proof=proof
        ),
    )
    say(f"Shared with {member}.")
    return tell(settled)


@share.command(short_help="Take a dataset away from a member.")
@click.argument("member")
@dataset_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def remove(session: CommandSession, member: str, dataset: str, yes: bool) -> int:
    """Take a dataset away from MEMBER, and give it a new key for what comes. What was stored
    before, the member may have kept.

    \b
    Example:
      ers share remove grace@example.org --dataset medical --yes
    """
    who = await member_named(session, member)
    url = (await session.names.dataset(dataset))["url"]
    confirm(f"Take {dataset} away from {member}?", yes=yes, undone="nothing was taken away")
    code = tell(await session.client.unshare(url, who))
    say_kept(member)
    return code


@share.command(short_help="Withdraw an invitation.")
@click.argument("invited")
@connected(organization=True)
async def withdraw(session: CommandSession, invited: str) -> int:
    """Withdraw the invitation of INVITED, an e-mail address or the id of one. Its words open
    nothing then.

    \b
    Example:
      ers share withdraw grace@example.org
    """
    organization = (await session.names.organization())["url"]
    people: People = await session.client.people(organization)
    found = [one for one in people.invitations if invited == one.id] or [
        one for one in people.invitations if one.email.casefold() == invited.casefold()
    ]
    if not found:
        raise NotFound(
            "no invitation of that address or id is open",
            code="not_a_member",
            hint="ers share list shows invitations, with their ids",
        )
    code = DONE
    for one in found:
        code = max(code, tell(await session.client.remove_person(organization, one.id)))
        say(f"Withdrew the invitation of {one.email}.")
    return code


@share.command(short_help="Let in who has answered, and give new keys where due.")
@connected(organization=True)
async def settle(session: CommandSession) -> int:
    """Do what an owner's proxy has to do: let in who has answered an invitation, put out services
    that have expired, give datasets a new key that somebody has lost. Doing it again is harmless.
    If something could not be done, it is named, and the exit code is 4.

    \b
    Example:
      ers share settle
    """
    organization = (await session.names.organization())["url"]
    settled = await session.client.settle(organization)
    code = tell(settled)
    if code == DONE:
        say("Nothing is due.")
    return code


@share.command(short_help="Give a dataset a new key for what comes.")
@click.argument("dataset")
@connected(organization=True)
async def rotate(session: CommandSession, dataset: str) -> int:
    """Give DATASET a new key for what is stored from now on, sealed to everybody who is in it.

    \b
    Example:
      ers share rotate medical
    """
    url = (await session.names.dataset(dataset))["url"]
    code = tell(await session.client.rotate_dataset(url))
    say(f"{dataset} has a new key for what comes.")
    return code


async def each(rows: Iterable[Mapping[str, Any]]) -> AsyncIterator[Mapping[str, Any]]:
    """Rows as :meth:`Output.many` takes them."""
    for row in rows:
        yield row


async def _people(session: CommandSession, organization: str | None = None) -> People:
    organization = organization or (await session.names.organization())["url"]
    people: People = await session.client.people(organization)
    return people


async def wanted_share(
    session: CommandSession, dataset: str, schemas: tuple[str, ...], role: str
) -> dict[str, Any]:
    """A share as the proxy takes it.

    Raises:
        Closed: ``schema_unsigned``; the API shows another dataset by this name than was signed.
    """
    url = (await session.names.dataset(dataset))["url"]
    wanted: dict[str, Any] = {"dataset": url, "role": role}
    if schemas:
        found: list[Mapping[str, Any]] = [
            await session.names.schema(one, dataset) for one in schemas
        ]
        wanted["schemas"] = [one["url"] for one in found]
    return wanted


async def member_named(session: CommandSession, named: str) -> str:
    """The id of the member, or of the service, that has this name or id in the roster.

    Raises:
        NotFound: nobody, or several.
    """
    found = named_member(await _people(session), named)
    if found is None:
        raise _not_one("nobody")
    return found


def named_member(people: People, named: str) -> str | None:
    """The same of a roster that was read; None: nobody.

    Raises:
        NotFound: several.
    """
    found = {one.id for one in people.people if named in (one.id, one.name)} or {
        one.id for one in people.people if one.name.casefold() == named.casefold()
    }
    if len(found) > 1:
        raise _not_one("more than one")
    return next(iter(found), None)


def _not_one(how_many: str) -> NotFound:
    return NotFound(
        f"{how_many} of that name is in the organization",
        code="not_a_member",
        hint="ers share list names its members, with their ids",
    )


def tell(settled: Settled) -> int:
    """Say what was done, and what could not be; the exit code, which is not 0 for the latter."""
    for name in settled.admitted:
        say(f"{name} was let in.")
    for name in settled.removed:
        say(f"{name} was put out.")
    for name in settled.rotated:
        say(f"{name} has a new key for what comes.")
    for one in settled.troubles:
        warn(f"{one.name}: {one.detail} ({one.code}); {one.hint}")
    return REFUSED if settled.troubles else DONE


def say_kept(name: str) -> None:
    say(f"{name} can still open what was stored before, if it was kept.")

"""``ers share``: who reads and writes what, requests for it, and changing it."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.login.proofs import ask_secret, with_proof
from encrypted_records.cli.login.session import DATASET, SCHEMA, CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.settings import FORMATS
from encrypted_records.cli.terminal import DONE, REFUSED, TIMES, confirm, say, warn
from encrypted_records.client.proxy.sharing import (
    OpenRequest,
    People,
    PersonOrService,
    Settled,
    Shared,
    SignedDataset,
    covers,
    readers_of,
)
from encrypted_records.errors import InvalidSetting, NotFound

#: Members of the rows, in the order of their columns.
_REST = ("since", "known_by", "admitted_by", "last_used", "account", "id")
COLUMNS = ("name", "role", "shares", *_REST)
COLUMNS_OF_READERS = ("name", "role", "schemas", *_REST)
COLUMNS_OF_LISTED = ("slug", "name", "id", "request", "owners")
COLUMNS_OF_REQUESTS = ("email", "dataset", "role", "asked", "status", "member")


@dataclass(frozen=True, slots=True)
class ShareTarget:
    """The dataset whose readers are asked for, by path; or one schema of it."""

    organization: str
    dataset: str
    schema: str | None = None


def rows_of(people: People) -> Iterator[Mapping[str, Any]]:
    """Everybody, with all that they have, and since when they are in."""
    for person in people.people:
        yield {
            "name": _name(person),
            "role": person.role if person.type == "person" else "service",
            "shares": "everything" if person.role == "owner" else text_of_shares(person.shares),
            "since": minute_of(person.since),
            **_details(person),
        }


def rows_of_readers(people: People, place: ShareTarget) -> Iterator[Mapping[str, Any]]:
    for who, role, schemas, since in readers_of(people, place.dataset, place.schema):
        yield {
            "name": _name(who),
            "role": role,
            "schemas": "all" if schemas is None else ", ".join(each.name for each in schemas),
            "since": minute_of(since),
            **_details(who),
        }


def _name(member: PersonOrService) -> str:
    return "deleted account" if member.account_gone else member.name


def _details(member: PersonOrService) -> dict[str, Any]:
    return {
        "known_by": member.known_by,
        "admitted_by": member.admitted_by,
        "last_used": minute_of(member.last_used),
        "account": "gone" if member.account_gone else "",
        "id": member.id,
    }


def remarks_of(people: People, place: ShareTarget | None = None) -> Iterator[str]:
    """Remarks beside the rows: deleted accounts, invitations, pending changes, the roster; for a
    place, only the invitations and pending changes that concern it.
    """
    for person in people.people:
        if person.email_now:
            # Quoted, since the API wrote one of them, and a shell would obey what is in it.
            signed, reported = (shlex.quote(text) for text in (person.name, person.email_now))
            yield (
                f"Changed: {person.name} has the address {person.email_now} now, according to"
                " the API; ask them, then: ers organization member update"
                f" {signed} --email {reported}"
            )
        if person.account_gone:
            yield (
                f"Gone: {person.id} no longer has an account, according to the API; an"
                f" owner removes it with ers organization member delete {person.id}"
            )
    for invitation in people.invitations:
        if place is not None and not any(
            covers(share, place.dataset, place.schema) for share in invitation.shares
        ):
            continue
        state = invitation.status
        if invitation.answer_refused:
            state = f"an answer was refused ({invitation.answer_refused})"
        if invitation.status == "declined":
            state = (
                "declined, according to the API; withdraw it with ers share withdraw"
                f" {shlex.quote(invitation.email)}"
            )
        shares = text_of_shares(invitation.shares)
        yield f"Invited: {invitation.email}, {shares}: {state}, {invitation.id}"
    yield from remarks_of_requests(people, place)
    for due in people.due:
        if place is not None and due.dataset != place.dataset:
            continue
        if due.because:
            because = ", ".join(due.because)
            yield f"Pending: {due.name} needs a new key because of {because}: ers share settle"
        if due.schemas:
            yield (
                f"Pending: members who lost the right to write in {due.name} may still add"
                f" to {', '.join(due.schemas)} until the logs are closed: ers share settle"
            )
    if people.number:
        yield f"Roster: entry {people.number}, {people.words}"


def remarks_of_requests(people: People, place: ShareTarget | None = None) -> Iterator[str]:
    """Remarks about requests for access, or about those that concern a place: what to do next."""
    you = next((person for person in people.people if person.you), None)
    for request in people.requests:
        if place is not None and request.dataset != place.dataset:
            continue
        line = f"Asked: {request.email}, {request.name} ({request.role})"
        if request.declined is not None:
            yield f"{line}: declined, according to the API"
        elif you is not None and you.role == "owner":
            who = shlex.quote(request.email)
            of = f"{who} --dataset {shlex.quote(_slug_of(people, request.dataset))}"
            yield f"{line}: ers share set {of} --role {request.role}, or ers share decline {of}"
        else:
            yield f"{line}: waiting for an owner"
    if people.requests_refused:
        yield (
            f"Refused: {people.requests_refused} of the requests for access that the API shows were"
            " not signed by the member they name"
        )


def _slug_of(people: People, dataset: str) -> str:
    return next(named.slug for named in people.datasets if named.dataset == dataset)


def rows_of_requests(people: People) -> Iterator[Mapping[str, Any]]:
    """Requests for access, the oldest first."""
    for request in people.requests:
        yield {
            "email": request.email,
            "dataset": request.name,
            "role": request.role,
            "asked": minute_of(request.asked),
            "status": _status_of(request),
            "member": request.member,
        }


def _status_of(request: OpenRequest) -> str:
    if request.declined is None:
        return "waiting"
    return f"declined {minute_of(request.declined)}"


def rows_of_listed(people: People) -> Iterator[Mapping[str, Any]]:
    """The listed datasets that the user does not have as a whole; to owners nothing is listed."""
    requests = {request.dataset: request for request in people.requests}
    owners = ", ".join(person.name for person in people.people if person.role == "owner")
    for dataset in people.datasets:
        if dataset.may_ask:
            request = requests.get(dataset.dataset)
            status = "" if request is None else f"{request.role}, {_status_of(request)}"
            yield {
                "slug": dataset.slug,
                "name": dataset.name,
                "id": _id_of(dataset),
                "request": status,
                "owners": owners,
            }


async def people_of_all(session: CommandSession) -> list[People]:
    """The people of the organization that was named, or of each organization."""
    return [await session.client.people(url) for url in await session.names.organizations()]


def dataset_named(organizations: Iterable[People], named: str) -> SignedDataset:
    """The dataset of the rosters with this slug, name, id or path, whether it is shared or not.

    Raises:
        NotFound: there is none.
        InvalidSetting: there are several.
    """
    datasets = [dataset for people in organizations for dataset in people.datasets]
    found = [dataset for dataset in datasets if named in (dataset.dataset, _id_of(dataset))] or [
        dataset for dataset in datasets if named in (dataset.slug, dataset.name)
    ]
    if not found:
        raise NotFound(
            f"your organizations have no dataset {named}",
            hint="ers dataset list --listed shows the datasets that you can ask for",
        )
    if len(found) > 1:
        named_apart = ", ".join(f"{_id_of(dataset)} ({dataset.slug})" for dataset in found)
        raise InvalidSetting(
            f"{named} names {len(found)} datasets",
            hint=f"name the organization with --organization, or an id: {named_apart}",
        )
    return found[0]


def _id_of(dataset: SignedDataset) -> str:
    return dataset.dataset.rstrip("/").rpartition("/")[2]


def minute_of(seconds: int | None) -> str:
    """A time in seconds since 1970, to the minute, such as ``2026-01-31T08:30Z``; empty where there
    is none."""
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%MZ}"


def text_of_shares(shares: Sequence[Shared]) -> str:
    texts = []
    for share in shares:
        of = "" if share.schemas is None else "/" + ",".join(each.name for each in share.schemas)
        texts.append(f"{share.name}{of} ({share.role})")
    return ", ".join(texts) or "nothing"


ROLES = ("reader", "writer")
#: Seconds for which --wait waits for an answer, and those between two polls.
_WAIT_SECONDS, _POLL_INTERVAL = 7 * 86_400, 5.0

dataset_option = click.option(
    "--dataset", type=DATASET, required=True, help="Slug, name or id of the dataset."
)
schema_option = click.option(
    "--schema",
    "schemas",
    type=SCHEMA,
    multiple=True,
    help="Share only this schema of it; may be repeated.",
)


@click.group(cls=CommandGroup)
def share() -> None:
    """Share datasets with people, each of whom has their own keyring.

    \b
    A dataset has a key. Readers can read it, writers can also store; owners of the organization are
    in every dataset and decide who else is. Invite a person with `ers share invite`, and tell them
    the twelve words by phone or in person; they enter the words with `ers share accept`. When a
    person leaves, each of their datasets gets a new key; they may have copied what they could read
    before.
    """


@share.command("list", short_help="Show who reads and writes what.")
@click.argument("dataset", type=DATASET, required=False)
@click.option("--schema", type=SCHEMA, help="Only people who can read this schema.")
@connected(organization=True)
@takes_output
async def list_(
    session: CommandSession, output: Output, dataset: str | None, schema: str | None
) -> None:
    """Show who is in the organization and what they can read and write, by its signed roster, with
    open invitations and pending changes. With DATASET, or one schema of it, show only who can read
    it, in which role and since when. Owners also see when services were last used and whose account
    is gone, as reported by the API. The eight words at the end are the same for everybody who sees
    the same roster.

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
        place = ShareTarget(found.organization, found.url, named.url if named else None)
    people = await _people(session, place.organization if place else None)
    rows = rows_of(people) if place is None else rows_of_readers(people, place)
    await output.many(
        rows,
        COLUMNS if place is None else COLUMNS_OF_READERS,
        called="members",
        times=TIMES,
    )
    for line in remarks_of(people, place):
        warn(line)
    await session.tell_of_invitations()


@share.command(short_help="Invite a person to a dataset, with twelve words.")
@click.argument("email")
@click.option("--dataset", type=DATASET, help="Dataset to share: slug, name or id.")
@schema_option
@click.option("--role", type=click.Choice(ROLES), default="reader", show_default=True)
@click.option("--new", is_flag=True, help="Invite a new person whose address a former member had.")
@click.option("--wait", is_flag=True, help="Wait for the answer, and admit the person.")
@click.option(
    "--output",
    "-o",
    "form",
    type=click.Choice(FORMATS),
    help="Print id, words and expiry in this format instead of the words alone.",
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
    """Invite EMAIL to a dataset, and print twelve words once. Tell the person the words by phone or
    in person; the message to the address does not contain them. When they have entered the words
    with `ers share accept`, an owner's proxy admits them: this command if you use --wait, otherwise
    `ers share settle`.

    Invite members who lost their keyring again in the same way; without --dataset they get what
    they had. With --new, invite a new person: EMAIL belonged to a former member, or their account
    is gone and they created another.

    A second invitation to an address replaces the first, and the command says what the first one
    shared: share the rest with `ers share set` after the person is admitted.

    \b
    Example:
      ers share invite grace@example.org --dataset medical --role reader
    """
    output = None if form is None else Output(form)
    organization = (await session.names.organization()).url
    shares = None
    if dataset is not None:
        shares = [await wanted_share(session, dataset, schemas, role)]
    elif schemas:
        raise InvalidSetting("--schema needs the --dataset that it is in", hint="add --dataset")
    made = await with_proof(session, session.client.invite, organization, email, shares, new=new)
    if output is None:
        say(made.words)
    else:
        output.write_object(made)
    if made.replaced is not None:
        warn(
            f"This replaces the invitation {made.replaced.id} of {email}, whose words no longer"
            f" work. It shared: {text_of_shares(made.replaced.shares)}. To share that as well after"
            f" the person is admitted: ers share set {email}"
        )
    warn(
        f"Tell {email} these words by phone or in person; they are not shown again. The person"
        " runs:"
    )
    warn(f"  ers share accept {made.id}")
    return await _await_admission(session, organization, made.id) if wait else DONE


async def _await_admission(session: CommandSession, organization: str, invitation: str) -> int:
    deadline = time.monotonic() + _WAIT_SECONDS
    code = DONE
    while time.monotonic() < deadline:
        code = tell(await session.client.settle(organization))
        people = await session.client.people(organization)
        if all(
            listed.id != invitation or listed.status == "expired" for listed in people.invitations
        ):
            return code
        await asyncio.sleep(_POLL_INTERVAL)
    return code


@share.command(short_help="Enter the words of an invitation.")
@click.argument("id", metavar="ID")
@connected()
async def accept(session: CommandSession, id: str) -> None:  # noqa: A002 - as the message calls it
    """Answer the invitation ID with its twelve words, which are asked for or read from the next
    line of standard input. A keyring is created if you have none. An owner's proxy then admits you.

    \b
    Example:
      ers share accept "$INVITATION" < words.txt
    """
    words = ask_secret("The twelve words")
    if (await session.client.devices()).keyring is None:
        session.make_device()  # the keyring that is made takes it in
    joined = await session.client.answer_invitation(id, words)
    say(
        "Your answer was sent. An owner's proxy admits you when it sees the answer;"
        f" {joined.invited_by} invited you."
    )


@share.command(short_help="Ask for access to a listed dataset.")
@click.argument("dataset")
@click.option("--role", type=click.Choice(ROLES), default="reader", show_default=True)
@click.option("--withdraw", is_flag=True, help="Withdraw your request for DATASET.")
@connected(organization=True)
async def ask(session: CommandSession, dataset: str, role: str, withdraw: bool) -> None:
    """Ask the owners of the organization for access to DATASET, by its slug, name or id. Only a
    dataset that an owner has listed can be asked for: `ers dataset list --listed`. Your proxy signs
    the request, which contains no message; tell an owner why you need the data. A request waits for
    30 days, and replaces an earlier one for the same dataset.

    \b
    Examples:
      ers share ask payroll --role reader
      ers share ask payroll --withdraw
    """
    wanted = dataset_named(await people_of_all(session), dataset)
    if withdraw:
        await session.client.withdraw_request(wanted.dataset)
        say(f"Withdrew your request for {wanted.name}.")
        return
    request = await session.client.ask_for_access(
        wanted.dataset, "writer" if role == "writer" else "reader"
    )
    owners = ", ".join(request.owners)
    say(f"Asked for {request.name} as a {request.role}. The owners decide: {owners}.")


@share.command(short_help="Show requests for access.")
@connected(organization=True)
@takes_output
async def requests(session: CommandSession, output: Output) -> None:
    """Show the open requests for access of all members if you are an owner, otherwise your own.
    Grant one with `ers share set`, or decline it with `ers share decline`; your proxy has checked
    that each was signed by the member.

    \b
    Example:
      ers share requests
    """
    people = await _people(session)
    await output.many(rows_of_requests(people), COLUMNS_OF_REQUESTS, called="requests", times=TIMES)
    for line in remarks_of_requests(people):
        warn(line)


@share.command(short_help="Decline a member's request for access.")
@click.argument("member")
@dataset_option
@connected(organization=True)
async def decline(session: CommandSession, member: str, dataset: str) -> None:
    """Decline the request of MEMBER, an address or an id, for a dataset. The member sees that, and
    can ask again after a week. You can still share the dataset with `ers share set`.

    \b
    Example:
      ers share decline grace@example.org --dataset payroll
    """
    who = await member_named(session, member)
    url = (await session.names.dataset(dataset)).url
    await session.client.decline_request(url, who)
    say(f"Declined the request of {member}.")


@share.command("set", short_help="Share a dataset with a member, or change the role.")
@click.argument("member")
@dataset_option
@schema_option
@click.option("--role", type=click.Choice(ROLES), required=True)
@connected(organization=True)
async def set_(
    session: CommandSession, member: str, dataset: str, schemas: tuple[str, ...], role: str
) -> int:
    """Set which part of a dataset MEMBER (an address, the name of a service, or an id) can use, and
    in which role. If this takes something away, the dataset's key is rotated.

    \b
    Example:
      ers share set grace@example.org --dataset medical --role writer
    """
    who = await member_named(session, member)
    wanted = await wanted_share(session, dataset, schemas, role)
    settled = await with_proof(
        session, session.client.share, wanted["dataset"], who, wanted["role"], wanted.get("schemas")
    )
    say(f"Shared with {member}.")
    return tell(settled)


@share.command(short_help="End a member's access to a dataset.")
@click.argument("member")
@dataset_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(organization=True)
async def remove(session: CommandSession, member: str, dataset: str, yes: bool) -> int:
    """End MEMBER's access to a dataset, and rotate its key for new records. The member may have
    kept copies of earlier records.

    \b
    Example:
      ers share remove grace@example.org --dataset medical --yes
    """
    who = await member_named(session, member)
    url = (await session.names.dataset(dataset)).url
    confirm(f"End the access of {member} to {dataset}?", yes=yes, undone="nothing was changed")
    code = tell(await session.client.unshare(url, who))
    say_kept(member)
    return code


@share.command(short_help="Withdraw an invitation.")
@click.argument("invited")
@connected(organization=True)
async def withdraw(session: CommandSession, invited: str) -> int:
    """Withdraw the invitation to INVITED, an e-mail address or an invitation's id. Its words stop
    working.

    \b
    Example:
      ers share withdraw grace@example.org
    """
    organization = (await session.names.organization()).url
    people: People = await session.client.people(organization)
    found = [invitation for invitation in people.invitations if invited == invitation.id] or [
        invitation
        for invitation in people.invitations
        if invitation.email.casefold() == invited.casefold()
    ]
    if not found:
        raise NotFound(
            "there is no open invitation with that address or id",
            code="not_a_member",
            hint="ers share list shows invitations, with their ids",
        )
    code = DONE
    for person in found:
        code = max(code, tell(await session.client.remove_person(organization, person.id)))
        say(f"Withdrew the invitation of {person.email}.")
    return code


@share.command(short_help="Admit people who accepted, and rotate keys that need it.")
@connected(organization=True)
async def settle(session: CommandSession) -> int:
    """Apply pending changes as an owner: admit people who have answered an invitation, remove
    expired services, and rotate keys of datasets that somebody lost access to. Repeating it is
    harmless. Changes that could not be applied are named, and the exit code is then 4.

    \b
    Example:
      ers share settle
    """
    organization = (await session.names.organization()).url
    settled = await session.client.settle(organization)
    code = tell(settled)
    if code == DONE:
        say("There are no pending changes.")
    return code


@share.command(short_help="Rotate a dataset's key for new records.")
@click.argument("dataset", type=DATASET)
@connected(organization=True)
async def rotate(session: CommandSession, dataset: str) -> int:
    """Rotate the key of DATASET for new records, and give the new key to everybody who is in it.

    \b
    Example:
      ers share rotate medical
    """
    url = (await session.names.dataset(dataset)).url
    code = tell(await session.client.rotate_dataset(url))
    say(f"{dataset} has a new key for new records.")
    return code


async def _people(session: CommandSession, organization: str | None = None) -> People:
    organization = organization or (await session.names.organization()).url
    people: People = await session.client.people(organization)
    return people


async def wanted_share(
    session: CommandSession, dataset: str, schemas: tuple[str, ...], role: str
) -> dict[str, Any]:
    """A share as the proxy takes it.

    Raises:
        Closed: ``schema_unsigned``; the API shows another dataset by this name than was signed.
    """
    url = (await session.names.dataset(dataset)).url
    wanted: dict[str, Any] = {"dataset": url, "role": role}
    if schemas:
        found = [await session.names.schema(schema, dataset) for schema in schemas]
        wanted["schemas"] = [resource.url for resource in found]
    return wanted


async def member_named(session: CommandSession, named: str) -> str:
    """The id of the member or service with this name or id in the roster.

    Raises:
        NotFound: there is no such member, or there are several.
    """
    found = named_member(await _people(session), named)
    if found is None:
        raise _not_one("nobody")
    return found


def named_member(people: People, named: str) -> str | None:
    """The id of the member with this name or id in a loaded roster; None if there is no such
    member.

    Raises:
        NotFound: there are several.
    """
    found = {person.id for person in people.people if named in (person.id, person.name)} or {
        person.id for person in people.people if person.name.casefold() == named.casefold()
    }
    if len(found) > 1:
        raise _not_one("more than one")
    return next(iter(found), None)


def _not_one(how_many: str) -> NotFound:
    return NotFound(
        f"{how_many} with that name is in the organization",
        code="not_a_member",
        hint="ers share list names its members, with their ids",
    )


def tell(settled: Settled) -> int:
    """Report the applied changes and the failed ones; returns the exit code, which is not 0 after
    failures.
    """
    for name in settled.admitted:
        say(f"{name} was admitted.")
    for name in settled.removed:
        say(f"{name} was removed.")
    for name in settled.rotated:
        say(f"{name} has a new key for new records.")
    for trouble in settled.troubles:
        warn(f"{trouble.name}: {trouble.detail} ({trouble.code}); {trouble.hint}")
    return REFUSED if settled.troubles else DONE


def say_kept(name: str) -> None:
    say(f"{name} may have kept copies of earlier records.")

"""``ers register``, ``login``, ``logout`` and ``user``: an account and its logins.

``ers token``: its access tokens and API tokens, for other programs.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import click

from encrypted_records import errors
from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.login import proofs
from encrypted_records.cli.login.keychain import KeptDevices, KeptLogin, Logins
from encrypted_records.cli.login.session import (
    DATASET,
    NOBODY,
    CommandSession,
    Credentials,
    ask_credentials,
    bearer,
    connected,
    device_at,
    email_option,
    login_at,
    session_of,
    usual_device,
)
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import TIMES, ask, ask_yes, confirm, minute, say, warn
from encrypted_records.model.resources import Deletion


@click.command()
@email_option
@click.option(
    "--organization",
    metavar="NAME",
    help="Name of the new organization (asked for if missing). Leave it empty if you were invited"
    " to one: no organization is created.",
)
@click.option(
    "--confirm", is_flag=True, help="Ask for the link in the message, and confirm the account."
)
@connected(anonymous=True)
async def register(
    session: CommandSession, email: str | None, organization: str | None, confirm: bool
) -> None:
    """Create an account. The account works once the link in the message to its address was opened,
    in a browser or with ers verify. With --confirm the command asks for the link at once.

    The password is asked for twice, or taken from ERS_PASSWORD: at least twelve characters, not a
    common password, not similar to the address.

    \b
    Example:
      ers register --email grace@example.org --organization "Harvard Mark I"
    """
    given = os.environ.get("ERS_PASSWORD") or None
    needed = {"--email": email, "--organization": organization is not None, "ERS_PASSWORD": given}
    missing = [name for name, value in needed.items() if not value]
    if missing and not sys.stdin.isatty():
        raise errors.InvalidSetting(
            f"missing: {', '.join(missing)}; there is no terminal to ask for it",
            hint="add the options, and set ERS_PASSWORD in the environment",
        )
    address = email or ask("E-mail")
    proofs.require_address(address, "--email")
    # From the usual device: a stranger at the proxy's port gets no password.
    async with session.proxy.client(NOBODY, usual_device(session.proxy)) as client:
        called = organization
        if called is None:
            called = ask(
                "Name of the organization, or nothing if you were invited to one", default=""
            )

        async def use(chosen: str) -> None:
            await client.register(email=address, password=chosen, organization_name=called)

        password = await proofs.set_password("Password", given, use)
    if not confirm:
        say(f"A message was sent to {address}. Open its link, or run: ers verify. Then: ers login")
        return
    say(f"A message was sent to {address}.")
    await proofs.confirm_account(session, proofs.ask_link(), Credentials(address, password))


@click.command()
@email_option
@connected(anonymous=True)
async def login(session: CommandSession, email: str | None) -> None:
    """Log in with e-mail address and password, and store the login for later commands.

    The login is stored in the system's keychain, or in a file that only you can read; the password
    is not stored. It is asked for, or taken from ERS_PASSWORD. A login ends with ers logout, after
    a change of password, or after seven days without use. Where the account has a second factor,
    its code is asked for too.

    The command also stores a device secret, by which the proxy recognises this machine. If no
    confirmation is needed, this machine is registered now; otherwise run ers device add.

    \b
    Example:
      ers login --email ada@example.org
    """
    email, password = ask_credentials(email, os.environ.get("ERS_PASSWORD"))
    # From the device that is kept: a stranger at the proxy's port gets no password.
    async with session.proxy.client(NOBODY, device_at(session.proxy, email)) as client:
        tokens = await proofs.with_code(partial(client.tokens, email=email, password=password))
    where = await Logins().keep(session.address, KeptLogin(email, tokens, time.time()))
    say(f"Logged in at {session.address} as {email}. The login is stored in {where}.")
    who = login_at(session.proxy)
    assert who is not None
    try:
        async with session_of(session.proxy, who) as user_session:
            async for organization in user_session.client.organizations():
                say(f"You belong to {organization.slug} ({organization.name}).")
            await _register_machine(user_session)
    except errors.NoProxy:
        pass  # an API, which has no keyrings
    except errors.ErsError as error:
        # The login is there, whatever the proxy thinks of this machine.
        warn(error.message)
        warn(f"hint: {error.hint}")


async def _register_machine(session: CommandSession) -> None:
    """Have a device; have it taken in where that needs no question, or a single one."""
    devices = await proofs.devices_of(session)
    session.make_device()
    if devices.enrolled:
        await session.remember_device()
    elif devices.keyring is None:
        return  # the keyring takes it in when it is made
    elif not await session.client.has_door():
        if devices.level == proofs.DEVICE:
            warn("This proxy also requires a device: register this machine with ers device add")
    elif devices.level != proofs.DEVICE:
        await proofs.register_device(session)
    elif sys.stdin.isatty():
        for line in proofs.describe(devices):
            warn(line)
        if ask_yes("Is this your keyring? If so, this machine will be registered"):
            await proofs.register_device(session)
    else:
        warn("Register this machine: ers device add")


@click.command()
@connected(anonymous=True)
async def logout(session: CommandSession) -> None:
    """Log out: the tokens of the login are void at once, on every machine.

    The device of this machine stays registered; ers device revoke revokes it.

    \b
    Example:
      ers logout
    """
    logins = Logins()
    login = logins.find(session.address)
    if login is None:
        raise errors.NotFound(
            f"you are not logged in at {session.address}", hint="nothing was changed"
        )
    email = login.email
    with suppress(errors.NotAuthenticated):  # the service has ended it already
        auth = await bearer(session.proxy, logins, email)
        async with session.proxy.client(NOBODY, device_at(session.proxy, email)) as client:
            await client.log_out(auth)
    await logins.forget(session.address)
    say(f"Logged out at {session.address}.")


@click.group(cls=CommandGroup)
def user() -> None:
    """Show your account; change its address, its password or its second factor; delete it."""


@user.command(short_help="Show your account.")
@connected()
@takes_output
async def get(session: CommandSession, output: Output) -> None:
    """Show the account that commands run as, and its organizations.

    \b
    Example:
      ers user get
    """
    output.write_object(await session.client.resource("/api/users/self/"), times=TIMES)


@user.command(short_help="Change your password.")
@connected()
async def password(session: CommandSession) -> None:
    """Change the password. This ends all logins and API tokens of the account: programs with a
    token need another one, and webhooks ers webhook resume --renew.

    The command asks for the passwords. Without a terminal, ERS_PASSWORD is the old password and the
    first line of standard input the new one.

    \b
    Example:
      ers user password < new-password.txt
    """
    old = os.environ.get("ERS_PASSWORD")
    given = None
    if sys.stdin.isatty():
        old = old or ask("Current password", hide_input=True)
    else:
        given = sys.stdin.readline().rstrip("\n")
    if not old or given == "":
        raise errors.InvalidSetting(
            "missing: the current or the new password",
            hint="set ERS_PASSWORD, and give the new password on standard input",
        )
    present = old

    async def use(new: str) -> None:
        await proofs.with_code(partial(session.client.change_password, present, new))

    await proofs.set_password("New password", given, use)
    _say_ended("The password is changed", "ers login")


def _say_ended(change: str, login: str) -> None:
    """Say what a change of the account has ended, and how to go on."""
    say(f"{change}, and all logins and API tokens have ended. Log in again:")
    say(f"  {login}")
    say("Programs need another token (ers token create), webhooks ers webhook resume --renew.")


@user.command(short_help="Change your e-mail address.")
@click.argument("new")
@click.option(
    "--link", "has_link", is_flag=True, help="Ask for the link of a message that you have received."
)
@connected()
async def email(session: CommandSession, new: str, has_link: bool) -> None:
    """Request a message to the address NEW, then give the account that address by the link in the
    message. A link works once, for a day. Until it is used, the account keeps its address; then all
    logins and API tokens of the account end. The present address receives a notice.

    The command asks for your password, or takes it from ERS_PASSWORD. On a terminal it asks for the
    link too. Without a terminal it only requests the message; with --link it reads the link from
    the first line of standard input.

    \b
    Examples:
      ers user email ada@example.com
      ers user email ada@example.com --link < link.txt
    """
    proofs.require_address(new, "NEW")
    if not has_link:
        password = proofs.ask_password(session)
        await proofs.with_code(partial(session.client.change_email, new, password))
        say(f"A message with a link is on its way to {new}.")
        if not sys.stdin.isatty():
            say(f"When you have the link: ers user email {new} --link")
            return
    present = (await session.client.user()).email
    link = proofs.ask_link()
    await session.client.confirm_email(
        user_id=link.user_id, timestamp=link.timestamp, signature=link.signature
    )
    KeptDevices().rename(session.proxy.devices, present, new)
    _say_ended(f"Your address is {new} now", f"ers login --email {new}")


@user.command(short_help="Delete your account.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--unsigned",
    is_flag=True,
    help="Leave signed rosters as they are, because your keys are lost.",
)
@connected()
async def delete(session: CommandSession, yes: bool, unsigned: bool) -> None:
    """Delete your account with its personal data, after showing what goes and what stays.

    The command asks for your password, or takes it from ERS_PASSWORD, and for a code if the account
    has a second factor. It is refused while others, or data, would be left without an owner. With
    --unsigned, an owner of each organization has to remove you from its roster.

    \b
    Example:
      ers user delete
    """
    deletion = await session.client.deletion()
    for line in _consequences(deletion):
        say(line)
    if not deletion.obstacles:
        password = proofs.ask_password(session)
        confirm("Delete the account permanently?", yes=yes, undone="the account was not deleted")
        await session.client.delete_account(password, proofs.ask_code, unsigned=unsigned)
        say("The account is deleted.")
        return
    raise errors.Conflict(
        "the account cannot be deleted yet",
        code=deletion.obstacles[0].outcome,
        hint="ers organization member update EMAIL --role owner makes another member an owner; ers"
        " dataset delete deletes a dataset",
    )


def _consequences(deletion: Deletion) -> Iterator[str]:
    """The consequences of a deletion, in lines."""
    yield "Deleted: your address, password, second factor, logins, API tokens, invitations to you."
    texts = {
        "leave": "You leave {name}.",
        "delete": "{name} is deleted: nobody and nothing else is in it.",
        "last_owner": "In the way: you are the only owner of {name}, and others belong to it.",
        "has_datasets": "In the way: nobody else belongs to {name}, and it has datasets.",
    }
    for organization in deletion.organizations:
        yield texts[organization.outcome].format(name=organization.slug)
    yield (
        "Kept: records and datasets of your organizations; their audit logs, which name you by an"
        " id and have your network addresses, for a year;"
    )
    yield (
        "signed roster entries, in which your address stays readable for members and the API,"
        " because a changed entry would break the signatures of all later ones; backups of the API"
        " until they are replaced; your keyring on machines that have it."
    )


@user.command("reset-password", short_help="Set a new password if the old one is lost.")
@email_option
@click.option(
    "--link", "has_link", is_flag=True, help="Ask for the link of a message that you have received."
)
@connected(anonymous=True)
async def reset_password(session: CommandSession, email: str | None, has_link: bool) -> None:
    """Request a message with a link, then set a new password by that link. A link works once, for
    an hour. All logins and API tokens of the account end. Your keyring does not change, and records
    can be decrypted as before.

    On a terminal the command asks for the link and the new password. Without a terminal it only
    requests the message; with --link it reads the link and the new password from the first two
    lines of standard input.

    \b
    Example:
      ers user reset-password --email ada@example.org
    """
    # From the usual device: a stranger at the proxy's port gets no password.
    async with session.proxy.client(NOBODY, usual_device(session.proxy)) as client:
        if not has_link:
            address = email or proofs.answer("E-mail", "the e-mail address")
            await client.send_reset_link(address)
            say(f"If {address} has an account, a message with a link was sent to it.")
            if not sys.stdin.isatty():
                say("When you have the link: ers user reset-password --link")
                return
        link = proofs.ask_link()
        given = None
        if not sys.stdin.isatty():
            given = proofs.answer("New password", "the new password")

        async def use(chosen: str) -> None:
            await client.reset_password(
                user_id=link.user_id,
                timestamp=link.timestamp,
                signature=link.signature,
                password=chosen,
            )

        await proofs.set_password("New password", given, use)
    _say_ended("The password is changed", "ers login")


@user.group(
    "second-factor", cls=CommandGroup, short_help="Require a code in addition to the password."
)
def second_factor() -> None:
    """Require a code of an authenticator app at login, in addition to the password.

    Somebody who knows only your password can then no longer log in as you. API tokens and services
    still work without codes; Basic credentials, which cannot contain one, do not.
    """


@second_factor.command("get", short_help="Show whether logins need a code.")
@connected()
@takes_output
async def get_second_factor(session: CommandSession, output: Output) -> None:
    """Show whether logins need a code, and how many recovery codes are left.

    \b
    Example:
      ers user second-factor get
    """
    found = await session.client.second_factor()
    output.write_object({"enabled": found.enabled, "recovery_codes": found.recovery_codes})


@second_factor.command(short_help="Require codes from now on.")
@connected()
async def add(session: CommandSession) -> None:
    """Print a key for an authenticator app, and require codes once you have entered one.

    The command asks for your password, or takes it from ERS_PASSWORD, and then for a code. The key
    and the recovery codes are printed once. Keep the recovery codes apart from the app:
    each of them replaces it once.

    \b
    Example:
      ers user second-factor add
    """
    made = await session.client.begin_second_factor(proofs.ask_password(session))
    say("Add this key to your authenticator app (time-based, 6 digits, 30 seconds):")
    say(f"  {made.key}")
    say("or open this link on the device that has the app:")
    say(f"  {made.uri}")
    _show_codes(await session.client.confirm_second_factor(proofs.ask_code()))
    say("Logins need a code from now on.")


@second_factor.command("renew-codes", short_help="Replace the recovery codes.")
@connected()
async def renew_codes(session: CommandSession) -> None:
    """Print new recovery codes. The earlier ones stop working.

    The command asks for your password, or takes it from ERS_PASSWORD, and for a code.

    \b
    Example:
      ers user second-factor renew-codes
    """
    password = proofs.ask_password(session)
    _show_codes(await session.client.renew_recovery_codes(password, proofs.ask_code()))


@second_factor.command(short_help="Stop requiring codes at login.")
@connected()
async def remove(session: CommandSession) -> None:
    """Stop requiring codes: logins need only the password again.

    The command asks for your password, or takes it from ERS_PASSWORD, and for a code of the app or
    a recovery code.

    \b
    Example:
      ers user second-factor remove
    """
    password = proofs.ask_password(session)
    await session.client.remove_second_factor(password, proofs.ask_code())
    say("Logins need only the password now.")


def _show_codes(codes: Sequence[str]) -> None:
    say("Recovery codes, each for one login without the app; they are not shown again:")
    for code in codes:
        say(f"  {code}")


_COLUMNS = ("id", "name", "scope", "datasets", "expires", "last_used")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


class Lifetime(click.ParamType[timedelta]):
    """A duration such as 12h, 30d or 8w."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"([1-9][0-9]{0,4})([hdw])", str(value))
        if match is None:
            self.fail("expected a number of hours, days or weeks: 12h, 30d or 8w", param, ctx)
        return int(match[1]) * _UNITS[match[2]]


@click.group(cls=CommandGroup)
def token() -> None:
    """Manage tokens for programs that use the HTTP API directly.

    An access token acts as you for fifteen minutes. An API token has a name, an expiry and limits.
    """


@token.command(short_help="Create an API token; without a name, print an access token.")
@click.argument("name", required=False)
@click.option(
    "--expires",
    type=Lifetime(),
    default="30d",
    show_default=True,
    help="Time until the token expires, at most 366d.",
)
@click.option("--scope", type=click.Choice(("read", "write")), default="read", show_default=True)
@click.option(
    "--dataset",
    "datasets",
    type=DATASET,
    multiple=True,
    help="Dataset that the token is limited to; may be repeated.",
)
@connected(organization=True)
async def create(
    session: CommandSession,
    name: str | None,
    expires: timedelta,
    scope: str,
    datasets: tuple[str, ...],
) -> None:
    """Create an API token called NAME and print it once. It can read, or read and write, everything
    that you can reach or only some datasets, at API and proxy, until it expires or is revoked. It
    gives no access to keys, other tokens or your account. Creating one needs your password: asked
    for, or ERS_PASSWORD, or the next line of standard input.

    ers reads the token from ERS_TOKEN, the Python client from its argument token=. A proxy that
    requires devices also requires one with a token: ERS_DEVICE.

    Without NAME, print an access token. It is valid for up to fifteen minutes, and anybody with it
    can act as you.

    \b
    Examples:
      (umask 077; ers token create report --expires 30d --dataset medical > report.token)
      curl -fsS -H "Authorization: Bearer $(ers token create)" "$ERS_PROXY_URL/api/datasets/"
    """
    if name is None:
        context = click.get_current_context()
        default = click.core.ParameterSource.DEFAULT
        for option in ("expires", "scope", "datasets"):
            if context.get_parameter_source(option) is not default:
                raise errors.InvalidSetting(
                    "an access token has no limits", hint="name an API token: ers token create NAME"
                )
        say(await session.access_token())
        return
    paths = [(await session.names.dataset(dataset)).url for dataset in datasets]
    password = None
    if not session.who.password:  # which is in the request as it is
        password = proofs.ask_password(session, "creating an API token needs your password")
    made = await proofs.with_code(
        partial(
            session.client.create_token,
            name,
            scope="write" if scope == "write" else "read",
            datasets=paths or None,
            expires_in=expires,
            password=password,
        )
    )
    say(made.token)
    warn(f"This is API token {made.id}; it is not shown again. Keep it so that only its program")
    warn(
        f"can read it. It expires on {made.expires:%Y-%m-%d}; revoke it with: ers token revoke"
        f" {made.id}"
    )


@token.command("list", short_help="List API tokens and when they were last used.")
@connected()
@takes_output
async def list_(session: CommandSession, output: Output) -> None:
    """List your API tokens with scope, expiry and the day (UTC) of their last use.

    \b
    Example:
      ers token list
    """
    named = await session.slugs("datasets") if output.form == "table" else {}

    def cells(token: Mapping[str, Any]) -> dict[str, Any]:
        paths = token["datasets"]
        ids = [named.get(path, path.split("/")[-2]) for path in paths or ()]
        shown = "all" if paths is None else " ".join(ids)
        expires = token["expires"]
        day = minute(expires)[:10] if output.form == "table" else expires
        return {**token, "datasets": shown, "expires": day}

    await output.many(session.client.listing("tokens"), _COLUMNS, cells, called="API tokens")


@token.command(short_help="Revoke an API token.")
@click.argument("id", metavar="ID")
@connected()
async def revoke(session: CommandSession, id: str) -> None:  # noqa: A002 - as ers token list calls it
    """Revoke an API token. Running jobs that it began fail.

    \b
    Example:
      ers token revoke "$TOKEN_ID"
    """
    await session.client.revoke_token(id)
    say(f"API token {id} is revoked.")


@token.command(short_help="Check whether an access token is valid.")
@connected(anonymous=True)
async def verify(session: CommandSession) -> None:
    """Check whether the access token on standard input is valid now (exit code 4 if not).

    \b
    Example:
      ers token create | ers token verify
    """
    if sys.stdin.isatty():
        raise errors.InvalidSetting(
            "no token on standard input", hint="ers token verify < token.txt"
        )
    # From the usual device: a stranger at the proxy's port gets no token.
    async with session.proxy.client(NOBODY, usual_device(session.proxy)) as client:
        await client.verify_token(sys.stdin.read(10_000).strip())
    say("The token is valid.")

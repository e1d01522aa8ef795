"""``ers token``: access tokens and API tokens, for other programs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.login.proofs import ask_secret, with_code
from encrypted_records.cli.login.session import (
    DATASET,
    NOBODY,
    CommandSession,
    connected,
    usual_device,
)
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import minute, say, warn
from encrypted_records.errors import InvalidSetting

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


@click.group(cls=CommandGroup, short_help="Create, list or revoke tokens for other programs.")
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
                raise InvalidSetting(
                    "an access token has no limits", hint="name an API token: ers token create NAME"
                )
        say(await session.access_token())
        return
    paths = [(await session.names.dataset(dataset))["url"] for dataset in datasets]
    password = None
    if not session.who.password:  # which is in the request as it is
        password = os.environ.get("ERS_PASSWORD") or ask_secret("Your password")
        if not password:
            raise InvalidSetting(
                "creating an API token needs your password",
                hint="set ERS_PASSWORD, or give the password on the next line of standard input",
            )
    made = await with_code(
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
        raise InvalidSetting("no token on standard input", hint="ers token verify < token.txt")
    # From the usual device: a stranger at the proxy's port gets no token.
    async with session.proxy.client(NOBODY, usual_device(session.proxy)) as client:
        await client.verify_token(sys.stdin.read(10_000).strip())
    say("The token is valid.")

"""``ers token``: access tokens and API tokens, for other programs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import click

from encrypted_records.cli.login.proofs import ask_secret
from encrypted_records.cli.login.session import NOBODY, CommandSession, connected, usual_device
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import say, warn
from encrypted_records.errors import InvalidSetting

_COLUMNS = ("id", "name", "scope", "datasets", "expires", "last_used")
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


class Lifetime(click.ParamType[timedelta]):
    """Such as 12h, 30d or 8w."""

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


@click.group(short_help="Make, list, revoke tokens for other programs.")
def token() -> None:
    """Tokens, for programs that speak HTTP themselves.

    An access token is you, for fifteen minutes. An API token has a name, an end, and limits.
    """


@token.command(short_help="Print an API token, or an access token.")
@click.argument("name", required=False)
@click.option("--expires", type=Lifetime(), default="30d", show_default=True, help="At most 366d.")
@click.option("--scope", type=click.Choice(("read", "write")), default="read", show_default=True)
@click.option("--dataset", "datasets", multiple=True, help="Limit it to this one; may be repeated.")
@connected(organization=True)
async def create(
    session: CommandSession,
    name: str | None,
    expires: timedelta,
    scope: str,
    datasets: tuple[str, ...],
) -> None:
    """Print a new API token of that NAME, once: it reads, or reads and writes, all that you reach
    or some datasets, at the API and at proxies, until it expires or is revoked. It reaches no keys,
    no other tokens, and nothing of the account. It takes your password: asked for, or ERS_PASSWORD,
    or the next line of stdin.

    Commands use the API token in ERS_TOKEN, the Python client its argument token=. A proxy that
    asks for a device asks a token for one, too: ERS_DEVICE.

    Without NAME, print an access token. It is good for up to fifteen minutes: anyone who has it is
    you.

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
    paths = [(await session.names.dataset(one))["url"] for one in datasets]
    password = None
    if not session.who.password:  # which is in the request as it is
        password = os.environ.get("ERS_PASSWORD") or ask_secret("Your password")
        if not password:
            raise InvalidSetting(
                "an API token takes your password, and there is no terminal to ask on",
                hint="set ERS_PASSWORD, or give the password as the next line of stdin",
            )
    made = await session.client.create_token(
        name,
        scope="write" if scope == "write" else "read",
        datasets=paths or None,
        expires_in=expires,
        password=password,
    )
    say(made.token)
    warn(f"This is API token {made.id}; it is not shown again. Keep it so that only its program")
    warn(f"can read it. It ends on {made.expires:%Y-%m-%d}, or with: ers token revoke {made.id}")


@token.command("list", short_help="List API tokens, and when they were used.")
@connected()
@takes_output
async def list_(session: CommandSession, output: Output) -> None:
    """List your API tokens: what they may, until when, and the day (UTC) they were last used.

    \b
    Example:
      ers token list
    """
    await output.many(session.client.listing("tokens"), _COLUMNS, _cells, called="API tokens")


def _cells(one: Mapping[str, Any]) -> dict[str, Any]:
    named = one["datasets"]
    shown = "all" if named is None else " ".join(path.split("/")[-2] for path in named)
    return {**one, "datasets": shown, "expires": str(one["expires"])[:10]}


@token.command(short_help="Refuse an API token from now on.")
@click.argument("id", metavar="ID")
@connected()
async def revoke(session: CommandSession, id: str) -> None:  # noqa: A002 - as ers token list calls it
    """Refuse an API token from now on; jobs under way that it began fail.

    \b
    Example:
      ers token revoke "$TOKEN_ID"
    """
    await session.client.revoke_token(id)
    say(f"API token {id} is refused from now on.")


@token.command(short_help="Say whether an access token is valid.")
@connected(anonymous=True)
async def verify(session: CommandSession) -> None:
    """Say whether the access token on standard input is valid now; exit code 4 when it is not.

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

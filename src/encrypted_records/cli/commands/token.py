"""``ers token``: access tokens for other programs."""

from __future__ import annotations

import sys

import click

from encrypted_records.cli.session import Session, connected
from encrypted_records.cli.terminal import say
from encrypted_records.errors import InvalidSetting


@click.group(short_help="Get or check access tokens, for use with curl.")
def token() -> None:
    """Access tokens, for programs that speak HTTP themselves."""


@token.command(short_help="Print an access token.")
@connected()
async def create(session: Session) -> None:
    """Print an access token. It is good for up to fifteen minutes: whoever has it is you.

    \b
    Example:
      curl -fsS -H "Authorization: Bearer $(ers token create)" "$ERS_PROXY_URL/api/datasets/"
    """
    say(await session.access_token())


@token.command(short_help="Say whether a token is valid.")
@connected(anonymous=True)
async def verify(session: Session) -> None:
    """Say whether the token on standard input is valid now; exit code 4 when it is not.

    \b
    Example:
      ers token create | ers token verify
    """
    if sys.stdin.isatty():
        raise InvalidSetting("no token on standard input", hint="ers token verify < token.txt")
    await session.client.verify_token(sys.stdin.read(10_000).strip())
    say("The token is valid.")

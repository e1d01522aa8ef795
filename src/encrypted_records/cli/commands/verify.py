"""``ers verify``: confirm an account without a browser; or walk all that an API has stored."""

from __future__ import annotations

import functools
import os

import click

from encrypted_records.cli.login.confirmation import ask_link, confirm_account, link_in
from encrypted_records.cli.login.session import CommandSession, Credentials, connected
from encrypted_records.cli.settings import Settings, takes_settings
from encrypted_records.cli.supervise.operating import verify_stored
from encrypted_records.cli.terminal import DONE, FAILED


@connected(anonymous=True)
async def _confirm(session: CommandSession, link: str | None) -> None:
    signed = ask_link() if link is None else link_in(link)
    email, password = os.environ.get("ERS_EMAIL", ""), os.environ.get("ERS_PASSWORD", "")
    await confirm_account(session, signed, Credentials(email, password))


@click.command(
    short_help="Confirm an account by the link of its message; or check all that is stored."
)
@click.argument("link", required=False)
@click.option(
    "--stored",
    is_flag=True,
    help="Confirm nothing; as the API's operator, check all that it has stored.",
)
@takes_settings("data_dir", "database_url", "bulk_url", "bulk_before")
# With the options that say where the proxy is.
@functools.wraps(_confirm, assigned=(), updated=("__dict__",))
def verify(settings: Settings, *, link: str | None, stored: bool, **where: str | bool) -> int:
    """Confirm an account by the LINK of the message that ers register caused; without one it is
    asked for, or read from standard input. It works once, for seven days.

    Where ERS_EMAIL and ERS_PASSWORD are set, the slug of the new organization is shown, too.

    With --stored it is for the operator of the API, beside an API that may run: every row, page and
    object is read and checked against its digests, without a key, and what is lost or altered is
    named. The exit code is 1 if anything is.

    \b
    Examples:
      ers verify "$LINK"
      ers verify --stored --data-dir ./data
    """
    if not stored:
        _confirm(link=link, **where)
        return DONE
    if link is not None:
        raise click.UsageError("--stored takes no link")
    return DONE if verify_stored(settings) else FAILED

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


@click.command(short_help="Confirm an account by the link in its message, or check stored data.")
@click.argument("link", required=False)
@click.option(
    "--stored",
    is_flag=True,
    help="Check everything that the API has stored, as its operator.",
)
@takes_settings("data_dir", "database_url", "bulk_url", "bulk_before")
# With the options that say where the proxy is.
@functools.wraps(_confirm, assigned=(), updated=("__dict__",))
def verify(settings: Settings, *, link: str | None, stored: bool, **where: str | bool) -> int:
    """Confirm an account by the LINK in the message of ers register. Without LINK, the command asks
    for it or reads it from standard input. A link works once, for seven days.

    If ERS_EMAIL and ERS_PASSWORD are set, the slug of the new organization is shown.

    With --stored, for the operator of the API: read every row, page and object, check it against
    its digests without a key, and name everything that is lost or altered. The API may be running.
    The exit code is 1 if there is any damage.

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

"""``ers verify``: confirm an account without a browser; or check what an API or a mirror stores."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import click

from encrypted_records.cli.login.confirmation import ask_link, confirm_account, link_in
from encrypted_records.cli.login.session import CommandSession, Credentials, connected
from encrypted_records.cli.settings import Settings, takes_settings
from encrypted_records.cli.supervise.mirrors import verify_mirror
from encrypted_records.cli.supervise.operating import verify_stored
from encrypted_records.cli.terminal import DONE, FAILED, format_count, printable, say


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
@click.option("--mirror", metavar="PLACE", help="Check a mirror, without an API and a key.")
@takes_settings("data_dir", "database_url", "bulk_url", "bulk_before")
# With the options that say where the proxy is.
@functools.wraps(_confirm, assigned=(), updated=("__dict__",))
def verify(
    settings: Settings, *, link: str | None, stored: bool, mirror: str | None, **where: str | bool
) -> int:
    """Confirm an account by the LINK in the message of ers register. Without LINK, the command asks
    for it or reads it from standard input. A link works once, for seven days.

    If ERS_EMAIL and ERS_PASSWORD are set, the slug of the new organization is shown.

    With --stored, for the operator of the API: read every row, page and object, check it against
    its digests without a key, and name everything that is lost or altered. The API may be running.
    The exit code is 1 if there is any damage.

    With --mirror, check a copy that ers mirror has made, in a folder or bucket: the signatures of
    roster and log, and every record and page against them. It takes no API, no login and no key,
    and names the schema and the object of everything that is missing or altered, or that nobody has
    signed. Rosters and logs are compared with what the proxy of --data-dir has seen. Of an
    organization that it has not seen, this shows only that the copy is whole in itself: its holder
    could have founded another one under the same id. So the command also prints the words of each
    roster, to compare with those that a proxy shows.

    \b
    Examples:
      ers verify "$LINK"
      ers verify --stored --data-dir ./data
      ers verify --mirror /mnt/nas/records
    """
    if mirror is not None:
        if stored or link is not None:
            raise click.UsageError("--mirror takes no link, and goes without --stored")
        return _verify_mirror(mirror, settings.data_dir)
    if not stored:
        _confirm(link=link, **where)
        return DONE
    if link is not None:
        raise click.UsageError("--stored takes no link")
    return DONE if verify_stored(settings) else FAILED


def _verify_mirror(place: str, data_dir: Path) -> int:
    proof = verify_mirror(place, data_dir, lambda flaw: say(printable(flaw)))
    for schema in proof.unsigned:
        say(f"schema {schema}: not proven, since nobody has signed its log")
    for anchor in proof.anchors:
        seen = "seen before by the proxy here" if anchor.is_known else "not seen before here"
        say(
            f"organization {anchor.organization}: {seen}; its first entry is {anchor.founding},"
            f" and entry {anchor.number}, in words: {anchor.words}"
        )
    say(
        f"{format_count(proof.schemas, 'schema')}, {format_count(proof.commits, 'commit')},"
        f" {format_count(proof.rows, 'record')} and {format_count(proof.pages, 'index page')}"
        f" checked: {len(proof.flaws) or 'nothing'} altered or missing"
    )
    if not all(anchor.is_known for anchor in proof.anchors):
        say(
            "This shows that the mirror is whole in itself. That it is your organization's, only"
            " its words or its founding show: compare them with what your own proxy shows."
        )
    return FAILED if proof.flaws or proof.unsigned else DONE

"""``ers backup``, ``restore``, ``storage``, ``mirror`` and ``verify``: copies, and checks of them.

For the operator of a service: ``ers backup`` copies the data folder while the service runs, ``ers
restore`` makes a data folder of the copy, and ``ers storage`` moves the API's objects to another
store, or finds out which of them are left after one side was restored.

For everybody: ``ers mirror`` copies what an account reads at an API, as it is stored. ``ers
verify`` checks what an API or a mirror stores, and needs no key for it. With the link of a message,
it confirms an account without a browser.
"""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path

import click
from click.core import ParameterSource

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.login.keychain import EARLY_SECONDS
from encrypted_records.cli.login.proofs import ask_link, confirm_account, link_in
from encrypted_records.cli.login.session import CommandSession, Credentials, connected
from encrypted_records.cli.settings import FolderPath, Settings, takes_settings
from encrypted_records.cli.supervise.backup import back_up, keeps_data_elsewhere, restore_folder
from encrypted_records.cli.supervise.operating import (
    authorization_of_service,
    copy_api,
    move_stored,
    reconcile_stored,
    verify_mirror,
    verify_stored,
)
from encrypted_records.cli.terminal import DONE, FAILED, format_count, printable, say, warn
from encrypted_records.errors import InvalidSetting


@click.command()
@click.argument("folder", type=FolderPath())
@takes_settings("data_dir", "database_url", "bulk_url")
def backup(settings: Settings, folder: Path) -> None:
    """Copy database, objects, keys and uploads to FOLDER, which must not exist. The service may be
    running; the copy contains everything acknowledged before the command began.

    FOLDER appears only when the copy is complete. It contains the keys: keep it as safe as the data
    folder. If the service uses PostgreSQL, it contains the proxy's data only: see
    docs/operations.md.

    \b
    Example:
      ers backup ./backup-monday --data-dir ./data
    """
    made = back_up(settings, folder)
    say(
        f"{folder}: {format_count(made.files, 'file')}, {made.objects} of them objects,"
        f" {made.size:,} bytes"
    )
    if keeps_data_elsewhere(settings):
        warn("The API's database and objects are not in it: copy them now, with pg_dump first.")


@click.command()
@click.argument("folder", type=FolderPath())
@takes_settings("data_dir")
def restore(settings: Settings, folder: Path) -> None:
    """Create the data folder from FOLDER, which `ers backup` has made. Each file is checked, and
    nothing is overwritten: the data folder must be missing or empty.

    All logins end unless `api/secret.key`, which backups do not contain, is put back as well. A
    proxy that has seen changes made after the backup refuses the restored data until you accept it:
    see docs/operations.md.

    \b
    Example:
      ers restore ./backup-monday --data-dir ./restored
    """
    manifest = restore_folder(folder, settings.data_dir)
    files = format_count(len(manifest.files), "file")
    say(f"{settings.data_dir}: {files} as of {manifest.made}, by version {manifest.version}")


@click.group(cls=CommandGroup)
def storage() -> None:
    """Manage where the API keeps its data. For the operator of the API.

    Example: ers storage move --data-dir ./data
    """


@storage.command(short_help="Move all objects to the store of --bulk-url.")
@takes_settings("data_dir", "database_url", "bulk_url", "bulk_before")
def move(settings: Settings) -> int:
    """Move rows and pages from the database, and objects from the store of --bulk-before, to the
    store of --bulk-url. The API may be running with the same two settings; it reads from both
    stores and writes to the new one.

    Each piece is written, read back and checked before it is removed from its old place. An
    interrupted command continues where it stopped. Damaged pieces stay where they are and are
    named, and the exit code is then 1. Small parts stay in the database.

    \b
    Examples:
      ers storage move --data-dir ./data
      ers storage move --bulk-url s3://records/all --bulk-before file:///srv/ers/objects
    """
    return DONE if move_stored(settings) else FAILED


@storage.command(short_help="Reconcile database and objects after one of them was restored.")
@takes_settings("data_dir", "database_url", "bulk_url", "bulk_before")
def reconcile(settings: Settings) -> int:
    """Reconcile database and object store after one of them was restored to an earlier moment. Rows
    of lost objects are searched for in objects that the database does not know, compared by digest
    and recovered. Everything else is recorded as lost, for ers schema repair, and the exit code is
    1.

    The API may be running. Run this only on the database that will be served from now on: objects
    that it recovers are lost to any other database on the same store.

    \b
    Examples:
      ers storage reconcile --data-dir ./data
      ers storage reconcile --bulk-url s3://records/all
    """
    return DONE if reconcile_stored(settings) else FAILED


@connected()
async def _copy_schemas(
    session: CommandSession, place: str, base_url: str, quiet: bool, forget: bool
) -> None:
    def tell(line: str) -> None:
        if not quiet:
            warn(line)

    copied = await copy_api(base_url, place, _ApiLogin(session).authorization, tell, forget=forget)
    written = format_count(copied.objects, "object")
    say(
        f"{format_count(copied.schemas, 'schema')} mirrored: {written} with {copied.bytes:,} bytes"
        f" written, {copied.deleted} deleted"
    )


@click.command()
@click.argument("place")
@click.option("--quiet", is_flag=True, help="Do not tell which schema is being copied.")
@click.option(
    "--forget",
    is_flag=True,
    help="Let go from the mirror what the API no longer lists.",
)
@takes_settings("base_url")
# With the options that say where the proxy is.
@functools.wraps(_copy_schemas, assigned=(), updated=("__dict__",))
def mirror(
    settings: Settings, *, place: str, quiet: bool, forget: bool, **where: str | bool
) -> None:
    """Copy everything that your account reads at the API to PLACE, a folder or
    s3://bucket/prefix?endpoint=https://host: logs, rosters, definitions and encrypted records, as
    the API stores them. No key and no password is copied, and nothing is decrypted.

    The first run copies everything, later runs what is new. A run that is interrupted leaves the
    mirror as it was; the next one goes on. Records that were deleted go from the mirror with the
    next run; so do schemas whose deletion the signed roster shows. Anything else that the API no
    longer lists ends the run with mirror_would_lose and stays, unless --forget is given. The copy
    of an owner serves all members, that of a member only the member.

    Read a mirror with ers proxy --mirror, serve it with ers api --mirror, and check it with ers
    verify --mirror.

    Your login goes to the API itself, so name its address: by --base-url, ERS_BASE_URL or the file
    of settings. On another machine it must begin with https://.

    \b
    Example:
      ers mirror ./mirror --base-url https://records.example.org
    """
    source = click.get_current_context().get_parameter_source("base_url")
    if source is ParameterSource.DEFAULT:
        raise InvalidSetting(
            "it is not known which API to mirror, and the login goes there",
            hint="name its address, as the proxy has it: --base-url https://records.example.org",
        )
    _copy_schemas(place=place, base_url=settings.base_url, quiet=quiet, forget=forget, **where)


class _ApiLogin:
    """The Authorization value of a session's account at the API itself."""

    def __init__(self, session: CommandSession) -> None:
        self._session = session
        self._token = ""
        self._until = 0.0

    async def authorization(self) -> str:
        from encrypted_records.model.credentials import token_lifetime  # noqa: PLC0415 - slow to import

        who = self._session.who
        if who.service:
            return authorization_of_service(who.service)
        if who.login is not None:
            return await who.login()
        if time.monotonic() >= self._until:
            self._token = await self._session.access_token()
            self._until = time.monotonic() + token_lifetime(self._token) - EARLY_SECONDS
        return f"Bearer {self._token}"


@connected(anonymous=True)
async def _confirm(session: CommandSession, link: str | None) -> None:
    signed = ask_link() if link is None else link_in(link)
    email, password = os.environ.get("ERS_EMAIL", ""), os.environ.get("ERS_PASSWORD", "")
    await confirm_account(session, signed, Credentials(email, password))


@click.command()
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

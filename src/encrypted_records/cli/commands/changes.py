"""The changes of a schema's records: ``ers watch`` follows them, ``ers webhook`` has them sent."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from encrypted_records import runtime
from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands.account import Lifetime
from encrypted_records.cli.commands.selection import dataset_option, schema_option
from encrypted_records.cli.login.proofs import ask_password
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import say, warn
from encrypted_records.client.proxy.changes import Change
from encrypted_records.client.proxy.connection import ShownSchema
from encrypted_records.errors import ErsError, Gone, InvalidSetting, Unavailable
from encrypted_records.model import strict_json

#: Between two attempts while the proxy is away, in seconds.
_RETRY_SECONDS = 5.0
#: Errors of syncing a pipe, a terminal, or output that is not of the system.
_NOT_SYNCED = (None, errno.EINVAL, errno.ENOTSUP)


@click.command()
@schema_option
@dataset_option
@click.option(
    "--from",
    "begin",
    metavar="CURSOR",
    help="Starting point: start for all records, now for none of them, or a cursor (default:"
    " start).",
)
@click.option(
    "--cursor-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Begin at the cursor in this file if it exists, and save the cursor there.",
)
@click.option(
    "--restart",
    is_flag=True,
    help="If the feed cannot continue from the cursor, begin again instead of failing.",
)
@click.option("--once", is_flag=True, help="End when everything is printed; do not wait.")
@connected(organization=True)
async def watch(
    session: CommandSession,
    schema: str,
    dataset: str | None,
    begin: str | None,
    cursor_file: Path | None,
    restart: bool,
    once: bool,
) -> None:
    """Print the changes of a schema's records as they happen, one JSON object per line, until you
    press Ctrl-C.

    Every record comes first, then each change. "op" says what to do: "upsert" stores the record
    under its id or replaces it, "delete" removes it. A line with "op": "current" says that a copy
    that has applied all lines equals what a search finds, and has the cursor that continues there.

    With --cursor-file, a program that is stopped continues where it was. The cursor is saved after
    the lines are written, so the last lines may be printed twice; applying them twice changes
    nothing. If the feed cannot continue, for example because deleted records were erased before
    they were read, the exit code is 3; drop your copy and begin again. With --restart, a line with
    "op": "restart" says so, and all records follow.

    \b
    Examples:
      ers watch --schema patient --once
      ers watch --schema patient --once --cursor-file patients.cursor > changes.ndjson
    """
    resource = await session.names.schema(schema, dataset)
    place = _KeptCursor(_begin(begin, cursor_file), cursor_file)
    ended = False
    while not ended:
        try:
            await _follow(session, resource.url, place, once=once)
            ended = True
        except Gone as error:
            if error.reason != "start_again" or not restart:
                raise _explained(error) from None
            say(strict_json.encode({"op": "restart", "detail": error.message}).decode())
            place.move(None)
        except Unavailable as error:
            if once:
                raise
            warn(f"{error.message}; trying again every {_RETRY_SECONDS:.0f} seconds")
            await runtime.sleep(_RETRY_SECONDS)


def _explained(error: Gone) -> ErsError:
    hint = "drop your copy and begin with --from start, or use --restart"
    return Gone(error.message, code=error.reason, hint=hint)


class _KeptCursor:
    """The cursor behind what was printed, kept in a file if there is one."""

    def __init__(self, cursor: str | None, file: Path | None) -> None:
        self.cursor = cursor
        self._file = file

    def move(self, cursor: str | None) -> None:
        self.cursor = cursor
        if self._file is None:
            return
        if cursor is None:
            self._file.unlink(missing_ok=True)
            return
        # Otherwise a power failure could leave the cursor and not the lines before it.
        try:
            os.fsync(sys.stdout.fileno())
        except OSError as error:
            if error.errno not in _NOT_SYNCED:
                raise
        new = self._file.with_name(self._file.name + ".new")
        with new.open("w", encoding="ascii") as out:
            out.write(cursor + "\n")
            out.flush()
            os.fsync(out.fileno())
        new.replace(self._file)


def _begin(named: str | None, file: Path | None) -> str | None:
    """The cursor to begin with; None where all records come first.

    Raises:
        InvalidSetting: both an option and the file name one.
    """
    if file is None or not file.exists():
        return None if named == "start" else named
    if named is not None:
        raise InvalidSetting(
            f"both {file} and --from say where to begin",
            hint="leave out --from, or delete the file",
        )
    return file.read_text(encoding="ascii", errors="replace").strip() or None


async def _follow(session: CommandSession, schema: str, place: _KeptCursor, *, once: bool) -> None:
    async for page in session.client.changes(schema, place.cursor, follow=not once):
        for change in page.changes:
            say(strict_json.encode(_members(change)).decode())
        if page.current:
            line = {"op": "current", "version": page.version, "cursor": page.cursor}
            say(strict_json.encode(line).decode())
        place.move(page.cursor)


def _members(change: Change) -> dict[str, object]:
    members: dict[str, object] = {
        name: getattr(change, name) for name in ("op", "version", "id", "url", "schema", "etag")
    }
    return members if change.data is None else members | {"data": change.data}


_COLUMNS = ("id", "schema", "target", "status", "reason", "tries", "delivered")
_expires_option = click.option(
    "--expires",
    type=Lifetime(),
    default="366d",
    show_default=True,
    help="Time until the token that the webhook reads with expires, at most 366d.",
)


@click.group(cls=CommandGroup)
def webhook() -> None:
    """Manage webhooks. The proxy sends each change of a schema's records, decrypted and signed, to
    an HTTPS address within a second, and retries for a day if it is not accepted.
    """


@webhook.command(short_help="Create a webhook, and print its secret.")
@click.argument("url")
@schema_option
@dataset_option
@click.option(
    "--from",
    "begin",
    default="now",
    show_default=True,
    metavar="CURSOR",
    help="Starting point: now, start for all records, or a cursor.",
)
@_expires_option
@connected(organization=True)
async def create(
    session: CommandSession,
    url: str,
    schema: str,
    dataset: str | None,
    begin: str,
    expires: timedelta,
) -> None:
    """Send the changes of a schema to URL from now on, and print the secret that signs them, once.

    The webhook reads with an API token that is created for it, can only read this dataset, and
    stays encrypted at the proxy. Creating it needs your password: asked for, or ERS_PASSWORD, or
    the next line of standard input. The receiver sees the records as you see them.

    Receivers verify the header webhook-signature with a library of standardwebhooks.com.

    \b
    Example:
      ers webhook create https://example.org/hooks/patients --schema patient
    """
    resource = await session.names.schema(schema, dataset)
    made = await _make_token(session, resource, expires)
    try:
        created = await session.client.create_webhook(
            resource.url, url, token=made.token, cursor=None if begin == "start" else begin
        )
    except ErsError:
        await session.client.revoke_token(made.id)
        raise
    say(created.secret)
    warn(f"This is the secret of webhook {created.id}; it is not shown again.")
    warn(
        f"Its token {made.id} expires on {made.expires:%Y-%m-%d}; renew it with: ers webhook"
        f" resume {created.id} --renew"
    )


async def _make_token(session: CommandSession, schema: ShownSchema, expires: timedelta) -> Any:
    password = None
    if not session.who.password:  # which is in the request as it is
        password = ask_password(
            session, "a webhook needs a token, and creating one needs your password"
        )
    return await session.client.create_token(
        f"webhook {schema.slug}",
        scope="read",
        datasets=[schema.dataset],
        expires_in=expires,
        password=password,
    )


@webhook.command("list", short_help="List your webhooks and how their deliveries go.")
@connected()
@takes_output
async def list_(session: CommandSession, output: Output) -> None:
    """List your webhooks at this proxy, with the error that stopped or delays each.

    \b
    Example:
      ers webhook list
    """
    named = await session.slugs("schemas") if output.form == "table" else {}

    def cells(webhook: Mapping[str, Any]) -> dict[str, Any]:
        return {**webhook, "schema": named.get(webhook["schema"], webhook["schema"].split("/")[-2])}

    webhooks = await session.client.webhooks()
    await output.many(webhooks, _COLUMNS, cells, called="webhooks", times=("delivered",))


@webhook.command(short_help="Have a webhook try again now.")
@click.argument("id", metavar="ID")
@click.option("--renew", is_flag=True, help="Create a new token for it, with your password.")
@_expires_option
@connected(organization=True)
async def resume(session: CommandSession, id: str, renew: bool, expires: timedelta) -> None:  # noqa: A002 - as ers webhook list calls it
    """Have a webhook try again now, from where it was: nothing is lost in between. With --renew it
    reads with a new token from then on, for example because the earlier token expired.

    \b
    Example:
      ers webhook resume "$WEBHOOK_ID" --renew
    """
    token = None
    if renew:
        known = {webhook.id: webhook for webhook in await session.client.webhooks()}
        if id not in known:
            raise InvalidSetting("you have no such webhook here", hint="ers webhook list")
        resource = await session.names.schema(known[id].schema)
        token = (await _make_token(session, resource, expires)).token
    resumed = await session.client.resume_webhook(id, token=token)
    say(f"Webhook {resumed.id} is active.")


@webhook.command(short_help="Delete a webhook.")
@click.argument("id", metavar="ID")
@connected()
async def delete(session: CommandSession, id: str) -> None:  # noqa: A002 - as ers webhook list calls it
    """Delete a webhook: nothing more is sent. Revoke its token as well: ers token list shows it.

    \b
    Example:
      ers webhook delete "$WEBHOOK_ID"
    """
    await session.client.delete_webhook(id)
    say(f"Webhook {id} is deleted.")

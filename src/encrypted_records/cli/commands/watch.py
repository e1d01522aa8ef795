"""``ers watch``: the changes of a schema's records, as they happen."""

from __future__ import annotations

import os
from pathlib import Path

import click

from encrypted_records import runtime
from encrypted_records.cli.commands.record.options import dataset_option, schema_option
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.terminal import say, show, warn
from encrypted_records.client.proxy.changes import Change
from encrypted_records.errors import ErsError, Gone, InvalidSetting, Unavailable
from encrypted_records.model import json_text

#: Between two attempts while the proxy is away, in seconds.
_RETRY_SECONDS = 5.0


@click.command(short_help="Follow the changes of a schema's records.")
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
    place = _Place(_begin(begin, cursor_file), cursor_file)
    ended = False
    while not ended:
        try:
            await _follow(session, resource["url"], place, once=once)
            ended = True
        except Gone as error:
            if error.reason != "start_again" or not restart:
                raise _explained(error) from None
            say(json_text.encode({"op": "restart", "detail": error.message}).decode())
            place.move(None)
        except Unavailable as error:
            if once:
                raise
            warn(f"{error.message}; trying again every {_RETRY_SECONDS:.0f} seconds")
            await runtime.sleep(_RETRY_SECONDS)


def _explained(error: Gone) -> ErsError:
    hint = "drop your copy and begin with --from start, or use --restart"
    return Gone(error.message, code=error.reason, hint=hint)


class _Place:
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


async def _follow(session: CommandSession, schema: str, place: _Place, *, once: bool) -> None:
    async for page in session.client.changes(schema, place.cursor, follow=not once):
        for change in page.changes:
            show(json_text.encode(_members(change)).decode())
        if page.current:
            told = {"op": "current", "version": page.version, "cursor": page.cursor}
            say(json_text.encode(told).decode())
        place.move(page.cursor)


def _members(change: Change) -> dict[str, object]:
    members: dict[str, object] = {
        name: getattr(change, name) for name in ("op", "version", "id", "url", "schema", "etag")
    }
    return members if change.data is None else members | {"data": change.data}

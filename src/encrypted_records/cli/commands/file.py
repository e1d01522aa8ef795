"""``ers file``: uploads that go on after an interruption."""

from __future__ import annotations

import click

from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.session import Session, connected
from encrypted_records.cli.sources import KINDS, source_of
from encrypted_records.cli.terminal import say
from encrypted_records.cli.uploading import finish, order_of, send, takes_order
from encrypted_records.errors import InvalidSetting


@click.group(short_help="Upload a file so that it goes on after an interruption.")
def file() -> None:
    """Resumable uploads, whatever the size of the file."""


@file.command(short_help="Upload a file, or go on with it.")
@click.argument("file", type=click.Path(dir_okay=False))
@takes_order
@click.option("--format", "kind", type=click.Choice(list(KINDS)), help="If its name is no help.")
@connected(organization=True)
@takes_output
async def upload(
    session: Session,
    file: str,
    schema: str | None,
    dataset: str | None,
    batch_size: int | None,
    skip_invalid: bool,
    detach: bool,
    kind: str | None,
    output: Output,
) -> int | None:
    """Upload a file as ers job upload does, and always so that the same command goes on where it
    was interrupted. CSV, and JSON whose records have their data.

    \b
    Example:
      ers file upload people.csv --schema patient
    """
    source = source_of(file, kind)
    if source.file is None:
        raise InvalidSetting(
            f"{file} is turned into JSON lines on its way, and cannot be resumed",
            hint=f"run: ers job upload {file}",
        )
    order = await order_of(session, schema, dataset, batch_size, skip_invalid)
    started = await send(session, source, order, resumable=True)
    if detach:
        say(started)
        return None
    return await finish(session, started, output)

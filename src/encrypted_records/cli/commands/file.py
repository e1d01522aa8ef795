"""``ers file``: uploads that go on after an interruption."""

from __future__ import annotations

import click

from encrypted_records.cli.commands.upload_job import JobUpload, takes_upload
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output


@click.group(short_help="Upload a file so that it goes on after an interruption.")
def file() -> None:
    """Resumable uploads, whatever the size of the file."""


@file.command(short_help="Upload a file, or go on with it.")
@takes_upload
@connected(organization=True)
@takes_output
async def upload(session: CommandSession, upload: JobUpload, output: Output) -> int:
    """Upload a file as ers job upload does, and always so that the same command goes on where it
    was interrupted. CSV, and JSON whose records have their data.

    \b
    Example:
      ers file upload people.csv --schema patient
    """
    return await upload.run(session, output, resumable=True)

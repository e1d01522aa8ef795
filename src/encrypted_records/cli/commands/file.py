"""``ers file``: uploads that go on after an interruption."""

from __future__ import annotations

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands.upload_job import JobUpload, takes_upload
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output


@click.group(cls=CommandGroup, short_help="Upload a file that resumes after an interruption.")
def file() -> None:
    """Upload files resumably, whatever their size."""


@file.command(short_help="Upload a file, or resume its upload.")
@takes_upload
@connected(organization=True)
@takes_output
async def upload(session: CommandSession, upload: JobUpload, output: Output) -> int:
    """Upload a file as ers job upload does, always resumably. CSV, and JSON whose records have
    data.

    \b
    Example:
      ers file upload people.csv --schema patient
    """
    return await upload.run(session, output, resumable=True)

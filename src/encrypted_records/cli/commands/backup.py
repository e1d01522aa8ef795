"""``ers backup``: copy a data folder while the service runs on it."""

from __future__ import annotations

from pathlib import Path

import click

from encrypted_records.cli.settings import FolderPath, Settings, takes_settings
from encrypted_records.cli.supervise.backup import back_up
from encrypted_records.cli.terminal import format_count, say


@click.command(short_help="Copy the data folder while the service is running.")
@click.argument("folder", type=FolderPath())
@takes_settings("data_dir", "database_url", "bulk_url")
def backup(settings: Settings, folder: Path) -> None:
    """Copy database, objects, keys and uploads to FOLDER, which must not exist. The service may be
    running; the copy contains everything acknowledged before the command began.

    FOLDER appears only when the copy is complete. It contains the keys: keep it as safe as the data
    folder. For a service on PostgreSQL, see docs/operations.md.

    \b
    Example:
      ers backup ./backup-monday --data-dir ./data
    """
    made = back_up(settings, folder)
    say(
        f"{folder}: {format_count(made.files, 'file')}, {made.objects} of them objects,"
        f" {made.size:,} bytes"
    )

"""``ers restore``: make a data folder of a backup."""

from __future__ import annotations

from pathlib import Path

import click

from encrypted_records.cli.settings import Folder, Settings, takes_settings
from encrypted_records.cli.supervise.restore import restore as restore_folder
from encrypted_records.cli.terminal import format_count, say


@click.command(short_help="Make a data folder of a backup.")
@click.argument("folder", type=Folder())
@takes_settings("data_dir")
def restore(settings: Settings, folder: Path) -> None:
    """Make the data folder of what `ers backup` has copied to FOLDER. Each file is checked, and
    nothing is overwritten: the data folder must not be there, or be empty.

    All logins end, unless `api/secret.key`, which no backup has, is put back as well. A proxy
    elsewhere that has seen more than the backup holds refuses it, until it is told to accept it:
    docs/operations.md says how.

    \b
    Example:
      ers restore ./backup-monday --data-dir ./restored
    """
    manifest = restore_folder(folder, settings.data_dir)
    files = format_count(len(manifest.files), "file")
    say(f"{settings.data_dir}: {files} as of {manifest.made}, by version {manifest.version}")

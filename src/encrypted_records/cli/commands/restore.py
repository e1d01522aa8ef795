"""``ers restore``: make a data folder of a backup."""

from __future__ import annotations

from pathlib import Path

import click

from encrypted_records.cli.settings import FolderPath, Settings, takes_settings
from encrypted_records.cli.supervise.restore import restore as restore_folder
from encrypted_records.cli.terminal import format_count, say


@click.command(short_help="Create a data folder from a backup.")
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

"""``ers backup``, ``restore`` and ``storage``: a copy of the data folder, and the API's objects.

For the operator of a service: ``ers backup`` copies the data folder while the service runs,
``ers restore`` makes a data folder of the copy, and ``ers storage`` moves the API's objects to
another store, or finds out which of them are left after one side was restored.
"""

from __future__ import annotations

from pathlib import Path

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.settings import FolderPath, Settings, takes_settings
from encrypted_records.cli.supervise.backup import back_up, restore_folder
from encrypted_records.cli.supervise.operating import move_stored, reconcile_stored
from encrypted_records.cli.terminal import DONE, FAILED, format_count, say


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


@click.group(
    cls=CommandGroup, short_help="Move or reconcile the API's stored objects, as its operator."
)
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

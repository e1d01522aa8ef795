"""``ers storage``: where the API keeps what it stores."""

from __future__ import annotations

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.settings import Settings, takes_settings
from encrypted_records.cli.supervise.operating import move_stored, reconcile_stored
from encrypted_records.cli.terminal import DONE, FAILED


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

"""``ers storage``: where the API keeps what it stores."""

from __future__ import annotations

import click

from encrypted_records.cli.settings import Settings, takes_settings
from encrypted_records.cli.supervise.operating import move_stored, reconcile_stored
from encrypted_records.cli.terminal import DONE, FAILED


@click.group(short_help="As the API's operator, move what it has stored.")
def storage() -> None:
    """For the operator of the API: where it keeps what it stores.

    Example: ers storage move --data-dir ./data
    """


@storage.command(short_help="Bring everything to the bulk store that is set.")
@takes_settings("data_dir", "database_url", "bulk_url", "bulk_before")
def move(settings: Settings) -> int:
    """Bring rows and pages that lie in the database, and objects of the store that --bulk-before
    names, to the store of --bulk-url. The API may run meanwhile, with the same two settings; it
    reads from both stores, and writes to the new one.

    Each piece is written, read again and checked before the database forgets it or
    the old store loses it. A command that was ended goes on where it was. What is damaged stays
    where it is and is named, and the exit code is 1 then. Small parts stay in the database.

    \b
    Examples:
      ers storage move --data-dir ./data
      ers storage move --bulk-url s3://records/all --bulk-before file:///srv/ers/objects
    """
    return DONE if move_stored(settings) else FAILED


@storage.command(short_help="Bring database and objects together after one was put back.")
@takes_settings("data_dir", "database_url", "bulk_url", "bulk_before")
def reconcile(settings: Settings) -> int:
    """Bring the database and the bulk store together after one of them was put back to an earlier
    moment. Rows of objects that are lost are looked for in those that the database does not know,
    compared with their digests, and taken back. What is lost after that is noted, for
    ers schema repair, and the exit code is 1.

    The API may run meanwhile. Run it only on the database that is to be served from now on: what it
    takes back, another one on the same bulk store loses.

    \b
    Examples:
      ers storage reconcile --data-dir ./data
      ers storage reconcile --bulk-url s3://records/all
    """
    return DONE if reconcile_stored(settings) else FAILED

"""``ers record``: store, find, read records."""

from __future__ import annotations

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands.record.aggregate import aggregate
from encrypted_records.cli.commands.record.change import delete, update
from encrypted_records.cli.commands.record.export import export
from encrypted_records.cli.commands.record.search import decrypt, get, list_, search
from encrypted_records.cli.commands.record.store import create


@click.group(cls=CommandGroup, short_help="Store, search, read, change or delete records.")
def record() -> None:
    """Manage records. The proxy encrypts and decrypts them; the API never sees their values."""


for command in (create, list_, search, get, decrypt, aggregate, export, update, delete):
    record.add_command(command)

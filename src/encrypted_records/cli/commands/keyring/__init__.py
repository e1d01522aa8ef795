"""``ers keyring``: see, write down and bring back the keys.

Passwords and phrases are asked for, or come by environment or stdin: arguments show in ``ps``. The
words of a phrase are printed to a terminal alone, where nothing keeps them by itself.
"""

from __future__ import annotations

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands.keyring.backup import backup
from encrypted_records.cli.commands.keyring.get import get
from encrypted_records.cli.commands.keyring.locks import change_passphrase, lock, unlock
from encrypted_records.cli.commands.keyring.restore import restore
from encrypted_records.cli.commands.keyring.rotate import rotate


@click.group(cls=CommandGroup, short_help="Show, back up, restore or rotate your keyring.")
def keyring() -> None:
    """Manage your keyring: the keys that decrypt your records. The proxy holds it; with --inline it
    is in ERS_DATA_DIR.

    Example: ers keyring get
    """


for command in (get, rotate, backup, restore, unlock, lock, change_passphrase):
    keyring.add_command(command)

"""``ers device``: from where your keyring can be used.

Secrets and codes come by environment or stdin, or are asked for: arguments show in ``ps``.
"""

from __future__ import annotations

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.commands.device.add import add
from encrypted_records.cli.commands.device.listing import listing
from encrypted_records.cli.commands.device.others import code, create, revoke


@click.group(
    cls=CommandGroup, short_help="List, register or revoke devices that may use your keyring."
)
def device() -> None:
    """Manage the devices that may use your keyring at a proxy: this machine, browsers, programs.
    Every request needs a device if the proxy runs at level device or your keyring has its own
    passphrase.

    Example: ers device list
    """


for command in (listing, add, code, create, revoke):
    device.add_command(command)

"""``ers keyring rotate``: a new key for what is stored from now on."""

from __future__ import annotations

import click

from encrypted_records.cli.session import Session, connected
from encrypted_records.cli.terminal import confirm, say


@click.command(short_help="Seal new records under a new key.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected()
async def rotate(session: Session, yes: bool) -> None:
    """Add a key version, under which everything is sealed that is stored from now on.

    Do this when a key or a recovery phrase may have been seen by others, or by a schedule. The old
    keys stay: they open what was stored before, for whoever else has them, too. The new version
    needs a backup of its own, and other machines that use this keyring need the new phrase.

    Example: ers keyring rotate && ers keyring backup
    """
    confirm("Seal new records under a new key, which needs a new backup?", yes=yes)
    found = await session.client.rotate_keyring()
    say(f"New records are sealed under version {found.versions[-1].version}, {found.fingerprint}.")
    say("It has no backup yet; run: ers keyring backup")

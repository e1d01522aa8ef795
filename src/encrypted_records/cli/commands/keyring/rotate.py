"""``ers keyring rotate``: a new key for what is stored from now on."""

from __future__ import annotations

import click

from encrypted_records.cli.login.proofs import call_with_proof
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.terminal import confirm, say


@click.command(short_help="Seal new records under a new key.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected()
async def rotate(session: CommandSession, yes: bool) -> None:
    """Add a key version, under which everything is sealed that is stored from now on.

    Do this when a key or a recovery phrase may have been seen by others, or by a schedule. The old
    keys stay: they open what was stored before, for anyone who else has them, too. The new version
    needs a backup of its own, and other machines that use this keyring need the new phrase. It asks
    for the same proof as ers keyring backup.

    Example: ers keyring rotate && ers keyring backup
    """
    confirm("Seal new records under a new key, which needs a new backup?", yes=yes)
    keyring = await call_with_proof(
        session, lambda proof: session.client.rotate_keyring(proof=proof)
    )
    version = keyring.versions[-1].version
    say(f"New records are sealed under version {version}, {keyring.fingerprint}.")
    say("It has no backup yet; run: ers keyring backup")

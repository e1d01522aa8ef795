"""``ers keyring rotate``: a new key for what is stored from now on."""

from __future__ import annotations

import click

from encrypted_records.cli.login.proofs import call_with_proof
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.terminal import confirm, say


@click.command(short_help="Rotate the key for new records.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected()
async def rotate(session: CommandSession, yes: bool) -> None:
    """Add a key version for all new records.

    Rotate when a key or a recovery phrase may have been seen by others, or on a schedule. The old
    keys stay: they decrypt earlier records, for anybody else who has them as well. The new version
    needs its own backup, and other machines with this keyring need the new phrase. The command
    needs the same proof as ers keyring backup.

    Example: ers keyring rotate && ers keyring backup
    """
    confirm("Encrypt new records under a new key, which needs a new backup?", yes=yes)
    keyring = await call_with_proof(
        session, lambda proof: session.client.rotate_keyring(proof=proof)
    )
    version = keyring.versions[-1].version
    say(f"New records are encrypted under version {version}, {keyring.fingerprint}.")
    say("It has no backup yet: run ers keyring backup")

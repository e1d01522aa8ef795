"""``ers keyring unlock``, ``lock`` and ``passphrase``: what it takes to open a keyring."""

from __future__ import annotations

import click

from encrypted_records.cli.commands.keyring.secrets import new_passphrase, passphrase
from encrypted_records.cli.session import Session, connected
from encrypted_records.cli.terminal import say
from encrypted_records.errors import Closed


@click.command(short_help="Open a locked keyring until the proxy ends.")
@connected()
async def unlock(session: Session) -> None:
    """Open a keyring that a passphrase seals, for as long as the proxy runs.

    The passphrase is asked for, or is the first line of stdin. Each wrong one makes the wait until
    the next longer.

    Example: ers keyring unlock
    """
    found = await session.client.unlock_keyring(passphrase("Passphrase"))
    say(f"The keyring {found.fingerprint} is unlocked until the proxy ends.")


@click.command(short_help="Lock a keyring that was unlocked.")
@connected()
async def lock(session: Session) -> None:
    """Let the proxy forget a keyring that was unlocked, and what it has opened.

    Example: ers keyring lock
    """
    await session.client.lock_keyring()
    say("The keyring is locked.")


@click.command("passphrase", short_help="Give the keyring a passphrase, or another one.")
@connected()
async def change_passphrase(session: Session) -> None:
    """Seal the keyring with a new passphrase. No record is touched; files that were kept of older
    keyrings are sealed anew, too.

    The present passphrase is asked for where one seals the keyring, then the new one, twice; or
    they are the lines of stdin, each once. Copies of the proxy's folder from before still open with
    the old one. If somebody may have such a copy and the old passphrase, rotate the keys as well.

    Example: ers keyring passphrase
    """
    sealed = await _wrapping(session)
    old = passphrase("Present passphrase") if sealed == "passphrase" else None
    new = new_passphrase("New passphrase")
    left = await session.client.change_passphrase(new, old=old)
    say("The keyring has a new passphrase.")
    say("Where the proxy is started with one, give it the new one; or run: ers keyring unlock")
    if left:
        say(f"Files of replaced keyrings that it did not open, left as they are: {left}")


async def _wrapping(session: Session) -> str:
    """How the keyring is sealed; one that is locked is so by a passphrase."""
    try:
        return (await session.client.keyring()).wrapping
    except Closed as error:
        if error.reason != "keyring_locked":
            raise
        return "passphrase"

"""``ers keyring unlock``, ``lock`` and ``passphrase``: what it takes to open a keyring."""

from __future__ import annotations

import click

from encrypted_records.cli.commands.keyring.secrets import new_passphrase
from encrypted_records.cli.login.enrolment import DEVICE, devices_of, take_in
from encrypted_records.cli.login.proofs import ask_secret, call_with_proof
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.terminal import say


@click.command(short_help="Unlock a keyring.")
@connected()
async def unlock(session: CommandSession) -> None:
    """Unlock a passphrase-protected keyring for the commands of this machine, until it is locked,
    unused for long (--lock-after of the proxy), or the proxy ends.

    The passphrase is asked for, or read from the first line of standard input. Each wrong
    passphrase lengthens the wait before the next try. The right one registers this machine.

    Example: ers keyring unlock
    """
    keyring = await session.client.unlock_keyring(ask_secret("Passphrase"))
    if keyring.device is not None and session.client.device is not None:
        session.keep_device(session.client.device)
    say(f"The keyring {keyring.fingerprint} is unlocked until ers keyring lock,")
    say("some hours without use, or the end of the proxy.")


@click.command(short_help="Lock an unlocked keyring.")
@connected()
async def lock(session: CommandSession) -> None:
    """Lock an unlocked keyring: the proxy forgets its keys and everything decrypted with them.

    Example: ers keyring lock
    """
    await session.client.lock_keyring()
    say("The keyring is locked.")


@click.command("passphrase", short_help="Set or change the keyring's passphrase.")
@connected()
async def change_passphrase(session: CommandSession) -> None:
    """Set or change the keyring's passphrase. Records are not touched; kept files of older keyrings
    are protected by the new passphrase as well. From then on every request needs a registered
    device, and each device the passphrase; this machine is registered now.

    The current passphrase, if there is one, is asked for, then the new one twice; or both are read
    from lines of standard input. Earlier copies of the proxy's folder can still be opened with the
    old passphrase. If somebody may have such a copy and the old passphrase, rotate the keys as
    well.

    Example: ers keyring passphrase
    """
    devices = await devices_of(session)
    known = devices.keyring
    if known is not None and known.passphrase:
        old: str | None = ask_secret("Current passphrase")
        if not devices.enrolled:
            await take_in(session, passphrase=old or "")
    else:
        sealed = (await session.client.keyring()).wrapping
        old = ask_secret("Current passphrase") if sealed == "passphrase" else None
        if not devices.enrolled and devices.level != DEVICE and await session.client.has_door():
            # From now on a device is needed, and it has to be one of this machine.
            await take_in(session)
    new = new_passphrase("New passphrase")
    left = await call_with_proof(
        session, lambda proof: session.client.change_passphrase(new, old=old, proof=proof)
    )
    say("The keyring has a new passphrase, and is unlocked here.")
    say(
        "If the proxy is started with a passphrase, give it the new one; otherwise run: ers"
        " keyring unlock"
    )
    if left:
        say(f"Files of replaced keyrings that the passphrase did not open, left unchanged: {left}")

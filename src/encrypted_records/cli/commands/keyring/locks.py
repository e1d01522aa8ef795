"""``ers keyring unlock``, ``lock`` and ``passphrase``: what it takes to open a keyring."""

from __future__ import annotations

import click

from encrypted_records.cli.commands.keyring.secrets import new_passphrase
from encrypted_records.cli.login.enrolment import DEVICE, devices_of, take_in
from encrypted_records.cli.login.proofs import ask_secret, call_with_proof
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.terminal import say


@click.command(short_help="Open a locked keyring on this machine.")
@connected()
async def unlock(session: CommandSession) -> None:
    """Open a keyring that a passphrase seals, for the commands of this machine: until it is locked,
    is not used for long (--lock-after of the proxy), or the proxy ends.

    The passphrase is asked for, or is the first line of stdin. Each wrong one makes the wait until
    the next longer. The right one takes this machine in.

    Example: ers keyring unlock
    """
    keyring = await session.client.unlock_keyring(ask_secret("Passphrase"))
    if keyring.device is not None and session.client.device is not None:
        session.keep_device(session.client.device)
    say(f"The keyring {keyring.fingerprint} is unlocked here until ers keyring lock,")
    say("some hours without use, or the end of the proxy.")


@click.command(short_help="Lock a keyring that was unlocked.")
@connected()
async def lock(session: CommandSession) -> None:
    """Let the proxy forget a keyring that was unlocked, and what it has opened.

    Example: ers keyring lock
    """
    await session.client.lock_keyring()
    say("The keyring is locked.")


@click.command("passphrase", short_help="Give the keyring a passphrase, or another one.")
@connected()
async def change_passphrase(session: CommandSession) -> None:
    """Seal the keyring with a new passphrase. No record is touched; files that were kept of older
    keyrings are sealed again, too. From then on every request needs a device that was taken in, and
    each device the passphrase; this machine is taken in now.

    The present passphrase is asked for where one seals the keyring, then the new one, twice; or
    they are the lines of stdin, each once. Copies of the proxy's folder from before still open with
    the old one. If somebody may have such a copy and the old passphrase, rotate the keys as well.

    Example: ers keyring passphrase
    """
    devices = await devices_of(session)
    known = devices.keyring
    if known is not None and known.passphrase:
        old: str | None = ask_secret("Present passphrase")
        if not devices.enrolled:
            await take_in(session, passphrase=old or "")
    else:
        sealed = (await session.client.keyring()).wrapping
        old = ask_secret("Present passphrase") if sealed == "passphrase" else None
        if not devices.enrolled and devices.level != DEVICE and await session.client.has_door():
            # From now on a device is needed, and it has to be one of this machine.
            await take_in(session)
    new = new_passphrase("New passphrase")
    left = await call_with_proof(
        session, lambda proof: session.client.change_passphrase(new, old=old, proof=proof)
    )
    say("The keyring has a new passphrase, and is unlocked here.")
    say("Where the proxy is started with one, give it the new one; or run: ers keyring unlock")
    if left:
        say(f"Files of replaced keyrings that it did not open, left as they are: {left}")

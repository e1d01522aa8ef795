"""``ers device code``, ``create``, ``revoke``: enrol other devices, and revoke them."""

from __future__ import annotations

import click

from encrypted_records.cli.login.devices import KeptDevices
from encrypted_records.cli.login.proofs import call_with_proof
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.terminal import say, warn


@click.command(short_help="Print a code that takes one other device in.")
@click.option("--user", metavar="ID", help="For somebody else; on the machine of the proxy alone.")
@connected()
async def code(session: CommandSession, user: str | None) -> None:
    """Print a code, to be typed on the device that it is for: at ers device add, or on the page
    /device/. It is good for ten minutes, once; a newer code ends it.

    Away from the proxy's machine it takes your password, or the keyring's own passphrase: asked
    for, or ERS_PASSWORD, or the next line of stdin.

    With --user it is for somebody who has lost all devices and words. That takes the user of the
    operating system who runs the proxy; ask the person for the id that ers device list shows.

    \b
    Example:
      ers device code
    """
    if user is None:
        made = await call_with_proof(session, lambda proof: session.client.device_code(proof=proof))
    else:
        made = await session.client.device_code(user=user)
    say(made.code)
    warn(f"Type it on the other device within {made.seconds // 60} minutes; it is good once.")


@click.command(short_help="Print the secret of a device for another program.")
@click.argument("name")
@connected()
async def create(session: CommandSession, name: str) -> None:
    """Print the secret of a device, for a program that sends it as X-ERS-Device, or has it in
    ERS_DEVICE. It is shown once. It takes the same proof as ers device code.

    \b
    Example:
      (umask 077; ers device create nightly > nightly.device)
    """
    made = await call_with_proof(
        session, lambda proof: session.client.create_device(name, proof=proof)
    )
    say(made.device)
    warn(
        f"This is device {made.id}, {made.name}. With your login it opens your records: keep it so"
    )
    warn("that only its program can read it, and end it with: ers device revoke " + made.id)


@click.command(short_help="Refuse a device from now on.")
@click.argument("id", metavar="ID")
@connected()
async def revoke(session: CommandSession, id: str) -> None:  # noqa: A002 - as ers device list calls it
    """Refuse a device from now on, and end what it has open. Jobs that it began go on.

    For another device than this one it takes the same proof as ers device code.

    \b
    Example:
      ers device revoke "$LOST"
    """
    await call_with_proof(session, lambda proof: session.client.revoke_device(id, proof=proof))
    own = session.client.device
    if own is not None and own.secret.id == id:
        KeptDevices().forget(session.proxy.devices, session.who.email)
        session.client.show_device(None)
        say("This machine is not taken in any more.")
    else:
        say(f"Device {id} is refused from now on.")

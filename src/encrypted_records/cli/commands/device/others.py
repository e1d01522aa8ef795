"""``ers device code``, ``create``, ``revoke``: enrol other devices, and revoke them."""

from __future__ import annotations

import click

from encrypted_records.cli.login.devices import KeptDevices
from encrypted_records.cli.login.proofs import call_with_proof
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.terminal import say, warn


@click.command(short_help="Print a code that registers one other device.")
@click.option(
    "--user", metavar="ID", help="Register a device for this user; only on the proxy's machine."
)
@connected()
async def code(session: CommandSession, user: str | None) -> None:
    """Print a code to enter on the new device, at ers device add or on the page /device/. It works
    once, for ten minutes; a newer code replaces it.

    Away from the proxy's machine the command needs your password or the keyring's passphrase: asked
    for, or ERS_PASSWORD, or the next line of standard input.

    With --user, the code is for a person who has lost all devices and words. This works only as the
    operating system user who runs the proxy; ask the person for the id that ers device list shows.

    \b
    Example:
      ers device code
    """
    if user is None:
        made = await call_with_proof(session, lambda proof: session.client.device_code(proof=proof))
    else:
        made = await session.client.device_code(user=user)
    say(made.code)
    warn(f"Enter it on the other device within {made.seconds // 60} minutes; it works once.")


@click.command(short_help="Create a device for another program, and print its secret.")
@click.argument("name")
@connected()
async def create(session: CommandSession, name: str) -> None:
    """Create a device for a program, and print its secret once. The program sends it as
    X-ERS-Device, or reads it from ERS_DEVICE. The command needs the same proof as ers device code.

    \b
    Example:
      (umask 077; ers device create nightly > nightly.device)
    """
    made = await call_with_proof(
        session, lambda proof: session.client.create_device(name, proof=proof)
    )
    say(made.device)
    warn(
        f"This is device {made.id}, {made.name}. Together with your login it decrypts your"
        " records: store it so"
    )
    warn("that only its program can read it, and revoke it with: ers device revoke " + made.id)


@click.command(short_help="Revoke a device.")
@click.argument("id", metavar="ID")
@connected()
async def revoke(session: CommandSession, id: str) -> None:  # noqa: A002 - as ers device list calls it
    """Revoke a device and end its open connections. Jobs that it began continue.

    For another device than this one, the command needs the same proof as ers device code.

    \b
    Example:
      ers device revoke "$LOST"
    """
    await call_with_proof(session, lambda proof: session.client.revoke_device(id, proof=proof))
    own = session.client.device
    if own is not None and own.secret.id == id:
        KeptDevices().forget(session.proxy.devices, session.who.email)
        session.client.show_device(None)
        say("This machine is no longer registered.")
    else:
        say(f"Device {id} is revoked.")

"""``ers device``: from where your keyring can be used.

Secrets and codes come by environment or stdin, or are asked for: arguments show in ``ps``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import click

from encrypted_records.cli.command_group import CommandGroup
from encrypted_records.cli.login import proofs
from encrypted_records.cli.login.keychain import DEVICE_VARIABLE, KeptDevices
from encrypted_records.cli.login.session import CommandSession, caller_at, connected, session_of
from encrypted_records.cli.output import Output, row_of, takes_output
from encrypted_records.cli.terminal import confirm, day, minute, printable, say, table, warn
from encrypted_records.client.proxy.keyring import Devices
from encrypted_records.errors import InvalidSetting, NotAuthenticated, NotFound

_WAYS = {"code": "code", "passphrase": "passphrase", "words": "phrase"}
_CODE = re.compile(r"[0-9A-Za-z]{4}[- ]?[0-9A-Za-z]{4}")
_WORDS = 24
_UNREGISTERED = ("device_needed", "device_unknown")


@click.command(short_help="Register this machine.")
@click.option("--name", metavar="NAME", help="Name of the device (default: the host name).")
@click.option(
    "--by",
    type=click.Choice(list(_WAYS)),
    help="Kind of secret that you will type, if its form does not show it.",
)
@click.option(
    "--new",
    is_flag=True,
    help="Create a new device instead of using the stored one. The proxy's identity cannot be"
    " checked then.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(anonymous=True)
async def add(
    session: CommandSession, name: str | None, by: str | None, new: bool, yes: bool
) -> None:
    """Register this machine, so that its commands may use your keyring at this proxy.

    On the proxy's own machine, the user who runs the proxy needs no proof. Elsewhere, enter one of:
    a code from ers device code or the page /keyring/ on a registered device; the keyring's
    passphrase; the 24 words of its newest version. It is asked for, or read from the first line of
    standard input. Check the date and the fingerprint first: the keyring should be yours, and not
    one that somebody created in your name.

    \b
    Example:
      ers device add
    """
    who = await caller_at(session.proxy)
    if new:
        if os.environ.get(DEVICE_VARIABLE):
            raise InvalidSetting(
                f"{DEVICE_VARIABLE} already names a device", hint=f"unset {DEVICE_VARIABLE}"
            )
        KeptDevices().forget(session.proxy.devices, who.email)
    async with session_of(session.proxy, who) as device_session:
        devices = await _find_devices(device_session)
        device_session.make_device()
        if devices is not None and devices.enrolled:
            await device_session.remember_device()
            say("This machine is already registered.")
            return
        by_door = by is None and await device_session.client.has_door()
        if devices is not None and not _show_keyring(devices, by_door=by_door, yes=yes):
            return
        try:
            where = await proofs.register_device(
                device_session, name or "", **({} if by_door else _ask_code(devices, by))
            )
        except NotFound as error:
            if error.reason != "no_keyring":
                raise
            _say_none_yet()
        else:
            say(f"This machine is registered. Its secret is stored in {where}.")


async def _find_devices(session: CommandSession) -> Devices | None:
    """The devices of the keyring; None over a mirror, which shows them only to one of them."""
    try:
        return await proofs.devices_of(session)
    except NotAuthenticated as error:
        if error.reason not in _UNREGISTERED or not await session.reads_mirror():
            raise
    return None


def _show_keyring(devices: Devices, *, by_door: bool, yes: bool) -> bool:
    """Show whose keyring it is; whether there is one to register this machine for."""
    for line in proofs.describe(devices):
        warn(line)
    if devices.keyring is None and not by_door:
        _say_none_yet()
        return False
    if by_door and devices.level == proofs.DEVICE:
        question = "Is this your keyring? If so, this machine will be registered"
        confirm(
            question,
            yes=yes,
            why="registering this machine for this keyring needs a confirmation",
        )
    return True


def _say_none_yet() -> None:
    say(
        "You have no keyring here yet. Storing the first records creates it and registers this"
        " machine. If you had one on another machine, restore it first: ers keyring restore"
    )


def _ask_code(devices: Devices | None, by: str | None) -> dict[str, str]:
    """Ask for a code, passphrase or words; returns the input under the name of its kind."""
    has_passphrase = devices is None or (devices.keyring is not None and devices.keyring.passphrase)
    text = proofs.ask_secret(
        f"Code{', passphrase' if has_passphrase else ''}, or words (input is hidden)"
    ).strip()
    if not text:
        raise InvalidSetting(
            "no code, passphrase or words were entered",
            hint="run ers device code on a registered device, or open its page /keyring/",
        )
    if by is None and len(text.split()) >= _WORDS:
        by = "words"
    elif by is None:
        by = "passphrase" if has_passphrase and not _CODE.fullmatch(text) else "code"
    return {_WAYS[by]: text}


_LEVELS = {
    "api": "api: credentials that the API accepts are enough",
    proofs.DEVICE: "device: a request also needs a registered device",
}
#: Words for events whose names are not plain enough.
_EVENT_WORDS = {"taken_in": "registered"}
#: Events of a table; the other forms have all.
_EVENTS = 20


@click.command("list", short_help="Show devices and events of the keyring.")
@connected()
@takes_output
async def listing(session: CommandSession, output: Output) -> None:
    """Show which devices may use your keyring at this proxy, how they were registered, and what
    happened: devices registered, revoked and refused, keys shown and changed.

    Check this list if the proxy says that you have a keyring before you created one.

    \b
    Example:
      ers device list
    """
    devices = await session.client.devices()
    if output.form != "table":
        output.write_object({"devices": None, "events": None, **row_of(devices)})
        return
    for line in _lines(devices):
        say(printable(line))


def _lines(devices: Devices) -> Iterator[str]:
    yield f"user         {devices.user}"
    yield f"level        {_LEVELS.get(devices.level, devices.level)}"
    yield from proofs.describe(devices)
    yield f"this one     {'registered' if devices.enrolled else 'not registered: ers device add'}"
    if devices.devices:
        yield ""
        rows = [
            {
                "id": device.id,
                "name": device.name,
                "registered by": device.way,
                "since": day(device.created),
                "used": day(device.used),
                "": "this one" if device.this else "",
            }
            for device in devices.devices
        ]
        yield from table(rows, ("id", "name", "registered by", "since", "used", ""))
    if devices.events:
        yield ""
        rows = [
            {
                "at": minute(event.at),
                "what": _EVENT_WORDS.get(event.kind, event.kind.replace("_", " ")),
                "device": event.device or "",
                "how": event.detail or "",
                "times": str(event.count) if event.count > 1 else "",
            }
            for event in devices.events[:_EVENTS]
        ]
        yield from table(rows, ("at", "what", "device", "how", "times"))
        if len(devices.events) > _EVENTS:
            yield f"and {len(devices.events) - _EVENTS} earlier; --output json shows all"


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
        made = await proofs.with_proof(session, session.client.device_code)
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
    made = await proofs.with_proof(session, session.client.create_device, name)
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
    await proofs.with_proof(session, session.client.revoke_device, id)
    device = session.client.device
    if device is not None and device.secret.id == id:
        KeptDevices().forget(session.proxy.devices, session.who.email)
        session.client.show_device(None)
        say("This machine is no longer registered.")
    else:
        say(f"Device {id} is revoked.")


@click.group(cls=CommandGroup)
def device() -> None:
    """Manage the devices that may use your keyring at a proxy: this machine, browsers, programs.
    Every request needs a device if the proxy runs at level device or your keyring has its own
    passphrase.

    Example: ers device list
    """


for command in (listing, add, code, create, revoke):
    device.add_command(command)

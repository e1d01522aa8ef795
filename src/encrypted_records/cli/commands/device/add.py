"""``ers device add``: enrol this machine as a device."""

from __future__ import annotations

import os
import re

import click

from encrypted_records.cli.login.devices import VARIABLE, KeptDevices
from encrypted_records.cli.login.enrolment import DEVICE, describe, devices_of, take_in
from encrypted_records.cli.login.proofs import ask_secret
from encrypted_records.cli.login.session import (
    CommandSession,
    caller_at,
    connected,
    session_of,
)
from encrypted_records.cli.terminal import confirm, say, warn
from encrypted_records.client.proxy.devices import Devices
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
        if os.environ.get(VARIABLE):
            raise InvalidSetting(f"{VARIABLE} already names a device", hint=f"unset {VARIABLE}")
        KeptDevices().forget(session.proxy.devices, who.email)
    async with session_of(session.proxy, who) as own:
        devices = await _find_devices(own)
        own.make_device()
        if devices is not None and devices.enrolled:
            await own.remember_device()
            say("This machine is already registered.")
            return
        by_door = by is None and await own.client.has_door()
        if devices is not None and not _show_keyring(devices, by_door=by_door, yes=yes):
            return
        try:
            where = await take_in(own, name or "", **({} if by_door else _ask_code(devices, by)))
        except NotFound as error:
            if error.reason != "no_keyring":
                raise
            _say_none_yet()
        else:
            say(f"This machine is registered. Its secret is stored in {where}.")


async def _find_devices(session: CommandSession) -> Devices | None:
    """The devices of the keyring; None over a mirror, which shows them only to one of them."""
    try:
        return await devices_of(session)
    except NotAuthenticated as error:
        if error.reason not in _UNREGISTERED or not await session.reads_mirror():
            raise
    return None


def _show_keyring(devices: Devices, *, by_door: bool, yes: bool) -> bool:
    """Show whose keyring it is; whether there is one to register this machine for."""
    for line in describe(devices):
        warn(line)
    if devices.keyring is None and not by_door:
        _say_none_yet()
        return False
    if by_door and devices.level == DEVICE:
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
        " machine."
    )


def _ask_code(devices: Devices | None, by: str | None) -> dict[str, str]:
    """Ask for a code, passphrase or words; returns the input under the name of its kind."""
    own = devices is None or (devices.keyring is not None and devices.keyring.passphrase)
    text = ask_secret(f"Code{', passphrase' if own else ''}, or words (input is hidden)").strip()
    if not text:
        raise InvalidSetting(
            "no code, passphrase or words were entered",
            hint="run ers device code on a registered device, or open its page /keyring/",
        )
    if by is None and len(text.split()) >= _WORDS:
        by = "words"
    elif by is None:
        by = "passphrase" if own and not _CODE.fullmatch(text) else "code"
    return {_WAYS[by]: text}

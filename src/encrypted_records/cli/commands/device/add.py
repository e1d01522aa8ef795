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
    connected,
    credentials_at,
    session_of,
)
from encrypted_records.cli.terminal import confirm, say, warn
from encrypted_records.client.proxy.devices import Devices
from encrypted_records.errors import InvalidSetting, NotFound

_WAYS = {"code": "code", "passphrase": "passphrase", "words": "phrase"}
_CODE = re.compile(r"[0-9A-Za-z]{4}[- ]?[0-9A-Za-z]{4}")
_WORDS = 24


@click.command(short_help="Have this machine taken in.")
@click.option("--name", metavar="NAME", help="Name in the list (default: its host name).")
@click.option(
    "--by",
    type=click.Choice(list(_WAYS)),
    help="Kind of secret that you type, where its form does not tell; the door is not used then.",
)
@click.option(
    "--new",
    is_flag=True,
    help="Make a new device instead of the one that is kept. Nothing shows then that what"
    " answers is the proxy that you know.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@connected(anonymous=True)
async def add(
    session: CommandSession, name: str | None, by: str | None, new: bool, yes: bool
) -> None:
    """Have this machine taken in, so that its commands may use your keyring at this proxy.

    On the machine of the proxy, for the user who runs it, nothing has to be shown. Elsewhere it
    takes one of: a code that ers device code or the page /keyring/ shows on a device of yours; the
    keyring's own passphrase; the 24 words of its newest version. It is asked for, or the first line
    of stdin. Look at the date and the fingerprint first: it should be your keyring, and not one
    that somebody made in your name.

    \b
    Example:
      ers device add
    """
    who = credentials_at(session.proxy)
    if new:
        if os.environ.get(VARIABLE):
            raise InvalidSetting(f"{VARIABLE} names a device already", hint=f"unset {VARIABLE}")
        KeptDevices().forget(session.proxy.devices, who.email)
    async with session_of(session.proxy, who) as own:
        devices = await devices_of(own)
        own.make_device()
        if devices.enrolled:
            await own.remember_device()
            say("This machine is taken in already.")
            return
        for line in describe(devices):
            warn(line)
        by_door = by is None and await own.client.has_door()
        if devices.keyring is None and not by_door:
            _say_none_yet()
            return
        if by_door and devices.level == DEVICE:
            question = "Is that your keyring? Then this machine is taken in"
            confirm(question, yes=yes, why="this machine would be taken in for that keyring")
        try:
            where = await take_in(own, name or "", **({} if by_door else _ask_code(devices, by)))
        except NotFound as error:
            if error.reason != "no_keyring":
                raise
            _say_none_yet()
        else:
            say(f"This machine is taken in. Its secret is kept in {where}.")


def _say_none_yet() -> None:
    say("You have no keyring here yet. The first records make it, and take this machine in.")


def _ask_code(devices: Devices, by: str | None) -> dict[str, str]:
    """What is typed, and what it is."""
    own = devices.keyring is not None and devices.keyring.passphrase
    text = ask_secret(f"Code{', passphrase' if own else ''} or words (it does not show)").strip()
    if not text:
        raise InvalidSetting(
            "nothing was typed for which this machine is taken in",
            hint="on a device of yours, ers device code or the page /keyring/ shows a code",
        )
    if by is None and len(text.split()) >= _WORDS:
        by = "words"
    elif by is None:
        by = "passphrase" if own and not _CODE.fullmatch(text) else "code"
    return {_WAYS[by]: text}

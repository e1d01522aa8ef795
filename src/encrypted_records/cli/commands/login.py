"""``ers login``: store a login, so that later commands need no password."""

from __future__ import annotations

import os
import sys
import time
from functools import partial

import click

from encrypted_records.cli.login.proofs import with_code
from encrypted_records.cli.login.session import (
    NOBODY,
    CommandSession,
    ask_credentials,
    connected,
    device_at,
    email_option,
    login_at,
    session_of,
)
from encrypted_records.cli.terminal import ask_yes, say, warn
from encrypted_records.errors import ErsError, NoProxy


@click.command(short_help="Log in.")
@email_option
@connected(anonymous=True)
async def login(session: CommandSession, email: str | None) -> None:
    """Log in with e-mail address and password, and store the login for later commands.

    The login is stored in the system's keychain, or in a file that only you can read; the password
    is not stored. It is asked for, or taken from ERS_PASSWORD. A login ends with ers logout, after
    a change of password, or after seven days without use. Where the account has a second factor,
    its code is asked for too.

    The command also stores a device secret, by which the proxy recognises this machine. If no
    confirmation is needed, this machine is registered now; otherwise run ers device add.

    \b
    Example:
      ers login --email ada@example.org
    """
    from encrypted_records.cli.login.token_store import KeptLogin, Logins  # noqa: PLC0415 - slow to import

    email, password = ask_credentials(email, os.environ.get("ERS_PASSWORD"))
    # From the device that is kept: a stranger at the proxy's port gets no password.
    async with session.proxy.client(NOBODY, device_at(session.proxy, email)) as client:
        tokens = await with_code(partial(client.tokens, email=email, password=password))
    where = await Logins().keep(session.address, KeptLogin(email, tokens, time.time()))
    say(f"Logged in at {session.address} as {email}. The login is stored in {where}.")
    who = login_at(session.proxy)
    assert who is not None
    try:
        async with session_of(session.proxy, who) as own:
            async for organization in own.client.listing("organizations"):
                say(f"You belong to {organization['slug']} ({organization['name']}).")
            await _take_in(own)
    except NoProxy:
        pass  # an API, which has no keyrings
    except ErsError as error:
        # The login is there, whatever the proxy thinks of this machine.
        warn(error.message)
        warn(f"hint: {error.hint}")


async def _take_in(session: CommandSession) -> None:
    """Have a device; have it taken in where that needs no question, or a single one."""
    from encrypted_records.cli.login.enrolment import (  # noqa: PLC0415 - slow to import
        DEVICE,
        describe,
        devices_of,
        take_in,
    )

    devices = await devices_of(session)
    session.make_device()
    if devices.enrolled:
        await session.remember_device()
    elif devices.keyring is None:
        return  # the keyring takes it in when it is made
    elif not await session.client.has_door():
        if devices.level == DEVICE:
            warn("This proxy also requires a device: register this machine with ers device add")
    elif devices.level != DEVICE:
        await take_in(session)
    elif sys.stdin.isatty():
        for line in describe(devices):
            warn(line)
        if ask_yes("Is this your keyring? If so, this machine will be registered"):
            await take_in(session)
    else:
        warn("Register this machine: ers device add")

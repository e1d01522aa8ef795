"""Enrol this machine at a proxy, with whatever proof it has."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator

from encrypted_records.cli.login.devices import VARIABLE
from encrypted_records.cli.login.session import CommandSession
from encrypted_records.cli.times import day
from encrypted_records.client.proxy.devices import Devices
from encrypted_records.client.proxy.transport import new_device
from encrypted_records.errors import NotAuthenticated

DEVICE = "device"


def own_name() -> str:
    """The name of this machine in a keyring's list of devices."""
    return f"ers on {platform.node() or 'a machine'}"


async def devices_of(session: CommandSession) -> Devices:
    """The devices that may use the keyring. A revoked device of this machine is replaced by a new
    one.
    """
    try:
        return await session.client.devices()
    except NotAuthenticated as error:
        if error.reason != "device_unknown" or os.environ.get(VARIABLE):
            raise
    # It knew the device, or has the door: so this is the proxy, and the device is of no use.
    session.keep_device(new_device())
    return await session.client.devices()


async def take_in(session: CommandSession, name: str = "", **shown: str) -> str:
    """Register the session's device and store its secret; returns the description of the storage
    place.

    Args:
        shown: as of :meth:`DeviceCalls.add_device`; nothing where the door is enough.
    """
    session.make_device()
    await session.client.add_device(name or own_name(), **shown)
    device = session.client.device
    assert device is not None
    return session.keep_device(device)


def describe(devices: Devices) -> Iterator[str]:
    """Lines by which the owner of a keyring knows it again."""
    known = devices.keyring
    if known is None:
        yield "keyring      none yet"
        return
    count = devices.count
    sealed = ", protected by a passphrase" if known.passphrase else ""
    yield f"keyring {known.fingerprint}, created {day(known.made)}{sealed}"
    yield f"devices      {count} registered" if count else "devices      none"

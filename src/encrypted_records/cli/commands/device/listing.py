"""``ers device list``: which devices there are, and what happened."""

from __future__ import annotations

from collections.abc import Iterator

import click

from encrypted_records.cli.login.enrolment import DEVICE, describe
from encrypted_records.cli.login.session import CommandSession, connected
from encrypted_records.cli.output import Output, takes_output
from encrypted_records.cli.terminal import printable, say, table
from encrypted_records.cli.times import day, minute
from encrypted_records.client.proxy.devices import Devices

_LEVELS = {
    "api": "api: credentials that the API accepts are enough",
    DEVICE: "device: a request also needs a registered device",
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
        from msgspec import to_builtins  # noqa: PLC0415 - slow to import

        output.write_one(to_builtins(devices))
        return
    for line in _lines(devices):
        say(printable(line))


def _lines(devices: Devices) -> Iterator[str]:
    yield f"user         {devices.user}"
    yield f"level        {_LEVELS.get(devices.level, devices.level)}"
    yield from describe(devices)
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

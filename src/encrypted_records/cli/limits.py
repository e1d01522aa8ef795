"""What a command takes at once, and when the doctor warns. Tests set other limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from encrypted_records.client.limits import ClientLimits


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """
    Attributes:
        at_once: things taken from a file at once; the service opens so many sealed records in a
            request.
        resumable_bytes: from which size on a file is sent so that it can continue after an
            interruption.
        clocks_differ: seconds that clocks may differ: tokens last fifteen minutes and are renewed
            a minute early.
        little_space: bytes; with less free space below the data folder, the doctor warns.
        client: those of the client; None is the usual ones.
    """

    at_once: int = 1000
    resumable_bytes: int = 64 << 20
    clocks_differ: float = 30.0
    little_space: int = 1 << 30
    client: ClientLimits | None = None


STANDARD = CommandLimits()

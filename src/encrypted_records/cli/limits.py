"""Limits of commands, and thresholds of the doctor. Tests set other limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from encrypted_records.client.limits import ClientLimits


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """
    Attributes:
        at_once: items read from a file at once, and maximum number of sealed records per request.
        resumable_bytes: size in bytes from which an upload can be resumed after an interruption.
        clocks_differ: maximum difference between clocks in seconds: tokens last fifteen minutes and
            are renewed a minute early.
        little_space: bytes; with less free space below the data folder, the doctor warns.
        client: limits of the client; None uses the defaults.
    """

    at_once: int = 1000
    resumable_bytes: int = 64 << 20
    clocks_differ: float = 30.0
    little_space: int = 1 << 30
    client: ClientLimits | None = None


STANDARD = CommandLimits()

"""Keyrings of a folder, and holders that may use them, without a proxy around them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from encrypted_records import runtime
from encrypted_records.crypto.recovery import Wrapper
from encrypted_records.proxy.keyrings.devices import AccessStore, Enrolment
from encrypted_records.proxy.keyrings.holder import Attempts, Holder, Level, Policy
from encrypted_records.proxy.keyrings.store import UNLOCKED_SECONDS, Keyrings

MANY = Policy(Level.API, lone=False)


def keyrings_in(
    folder: Path,
    *secrets: Wrapper,
    attempts: Attempts | None = None,
    policy: Policy = MANY,
    clock: Callable[[], float] = runtime.monotonic,
    unlocked_seconds: float = UNLOCKED_SECONDS,
) -> Keyrings:
    """The keyrings of a folder, as a proxy of this policy opens them."""
    return Keyrings(
        folder,
        *secrets,
        enrolment=enrolment_in(folder, policy),
        attempts=attempts,
        clock=clock,
        unlocked_seconds=unlocked_seconds,
    )


def enrolment_in(folder: Path, policy: Policy = MANY) -> Enrolment:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Enrolment(AccessStore(folder / "access.sqlite3"), policy)


def holder(user: bytes, device: str | None = "device00") -> Holder:
    """A user at a device that was taken in."""
    return Holder(user, "", device)

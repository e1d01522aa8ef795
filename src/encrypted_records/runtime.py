"""Time, randomness and identifiers, from one place that a test can replace.

All packages that hold keys or plaintext (`proxy`, `client`, `index`, `ingest`, `crypto`, `model`)
read clocks and draw random bytes here only; a lint rule (TID251) forbids other sources. A test
that replaces `machine` therefore controls the time and the random bytes, and can repeat a run
exactly.

Sleeps and threads remain those of asyncio, and a test replaces them with its event loop. They are
named here so that all sources of nondeterminism are listed in one place.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import time
import uuid
from typing import Protocol

from uuid_utils import compat


class Machine(Protocol):
    """The clocks and the randomness of a computer."""

    def monotonic(self) -> float:
        """Seconds of a monotonic clock with an arbitrary start."""

    def elapsed(self) -> float:
        """Seconds of a monotonic clock that also counts suspended time, if the system supports
        that.
        """

    def wall_ns(self) -> int:
        """Nanoseconds since 1970, by a clock that can be set."""

    def random_bytes(self, size: int) -> bytes:
        """Unpredictable bytes, ``size`` of them."""

    def uuid7(self, nanoseconds: int | None) -> uuid.UUID:
        """A UUID of version 7 (RFC 9562), with the present time if none is given."""


class Computer:
    """The computer that this process runs on."""

    def monotonic(self) -> float:
        return time.monotonic()

    def elapsed(self) -> float:
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def wall_ns(self) -> int:
        return time.time_ns()

    def random_bytes(self, size: int) -> bytes:
        return os.urandom(size)

    def uuid7(self, nanoseconds: int | None) -> uuid.UUID:
        return compat.uuid7(nanoseconds=nanoseconds)


#: A test that replaces it must restore it. Every call reads it, so nothing caches the old object.
machine: Machine = Computer()


def monotonic() -> float:
    """Seconds of a monotonic clock with an arbitrary start."""
    return machine.monotonic()


def elapsed() -> float:
    """Seconds of a monotonic clock that also counts suspended time, if the system supports that."""
    return machine.elapsed()


def wall() -> float:
    """Seconds since 1970, by this machine's clock."""
    return machine.wall_ns() / 1_000_000_000


def wall_ns() -> int:
    """Nanoseconds since 1970, by this machine's clock."""
    return machine.wall_ns()


def random_bytes(size: int) -> bytes:
    """Bytes for keys, nonces and salts, from the operating system."""
    return machine.random_bytes(size)


def random_hex(size: int) -> str:
    """``size`` random bytes as text, two digits each."""
    return random_bytes(size).hex()


def random_text(size: int) -> str:
    """``size`` random bytes as text for a URL, about 1.3 characters each."""
    return base64.urlsafe_b64encode(random_bytes(size)).rstrip(b"=").decode()


def uuid4() -> uuid.UUID:
    """A random UUID (RFC 9562)."""
    return uuid.UUID(bytes=random_bytes(16), version=4)


def uuid7(*, nanoseconds: int | None = None) -> uuid.UUID:
    """A UUID that sorts by time (RFC 9562): by the present, or by ``nanoseconds`` since 1970."""
    return machine.uuid7(nanoseconds)


class _Chance(random.SystemRandom):
    """`random.SystemRandom`, with its bytes from `machine`."""

    def random(self) -> float:
        return self.getrandbits(53) / (1 << 53)

    def getrandbits(self, bits: int, /) -> int:
        size = (bits + 7) // 8
        return int.from_bytes(random_bytes(size)) >> (size * 8 - bits)

    def randbytes(self, size: int) -> bytes:
        return random_bytes(size)


chance: random.Random = _Chance()
sleep = asyncio.sleep
in_thread = asyncio.to_thread

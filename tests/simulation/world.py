"""What a run is made of: virtual clocks, chance from one seed, and points at which a life may end.

Three generators: ``chance`` for what happens, ``order`` for the loop, and ``bytes`` for what the
code itself draws. One draw more in the code does not change what happens around it.
"""

from __future__ import annotations

import datetime
import os
import random
import sqlite3
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from encrypted_records import runtime
from tests.simulation.loop import SimulatedLoop, owner

#: When every run begins: seconds since 1970, and of the clock that only goes on.
BEGINS, MONOTONIC = 1_790_000_000.0, 10_000.0

_real_datetime = datetime.datetime
_real_connect = sqlite3.connect


#: Calls of the system before which a process may end.
_POINTS = ("fsync", "replace", "rename", "link")
#: Packages whose modules may have a name of their own for the class that knows the time.
_WITH_CLOCKS = ("django", "jwt", "rest_framework", "rest_framework_simplejwt")


class Fuse:
    """Burns at the n-th point that is passed.

    Args:
        points: how many are passed before.
        burn: is called then, and does not return.
    """

    def __init__(self, points: int, burn: Callable[[], None]) -> None:
        self._left = points
        self._burn = burn

    def pass_point(self) -> None:
        self._left -= 1
        if self._left < 0:
            self._burn()


class World:
    """
    Attributes:
        seed: the only source of chance.
        folder: of everything that is on a disk.
        lives: by owner, what is called at each point of it.
        fast: by machine, how many seconds its clock is ahead.
        full: machines whose disks are full.
    """

    def __init__(self, seed: object, folder: Path) -> None:
        self.seed = seed
        self.folder = folder
        self.chance = random.Random(f"{seed} world")
        self.bytes = random.Random(f"{seed} bytes")
        self.loop = SimulatedLoop(random.Random(f"{seed} order"), MONOTONIC)
        self.lives: dict[str, Callable[[], None]] = {}
        self.fast: dict[str, float] = {}
        self.full: set[str] = set()
        self._thread = threading.get_ident()
        self._last_id = (0, 0)

    # --- clocks and chance -------------------------------------------------------------------

    def monotonic(self) -> float:
        return self.loop.now

    def wall(self) -> float:
        """Seconds since 1970 by the clock of the machine that asks."""
        ahead = self.fast.get(machine_of(owner.get()), 0.0) if self.fast else 0.0
        return BEGINS + self.loop.now - MONOTONIC + ahead

    def elapsed(self) -> float:
        return self.loop.now

    def wall_ns(self) -> int:
        return int(self.wall() * 1_000_000_000)

    def random_bytes(self, size: int) -> bytes:
        return self.bytes.randbytes(size)

    def uuid7(self, nanoseconds: int | None) -> uuid.UUID:
        """A new one; within a millisecond they count on, as the library's do."""
        now = (self.wall_ns() if nanoseconds is None else nanoseconds) // 1_000_000
        last, tail = self._last_id
        tail = tail + 1 + self.bytes.getrandbits(32) if now == last else self.bytes.getrandbits(73)
        self._last_id = now, tail
        high, low = tail >> 62, tail & ((1 << 62) - 1)
        return uuid.UUID(int=now << 80 | 7 << 76 | (high & 0xFFF) << 64 | 2 << 62 | low)

    # --- points ------------------------------------------------------------------------------

    def point(self) -> None:
        """Between here and what comes next the process may end, or the disk be full."""
        if threading.get_ident() != self._thread or not self.loop.is_in_life:
            return
        own = owner.get()
        ending = self.lives.get(own)
        if ending is not None:
            ending()

    def writing(self) -> None:
        """A point before something is written.

        Raises:
            OSError: ENOSPC, of a machine whose disk is full.
        """
        self.point()
        if machine_of(owner.get()) in self.full:
            raise OSError(28, os.strerror(28))

    # --- in place of what the code calls -----------------------------------------------------

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Have the whole process live in this world."""
        with _Patches(self).entered():
            yield


def machine_of(own: str) -> str:
    """The machine on which a life runs: its name without the number."""
    return own.rstrip("0123456789")


class Connection(sqlite3.Connection):
    """A proxy's connection: each statement is a point."""

    world: World

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self.world.point()
        if machine_of(owner.get()) in self.world.full and _writes(arguments[0]):
            full = sqlite3.OperationalError("database or disk is full")
            full.sqlite_errorcode, full.sqlite_errorname = sqlite3.SQLITE_FULL, "SQLITE_FULL"
            raise full
        return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        self.world.point()
        return super().executemany(*arguments)


def _writes(statement: str) -> bool:
    return statement.lstrip()[:6].upper() in ("INSERT", "UPDATE", "DELETE", "COMMIT", "REPLAC")


class _Meta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _real_datetime)


def _datetime_of(world: World) -> type:
    class Datetime(_real_datetime, metaclass=_Meta):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return _real_datetime.fromtimestamp(world.wall(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return _real_datetime.fromtimestamp(world.wall(), datetime.UTC).replace(tzinfo=None)

    return Datetime


class _Patches:
    def __init__(self, world: World) -> None:
        self._world = world

    @contextmanager
    def entered(self) -> Iterator[None]:
        world = self._world
        connection = type("Connection", (Connection,), {"world": world})
        replaced: list[tuple[Any, str, Any]] = [
            (runtime, "machine", world),
            # For the API, whose clocks and draws are not all the machine's:
            (time, "time", world.wall),
            (time, "time_ns", world.wall_ns),
            (time, "monotonic", world.monotonic),
            (time, "perf_counter", world.monotonic),
            (time, "clock_gettime", lambda _: world.elapsed()),
            (time, "sleep", lambda _: None),
            (os, "urandom", world.random_bytes),
            (random, "_urandom", world.random_bytes),
            (sqlite3, "connect", lambda *a, **k: _real_connect(*a, **{**k, "factory": connection})),
            *((os, name, self._pointed(getattr(os, name))) for name in _POINTS),
        ]
        own = _datetime_of(world)
        for name, module in sorted(sys.modules.items()):
            of_clock = getattr(module, "datetime", None) is _real_datetime
            if of_clock and name.partition(".")[0] in _WITH_CLOCKS:
                replaced.append((module, "datetime", own))
        state = random.getstate()
        random.seed(f"{world.seed} module")
        patches = [patch.object(*one) for one in replaced]
        try:
            for one in patches:
                one.start()
            yield
        finally:
            for one in reversed(patches):
                one.stop()
            random.setstate(state)

    def _pointed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def pointed(*arguments: Any, **named: Any) -> Any:
            self._world.writing()
            return function(*arguments, **named)

        return pointed

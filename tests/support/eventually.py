"""Wait for what nothing tells of, with a bound. The only place in which tests wait for time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Nothing that is waited for takes so long; a machine that has much else to do may.
WITHIN = 120.0
PAUSE_SECONDS = 0.02


def eventually(
    check: Callable[[], T], what: str = "", within: float = WITHIN, pause: float = PAUSE_SECONDS
) -> T:
    """The first value of ``check`` that counts as true. What it raises is raised.

    Args:
        what: comes about, in words, for the message where it does not; by default how the check
            is written.
        within: so many seconds.
        pause: seconds between two looks.
    """
    gives_up = time.monotonic() + within
    while not (found := check()):
        assert time.monotonic() < gives_up, _in_vain(check, what, within, found)
        time.sleep(pause)
    return found


def comes_about(check: Callable[[], object], within: float, pause: float = PAUSE_SECONDS) -> bool:
    """Whether ``check`` counts as true within so many seconds."""
    gives_up = time.monotonic() + within
    while not check():
        if time.monotonic() >= gives_up:
            return False
        time.sleep(pause)
    return True


async def soon(
    check: Callable[[], T], what: str = "", within: float = WITHIN, pause: float = PAUSE_SECONDS
) -> T:
    """As :func:`eventually`, while the event loop goes on."""
    gives_up = time.monotonic() + within
    while not (found := check()):
        assert time.monotonic() < gives_up, _in_vain(check, what, within, found)
        await asyncio.sleep(pause)
    return found


def _in_vain(check: Callable[[], object], what: str, within: float, found: object) -> str:
    if not what:
        try:
            what = inspect.getsource(check).strip()
        except (OSError, TypeError):  # a partial, say
            what = repr(check)
    return f"not within {within:g} seconds: {what}\nthe last look found {found!r}"

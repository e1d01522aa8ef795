"""Where long work is done, and whose work waits for whose."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine
from typing import Any

from encrypted_records.proxy.process import Lines, aside

USER = bytes(16)


async def _entered(lines: Lines, user: bytes, work: Coroutine[Any, Any, None]) -> None:
    lines.enter(user)
    await work


def test_work_of_one_user_waits_and_that_of_another_proxy_does_not() -> None:
    """Each proxy has lines of its own: the end of one of two in a process holds up nobody."""
    held = threading.Event()
    done: list[str] = []

    async def hold() -> None:
        await aside(held.wait)

    async def note(name: str) -> None:
        await aside(done.append, name)

    async def run() -> None:
        ours, theirs = Lines(), Lines()
        start = contextvars.copy_context
        loop = asyncio.get_running_loop()
        holding = loop.create_task(_entered(ours, USER, hold()), context=start())
        await asyncio.sleep(0)
        waiting = loop.create_task(_entered(ours, USER, note("ours")), context=start())
        await loop.create_task(_entered(theirs, USER, note("theirs")), context=start())
        assert done == ["theirs"]
        assert not waiting.done()
        held.set()
        await asyncio.gather(holding, waiting)
        assert done == ["theirs", "ours"]

    asyncio.run(run())

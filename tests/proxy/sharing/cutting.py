"""Cut a flow off in each of its requests, by the death of the proxy or of the API."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from encrypted_records.errors import Unavailable
from tests.proxy.sharing.killable import FLOWS, Killable, Task, do, sharing_of
from tests.proxy.sharing.killable_api import AFTER_COMMIT, BEFORE_COMMIT, KillableApi
from tests.support.front import Asked, Front, Reply

BEFORE, AFTER = "killed before", "killed after"


@dataclass
class Cutter:
    """Runs tasks behind a front that cuts them off."""

    program: Killable
    api: KillableApi
    front: Front
    #: the number of the process, once it is known
    _pid: list[int] = field(default_factory=list)
    _known: threading.Event = field(default_factory=threading.Event)

    def whole(self, task: Task) -> list[Asked]:
        """Do it uninterrupted; what it asked."""
        self.front.forget()
        assert do(msgspec.structs.replace(task, url=self.front.url)).refused == ""
        return list(self.front.asked)

    def cut(self, task: Task, step: int, how: str) -> None:
        """Do it up to one of its requests, counted from 0."""
        self.front.forget()
        self._known.clear()

        def is_last() -> bool:
            return len(self.front.asked) == step + 1

        def kill() -> None:
            assert self._known.wait(60)
            os.kill(self._pid[0], signal.SIGKILL)

        def before(_asked: Asked) -> Reply | None:
            if how != BEFORE or not is_last():
                return None
            kill()
            return Reply(503, {}, b"")

        def after(_asked: Asked, reply: Reply) -> Reply | None:
            if how != AFTER or not is_last():
                return reply
            kill()
            return Reply(503, {}, b"")

        self.front.invent, self.front.lie = before, after
        self._pid = [self.program.start(msgspec.structs.replace(task, url=self.front.url))]
        self._known.set()
        ended = self.program.wait()
        self.front.invent, self.front.lie = lambda _: None, lambda _, reply: reply
        assert len(self.front.asked) > step, "the flow has fewer requests than uninterrupted"
        assert ended.refused == "killed"

    def cut_api(self, task: Task, step: int, how: str) -> None:
        """Do it with an API that dies in one of the requests, counted from 0; and again, where it
        failed by that."""
        self.front.forget()

        def die(_asked: Asked) -> Reply | None:
            if len(self.front.asked) == step + 1:
                self.api.die(how)
            return None

        self.front.invent = die
        asyncio.run(self._repeated(msgspec.structs.replace(task, url=self.front.url)))
        self.front.invent = lambda _: None
        self.api.wait()

    async def _repeated(self, task: Task) -> None:
        """One proxy does it, which goes on living."""
        async with sharing_of(task) as sharing:
            try:
                await FLOWS[task.flow](sharing, task)
            except Unavailable:
                await FLOWS[task.flow](sharing, task)


def interrupt(
    cutter: Cutter, make: Callable[[], Task], outcome: Callable[[Task], object], *, keeps: bool
) -> None:
    """Cut a flow off at each step, repeat it, and compare with what it comes to uninterrupted.

    Args:
        make: what the flow acts on, each time alike.
        keeps: also before the first request that changes something, since the flow keeps something
            here before it. In other flows nothing has happened until then.
    """
    task = make()
    asked = cutter.whole(task)
    wanted = outcome(task)
    changing = [step for step, one in enumerate(asked) if one.method != "GET"]
    assert changing
    cuts = [(step, AFTER) for step in changing]
    cuts += [(step, BEFORE) for step in (changing if keeps else changing[1:])]
    for step, how in cuts:
        task = make()
        cutter.cut(task, step, how)
        assert do(task).refused == "", (asked[step], how)
        assert outcome(task) == wanted, (asked[step], how)
    for step, how in ((changing[0], BEFORE_COMMIT), *((one, AFTER_COMMIT) for one in changing)):
        task = make()
        cutter.cut_api(task, step, how)
        assert outcome(task) == wanted, (asked[step], how)

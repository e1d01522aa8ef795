"""Flows in processes that a test can kill: ``python -m tests.proxy.sharing.killable``.

It reads a task a line, forks a process for it, says the process's number, and then how it ended. So
a killed proxy costs a fork, and not the start of an interpreter.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from encrypted_records.client.limits import Timing
from encrypted_records.client.transport import Transport
from encrypted_records.errors import ErsError, NotFound
from encrypted_records.model import roster as form
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.background import Background
from encrypted_records.proxy.rosters import Rosters
from encrypted_records.proxy.sharing.service import Sharing
from tests.proxy.sharing.heads import ShownHeads
from tests.support.keyrings import keyrings_in
from tests.support.service import clean_environment

log = logging.getLogger(__name__)
#: A request that got no answer is not sent again: the test says what was lost.
_ONCE = Timing(pauses=())


class Task(msgspec.Struct, frozen=True):
    """What a proxy on a folder does for its user, through ``url``."""

    flow: str
    url: str
    folder: str
    user: bytes
    auth: str
    organization: bytes
    #: of the flow: what it acts on
    target: bytes = b""
    dataset: bytes = b""
    name: str = ""
    words: str = ""

    @property
    def holder(self) -> Holder:
        return Holder(self.user, self.auth, "device00")


class Ended(msgspec.Struct, frozen=True):
    """``refused`` is the code of the error that it ended with; "killed" of a process that was."""

    refused: str


async def found(sharing: Sharing, task: Task) -> None:
    await sharing.founding.found(task.holder, task.organization, task.name)
    await sharing.founding.begin_dataset(
        task.holder, task.organization, task.dataset, slug="people", name="People"
    )


async def invite(sharing: Sharing, task: Task) -> None:
    shares = [form.Share(task.dataset, form.READER, [])]
    await sharing.inviting.invite(task.holder, task.organization, task.name, shares)


async def accept(sharing: Sharing, task: Task) -> None:
    await sharing.inviting.accept(task.holder, task.target, task.words)


async def settle(sharing: Sharing, task: Task) -> None:
    settled = await sharing.settling.settle(task.holder, task.organization)
    for trouble in settled.troubles:
        raise trouble.error


async def share(sharing: Sharing, task: Task) -> None:
    await sharing.members.set_shares(
        task.holder,
        task.organization,
        task.dataset,
        task.target,
        [form.Share(task.dataset, form.WRITER, [])],
    )


async def remove(sharing: Sharing, task: Task) -> None:
    """As ``ers organization member delete``, which may be repeated after it went through."""
    try:
        await sharing.members.remove(task.holder, task.organization, task.target)
    except NotFound:
        log.info("whoever is to go has gone")
    await settle(sharing, task)


async def put_out(sharing: Sharing, task: Task) -> None:
    """As the request to the proxy, which says where there is nobody to put out."""
    await sharing.members.remove(task.holder, task.organization, task.target)
    await settle(sharing, task)


async def leave(sharing: Sharing, task: Task) -> None:
    """Which may be repeated after it went through."""
    try:
        await sharing.members.remove(task.holder, task.organization, task.user)
    except NotFound:
        log.info("they are no member any more, so that the API knows no such organization")


async def promote(sharing: Sharing, task: Task) -> None:
    await sharing.members.set_role(task.holder, task.organization, task.target, owner=True)


async def demote(sharing: Sharing, task: Task) -> None:
    await sharing.members.set_role(task.holder, task.organization, task.target, owner=False)
    await settle(sharing, task)


async def rotate(sharing: Sharing, task: Task) -> None:
    await sharing.settling.rotate(task.holder, task.organization, task.dataset)


async def recover(sharing: Sharing, task: Task) -> None:
    await sharing.recovering.recover(
        task.holder, task.organization, task.name, task.words.split(",")
    )


async def make_service(sharing: Sharing, task: Task) -> None:
    shares = [form.Share(task.dataset, form.WRITER, [])]
    await sharing.services.make(task.holder, task.organization, task.name, shares, 0)


async def forget(sharing: Sharing, task: Task) -> None:
    place = (task.holder, task.organization, task.dataset)
    _, epoch = await sharing.forgetting.look(*place)
    await sharing.forgetting.forget(*place, epoch)


Flow = Callable[[Sharing, Task], Awaitable[None]]
FLOWS: dict[str, Flow] = {
    one.__name__: one
    for one in (
        *(found, invite, accept, settle, share, remove, put_out, leave, promote, demote, rotate),
        *(recover, make_service, forget),
    )
}


@asynccontextmanager
async def sharing_of(task: Task) -> AsyncIterator[Sharing]:
    """What a proxy has that is started now on the task's folder."""
    folder = Path(task.folder)
    keyrings = keyrings_in(folder)
    rosters = Rosters(folder / "rosters.sqlite3")
    transport = Transport(task.url, timing=_ONCE)
    try:
        yield Sharing.of(transport, keyrings, rosters, ShownHeads(transport), Background())
    finally:
        await transport.close()
        rosters.close()


def do(task: Task) -> Ended:
    """What a proxy that is started now on the task's folder does, which ends then."""

    async def run() -> Ended:
        async with sharing_of(task) as sharing:
            try:
                await FLOWS[task.flow](sharing, task)
            except ErsError as error:
                return Ended(error.reason)
        return Ended("")

    return asyncio.run(run())


class Killable:
    """The program, as a test uses it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.proxy.sharing.killable"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=clean_environment(),
            cwd=Path(__file__).parents[3],
        )

    def start(self, task: Task) -> int:
        """The number of the process that does it."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(task) + b"\n")
        self._process.stdin.flush()
        return int(self._read())

    def wait(self) -> Ended:
        return msgspec.json.decode(self._read(), type=Ended)

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the program has ended"
        return line

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(timeout=60)


def main() -> None:
    for line in sys.stdin.buffer:
        task = msgspec.json.decode(line, type=Task)
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(tell, msgspec.json.encode(do(task)))
            os._exit(0)
        os.close(tell)
        _say(str(child).encode())
        said = os.read(told, 4096)
        os.close(told)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) or not said
        _say(msgspec.json.encode(Ended("killed")) if killed else said)


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

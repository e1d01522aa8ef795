"""Flows of sharing, as a proxy does them that is started for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from encrypted_records.client.limits import Timing
from encrypted_records.client.transport import Transport
from encrypted_records.errors import ErsError
from encrypted_records.model import roster as form
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import Background
from encrypted_records.proxy.rosters import Rosters
from encrypted_records.proxy.sharing.settling import Sharing
from tests.proxy.sharing.heads import ShownHeads
from tests.support.keyrings import keyrings_in

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


async def put_out(sharing: Sharing, task: Task) -> None:
    """As the request to the proxy, which says where there is nobody to put out."""
    await sharing.members.remove(task.holder, task.organization, task.target)
    await settle(sharing, task)


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


async def unlist(sharing: Sharing, task: Task) -> None:
    await sharing.asking.set_listed(task.holder, task.organization, task.dataset, listed=False)


async def set_listed(sharing: Sharing, task: Task) -> None:
    await sharing.asking.set_listed(task.holder, task.organization, task.dataset, listed=True)


async def ask(sharing: Sharing, task: Task) -> None:
    await sharing.asking.ask(task.holder, task.dataset, form.WRITER)


Flow = Callable[[Sharing, Task], Awaitable[None]]
FLOWS: dict[str, Flow] = {
    one.__name__: one
    for one in (
        *(found, invite, accept, settle, share, put_out, promote, demote, rotate),
        *(recover, make_service, unlist, set_listed, ask),
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
        yield Sharing(transport, keyrings, rosters, ShownHeads(transport), Background())
    finally:
        await transport.close()
        rosters.close()


def do(task: Task) -> str:
    """Start a proxy on the task's folder, which ends then; the code of its
    refusal, or nothing."""

    async def run() -> str:
        async with sharing_of(task) as sharing:
            try:
                await FLOWS[task.flow](sharing, task)
            except ErsError as error:
                return error.reason
        return ""

    return asyncio.run(run())

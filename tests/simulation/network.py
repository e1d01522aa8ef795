"""The network between proxies and the API: each request has a fate, which the seed draws.

A request that is in flight survives its sender, and a ``late`` one arrives behind its repetition.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from encrypted_records.client.messages import Request, Response
from encrypted_records.client.transport import Transport
from tests.simulation.api import BASE_URL, ApiServer, PowerCut, Reply
from tests.simulation.loop import owner
from tests.simulation.world import World

#: What may become of a request, and how often of those in trouble.
FATES = {
    "lost": 3,  # it never arrives
    "unheard": 5,  # it is done, and the answer is lost
    "late": 3,  # the connection breaks, and it arrives up to five seconds later
    "twice": 2,  # it arrives a second time, later
    "refused": 3,  # 503 of something in front of the API
    "crash": 4,  # the API ends in its middle, and starts again
    "slow": 2,  # up to 15 seconds
    "silent": 1,  # nothing comes, for ever
}
#: Seconds that a request takes, each way.
_WAY = (0.0002, 0.02)


@dataclass
class Ending:
    """A life that ends with one of its requests: before the API has it, or once it is done.

    Attributes:
        left: how many requests it sends before.
        done: whether the API has done the last.
        kill: ends the life.
        to: a part of these requests' path; all count, if it is empty.
    """

    left: int
    done: bool
    kill: Callable[[], None]
    to: str = ""


@dataclass
class Network:
    """
    Attributes:
        trouble: percent of the requests whose fate is drawn from :data:`FATES`.
        away: whether the API answers nobody.
        counts: how often each fate was drawn.
        ends: by life, what ends it at one of its requests; see :class:`Ending`.
    """

    world: World
    api: ApiServer
    trouble: int = 0
    away: bool = False

    def __post_init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.ends: dict[str, Ending] = {}
        self._people = contextvars.Context()

    async def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        """One request and its answer.

        Raises:
            ConnectionError: there is none.
        """
        loop, chance = self.world.loop, self.world.chance
        answer: asyncio.Future[Reply] = loop.create_future()
        fate = "well"
        if self.away:
            fate = "lost"
        elif chance.randrange(100) < self.trouble:
            (fate,) = chance.choices(list(FATES), list(FATES.values()))
        self.counts[fate] += 1
        sent = dict(headers)
        there, back = chance.uniform(*_WAY), chance.uniform(*_WAY)
        ending = self._ending(target)
        if ending is not None and not ending.done:
            loop.call_later(there, ending.kill, context=self._people.copy())
            return await answer
        if fate == "slow":
            there, back = chance.choice(
                [(chance.uniform(0, 15), back), (there, chance.uniform(0, 15))]
            )

        def arrive(heard: bool = True, fuse: int | None = None) -> None:
            try:
                reply = self.api.exchange(method, target, sent, body, fuse=fuse)
            except PowerCut:
                _later(loop, back, answer, ConnectionResetError("the API has ended"))
                return
            if ending is not None:
                ending.kill()
            if heard:
                _later(loop, back, answer, reply)
            else:
                _later(loop, back, answer, ConnectionResetError("the answer is lost"))

        def call(delay: float, *arguments: Any) -> None:
            # Not the sender's: what is on its way arrives, whatever becomes of the sender.
            loop.call_later(delay, arrive, *arguments, context=self._people.copy())

        broken = ConnectionResetError("the connection broke")
        match fate:
            case "lost":
                _later(loop, there + back, answer, broken)
            case "unheard":
                call(there, False)
            case "late":
                _later(loop, there, answer, broken)
                call(chance.uniform(0, 5), False)
            case "twice":
                call(there)
                call(there + chance.uniform(0, 5))
            case "refused":
                _later(loop, there + back, answer, _unavailable())
            case "crash":
                call(there, True, chance.randrange(40))
            case "silent":
                if chance.randrange(2):
                    call(there, False)
                    answer = loop.create_future()
            case _:
                call(there)
        return await answer

    def _ending(self, target: str) -> Ending | None:
        """That of the life which sends, if this is its last request."""
        ending = self.ends.get(owner.get())
        if ending is None or ending.to not in target:
            return None
        ending.left -= 1
        if ending.left >= 0:
            return None
        return self.ends.pop(owner.get())


def _later(
    loop: asyncio.AbstractEventLoop,
    delay: float,
    answer: asyncio.Future[Reply],
    outcome: Reply | ConnectionError,
) -> None:
    def settle() -> None:
        if answer.done():
            return
        if isinstance(outcome, Reply):
            answer.set_result(outcome)
        else:
            answer.set_exception(outcome)

    loop.call_later(delay, settle)


def _unavailable() -> Reply:
    return Reply(503, [("Content-Type", "text/html"), ("Content-Length", "4")], b"busy")


class SimulatedTransport(Transport):
    """What a proxy sends by: all that leaves it goes through the network."""

    network: Network

    def __init__(self, network: Network, base_url: str, **named: Any) -> None:
        super().__init__(base_url, **named)
        assert base_url == BASE_URL
        self.network = network

    async def attempt(self, asked: Request) -> Response:
        path = asked.path
        if asked.params:
            path = str(URL(path).update_query(asked.params))
        with self._ours():
            reply = await self.network.exchange(
                asked.method, path, asked.headers, bytes(asked.data or b"")
            )
        self._outage.heard()
        asked.patience.note(len(reply.body))
        return Response(reply.status, _fields(reply), reply.body)

    async def _stream(
        self, method: str, path: str, data: AsyncIterable[bytes], params: Any, ready: Any
    ) -> Response:
        assert not params
        body = b"".join([piece async for piece in data])
        with self._ours():
            reply = await self.network.exchange(method, path, ready, body)
        return Response(reply.status, _fields(reply), reply.body)

    async def open(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], data: bytes | None
    ) -> aiohttp.ClientResponse:
        reply = await self.network.exchange(method, target, dict(headers), data or b"")
        return cast(aiohttp.ClientResponse, Arrived(method, reply))


def _fields(reply: Reply) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(reply.headers))


class Arrived:
    """An answer in the form in which the HTTP library gives one that is still coming."""

    def __init__(self, method: str, reply: Reply) -> None:
        self.method = method
        self.status = reply.status
        self.headers = _fields(reply)
        self.content_length = len(reply.body)
        self.content = self
        self._body = reply.body

    async def read(self, count: int = -1) -> bytes:
        piece = self._body if count < 0 else self._body[:count]
        self._body = self._body[len(piece) :]
        return piece

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        while self._body:
            yield await self.read(size)

    def release(self) -> None:
        self._body = b""

    close = release

    async def __aenter__(self) -> Arrived:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

"""A proxy of one's own: the real application on a free port, in a thread of the test's process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvicorn.server

from encrypted_records.listening.pace import ConnectionWatch, ServerLimits
from encrypted_records.listening.serving import Server, listening
from encrypted_records.listening.socket_protocol import Socket
from encrypted_records.model.credentials import DOOR_HEADER
from encrypted_records.proxy.app import LIMITS, create_app
from encrypted_records.proxy.process import Background
from encrypted_records.proxy.services import Services
from encrypted_records.proxy.settings import MirrorPlace, Overrides, ProxySettings
from tests.support.background import Queued
from tests.support.eventually import eventually
from tests.support.pools import copied
from tests.support.service import DOORS, free_ports

SETTLE_SECONDS = 240.0
STANDARD = Overrides()


async def _soon(seconds: float) -> None:
    await asyncio.sleep(seconds / 10)


# uvicorn looks ten times a second whether it is to end, and then whether it may: a quarter of a
# second for each of the proxies that tests start one after another.
_hurried: Any = SimpleNamespace(**{**vars(asyncio), "sleep": _soon})
uvicorn.server.asyncio = _hurried  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Proxy:
    url: str
    services: Services
    watch: ConnectionWatch
    door_file: Path

    @property
    def door(self) -> dict[str, str]:
        """The header of a command of the user who runs it."""
        return {DOOR_HEADER: self.door_file.read_text()}

    @property
    def background(self) -> Queued:
        """What it has put off."""
        queued = self.services.background
        assert isinstance(queued, Queued), "nothing is put off here"
        return queued

    def settle(self, *names: str) -> None:
        """Have the proxy do what it has put off, as :meth:`Queued.settle` says."""
        queued = self.background
        assert queued.loop
        done = asyncio.run_coroutine_threadsafe(queued.settle(*names), queued.loop)
        done.result(SETTLE_SECONDS)


#: Those that run in this process and put off what nobody waits for.
_PUTTING_OFF: list[Proxy] = []


def settle_all(*names: str) -> None:
    """As :meth:`Proxy.settle`, of every proxy in this process, the oldest first."""
    for proxy in _PUTTING_OFF:
        proxy.settle(*names)


@contextmanager
def running_proxy(
    base_url: str,
    data_dir: Path,
    *,
    overrides: Overrides = STANDARD,
    background: Callable[[], Background] = Queued,
    metrics_port: int | None = None,
    access: str = "api",
    lock_after: int = 720,
    webhooks: str = "public",
    allowed_hosts: tuple[str, ...] = (),
    inline_secret: str | None = None,
    memory_cache: int = 192,
    limits: ServerLimits = LIMITS,
    mirror: MirrorPlace | None = None,
) -> Iterator[Proxy]:
    """A proxy on ``data_dir`` for the API at ``base_url``.

    It works at level api for any number of users, as tests share it among many accounts.

    Args:
        background: starts the work beside requests; as the others are, nothing of it is done until
            the test calls :meth:`Proxy.settle`, or a request waits for it.
    """
    (port,) = free_ports(1)
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    door = data_dir / "door"
    app = create_app(
        ProxySettings(
            data_dir,
            "127.0.0.1",
            port,
            base_url,
            metrics_port=metrics_port,
            access=access,
            lock_after=lock_after,
            webhooks=webhooks,
            allowed_hosts=allowed_hosts,
            door=door,
            inline_secret=inline_secret,
            memory_cache=memory_cache,
            mirror=mirror,
        ),
        replace(overrides, background=background, workers=copied(overrides.workers)),
    )
    services: Services = app.state.services
    server = Server(app, limits, stop_seconds=2, sockets=Socket, proxy_headers=True)
    taken = ExitStack()
    sockets = taken.enter_context(listening("127.0.0.1", port, "--proxy-port"))
    thread = threading.Thread(target=server.run, args=(sockets,), daemon=True)
    thread.start()
    eventually(lambda: server.started or not thread.is_alive(), "the proxy starts", pause=0.005)
    assert server.started, "the proxy did not start"
    url = f"http://127.0.0.1:{port}"
    DOORS[url] = door
    proxy = Proxy(url, services, server.watch, door)
    if isinstance(services.background, Queued):
        _PUTTING_OFF.append(proxy)
    try:
        yield proxy
    finally:
        if proxy in _PUTTING_OFF:
            _PUTTING_OFF.remove(proxy)
        del DOORS[url]
        server.should_exit = True
        thread.join()
        taken.close()

"""What a connection and a WebSocket take of the proxy's memory, and what is given back.

    .venv/bin/python -m bench.connections --connections 2000

A real service. So many connections ask one question each and stay; then they end, and as many
WebSockets watch one upload that never ends, and end as well. All of it twice: what
the proxy has kept of the first time must do for the second. The goal is 24 KiB of each, given back.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from bench.support import stack
from bench.support.processes import memory_mib
from bench.support.table import Row, show
from encrypted_records.model import credentials
from tests.support.store import Store, new_store

GOAL_KIB = 24.0
#: How many begin at once.
BATCH = 100
DEFINITION: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 1_000_000}},
}
#: Opens one, and has it closed with the stack.
Open = Callable[[aiohttp.ClientSession, AsyncExitStack], Awaitable[None]]


def kib(store: Store) -> float:
    return 1024 * memory_mib(store.service.process.pid, "VmRSS")


async def start_upload(session: aiohttp.ClientSession, store: Store) -> str:
    """The WebSocket of an upload of which nothing was sent."""
    said = {"schema": store.schema_id, "filetype": "text/csv"}
    metadata = ",".join(f"{key} {b64encode(one.encode()).decode()}" for key, one in said.items())
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": "1000", "Upload-Metadata": metadata}
    async with session.post("/api/files/", headers=headers) as answer:
        assert answer.status == 201, await answer.text()
        return answer.headers["X-Job-Websocket-Url"]


async def most_with(store: Store, session: aiohttp.ClientSession, count: int, opens: Open) -> float:
    """KiB of the proxy beyond what it had before, with so many open."""
    before = kib(store)
    async with AsyncExitStack() as opened:
        began = time.monotonic()
        for first in range(0, count, BATCH):
            some = range(first, min(first + BATCH, count))
            await asyncio.gather(*(opens(session, opened) for _ in some))
        print(f"  {count} open after {time.monotonic() - began:.1f} s", flush=True)
        return kib(store) - before


async def measure(store: Store, count: int) -> list[tuple[str, list[float], float]]:
    """Of connections and WebSockets: KiB with all of them, each time; KiB at the end."""
    headers = {
        "Authorization": store.account.auth,
        credentials.DEVICE_HEADER: store.device.text,
    }
    own = aiohttp.TCPConnector(limit=0)
    url = store.service.proxy_url
    address = urlsplit(url)
    async with aiohttp.ClientSession(url, headers=headers, connector=own) as session:
        socket_url = await start_upload(session, store)

        async def connect(_: aiohttp.ClientSession, opened: AsyncExitStack) -> None:
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            opened.callback(writer.close)
            writer.write(f"GET /api/ HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
            assert await reader.read(1)

        async def watch(session: aiohttp.ClientSession, opened: AsyncExitStack) -> None:
            socket = await session.ws_connect(socket_url)
            opened.push_async_callback(socket.close)

        found = []
        for name, opens in (("a connection", connect), ("a WebSocket", watch)):
            start = kib(store)
            taken = [await most_with(store, session, count, opens) for _ in range(2)]
            await asyncio.sleep(2)
            found.append((name, taken, kib(store) - start))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--connections", type=int, default=2000)
    count = parser.parse_args().connections
    with (
        tempfile.TemporaryDirectory() as named,
        stack.running_api(Path(named), None) as (base_url, _),
        stack.running_proxy(Path(named), base_url) as service,
    ):
        store = new_store(service, DEFINITION)
        store.ingest([{"n": 1}])
        found = asyncio.run(measure(store, count))
    rows = []
    for name, taken, left in found:
        each = taken[0] / count
        rows.append(Row(name, f"{each:.1f} KiB", f"goal {GOAL_KIB:.0f}: {met(each <= GOAL_KIB)}"))
        rows.append(Row("  the second time, beyond that", f"{taken[1] / count:.1f} KiB"))
        rows.append(Row("  kept behind all of them", f"{left / count:.1f} KiB of each"))
    show(f"{count} connections, then as many WebSockets", rows)


def met(is_met: bool) -> str:
    return "met" if is_met else "missed"


if __name__ == "__main__":
    main()

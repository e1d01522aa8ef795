"""Statements of SQL, asked of an engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.sql.engine import Engine
from tests.support.service import descendants

#: Makes clients of a proxy, used by one account.
MakeClient = Callable[[], ProxyClient]


def ask(proxy: MakeClient, statement: str, parameters: Any = (), **options: Any) -> Any:
    """The rows of a statement as a list of dictionaries."""

    async def run() -> Any:
        async with (
            proxy() as client,
            Engine(client, **options) as engine,
            await engine.execute(statement, parameters) as result,
        ):
            return (await result.table()).to_pylist()

    return asyncio.run(run())


def engine_processes() -> list[int]:
    """Those of engines that this process has started."""
    found = []
    for pid in descendants(os.getpid()):
        path = Path(f"/proc/{pid}/cmdline")
        if path.exists() and "encrypted_records.sql" in path.read_text():
            found.append(pid)
    return found

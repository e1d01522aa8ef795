"""Statements of SQL, asked of an engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.sql.engine import Engine
from tests.support.service import descendants

#: Makes clients of a proxy, used by one account.
MakeClient = Callable[[], ProxyClient]


def ask(proxy: MakeClient, statement: str, parameters: Any = (), **options: Any) -> Any:
    """The rows of a statement as a list of dictionaries."""
    (rows,) = ask_each(proxy, [(statement, parameters)], **options)
    return rows


def ask_each(proxy: MakeClient, asked: Iterable[tuple[str, Any]], **options: Any) -> list[Any]:
    """The rows of each statement with its parameters, by one engine: its start is a process."""

    async def run() -> list[Any]:
        told = []
        async with proxy() as client, Engine(client, **options) as engine:
            for statement, parameters in asked:
                async with await engine.execute(statement, parameters) as result:
                    told.append((await result.table()).to_pylist())
        return told

    return asyncio.run(run())


def engine_processes() -> list[int]:
    """Those of engines that this process has started."""
    found = []
    for pid in descendants(os.getpid()):
        path = Path(f"/proc/{pid}/cmdline")
        if path.exists() and "encrypted_records.sql" in path.read_text():
            found.append(pid)
    return found

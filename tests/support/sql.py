"""Statements of SQL, asked of an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.sql.engine import Engine

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

"""What a question and a direct ingest take does not grow with the number of groups."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from encrypted_records.index.segments.merge_policy import Tier
from tests.proxy.test_crowded_schema import DEFINITION, crowd
from tests.support.second_proxy import Proxy, second_proxy, with_keyrings
from tests.support.service import Service
from tests.support.store import new_store

GROUPS_AT_ONCE, TIMES = 150, 12
OURS = "encrypted_records"


class Steps:
    """Bytecodes that our own code runs, in this thread and those that begin meanwhile."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        if OURS not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.count += event == "opcode"
        return self.trace


@contextmanager
def counted() -> Iterator[Steps]:
    steps = Steps()
    before = sys.gettrace()
    threading.settrace(steps.trace)
    sys.settrace(steps.trace)
    try:
        yield steps
    finally:
        sys.settrace(before)
        threading.settrace(before)


def test_a_question_and_an_ingest_take_as_many_steps_however_many_groups_there_are(
    service: Service, tmp_path: Path
) -> None:
    store = new_store(service, DEFINITION)
    store.ingest([{"n": 9_000 + number} for number in range(3)])

    async def steps_of(work: Callable[[], Awaitable[object]]) -> int:
        for _ in range(3):
            await work()
        with counted() as steps:
            await work()
        return steps.count

    async def measure(proxy: Proxy) -> list[int]:
        body = {
            "schema": store.schema,
            "where": {"field": "n", "op": "ge", "value": 9_002},
            "count": True,
        }
        search, of = proxy.services.search, (proxy.caller, proxy.state.id)
        return [
            await steps_of(lambda: search.ask(*of, body)),
            await steps_of(lambda: search.ask(*of, body | {"order_by": ["n"], "limit": 1})),
            await steps_of(lambda: proxy.ingest([{"n": 1}])),
        ]

    async def whole() -> None:
        async with second_proxy(store, with_keyrings(service, tmp_path / "own")) as proxy:
            merger = proxy.merger(Tier(1 << 16, 2), Tier(1 << 20, 1))

            async def settle() -> None:
                while await merger.merge_next(proxy.caller, proxy.state):
                    pass

            async def add() -> int:
                await crowd(proxy, GROUPS_AT_ONCE)
                await settle()
                return len(proxy.state.ledger.snapshot().groups)

            few = await add()
            before = await measure(proxy)
            await settle()
            for _ in range(TIMES):
                many = await add()
            assert many > few + (TIMES - 1) * GROUPS_AT_ONCE
            after = await measure(proxy)
            # Searching in order takes a step more for twice as many.
            assert all(1000 < now <= 1.25 * was for was, now in zip(before, after, strict=True)), (
                before,
                after,
            )

    asyncio.run(whole())

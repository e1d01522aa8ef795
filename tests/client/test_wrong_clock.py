"""A client whose machine has another time than its proxy stores records all the same."""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from encrypted_records import AsyncClient, Client, runtime
from encrypted_records.model import ids
from tests.support.service import Account, Service

DEFINITION = {"type": "object", "properties": {"name": {"type": "string"}}}
QUARTER, DAYS = 1200.0, 30 * 86_400.0

#: Sets this machine's clock, by seconds from the right time. The service has a process of its own.
SetClock = Callable[[float], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    right, off = runtime.Computer(), 0.0

    def wall_ns() -> int:
        return right.wall_ns() + int(off * 1e9)

    def uuid7(nanoseconds: int | None) -> uuid.UUID:
        return right.uuid7(wall_ns() if nanoseconds is None else nanoseconds)

    def shift(seconds: float) -> None:
        nonlocal off
        off = seconds

    monkeypatch.setattr(runtime.machine, "wall_ns", wall_ns)
    monkeypatch.setattr(runtime.machine, "uuid7", uuid7)
    return shift


@pytest.fixture
def client(running: Service, account: Account) -> Iterator[Client]:
    with Client(running.proxy_url, email=account.email, password=account.password) as one:
        yield one


def schema_of(client: Client) -> str:
    name = f"clock-{secrets.token_hex(4)}"
    return client.create_dataset(name).create_schema(name, DEFINITION).id


@pytest.mark.parametrize("off", [-DAYS, -90_000.0, -QUARTER, 290.0, QUARTER, DAYS])
def test_records_are_stored_whatever_the_clock_says(
    running: Service, account: Account, client: Client, set_clock: SetClock, off: float
) -> None:
    schema, began = schema_of(client), time.time()
    set_clock(off)
    with Client(running.proxy_url, email=account.email, password=account.password) as wrong:
        assert wrong.schema(schema).ingest([{"name": "Ada"}]) == 1
        (record,) = wrong.schema(schema).search()
    set_clock(0.0)
    # Its id has the right time.
    made = ids.milliseconds(ids.from_text(record.id)) / 1000
    assert began - 2 <= made <= time.time() + 2


@pytest.mark.parametrize(("before", "after"), [(0.0, QUARTER), (QUARTER, 0.0), (-DAYS, DAYS)])
def test_a_clock_may_be_set_while_a_client_is_open(
    running: Service,
    account: Account,
    client: Client,
    set_clock: SetClock,
    before: float,
    after: float,
) -> None:
    schema = schema_of(client)

    async def store() -> None:
        set_clock(before)
        async with AsyncClient(
            running.proxy_url, email=account.email, password=account.password
        ) as wrong:
            people = await wrong.schema(schema)
            await people.ingest([{"name": "Ada"}])
            set_clock(after)
            await people.ingest([{"name": "Grace"}])
            assert await people.count() == 2

    asyncio.run(store())

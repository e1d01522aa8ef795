"""Rows that break off are an error, wherever they do, and never an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from encrypted_records import Client
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.errors import ErsError, SqlError
from encrypted_records.sql.engine import Engine
from tests.proxy.lies import cut
from tests.support.front import Front, Lie, running_front
from tests.support.service import Account, Service
from tests.support.sql import MakeClient, ask

#: The end of a whole stream of Arrow.
END_BYTES = 8


@pytest.fixture(scope="module", autouse=True)
def stored(client: Client) -> None:
    fields = {"name": {"type": "string"}}
    definition = {"type": "object", "properties": fields, "required": []}
    schema = client.create_dataset("Broken", slug="broken").create_schema(
        "People", definition, slug="people"
    )
    for name in ("Ada", "Bo"):
        schema.ingest([{"name": name}])


@pytest.fixture(scope="module")
def front(running: Service) -> Iterator[Front]:
    with running_front(running.proxy_url) as front:
        yield front


@pytest.fixture
def behind(front: Front, account: Account) -> MakeClient:
    return lambda: ProxyClient(front.url, email=account.email, password=account.password)


def without(lost: int) -> Lie:
    """Columns without their last bytes, in an answer that is whole by its headers."""
    return cut(["columns"], lambda body: body[:-lost])


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT name FROM people",
        "SELECT count(*) FROM people",
        "SELECT a.name FROM people a JOIN people b USING (name)",
    ],
)
def test_rows_that_break_off_are_no_answer(
    front: Front, behind: MakeClient, statement: str
) -> None:
    statement += " ORDER BY 1"
    whole = ask(behind, statement)
    assert whole
    for lost in (END_BYTES, END_BYTES + 1, 200):
        with front.telling(without(lost)), pytest.raises(ErsError) as caught:
            ask(behind, statement)
        assert not isinstance(caught.value, SqlError)
    assert ask(behind, statement) == whole


def test_an_engine_goes_on_after_rows_that_broke_off(front: Front, behind: MakeClient) -> None:
    async def run() -> int:
        async with behind() as client, Engine(client) as engine:
            with front.telling(without(END_BYTES)), pytest.raises(ErsError):
                async with await engine.execute("SELECT name FROM people") as result:
                    await result.table()
            async with await engine.execute("SELECT name FROM people") as result:
                return len((await result.table()).to_pylist())

    assert asyncio.run(run()) == 2

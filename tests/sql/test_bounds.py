"""Whatever a statement takes that DuckDB neither counts nor interrupts, it ends by name, and with
it no more than its own process."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest

from encrypted_records import Client
from encrypted_records.errors import SqlError
from encrypted_records.sql.catalogue import Catalogue
from encrypted_records.sql.engine import Engine
from encrypted_records.sql.limits import SqlLimits
from encrypted_records.sql.planner import translate
from encrypted_records.sql.process import PIECE_BYTES, ROW_BYTES
from tests.support.eventually import eventually
from tests.support.service import Account, Service
from tests.support.sql import MakeClient, engine_processes

SMALL = SqlLimits(memory_bytes=100 << 20)
SHORT = SqlLimits(memory_bytes=100 << 20, seconds=2.0)
#: One function each, which DuckDB evaluates as a whole: while it plans, and while it runs.
LARGE = [
    "SELECT list_sum(range(1000000000))",
    "SELECT * FROM range(list_sum(range(1000000000))::BIGINT) LIMIT 1",
    "SELECT length(repeat('x', 3000000000))",
    "SELECT sum(list_sum(range(age + 1000000000))) FROM people",
]
LONG = [
    "SELECT list_sum(list_transform(range(1000000), lambda x: list_sum(range(1000000))))",
    "SELECT list_sum(list_transform(range(1000000), lambda x: list_sum(range(age + 1000000))))"
    " FROM people",
]
COUNTED = "SELECT count(*) AS n FROM people"


@pytest.fixture(scope="module", autouse=True)
def stored(client: Client) -> None:
    fields = {"age": {"type": "integer", "minimum": 0, "maximum": 150}}
    definition = {"type": "object", "properties": fields, "required": []}
    dataset = client.create_dataset("Bounds", slug="bounds")
    dataset.create_schema("People", definition, slug="people").ingest([{"age": 36}, {"age": 20}])


async def rows(engine: Engine, statement: str) -> Any:
    async with await engine.execute(statement) as result:
        return (await result.table()).to_pylist()


def told_to(pid: int) -> bytes:
    """A process's arguments, which everybody can read, and its environment, which root can."""
    folder = Path(f"/proc/{pid}")
    environment = b""
    with suppress(PermissionError):
        environment = (folder / "environ").read_bytes()
    return environment + (folder / "cmdline").read_bytes()


@pytest.mark.parametrize("statement", LARGE)
def test_memory_that_nobody_counts_is_bounded(
    proxy: MakeClient, running: Service, statement: str
) -> None:
    async def run() -> Any:
        async with proxy() as client, Engine(client, limits=SMALL) as engine:
            with pytest.raises(SqlError) as caught:
                await rows(engine, statement)
            assert (caught.value.sqlstate, caught.value.reason) == ("53200", "sql_memory")
            return await rows(engine, COUNTED)

    assert asyncio.run(run()) == [{"n": 2}]
    assert running.process.poll() is None


@pytest.mark.parametrize("statement", LONG)
def test_work_that_nothing_interrupts_ends_in_time(proxy: MakeClient, statement: str) -> None:
    async def run() -> Any:
        async with proxy() as client, Engine(client, limits=SHORT) as engine:
            with pytest.raises(SqlError) as caught:
                await rows(engine, statement)
            assert (caught.value.sqlstate, caught.value.reason) == ("57014", "sql_time")
        async with proxy() as client, Engine(client) as engine:
            return await rows(engine, COUNTED)

    assert asyncio.run(run()) == [{"n": 2}]
    assert engine_processes() == []


def test_a_result_whose_rows_nobody_asks_for_in_time_gives_its_memory_back(
    proxy: MakeClient,
) -> None:
    async def run() -> Any:
        async with proxy() as client, Engine(client) as engine:
            async with await engine.execute("SELECT * FROM range(10000000)") as result:
                batches = result.batches()
                await anext(batches)
                result._run._expire()
                await asyncio.to_thread(
                    eventually, lambda: not engine_processes(), "the process has ended"
                )
                with pytest.raises(SqlError) as caught:
                    await anext(batches)
            assert caught.value.reason == "sql_time"
            return await rows(engine, COUNTED)

    assert asyncio.run(run()) == [{"n": 2}]


def test_a_plan_that_memory_does_not_suffice_for_is_an_error_of_memory() -> None:
    failed = duckdb.InvalidInputException(
        "Invalid Input Error: Failed to write JSON string: memory allocation failed"
    )
    error = translate(failed, Catalogue((), ()), None)
    assert (error.sqlstate, error.reason) == ("53200", "sql_memory")


def test_wide_rows_come_in_pieces_that_are_small(proxy: MakeClient) -> None:
    async def run() -> tuple[int, int]:
        async with proxy() as client, Engine(client) as engine:
            wide = "SELECT repeat('x', 100000) AS x FROM range(1000)"
            async with await engine.execute(wide) as result:
                batches = [batch async for batch in result.batches()]
        return max(batch.nbytes for batch in batches), sum(batch.num_rows for batch in batches)

    largest, count = asyncio.run(run())
    assert largest <= PIECE_BYTES
    assert count == 1000


def test_a_row_that_would_fill_the_memory_of_the_parent_process_is_refused(
    proxy: MakeClient,
) -> None:
    async def run() -> Any:
        async with proxy() as client, Engine(client) as engine:
            half = f"repeat('x', {ROW_BYTES // 2} + age)"
            with pytest.raises(SqlError) as caught:
                await rows(engine, f"SELECT {half} AS x, {half} AS y FROM people")
            assert (caught.value.sqlstate, caught.value.reason) == ("54000", "sql_rows")
            return await rows(engine, COUNTED)

    assert asyncio.run(run()) == [{"n": 2}]


def test_a_process_that_is_killed_is_an_error_and_the_next_statement_has_another(
    proxy: MakeClient,
) -> None:
    async def run() -> Any:
        async with proxy() as client, Engine(client) as engine:
            await rows(engine, COUNTED)
            (pid,) = engine_processes()
            async with await engine.execute("SELECT * FROM range(10000000)") as result:
                os.kill(pid, signal.SIGKILL)
                with pytest.raises(SqlError) as caught:
                    await result.table()
            assert caught.value.sqlstate == "53200"
            return await rows(engine, COUNTED)

    assert asyncio.run(run()) == [{"n": 2}]


def test_a_process_that_crashed_leaves_no_dump_of_rows_and_no_words_of_the_event_loop(
    proxy: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with proxy() as client, Engine(client) as engine:
            await rows(engine, COUNTED)
            (pid,) = engine_processes()
            assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)
            os.kill(pid, signal.SIGSEGV)
            # The event loop does not hear of the end before it writes to the process.
            eventually(lambda: engine_processes() == [], "the process has ended")
            with pytest.raises(SqlError):
                await rows(engine, COUNTED)

    asyncio.run(run())
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_a_process_that_nobody_uses_ends_and_the_next_statement_has_another(
    proxy: MakeClient,
) -> None:
    async def run() -> Any:
        async with proxy() as client, Engine(client, limits=SqlLimits(idle_seconds=0.1)) as engine:
            await rows(engine, COUNTED)
            await asyncio.to_thread(
                eventually, lambda: not engine_processes(), "the process has ended"
            )
            return await rows(engine, COUNTED)

    assert asyncio.run(run()) == [{"n": 2}]


def test_the_process_has_no_login_and_ends_with_its_engine(
    proxy: MakeClient, account: Account
) -> None:
    async def run() -> None:
        async with proxy() as client, Engine(client) as engine:
            await rows(engine, COUNTED)
            (pid,) = engine_processes()
            told = told_to(pid)
            assert account.password.encode() not in told
            assert b"ERS_" not in told

    asyncio.run(run())
    eventually(lambda: engine_processes() == [], "the process has ended")

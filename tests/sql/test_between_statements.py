"""A statement leaves nothing to the next one of its caller, and has nothing of another caller's."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from typing import Any

import pytest

from bench.support.processes import memory_mib
from encrypted_records import Client
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.errors import SqlError
from encrypted_records.sql.catalogue import Catalogue
from encrypted_records.sql.connections import StatementDatabase
from encrypted_records.sql.engine import Engine
from encrypted_records.sql.limits import SqlLimits
from tests.support.eventually import eventually
from tests.support.service import Service
from tests.support.sql import MakeClient, engine_processes

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": [],
}
SMALL = SqlLimits(memory_bytes=100 << 20)
NAMES = "SELECT name FROM open.open"
#: Grows from statement to statement while these have one database, and begins again in another.
CONNECTION = "SELECT current_connection_id() AS number"


@pytest.fixture(scope="module", autouse=True)
def stored(client: Client) -> None:
    for name in ("open", "shut"):
        dataset = client.create_dataset(name, slug=name)
        dataset.create_schema(name, DEFINITION, slug=name).ingest([{"name": name, "age": 1}])


async def rows(engine: Engine, statement: str) -> Any:
    async with await engine.execute(statement) as result:
        return (await result.table()).to_pylist()


async def number(engine: Engine) -> int:
    return int((await rows(engine, CONNECTION))[0]["number"])


def test_statements_that_end_well_share_a_database_and_nothing_in_it(proxy: MakeClient) -> None:
    async def run() -> None:
        async with proxy() as client, Engine(client) as engine:
            first = await number(engine)
            assert await rows(engine, NAMES) == [{"name": "open"}]
            assert await number(engine) > first + 1
            drawn = []
            for _ in range(2):
                await rows(engine, "SELECT setseed(0.5)")
                drawn += await rows(engine, "SELECT random() AS number")
            assert drawn[0] != drawn[1]
            for held in (
                "SELECT * FROM duckdb_memory() WHERE memory_usage_bytes > 0",
                "SELECT * FROM duckdb_views() WHERE NOT internal AND schema_name <> 'main'",
                "SELECT * FROM duckdb_tables() WHERE estimated_size > 0",
            ):
                await rows(engine, "SELECT o.name FROM open.open o JOIN shut.shut s USING (age)")
                assert await rows(engine, held) == [], held

    asyncio.run(run())


def test_instants_are_in_utc_whatever_the_time_zone_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        database = StatementDatabase(Catalogue(("open",), ()), "open", SMALL)
        for _ in range(2):
            with closing(database.connect({}, {})) as connection:
                told = connection.execute("SELECT '2024-01-01'::TIMESTAMPTZ, current_schema()")
                ((instant, schema),) = told.fetchall()
                assert (str(instant.tzinfo), instant.hour, schema) == ("UTC", 0, "open")
        database.close()
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT name::INT FROM open.open",
        "SELECT * FROM nowhere",
        "SELECT list(range) FROM range(100000000)",
    ],
)
def test_after_a_statement_that_failed_the_next_has_another_database(
    proxy: MakeClient, statement: str
) -> None:
    async def run() -> None:
        async with proxy() as client, Engine(client, limits=SMALL) as engine:
            first = await number(engine)
            with pytest.raises(SqlError) as caught:
                await rows(engine, statement)
            # One that is not planned has not come near the database.
            begun = caught.value.sqlstate != "42P01"
            assert (await number(engine) == first) == begun
            assert await rows(engine, NAMES) == [{"name": "open"}]

    asyncio.run(run())


def test_after_a_statement_that_was_ended_the_next_has_another_database(proxy: MakeClient) -> None:
    async def run() -> None:
        async with proxy() as client, Engine(client) as engine:
            first = await number(engine)
            async with await engine.execute("SELECT * FROM range(1000000)") as result:
                await anext(result.batches())
            assert await number(engine) == first
            async with await engine.execute("SELECT * FROM range(100000000000)"):
                engine.cancel()
            assert await number(engine) == first

    asyncio.run(run())


@pytest.mark.parametrize(
    "function", ["truncate_duckdb_logs()", "checkpoint()", "query('FROM checkpoint()')"]
)
def test_a_function_that_may_change_a_database_ends_it(proxy: MakeClient, function: str) -> None:
    async def run() -> None:
        async with proxy() as client, Engine(client) as engine:
            first = await number(engine)
            await rows(engine, f"SELECT (SELECT count(*) FROM {function})")
            assert await number(engine) == first

    asyncio.run(run())


def test_two_callers_have_a_process_each(running: Service, client: Client) -> None:
    tokens = [
        client.create_token(name, scope="read", datasets=[name]).token for name in ("open", "shut")
    ]

    async def run() -> None:
        async with (
            ProxyClient(running.proxy_url, token=tokens[0]) as one,
            ProxyClient(running.proxy_url, token=tokens[1]) as other,
            Engine(one) as opened,
            Engine(other) as shut,
        ):
            for _ in range(2):
                assert await rows(opened, "SELECT name FROM open") == [{"name": "open"}]
                assert await rows(shut, "SELECT name FROM shut") == [{"name": "shut"}]
                with pytest.raises(SqlError):
                    await rows(shut, NAMES)
            assert len(engine_processes()) == 2

    asyncio.run(run())


def test_tables_of_a_new_catalogue_are_in_another_database(
    proxy: MakeClient, client: Client
) -> None:
    async def run() -> None:
        async with proxy() as own, Engine(own) as engine:
            first = await number(engine)
            dataset = await asyncio.to_thread(client.create_dataset, "Later", slug="later")
            made = await asyncio.to_thread(dataset.create_schema, "Later", DEFINITION, slug="later")
            await asyncio.to_thread(made.ingest, [{"name": "later", "age": 2}])
            assert await rows(engine, "SELECT name FROM later") == [{"name": "later"}]
            assert await number(engine) == first + 1

    asyncio.run(run())


def test_memory_of_a_large_statement_is_given_back_while_nothing_is_asked(
    proxy: MakeClient,
) -> None:
    def resident() -> int:
        (pid,) = engine_processes()
        return int(memory_mib(pid, "VmRSS"))

    async def run() -> None:
        async with proxy() as client, Engine(client) as engine:
            await number(engine)
            before = resident()
            await rows(
                engine,
                "SELECT max(x) FROM (SELECT row_number() OVER (ORDER BY -range) x"
                " FROM range(5000000))",
            )
            await asyncio.to_thread(
                eventually, lambda: resident() < before + 48, "the memory is given back"
            )

    asyncio.run(run())

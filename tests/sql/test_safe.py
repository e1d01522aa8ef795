"""SQL reads the records that its caller may read, and reaches nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encrypted_records import Client
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.errors import ErsError, NotAllowed, NotAuthenticated, SqlError
from encrypted_records.sql.engine import Engine
from encrypted_records.sql.limits import SqlLimits
from tests.support.service import Service
from tests.support.sql import MakeClient, ask

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": [],
}
SMALL = SqlLimits(memory_bytes=100 << 20, rows=100_000)
#: For statements that never end.
SHORT = replace(SMALL, seconds=2.0)


@pytest.fixture(scope="module", autouse=True)
def stored(client: Client) -> None:
    for name in ("open", "shut"):
        dataset = client.create_dataset(name, slug=name)
        dataset.create_schema(name, DEFINITION, slug=name).ingest([{"name": name, "age": 1}])


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.csv"
    path.write_text("a\nnobody may read this\n")
    return path


#: The attempt, and how its refusal is called: its SQLSTATE.
ATTEMPTS = [
    ("INSERT INTO open.open VALUES ('x', 1)", "25006"),
    ("UPDATE open.open SET age = 2", "25006"),
    ("DELETE FROM open.open", "25006"),
    ("WITH gone AS (DELETE FROM open.open RETURNING *) SELECT * FROM gone", "25006"),
    ("CREATE TABLE t AS SELECT 1", "25006"),
    ("DROP VIEW open.open", "25006"),
    ("COPY (SELECT 1) TO '{file}'", "25006"),
    ("EXPORT DATABASE '{file}'", "25006"),
    ("ATTACH '{file}' AS other", "25006"),
    ("INSTALL httpfs", "25006"),
    ("LOAD httpfs", "25006"),
    ("SET enable_external_access = true", "25006"),
    ("RESET lock_configuration", "25006"),
    ("PRAGMA enable_profiling", "25006"),
    ("CALL pragma_version()", "25006"),
    ("SELECT 1; DROP VIEW open.open", "42601"),
    ("SELECT * FROM read_csv('{file}')", "42501"),
    ("SELECT * FROM read_text('{file}')", "42501"),
    ("SELECT * FROM '{file}'", "42501"),
    ("SELECT * FROM glob('{file}*')", "42501"),
    ("SELECT * FROM read_parquet('https://example.org/x.parquet')", "42501"),
    ("SELECT * FROM duckdb_secrets()", "42501"),
    ("SELECT * FROM query('SELECT * FROM read_text(''{file}'')')", "42501"),
    ("SELECT * FROM read_blob('{file}')", "42501"),
    ("SELECT * FROM sniff_csv('{file}')", "42501"),
    ("SELECT * FROM read_duckdb('{file}')", "42501"),
    ("SELECT * FROM read_csv('|cat {file}')", "42501"),
    ("SELECT * FROM duckdb_extensions()", "42501"),
    ("SELECT * FROM enable_logging()", "42000"),
    ("SELECT getenv('HOME')", "42883"),
    ("SELECT list(range) FROM range(100000000)", "53200"),
    ("SELECT count(*) FROM range(1000000) a, range(1000000) b", "57014"),
    ("WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n FROM t) SELECT max(n) FROM t", "57014"),
    ("SELECT * FROM range(200000)", "54000"),
]


async def rows_of(engine: Engine, statement: str) -> Any:
    async with await engine.execute(statement) as result:
        return (await result.table()).to_pylist()


async def refuse_all(engine: Engine, secret: Path, *, endless: bool) -> None:
    for statement, state in ATTEMPTS:
        if (state == "57014") is endless:
            with pytest.raises(SqlError) as caught:
                await rows_of(engine, statement.format(file=secret))
            assert caught.value.sqlstate == state, (statement, caught.value.message)
            assert "nobody may read this" not in caught.value.message


def test_each_attempt_ends_by_name_and_records_and_files_are_as_they_were(
    proxy: MakeClient, secret: Path
) -> None:
    async def run() -> Any:
        async with proxy() as client, Engine(client, limits=SHORT) as engine:
            await refuse_all(engine, secret, endless=True)
        async with proxy() as client, Engine(client, limits=SMALL) as engine:
            await refuse_all(engine, secret, endless=False)
            return await rows_of(engine, "SELECT * FROM open.open")

    assert asyncio.run(run()) == [{"name": "open", "age": 1}]
    assert [path.name for path in secret.parent.iterdir()] == ["secret.csv"]


Limited = Callable[..., MakeClient]


@pytest.fixture
def with_token(running: Service, client: Client) -> Iterator[Limited]:
    def make(scope: Any, datasets: list[str] | None) -> MakeClient:
        token = client.create_token("sql", scope=scope, datasets=datasets).token
        return lambda: ProxyClient(running.proxy_url, token=token)

    yield make


def test_a_token_sees_its_datasets_alone(with_token: Limited) -> None:
    limited = with_token("read", ["open"])
    assert ask(limited, "SELECT name FROM open") == [{"name": "open"}]
    with pytest.raises(SqlError) as caught:
        ask(limited, "SELECT 1", dataset="shut")
    assert caught.value.sqlstate == "3D000"
    with pytest.raises(SqlError) as caught:
        ask(limited, "SELECT * FROM shut.shut")
    assert caught.value.sqlstate == "42P01"
    assert "shut" not in caught.value.hint
    told = ask(limited, "SELECT DISTINCT table_schema FROM information_schema.tables")
    assert "shut" not in str(told)


def test_the_proxy_refuses_columns_of_another_dataset(with_token: Limited, client: Client) -> None:
    path = client.schema("shut/shut").url

    async def run() -> None:
        async with with_token("read", ["open"])() as limited, limited.columns(path, ["name"]):
            pass

    with pytest.raises(ErsError) as caught:
        asyncio.run(run())
    assert isinstance(caught.value, NotAllowed) or "not" in caught.value.message


def test_a_revoked_token_ends_an_engine_that_is_open(running: Service, client: Client) -> None:
    made = client.create_token("sql", scope="read")

    async def run() -> None:
        async with ProxyClient(running.proxy_url, token=made.token) as own, Engine(own) as engine:
            async with await engine.execute("SELECT name FROM open.open") as result:
                assert (await result.table()).num_rows == 1
            await asyncio.to_thread(client.revoke_token, made.id)
            await engine.execute("SELECT name FROM open.open")

    with pytest.raises(NotAuthenticated):
        asyncio.run(run())


def test_nothing_of_a_statement_is_in_a_log(running: Service, proxy: MakeClient) -> None:
    ask(proxy, "SELECT name FROM open.open WHERE name = 'a value that is nowhere else'")
    with pytest.raises(SqlError):
        ask(proxy, "SELECT 'another value that is nowhere'::int")
    assert "nowhere" not in running.log

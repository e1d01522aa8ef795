"""Generated statements give what DuckDB gives over the plaintext, also while records change.

A few hundred run by default, of a fixed seed; ``SQL_STATEMENTS=5000`` runs as many.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow
import pytest

from encrypted_records import Client
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.errors import SqlError
from encrypted_records.model.texts import comparable
from encrypted_records.sql.engine import Engine
from tests.sql.statements import TABLES, Generator, Statement, definition, record
from tests.support.sql import MakeClient

COUNT = int(os.environ.get("SQL_STATEMENTS", "100"))
SEED = int(os.environ.get("SQL_SEED", "44"))
#: More than a mini holds, and fewer.
SIZES = {"person": 5000, "visit": 300}
_TYPES = {
    "int": "BIGINT",
    "text": "VARCHAR",
    "number": "DECIMAL(6,2)",
    "date": "DATE",
    "instant": "TIMESTAMP WITH TIME ZONE",
    "time": "TIME",
    "bool": "BOOLEAN",
    "uuid": "UUID",
}
Records = Mapping[str, Mapping[str, Any]]


class Plaintext:
    """The records of both tables in DuckDB, by their ids."""

    def __init__(self, contents: Mapping[str, Records]) -> None:
        self._connection = duckdb.connect(":memory:")
        self._connection.execute("SET TimeZone = 'UTC'")
        for table, columns in TABLES.items():
            rows = list(contents[table].values())
            texts = {
                f"c{at}": pyarrow.array([_text(row.get(name)) for row in rows], pyarrow.string())
                for at, name in enumerate(columns)
            }
            self._connection.register("given", pyarrow.table(texts))
            shown = ", ".join(
                f'c{at}::{_TYPES[kind]} AS "{name}"'
                for at, (name, kind) in enumerate(columns.items())
            )
            self._connection.execute(f"CREATE TABLE {table} AS SELECT {shown} FROM given")
            self._connection.unregister("given")

    def ask(self, text: str) -> pyarrow.Table | None:
        """The answer; None where DuckDB refuses the statement."""
        try:
            return self._connection.sql(text).to_arrow_table()
        except duckdb.Error:
            return None

    def close(self) -> None:
        self._connection.close()


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else comparable(str(value))


async def ask(engine: Engine, statement: Statement) -> tuple[pyarrow.Table | None, dict[str, int]]:
    try:
        async with await engine.execute(statement.text) as result:
            return await result.table(), result.versions
    except SqlError as error:
        assert error.sqlstate not in ("XX000", "57014", "53200"), error.message
        return None, {}


def shown(table: pyarrow.Table | None, statement: Statement) -> Any:
    if table is None:
        return None
    rows = [repr(tuple(row.values())) for row in _renamed(table).to_pylist()]
    return rows if statement.ordered else sorted(rows)


def _renamed(table: pyarrow.Table) -> pyarrow.Table:
    return table.rename_columns([f"c{at}" for at in range(table.num_columns)])


@pytest.fixture(scope="module")
def contents(client: Client) -> dict[str, dict[str, dict[str, Any]]]:
    """The records that are stored, by table and id."""
    chance = random.Random(SEED)
    dataset = client.create_dataset("Fuzz", slug="fuzz")
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for table, count in SIZES.items():
        rows = [record(table, chance) for _ in range(count)]
        schema = dataset.create_schema(table, definition(table), slug=table)
        schema.ingest(rows)
        found[table] = dict(_stored(client, table))
        assert len(found[table]) == count
    return found


def _stored(client: Client, table: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for stored in client.schema(f"fuzz/{table}").search(limit=None):
        yield stored.id, dict(stored.data)


def test_answers_equal_those_over_plaintext(
    proxy: MakeClient, contents: dict[str, dict[str, dict[str, Any]]]
) -> None:
    generator = Generator(SEED)
    plain = Plaintext(contents)

    async def run() -> int:
        refused = 0
        async with proxy() as client, Engine(client, dataset="fuzz") as engine:
            for number in range(COUNT // 2):
                statement = generator.statement()
                expected = shown(plain.ask(statement.text), statement)
                answer, _ = await ask(engine, statement)
                refused += expected is None
                assert shown(answer, statement) == expected, (number, statement.text)
        return refused

    refused = asyncio.run(run())
    plain.close()
    assert refused < COUNT // 10  # nearly all statements are such as DuckDB takes


def test_the_first_rows_of_an_order_are_those_over_plaintext(
    proxy: MakeClient,
    contents: dict[str, dict[str, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generator = Generator(SEED + 3)
    plain = Plaintext(contents)
    asked: list[Any] = []
    columns = ProxyClient.columns

    def noting(client: ProxyClient, *what: Any, **members: Any) -> Any:
        asked.append(members.get("limit"))
        return columns(client, *what, **members)

    monkeypatch.setattr(ProxyClient, "columns", noting)

    async def run() -> None:
        async with proxy() as client, Engine(client, dataset="fuzz") as engine:
            for number in range(COUNT):
                statement = generator.first()
                expected = shown(plain.ask(statement.text), statement)
                answer, _ = await ask(engine, statement)
                assert shown(answer, statement) == expected, (number, statement.text)

    asyncio.run(run())
    plain.close()
    # The others have conditions or orders that the index cannot answer alone.
    assert sum(limit is not None for limit in asked) > COUNT // 3


class History:
    """The rows of each table, by the version of its log from which on it held them. Between the
    version before a change and that after it, either content is right: merges have versions of
    their own."""

    def __init__(self, table: str, version: int, content: Mapping[str, Any]) -> None:
        self.table = table
        self.steps: list[tuple[int, Mapping[str, Any]]] = [(version, content)]

    def add(self, version: int, content: Mapping[str, Any]) -> None:
        self.steps.append((version, content))

    def at(self, version: int) -> list[Mapping[str, Any]]:
        """The contents that a reader of a version may see."""
        known = [at for at, (since, _) in enumerate(self.steps) if since <= version]
        last = known[-1] if known else 0
        return [content for _, content in self.steps[last : last + 2]]


def test_answers_equal_those_of_one_version_while_records_change(
    proxy: MakeClient, contents: dict[str, dict[str, dict[str, Any]]]
) -> None:
    generator, chance = Generator(SEED + 1), random.Random(SEED + 2)

    async def run() -> int:
        changes = 0
        async with proxy() as client, proxy() as writing, Engine(client, dataset="fuzz") as engine:
            paths = {table.name: table.schema for table in engine.tables()}
            held = {
                name: History(name, await _version(writing, path), dict(contents[name]))
                for name, path in paths.items()
            }
            for number in range(COUNT - COUNT // 2):
                statement = generator.statement()
                answered = asyncio.ensure_future(ask(engine, statement))
                name = chance.choice(list(paths))
                await _change(writing, paths[name], held[name], chance)
                changes += 1
                answer, versions = await answered
                seen = {name: held[name].at(versions.get(path, 0)) for name, path in paths.items()}
                unread = [name for name, path in paths.items() if path not in versions]
                for name in unread:
                    seen[name] = [held[name].steps[-1][1]]
                told = shown(answer, statement)
                right = (shown(answer, statement) for answer in _answers(statement, seen))
                assert any(told == answer for answer in right), (number, statement.text, versions)
        return changes

    assert asyncio.run(run()) == COUNT - COUNT // 2


def _answers(
    statement: Statement, seen: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterator[pyarrow.Table | None]:
    for person in seen["person"]:
        for visit in seen["visit"]:
            plain = Plaintext({"person": person, "visit": visit})
            try:
                yield plain.ask(statement.text)
            finally:
                plain.close()


async def _version(client: ProxyClient, path: str) -> int:
    return (await client.index_status(path)).version


async def _change(client: ProxyClient, path: str, history: History, chance: random.Random) -> None:
    """Store, change, delete or merge some records."""
    content = dict(history.steps[-1][1])
    roll = chance.random()
    if roll < 0.5:
        new = record(history.table, chance)
        (stored,) = await client.ingest(path, [new])
        content[stored.id] = new
    elif roll < 0.7:
        gone = chance.choice(list(content))
        await client.delete_record(gone)
        del content[gone]
    elif roll < 0.9:
        changed, new = chance.choice(list(content)), record(history.table, chance)
        await client.change_record(changed, new, replace=True)
        content[changed] = new
    else:
        await client.merge(path)
    history.add(await _version(client, path), content)

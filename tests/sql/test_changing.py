"""An engine that stays open follows definitions that change, and tables that go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from encrypted_records import Client
from encrypted_records.client.sdk.sync_client import Dataset
from encrypted_records.errors import SqlError
from encrypted_records.sql.engine import Engine
from tests.support.sql import MakeClient

NAME = {"type": "string"}
AGE = {"type": "integer", "minimum": 0, "maximum": 150}


def paid(most: int, decimals: int) -> dict[str, Any]:
    return {"type": "number", "minimum": 0, "maximum": most, "precision": decimals}


def definition(**fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": []}


@pytest.fixture(scope="module")
def dataset(client: Client) -> Dataset:
    return client.create_dataset("Changing", slug="changing")


def answers(proxy: MakeClient, *steps: str | Callable[[], Any]) -> list[Any]:
    """The answers of an engine to each statement; the other steps are done in between."""

    async def run() -> list[Any]:
        found: list[Any] = []
        async with proxy() as client, Engine(client, dataset="changing") as engine:
            for step in steps:
                if not isinstance(step, str):
                    await asyncio.to_thread(step)
                    continue
                async with await engine.execute(step) as result:
                    found.append((await result.table()).to_pylist())
        return found

    return asyncio.run(run())


def test_a_field_that_is_added_is_there_at_once(proxy: MakeClient, dataset: Dataset) -> None:
    schema = dataset.create_schema("Added", definition(name=NAME), slug="added")
    schema.ingest([{"name": "Ada"}])
    asked = "SELECT * FROM added"
    before, after = answers(
        proxy, asked, lambda: schema.change(definition(name=NAME, age=AGE)), asked
    )
    assert before == [{"name": "Ada"}]
    assert after == [{"name": "Ada", "age": None}]


def test_a_field_that_is_renamed_has_its_new_name_at_once(
    proxy: MakeClient, dataset: Dataset
) -> None:
    schema = dataset.create_schema("Renamed", definition(name=NAME, age=AGE), slug="renamed")
    schema.ingest([{"name": "Ada", "age": 36}])
    new = definition(title=NAME, age=AGE)
    asked = "SELECT * FROM renamed WHERE age > 30"
    before, after = answers(
        proxy, asked, lambda: schema.change(new, renames={"title": "name"}), asked
    )
    assert before == [{"name": "Ada", "age": 36}]
    assert after == [{"title": "Ada", "age": 36}]
    with pytest.raises(SqlError) as caught:
        answers(proxy, "SELECT name FROM renamed")
    assert caught.value.sqlstate == "42703"


def test_a_field_that_gets_wider_has_its_new_type_at_once(
    proxy: MakeClient, dataset: Dataset
) -> None:
    schema = dataset.create_schema("Wider", definition(paid=paid(100, 1)), slug="wider")
    schema.ingest([{"paid": 12.5}])
    asked = "SELECT typeof(paid) AS type, paid::text AS paid FROM wider"
    before, after = answers(
        proxy, asked, lambda: schema.change(definition(paid=paid(9999, 3))), asked
    )
    assert before == [{"type": "DECIMAL(4,1)", "paid": "12.5"}]
    assert after == [{"type": "DECIMAL(7,3)", "paid": "12.500"}]


def test_a_table_that_is_gone_is_unknown(proxy: MakeClient, dataset: Dataset) -> None:
    schema = dataset.create_schema("Gone", definition(name=NAME), slug="gone")
    schema.ingest([{"name": "Ada"}])
    asked = "SELECT name FROM gone"
    with pytest.raises(SqlError) as caught:
        answers(proxy, asked, lambda: schema.delete(cascade=True), asked)
    assert caught.value.sqlstate == "42P01"
    assert "gone" not in caught.value.hint
    assert not caught.value.from_api  # agents are told nothing that the API says

"""An engine that stays open follows definitions that change, and tables that go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
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


def test_fields_that_are_added_renamed_and_wider_are_so_at_once(
    proxy: MakeClient, dataset: Dataset
) -> None:
    old = definition(name=NAME, paid=paid(100, 1))
    new = definition(title=NAME, paid=paid(9999, 3), age=AGE)
    schema = dataset.create_schema("Changed", old, slug="changed")
    schema.ingest([{"name": "Ada", "paid": 12.5}])
    asked = "SELECT *, typeof(paid) AS type, paid::text AS paid_text FROM changed WHERE paid > 12"
    before, after = answers(
        proxy, asked, lambda: schema.change(new, renames={"title": "name"}), asked
    )
    one, other = Decimal("12.5"), Decimal("12.500")
    assert before == [{"name": "Ada", "paid": one, "type": "DECIMAL(4,1)", "paid_text": "12.5"}]
    assert after == [
        {"title": "Ada", "paid": other, "age": None, "type": "DECIMAL(7,3)", "paid_text": "12.500"}
    ]
    with pytest.raises(SqlError) as caught:
        answers(proxy, "SELECT name FROM changed")
    assert caught.value.sqlstate == "42703"


def test_a_table_that_is_gone_is_unknown(proxy: MakeClient, dataset: Dataset) -> None:
    schema = dataset.create_schema("Gone", definition(name=NAME), slug="gone")
    schema.ingest([{"name": "Ada"}])
    asked = "SELECT name FROM gone"
    with pytest.raises(SqlError) as caught:
        answers(proxy, asked, lambda: schema.delete(cascade=True), asked)
    assert caught.value.sqlstate == "42P01"
    assert "gone" not in caught.value.hint
    assert not caught.value.from_api  # agents are told nothing that the API says

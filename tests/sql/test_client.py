"""The Python client gives the rows of a statement as frames, exact."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal

import pytest

from encrypted_records import AsyncClient, Client
from encrypted_records.errors import SqlError
from tests.support.service import Account, Service

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "big": {"type": "integer", "minimum": 0, "maximum": 2**60},
        "paid": {"type": "number", "minimum": 0, "maximum": 1000, "precision": 2},
    },
    "required": [],
}
BIG = 2**53 + 1


@pytest.fixture(scope="module", autouse=True)
def stored(client: Client) -> None:
    dataset = client.create_dataset("Frames", slug="frames")
    schema = dataset.create_schema("Rows", DEFINITION, slug="rows")
    schema.ingest([{"name": "a", "big": BIG, "paid": Decimal("0.10")}, {"name": "b"}])


def test_frames_keep_numbers_that_a_float_would_change(client: Client) -> None:
    found = client.sql("SELECT name, big, paid FROM rows ORDER BY name")
    assert found.columns == ["name", "big", "paid"]
    assert found.types == ("VARCHAR", "BIGINT", "DECIMAL(6,2)")
    assert list(found) == [
        {"name": "a", "big": BIG, "paid": Decimal("0.10")},
        {"name": "b", "big": None, "paid": None},
    ]
    assert found.to_arrow().num_rows == len(found) == 2
    assert found.to_pandas()["big"][0] == BIG
    assert found.to_polars()["paid"][0] == Decimal("0.10")
    assert "0.10" not in repr(found)
    ((path, version),) = found.versions.items()
    assert path == client.schema("rows").url
    assert version > 0


def test_intervals_are_durations_that_frames_compute_with(client: Client) -> None:
    found = client.sql("SELECT INTERVAL '1 day 2 hours' AS stay UNION ALL SELECT NULL ORDER BY 1")
    assert found.to_polars()["stay"].sum() == timedelta(days=1, hours=2)
    assert found.to_pandas()["stay"].sum() == timedelta(days=1, hours=2)
    months = client.sql("SELECT INTERVAL '1 month 1 day' AS stay")
    assert next(iter(months))["stay"] == (1, 1, 0)


def test_parameters_are_given_beside_the_statement(client: Client) -> None:
    found = client.sql("SELECT name FROM frames.rows WHERE big = $1 OR name = $2", [BIG, "x"])
    assert [row["name"] for row in found] == ["a"]


def test_an_error_has_its_state(client: Client) -> None:
    with pytest.raises(SqlError) as caught:
        client.sql("SELECT 1", dataset="nowhere")
    assert caught.value.sqlstate == "3D000"


def test_the_asynchronous_client_does_the_same(running: Service, account: Account) -> None:
    async def run() -> int:
        async with AsyncClient(
            running.proxy_url, email=account.email, password=account.password
        ) as client:
            return len(await client.sql("SELECT * FROM rows", dataset="frames"))

    assert asyncio.run(run()) == 2

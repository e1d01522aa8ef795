"""A value with more decimals than its field keeps is rounded and told of, or refused: on each way
in."""

from __future__ import annotations

import json
import secrets
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow
import pytest
from pyarrow import parquet

from encrypted_records import Client
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.client.proxy.jobs import Job
from encrypted_records.client.sdk.sync_client import Schema
from encrypted_records.errors import BadInput, InvalidRecords, Unavailable, ValuesRounded
from tests.cli.command import Ers
from tests.support.service import Account, Service

NUMBER = {"type": "number", "minimum": 0, "maximum": 100, "precision": 1}
FIELDS = {"key": {"type": "string"}, "price": NUMBER, "weight": NUMBER}
#: Rows, in the middle of which two values are rounded; 4.20 is the same as 4.2.
ROWS: list[dict[str, Any]] = [
    {"key": "a", "price": Decimal("3.9")},
    {"key": "b", "price": Decimal("3.99"), "weight": Decimal("0.25")},
    {"key": "c", "price": Decimal("4.20"), "weight": 7},
    {"key": "d", "price": Decimal("4.25")},
]
KEPT = ["3.9", "4.0", "4.2", "4.2"]
ROUNDED = {"price": 2, "weight": 1}
TOLD = "2 of price, 1 of weight"


@pytest.fixture(scope="module")
def client(running: Service, account: Account) -> Iterator[Client]:
    with Client(running.proxy_url, email=account.email, password=account.password) as one:
        yield one


@pytest.fixture
def make(client: Client) -> Callable[..., Schema]:
    dataset = client.create_dataset("Prices", slug=f"prices-{secrets.token_hex(4)}")

    def create(**root: Any) -> Schema:
        definition = {"type": "object", "properties": FIELDS, "unique": [["key"]], **root}
        return dataset.create_schema("Price", definition, slug=f"price-{secrets.token_hex(4)}")

    return create


def csv(*, quoted: bool = False) -> str:
    cells = [[str(row.get(name, "")) for name in FIELDS] for row in ROWS]
    lines = [",".join(f'"{one}"' if quoted and one else one for one in row) for row in cells]
    return "\n".join([",".join(FIELDS), *lines]) + "\n"


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return [
        json.dumps({name: float(one) if name != "key" else one for name, one in row.items()})
        for row in rows
    ]


def upload(name: str, content: Callable[[Path], Any]) -> Callable[[Schema, Path], Any]:
    def send(schema: Schema, folder: Path) -> Any:
        file = folder / name
        content(file)
        return schema.upload(file).wait()

    return send


def file_of_records(file: Path, schema: Schema) -> None:
    records = [f'{{"schema": "{schema.url}", "data": {text}}}' for text in texts(ROWS)]
    file.write_text(f"[{','.join(records)}]")


def send_array(schema: Schema, folder: Path) -> Any:
    file_of_records(folder / "rows.json", schema)
    return schema.upload(folder / "rows.json").wait()


def frame(made: Callable[[dict[str, list[Any]]], Any]) -> Callable[[Schema, Path], Any]:
    columns = {
        name: [
            None if name not in row else row[name] if name == "key" else float(row[name])
            for row in ROWS
        ]
        for name in FIELDS
    }
    return lambda schema, _: schema.ingest(made(columns))


def send_lines(schema: Schema, folder: Path) -> Any:
    file = folder / "rows.ndjson"
    file.write_text("\n".join(f'{{"data": {text}}}' for text in texts(ROWS)))
    return schema.upload(file).wait()


WAYS: dict[str, Callable[[Schema, Path], Any]] = {
    "direct": lambda schema, _: schema.ingest(ROWS),
    "pandas": frame(pandas.DataFrame),
    "polars": frame(polars.DataFrame),
    "arrow": frame(pyarrow.table),
    "stream": lambda schema, _: schema.ingest([*ROWS, *({"key": f"x{n}"} for n in range(200))]),
    "upsert": lambda schema, _: schema.upsert(ROWS, by="key"),
    "upsert of many": lambda schema, _: schema.upsert(
        [*ROWS, *({"key": f"x{n}"} for n in range(200))], by="key"
    ),
    "csv by column": upload("a.csv", lambda file: file.write_text(csv())),
    "csv by row": upload("a.csv", lambda file: file.write_text(csv(quoted=True))),
    "lines": send_lines,
    "array": send_array,
}


def prices(schema: Schema) -> list[str]:
    found = {one["key"]: one for one in schema.search()}
    return [str(found[key]["price"]) for key in "abcd"]


@pytest.mark.parametrize("way", WAYS)
def test_values_that_are_rounded_are_told_of(
    make: Callable[..., Schema], tmp_path: Path, way: str
) -> None:
    schema = make()
    with pytest.warns(ValuesRounded, match=TOLD) as told:
        WAYS[way](schema, tmp_path)
    assert len(told) == 1
    assert prices(schema) == KEPT
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schema.ingest([{"key": "plain", "price": Decimal("1.50"), "weight": 3}])


@pytest.mark.parametrize("way", WAYS)
def test_values_that_would_be_rounded_are_refused_where_the_definition_says_so(
    make: Callable[..., Schema], tmp_path: Path, way: str
) -> None:
    schema = make(rounding="refuse")
    with pytest.raises(InvalidRecords) as caught:
        WAYS[way](schema, tmp_path)
    assert [(flaw.row, flaw.field, flaw.code) for flaw in caught.value.flaws] == [
        (2, "price", "precision"),
        (2, "weight", "precision"),
        (4, "price", "precision"),
    ]
    assert "more than 1 decimals" in caught.value.flaws[0].detail
    assert schema.count() == 0
    schema.ingest([ROWS[0], ROWS[2]])
    assert schema.count() == 2


def test_a_receipt_names_the_fields_of_each_record_and_a_repetition_says_the_same(
    client: Client, make: Callable[..., Schema]
) -> None:
    schema = make()
    body = [{"schema": schema.url, "data": row} for row in ROWS]
    created = client.calls.ingest_records(body)
    assert [one.rounded for one in created] == [(), ("price", "weight"), (), ("price",)]
    replaced = client.calls.upsert(schema.url, ROWS, ["key"])
    assert [one.rounded for one in replaced] == [(), ("price", "weight"), (), ("price",)]
    changed, _ = client.calls.change_record(created[0].id, {"price": Decimal("0.26")})
    assert changed.rounded == ("price",)
    assert changed.data["price"] == Decimal("0.3")
    even, _ = client.calls.change_record(created[0].id, {"price": Decimal("0.20")})
    assert not even.rounded
    record = next(iter(schema.search("key = 'a'")))
    with pytest.warns(ValuesRounded, match="1 of price"):
        record.update({"price": Decimal("7.77")})
    assert record["price"] == Decimal("7.8")


def test_an_update_is_refused_where_the_definition_says_so(make: Callable[..., Schema]) -> None:
    schema = make(rounding="refuse")
    schema.ingest([ROWS[0]])
    (record,) = schema.search()
    for replace in (False, True):
        with pytest.raises(InvalidRecords) as caught:
            record.update({"key": "a", "price": Decimal("7.77")}, replace=replace)
        assert [(flaw.field, flaw.code) for flaw in caught.value.flaws] == [("price", "precision")]
    assert [one["price"] for one in schema.search()] == [Decimal("3.9")]


def test_a_job_says_how_many_values_it_rounded_and_none_where_it_failed(
    client: Client, make: Callable[..., Schema], tmp_path: Path
) -> None:
    schema = make()
    file = tmp_path / "a.csv"
    file.write_text(csv())
    job = schema.upload(file)
    with pytest.warns(ValuesRounded):
        job.wait()
    assert client.calls.job_about(job.id).rounded == ROUNDED
    assert "rounded" not in client.calls.request("GET", f"/api/jobs/{job.id}/").json()

    file.write_text(csv().replace("a,", "e,").replace("4.25", "425"))
    failed = schema.upload(file)
    with pytest.raises(BadInput):
        failed.wait()
    assert client.calls.job_about(failed.id).rounded == {}
    skipping = schema.upload(file, skip_invalid=True)
    with pytest.warns(ValuesRounded, match="1 of price, 1 of weight"):
        skipping.wait()


def test_a_job_that_is_complete_is_no_failure_where_nobody_can_say_what_it_rounded(
    make: Callable[..., Schema], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_asked: Any) -> Job:
        raise Unavailable("no connection")

    schema = make()
    with monkeypatch.context() as patch:
        patch.setattr(ProxyClient, "job_about", lost)
        with pytest.warns(ValuesRounded, match="is not known"):
            assert schema.ingest([*ROWS, *({"key": f"x{n}"} for n in range(200))]) == 204
    assert schema.count() == 204


def test_a_definition_may_begin_and_stop_to_refuse_at_any_time(make: Callable[..., Schema]) -> None:
    schema = make()
    with pytest.warns(ValuesRounded):
        schema.ingest(ROWS)
    before = dict(schema.definition)
    plan = schema.change({**before, "rounding": "refuse"}, dry_run=True)
    assert [change.code for change in plan.changes] == ["rounding_changed"]
    schema.change({**before, "rounding": "refuse"})
    with pytest.raises(InvalidRecords):
        schema.ingest([{"key": "e", "price": Decimal("0.25")}])
    schema.change({**before, "rounding": "half-even"})
    with pytest.warns(ValuesRounded):
        schema.ingest([{"key": "e", "price": Decimal("0.25")}])
    assert prices(schema) == KEPT


def test_the_command_line_says_what_was_rounded(
    ers: Ers, make: Callable[..., Schema], tmp_path: Path
) -> None:
    schema = make()
    file = tmp_path / "a.csv"
    file.write_text(csv())
    said = ers.done("import", "--exact", file, "--schema", schema.id)
    assert said.one["rounded"] == ROUNDED
    assert f"rounded to the decimals that the schema keeps: {TOLD}" in said.err
    assert ers.done("job", "get", said.one["job_id"]).one["rounded"] == ROUNDED

    row = json.dumps({"key": "e", "price": 0.26})
    said = ers.done("record", "create", "--file", "-", "--schema", schema.id, typed=row)
    assert "the schema keeps: 1 of price" in said.err
    (found,) = schema.search("key = 'e'")
    said = ers.done("record", "update", found.id, "--file", "-", typed='{"price": 0.37}')
    assert said.one["rounded"] == ["price"]
    assert "the schema keeps: 1 of price" in said.err


def test_what_is_imported_keeps_its_decimals_or_is_refused(ers: Ers, tmp_path: Path) -> None:
    file = tmp_path / f"t{secrets.token_hex(4)}.parquet"
    parquet.write_table(pyarrow.table({"price": [1.5, 2.25]}), file)
    said = ers.done("import", file, "--dataset", f"t{secrets.token_hex(4)}")
    assert "rounded" not in said.one
    definition = json.loads(ers.done("schema", "get", said.one["schema"], "--definition").out)
    assert definition["rounding"] == "refuse"
    finer = json.dumps({"price": 1.125})
    refused = ers("record", "create", "--schema", said.one["schema"], "--file", "-", typed=finer)
    assert refused.code == 6
    assert "more than 2 decimals" in refused.err

"""What notebooks have goes in as it is, and what they ask for comes back as they want it."""

from __future__ import annotations

import asyncio
import datetime
import inspect
import secrets
import traceback
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, assert_type

import numpy as np
import pandas
import polars
import pyarrow
import pytest

from encrypted_records import AsyncClient, Client
from encrypted_records.client.proxy.client import ProxyClient
from encrypted_records.client.proxy.records import Record, SearchPage
from encrypted_records.client.sdk import async_client, async_schemas, sync_client
from encrypted_records.client.sdk.rows import Groups
from encrypted_records.client.sdk.sync_client import Schema
from encrypted_records.errors import (
    ApiFailed,
    BadInput,
    ClientClosed,
    Conflict,
    ErsError,
    InvalidQuery,
    InvalidRecords,
    InvalidSetting,
)
from encrypted_records.model.resources import UserResource
from tests.support.service import Account, Service

DEFINITION = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "height": {"type": "number", "minimum": 0, "maximum": 3, "precision": 2},
    },
}
#: An offset with seconds, as zones had them: the year 9999 has instants that UTC has not.
LATER = datetime.timezone(datetime.timedelta(hours=-1, seconds=-1))
ADA = {"name": "Ada", "age": 36, "height": Decimal("1.65")}
COLUMNS: dict[str, list[Any]] = {
    "name": ["Ada", None, "Kurt"],
    "age": [36, 85, None],
    "height": [1.65, None, None],
}
STORED: list[dict[str, Any]] = [ADA, {"age": 85}, {"name": "Kurt"}]


@pytest.fixture(scope="module")
def client(running: Service, account: Account) -> Iterator[Client]:
    with Client(running.proxy_url, email=account.email, password=account.password) as one:
        yield one


@pytest.fixture
def schema(client: Client) -> Schema:
    dataset = client.create_dataset("People", slug=f"people-{secrets.token_hex(4)}")
    return dataset.create_schema("Person", DEFINITION, slug=f"person-{secrets.token_hex(4)}")


@pytest.fixture
def people(schema: Schema) -> Schema:
    schema.ingest(STORED)
    return schema


@pytest.mark.parametrize(
    "frame",
    [
        pandas.DataFrame(COLUMNS),
        pandas.DataFrame(COLUMNS).convert_dtypes(),
        pandas.DataFrame(COLUMNS, index=[7, 7, 9]),
        pandas.DataFrame(COLUMNS, dtype=object).assign(
            name=["Ada", pandas.NaT, "Kurt"], age=[np.int64(36), 85, pandas.NA]
        ),
        polars.DataFrame(COLUMNS),
        polars.DataFrame(COLUMNS).lazy(),
        pyarrow.table(COLUMNS),
        pyarrow.table(COLUMNS).to_batches()[0],
        pyarrow.RecordBatchReader.from_batches(
            pyarrow.table(COLUMNS).schema, pyarrow.table(COLUMNS).to_batches(max_chunksize=1)
        ),
    ],
    ids=["pandas", "nullable", "index", "objects", "polars", "lazy", "arrow", "batch", "reader"],
)
def test_a_frame_goes_in_and_what_is_missing_there_is_absent(schema: Schema, frame: Any) -> None:
    assert schema.ingest(frame) == 3
    assert [dict(one) for one in schema.search()] == STORED


def test_a_frame_of_any_length_goes_in_and_comes_back_the_same(schema: Schema) -> None:
    numbers = range(10_100)  # more than are turned at once
    frame = pandas.DataFrame(
        {"name": [f"n{number}" for number in numbers], "age": 1}
    ).convert_dtypes()
    assert schema.ingest(frame) == len(frame)
    back = schema.search(fields=["name", "age"])
    assert back.to_pandas()["name"].tolist() == frame["name"].tolist()
    assert back.to_polars()["age"].sum() == len(frame)


def test_an_asynchronous_client_takes_frames_too(
    running: Service, account: Account, schema: Schema
) -> None:
    async def ingest() -> tuple[int, int]:
        async with AsyncClient(
            running.proxy_url, email=account.email, password=account.password
        ) as one:
            there = await one.schema(schema.slug)
            stored = await there.ingest(polars.DataFrame(COLUMNS))
            return stored, await there.search("age >= 40").count_all()

    assert asyncio.run(ingest()) == (3, 1)


@pytest.mark.parametrize(
    ("rows", "says", "row", "field"),
    [
        ([{"name": pandas.Period("2020-01")}], "a Period", 1, "name"),
        (pandas.DataFrame({"name": [None, pandas.Period("2020-01")]}), "a Period", 2, "name"),
        ([ADA, {"name": b"2020"}], "bytes cannot be stored", 2, "name"),
        (pandas.DataFrame({"name": ["Ada", b"2020"]}), "bytes cannot be stored", 2, "name"),
        (polars.DataFrame({"name": [None, b"2020"]}), "bytes cannot be stored", 2, "name"),
        (pyarrow.table({"name": [None, b"2020"]}), "bytes cannot be stored", 2, "name"),
        (pyarrow.table({"name": [pyarrow.MonthDayNano([1, 2, 3])]}), "MonthDayNano", 1, "name"),
        (
            pyarrow.table({"name": pyarrow.array([None, 10**14], pyarrow.timestamp("s"))}),
            "timestamp[s] is outside",
            2,
            "name",
        ),
        ([{"name": datetime.datetime.max.replace(tzinfo=LATER)}], "outside the years", 1, "name"),
        ([{"name": np.timedelta64(3, "s")}], "a timedelta64 of NumPy", 1, "name"),
        ([{3: "Ada"}], "expected texts as field names", 1, None),
        (
            pandas.DataFrame({"height": [1.5, 2.5]}, dtype=object).replace(2.5, float("inf")),
            "NaN",
            2,
            "height",
        ),
        ([ADA, {"name": object()}], "object", 2, "name"),
        ([{"name": "\ud800"}], "surrogate", 1, "name"),
        (pandas.DataFrame([["Ada", 3]]), "column 1", None, None),
        (pandas.DataFrame([["Ada", 3]], columns=["name", "name"]), "column 2", None, None),
        (polars.DataFrame({"height": [float("nan")]}), "NaN", 1, "height"),
        (pandas.DataFrame({"height": [float("inf")]}), "NaN and infinities", 1, "height"),
        (["Ada"], "expected field names and values", 1, None),
    ],
)
def test_what_cannot_be_stored_is_named_by_its_kind_and_place(
    schema: Schema, rows: Any, says: str, row: int | None, field: str | None
) -> None:
    with pytest.raises(InvalidRecords) as caught:
        schema.ingest(rows)
    (flaw,) = caught.value.flaws
    assert says in flaw.detail
    assert (flaw.row, flaw.field) == (row, field)
    # A notebook shows the traceback alone: it has place and hint, and no other exception.
    shown = "".join(traceback.format_exception(caught.value))
    place = ", ".join(one for one in (row and f"row {row}", field) if one)
    assert f"{place}: {flaw.detail}" in shown
    assert f"hint: {caught.value.hint}" in shown
    assert "During handling" not in shown
    assert "2020" not in str(caught.value) + flaw.detail
    assert schema.count() == 0


def test_what_is_no_rows_at_all_is_an_error_of_ours(schema: Schema) -> None:
    with pytest.raises(InvalidRecords):
        schema.ingest(3)  # type: ignore[arg-type]


def test_values_of_numpy_and_dates_are_stored_as_what_they_say(schema: Schema) -> None:
    row = {"name": datetime.date(2020, 1, 31), "age": np.int16(3), "height": np.float64(1.5)}
    schema.ingest([row])
    assert dict(next(iter(schema.search()))) == {
        "name": "2020-01-31",
        "age": 3,
        "height": Decimal("1.50"),
    }


def test_times_of_arrow_are_texts_whatever_their_unit(schema: Schema) -> None:
    nanoseconds = pyarrow.array([1_000, 1_001, None], pyarrow.timestamp("ns"))
    for at, rows in enumerate((nanoseconds.slice(0, 1), nanoseconds), 1):
        schema.ingest(pyarrow.table({"name": rows, "age": [at] * len(rows)}))
    names = [one.get("name") for one in schema.search(order_by=["age"])]
    assert names == ["1970-01-01T00:00:00.000001", *names[1:3], None]
    assert names[2] == "1970-01-01T00:00:00.000001001"


def test_every_failure_of_a_client_is_an_error_of_ours(
    people: Schema, running: Service, account: Account
) -> None:
    for expression in ("age >", "age = = 3", "age ! 3", "(age = 3"):
        with pytest.raises(InvalidQuery):
            people.search(expression)
    with pytest.raises(InvalidQuery):
        people.aggregate("avg(")
    with pytest.raises(InvalidQuery):
        people.search(limit=-1)
    with pytest.raises(InvalidSetting, match="no such file"):
        people.upload("/there/is/no.csv")
    with pytest.raises(BadInput, match="a Period") as unsayable:
        list(people.search({"field": "age", "op": "eq", "value": pandas.Period("2020")}))
    assert [flaw.pointer for flaw in unsayable.value.flaws] == ["/where/value"]

    closed = Client(running.proxy_url, email=account.email, password=account.password)
    there = closed.schema(people.slug)
    closed.close()
    closed.close()
    calls: list[Any] = [closed.user, there.count, lambda: list(there.search()), closed.calls.status]
    for call in (*calls, lambda: list(closed.jobs()), lambda: there.ingest([ADA])):
        with pytest.raises(ClientClosed):
            call()

    async def late() -> None:
        one = AsyncClient(running.proxy_url, email=account.email, password=account.password)
        await one.user()
        await one.close()
        await one.user()

    with pytest.raises(ClientClosed):
        asyncio.run(late())
    with pytest.raises(ClientClosed):
        never_used = Client(running.proxy_url)
        never_used.close()
        never_used.user()


def test_a_traceback_says_what_is_wrong_where_and_what_to_do(people: Schema) -> None:
    with pytest.raises(InvalidQuery) as caught:
        people.count("agee = 3")
    shown = "".join(traceback.format_exception(caught.value))
    assert "/where/field: the schema has no such field" in shown
    assert "its fields are name, age, height" in shown
    assert f"hint: {caught.value.hint}" in shown

    with pytest.raises(InvalidRecords) as refused:
        people.ingest([{"name": "a secret", "age": -number} for number in range(1, 9)])
    shown = "".join(traceback.format_exception(refused.value))
    assert "row 5, age: below the minimum" in shown
    assert "and 3 more, in its flaws" in shown
    assert "a secret" not in "".join(refused.value.__notes__)


def test_a_record_is_a_mapping_and_a_search_has_a_length(people: Schema) -> None:
    search = people.search("age is not null")
    record = next(iter(search))

    assert dict(record) == {**record} == ADA
    assert (len(record), "age" in record, record.get("x"), list(record)) == (3, True, None, [*ADA])
    assert (len(search), len(people.search(limit=1)), len(people.search("age > 99"))) == (2, 1, 0)
    assert pandas.DataFrame([dict(one) for one in search])["age"].tolist() == [36, 85]


def test_a_refusal_says_what_to_do_in_the_words_of_python(client: Client, people: Schema) -> None:
    for found in (people, client.dataset(people.members["dataset"])):
        with pytest.raises(Conflict) as caught:
            found.delete()
        assert "cascade=True" in caught.value.hint
        assert "?" not in caught.value.hint


def test_what_is_shown_in_passing_says_what_it_is_and_no_value(
    client: Client, people: Schema, account: Account, running: Service
) -> None:
    search = people.search("age = 36 or name = 'Ada'", limit=5)
    record = next(iter(search))

    assert repr(client) == f"<Client of {account.email} at {running.proxy_url}>"
    assert repr(people) == f"<Schema {people.slug}: name, age, height>"
    assert repr(search) == f"<Search of {people.slug} by age, name, 5 at most>"
    assert repr(record) == f"<Record {record.id}: name, age, height>"
    assert repr(people.search({"and": 3})).startswith("<Search of ")
    with Client("http://ada:violet@127.0.0.1:1") as other:
        assert repr(other) == "<Client at http://127.0.0.1:1>"


def test_measures_are_numbers_mappings_and_frames(people: Schema) -> None:
    assert people.aggregate("max(age)") == 85
    assert people.aggregate() == 3
    assert people.aggregate("avg(height)") == Decimal("1.65")
    assert people.aggregate("min(age)", where="age > 99") is None
    assert people.aggregate("stddev(age)", where="age = 36") is None
    spread = people.aggregate("variance(age)")
    assert people.aggregate("stddev(age)") == round(spread.sqrt(), 6)
    assert people.aggregate("percentile(age, 50)")["values"]

    several = people.aggregate("sum(age)", "count")
    assert dict(several) == {"sum(age)": 121, "count": 3}
    assert several.raw == people.aggregate("sum(age)", "count", raw=True)
    assert several.raw["measures"][0]["value"] == 121

    groups = people.aggregate("count", "max(age)", group_by=["name"])
    assert isinstance(groups, Groups)
    assert (len(groups), groups.total) == (3, 3)
    frame = groups.to_pandas()
    assert list(frame.columns) == ["name", "count", "max(age)"]
    assert frame.set_index("name").loc["Ada", "max(age)"] == 36
    assert groups.to_arrow().to_pylist() == [dict(group) for group in groups]
    assert groups.to_polars().height == 3
    assert groups.raw == people.aggregate("count", "max(age)", group_by="name", raw=True)


def test_a_field_may_be_called_like_a_measure_or_like_what_a_record_has(client: Client) -> None:
    odd = ["id", "count", "measure count", "max(id)", "data", "schema", "url"]
    small = {"type": "integer", "minimum": 0, "maximum": 99}
    dataset = client.create_dataset("Odd", slug=f"odd-{secrets.token_hex(4)}")
    odd_schema = {"type": "object", "properties": dict.fromkeys(odd, small)}
    schema = dataset.create_schema("Odd", odd_schema, slug=f"odd-{secrets.token_hex(4)}")
    rows = [{name: at + 10 * row for at, name in enumerate(odd)} for row in range(2)]
    schema.ingest(rows)

    found = list(schema.search())
    assert [dict(one) for one in found] == rows
    assert {one.schema for one in found} == {schema.url}
    assert all(one.url == f"/api/records/{one.id}/" for one in found)
    assert schema.search().to_arrow().to_pylist() == rows
    assert schema.search().to_pandas().to_dict("records") == rows

    groups = schema.aggregate("count", "max(id)", group_by=["count", "max(id)"])
    named = ["count", "max(id)", "measure count", "measure max(id)"]
    assert groups.columns == named
    assert [list(group.values()) for group in groups] == [[1, 3, 1, 0], [11, 13, 1, 10]]
    assert groups.to_pandas().columns.tolist() == named
    assert groups.to_arrow().column_names == named
    both = schema.aggregate("count", group_by=["count", "measure count"])
    assert both.columns == ["count", "measure count", "measure measure count"]


def test_an_answer_of_nonsense_to_a_measure_is_the_apis_failure(
    people: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Any] = [{}, {"measures": []}, {"groups": [3]}, {"groups": 3, "total": 1}, []]
    for nonsense in answers:

        async def lie(*_asked: Any, said: Any = nonsense, **_options: Any) -> Any:
            return said

        monkeypatch.setattr(ProxyClient, "aggregate", lie)
        for group_by in (None, ["name"]):
            with pytest.raises(ApiFailed):
                people.aggregate("count", group_by=group_by)


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def methods(kind: type) -> set[str]:
    return {name for name in public(kind) if callable(getattr(kind, name))}


def test_the_clients_offer_the_same(client: Client) -> None:
    kinds: list[tuple[type, type]] = [
        (AsyncClient, Client),
        (async_client.AsyncDataset, sync_client.Dataset),
        (async_schemas.AsyncSchema, sync_client.Schema),
        (async_schemas.AsyncSearch, sync_client.Search),
        (async_schemas.AsyncRecord, sync_client.Record),
        (async_schemas.AsyncJob, sync_client.Job),
    ]
    for awaited, waiting in kinds:
        assert public(awaited) - {"count_all"} <= public(waiting)
        assert methods(awaited) - {"count_all"} == methods(waiting)
        for name in methods(waiting) - public(dict):
            one, other = getattr(awaited, name), getattr(waiting, name)
            assert [*inspect.signature(one).parameters] == [*inspect.signature(other).parameters]
    # What the client of the HTTP API offers is there, each method of it.
    calls = client.calls
    assert public(type(calls)) == public(ProxyClient) - {"close"}
    for name in public(ProxyClient) - {"close", "device"}:
        method = getattr(client._link.proxy, name)
        assert inspect.signature(getattr(calls, name)) == inspect.signature(method), name
        assert getattr(calls, name).__name__ == name


def test_a_call_has_the_types_of_its_endpoint(client: Client, people: Schema) -> None:
    """mypy reads this test with the others: each line would be an error if it were ``Any``."""
    assert assert_type(client.calls.search(people.url), SearchPage).count == 3
    assert assert_type(client.calls.user(), UserResource).organizations
    for found in assert_type(client.calls.search_all(people.url), Iterator[Record]):
        assert found.data
    with client.calls.export(people.url) as pieces:
        assert b"".join(assert_type(pieces, Iterator[bytes]))


def test_a_call_waits_for_whatever_the_method_gives(client: Client, people: Schema) -> None:
    calls = client.calls
    assert calls.status()["behind_proxy"] is True
    assert calls.request("GET", "/api/users/self/").status == 200
    assert people.url in [one["url"] for one in calls.listing("schemas")]
    assert len([*calls.search_all(people.url)]) == 3
    with calls.export(people.url, "csv") as pieces:
        assert b"".join(pieces).startswith(b"name,age,height\r\n")
    with pytest.raises(InvalidQuery), calls.export(people.url, fields=["nothing"]) as pieces:
        b"".join(pieces)
    with pytest.raises(ZeroDivisionError), calls.export(people.url) as pieces:
        raise ZeroDivisionError
    assert calls.device is None
    with pytest.raises(ErsError):
        calls.request("GET", "/api/../admin/")

"""Values of Python, pandas, Polars and Arrow are stored exactly and alike, or refused by name."""

from __future__ import annotations

import datetime as dt
import enum
import secrets
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas
import polars
import pyarrow
import pytest

from encrypted_records import Client
from encrypted_records.client.sdk.sync_client import Dataset, Schema
from encrypted_records.errors import BadInput, InvalidRecords
from tests.support.service import Account, Service

DUBLIN, MONROVIA = ZoneInfo("Europe/Dublin"), ZoneInfo("Africa/Monrovia")
PARIS = ZoneInfo("Europe/Paris")
#: 2020-03-01, in nanoseconds since 1970.
DAY = 1_583_020_800 * 10**9


class Colour(enum.Enum):
    RED = "red"


@pytest.fixture(scope="module")
def client(running: Service, account: Account) -> Iterator[Client]:
    with Client(running.proxy_url, email=account.email, password=account.password) as client:
        yield client


@pytest.fixture(scope="module")
def dataset(client: Client) -> Dataset:
    return client.create_dataset("Values", slug=f"values-{secrets.token_hex(4)}")


def create(dataset: Dataset, named: str | None = None) -> Schema:
    spec = {"type": "string"} | ({"format": named} if named else {})
    definition = {"type": "object", "properties": {"w": spec}}
    definition |= {"formats": "enforced"} if named else {}
    return dataset.create_schema("Values", definition, slug=f"values-{secrets.token_hex(4)}")


@pytest.fixture(scope="module")
def loose(dataset: Dataset) -> Schema:
    return create(dataset)


@pytest.fixture(scope="module")
def instants(dataset: Dataset) -> Schema:
    return create(dataset, "date-time")


def stored(schema: Schema, rows: Any) -> list[Any]:
    schema.ingest(rows)
    values = [one.get("w") for one in schema.search()]
    for one in schema.search():
        one.delete()
    return values


MOMENTS: list[tuple[dt.datetime, str]] = [
    (dt.datetime(1910, 6, 1, 12, tzinfo=DUBLIN), "1910-06-01T12:25:21Z"),
    (dt.datetime(1960, 1, 1, 8, 30, tzinfo=MONROVIA), "1960-01-01T09:14:30Z"),
    (dt.datetime(2020, 6, 1, 12, tzinfo=PARIS), "2020-06-01T12:00:00+02:00"),
    (dt.datetime(2020, 6, 1, 12, tzinfo=dt.UTC), "2020-06-01T12:00:00Z"),
]


@pytest.mark.parametrize(("moment", "text"), MOMENTS, ids=[text for _, text in MOMENTS])
def test_an_instant_stays_the_same_instant_whoever_it_comes_from(
    instants: Schema, moment: dt.datetime, text: str
) -> None:
    zone = str(moment.tzinfo)
    in_arrow = pyarrow.array([moment], pyarrow.timestamp("us", zone))
    every: list[Any] = [
        [{"w": moment}],
        [{"w": pandas.Timestamp(moment)}],
        pandas.DataFrame({"w": [pandas.Timestamp(moment)]}),
        pandas.DataFrame({"w": pandas.Series(in_arrow, dtype=pandas.ArrowDtype(in_arrow.type))}),
        polars.DataFrame({"w": polars.from_arrow(in_arrow)}),
        pyarrow.table({"w": in_arrow}),
        pyarrow.table({"w": in_arrow.cast(pyarrow.timestamp("ns", zone))}),
    ]
    for rows in every:
        assert stored(instants, rows) == [text]
    assert dt.datetime.fromisoformat(text) == moment
    instants.ingest([{"w": "2020-01-01T00:00:00Z"}])
    (record,) = instants.search()
    record.update({"w": moment})
    assert [one["w"] for one in instants.search({"field": "w", "op": "eq", "value": moment})] == [
        text
    ]
    record.delete()


def nanoseconds(kind: str, count: int) -> dict[str, Any]:
    """A frame of each library with one value, in nanoseconds of a kind."""
    in_arrow = {
        "instant": pyarrow.timestamp("ns", "UTC"),
        "local": pyarrow.timestamp("ns"),
        "time": pyarrow.time64("ns"),
        "duration": pyarrow.duration("ns"),
    }[kind]
    in_polars: Any = {
        "instant": polars.Datetime("ns", "UTC"),
        "local": polars.Datetime("ns"),
        "time": polars.Time,
        "duration": polars.Duration("ns"),
    }[kind]
    column = pyarrow.array([count], in_arrow)
    in_pandas: Any = {
        "instant": lambda: pandas.Timestamp(count, tz="UTC"),
        "local": lambda: pandas.Timestamp(count),
        "duration": lambda: pandas.Timedelta(count),
    }.get(kind)
    frames: dict[str, Any] = {
        "arrow": pyarrow.table({"w": column}),
        "dictionary": pyarrow.table({"w": column.dictionary_encode()}),
        "polars": polars.DataFrame({"w": polars.Series([count]).cast(in_polars)}),
        "pandas of arrow": pandas.DataFrame(
            {"w": pandas.Series(column, dtype=pandas.ArrowDtype(in_arrow))}
        ),
    }
    if in_pandas is not None:
        frames["pandas"] = pandas.DataFrame({"w": [in_pandas()]})
        frames["row"] = [{"w": in_pandas()}]
    if kind == "local":
        frames["numpy"] = [{"w": np.datetime64(count, "ns")}]
    return frames


@pytest.mark.parametrize(
    ("kind", "count", "text"),
    [
        ("instant", DAY, "2020-03-01T00:00:00Z"),
        ("instant", DAY + 1000, "2020-03-01T00:00:00.000001Z"),
        ("instant", DAY + 7, "2020-03-01T00:00:00.000000007Z"),
        ("instant", -1, "1969-12-31T23:59:59.999999999Z"),
        ("local", DAY, "2020-03-01T00:00:00"),
        ("local", DAY + 500_000_000, "2020-03-01T00:00:00.500000"),
        ("local", DAY + 7, "2020-03-01T00:00:00.000000007"),
        ("time", 1, "00:00:00.000000001"),
        ("time", 30_600 * 10**9, "08:30:00"),
        ("duration", 5400 * 10**9, "PT5400S"),
        ("duration", -1, "-PT0.000000001S"),
        ("duration", 200_000_500_000_000, "PT200000.5S"),
    ],
)
def test_nanoseconds_are_kept_and_each_value_has_one_text(
    loose: Schema, kind: str, count: int, text: str
) -> None:
    for name, rows in nanoseconds(kind, count).items():
        assert (name, stored(loose, rows)) == (name, [text])


def test_an_enforced_instant_refuses_nanoseconds_by_name(instants: Schema) -> None:
    for rows in nanoseconds("instant", DAY + 7).values():
        with pytest.raises(InvalidRecords) as caught:
            instants.ingest(rows)
        assert [(flaw.row, flaw.field) for flaw in caught.value.flaws] == [(1, "w")]
        assert "more than 6 decimals" in caught.value.flaws[0].detail
    assert instants.count() == 0


def test_midnight_by_a_clock_without_a_zone_is_a_day_where_days_are_stored(
    dataset: Dataset,
) -> None:
    days = create(dataset, "date")
    series = pandas.to_datetime(pandas.Series(["2020-01-31"]))
    every: list[Any] = [
        pandas.DataFrame({"w": series}),
        [{"w": dt.datetime(2020, 1, 31)}],  # noqa: DTZ001 - that is what it is about
        [{"w": np.datetime64("2020-01-31")}],
        pandas.DataFrame({"w": series.dt.date}),
        polars.DataFrame({"w": [dt.date(2020, 1, 31)]}),
        pyarrow.table({"w": pyarrow.array([dt.date(2020, 1, 31)], pyarrow.date64())}),
    ]
    for rows in every:
        assert stored(days, rows) == ["2020-01-31"]
    for wrong in (series + pandas.Timedelta("1h"), series.dt.tz_localize("UTC")):
        with pytest.raises(InvalidRecords):
            days.ingest(pandas.DataFrame({"w": wrong}))
    with pytest.raises(InvalidRecords):
        days.ingest([{"w": "2020-01-31T00:00:00"}])  # a text is what it says
    assert days.count() == 0


def test_other_values_are_stored_as_their_one_text(loose: Schema) -> None:
    name = uuid.uuid4()
    assert stored(loose, [{"w": name}, {"w": Colour.RED}, {"w": np.str_("a")}]) == [
        str(name),
        "red",
        "a",
    ]
    assert stored(loose, [{"w": np.datetime64("NaT")}, {"w": pandas.NA}]) == [None, None]
    assert stored(loose, [{"w": np.datetime64("2020-01-31T08:30")}]) == ["2020-01-31T08:30:00"]


@pytest.mark.parametrize(
    "value",
    [b"\x01\x02", bytearray(b"a"), memoryview(b"a"), np.bytes_(b"a"), float("nan"), Decimal("inf")],
)
def test_a_value_that_cannot_be_stored_is_refused_by_every_call_that_takes_values(
    client: Client, loose: Schema, value: Any
) -> None:
    loose.ingest([{"w": "kept"}])
    (record,) = loose.search()
    calls: list[Callable[[], Any]] = [
        lambda: loose.ingest([{"w": value}]),
        lambda: loose.ingest([{"w": "a"}] * 101 + [{"w": value}]),
        lambda: record.update({"w": value}),
        lambda: list(loose.search({"field": "w", "op": "eq", "value": value})),
        lambda: client.calls.ingest(loose.url, [{"w": value}]),
    ]
    for call in calls:
        with pytest.raises(BadInput) as caught:
            call()
        assert any(flaw.field == "w" or flaw.pointer for flaw in caught.value.flaws)
    assert [one["w"] for one in loose.search()] == ["kept"]
    record.delete()

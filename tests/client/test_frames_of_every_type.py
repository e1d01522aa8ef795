"""Every type and format of a definition, through a search into frames, and from these back in."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import polars
import pyarrow
import pytest

from encrypted_records import Client
from encrypted_records.client.proxy.records import Reasons
from encrypted_records.client.sdk.sync_client import Dataset, Schema
from encrypted_records.errors import InvalidSetting
from encrypted_records.model.field_types import TYPES
from tests.support.service import Account, Service


@dataclass(frozen=True)
class Case:
    """A field, its values, and the types of its columns.

    Attributes:
        polars: None where Polars has none.
    """

    spec: dict[str, Any]
    values: list[Any]
    arrow: str
    pandas: str
    polars: Any
    #: the values in frames, where these have other ones than records
    framed: list[Any] | None = None

    @property
    def kind(self) -> tuple[str, str | None]:
        return self.spec["type"], self.spec.get("format")


def whole(low: int, high: int, arrow: str, pandas: str, in_polars: Any) -> Case:
    spec = {"type": "integer", "minimum": low, "maximum": high}
    return Case(spec, [low, None, high], arrow, pandas, in_polars)


def exact(low: str, high: str, precision: int, arrow: str, in_polars: Any) -> Case:
    least, most = Decimal(low), Decimal(high)
    spec = {"type": "number", "minimum": least, "maximum": most, "precision": precision}
    return Case(spec, [least, None, most], arrow, "float64", in_polars)


def text(named: str | None, *values: str) -> Case:
    spec = {"type": "string"} | ({"format": named} if named else {})
    return Case(spec, [*values, None], "string", "string", polars.String)


BOOLEAN = {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1}
FEW = {"type": "string", "enum": ["a", "b"]}
INSTANTS = ("2020-01-31T08:30:00Z", "1910-06-01T12:00:00.25+02:00", "0001-01-01T00:00:00Z")
ENFORCED = {
    "text": text(None, "Ada", "", "łódź"),
    "few": Case(FEW, ["a", None], "string", "string", polars.String),
    "date": text("date", "2020-01-31", "0001-01-01", "9999-12-31"),
    "time": text("time", "08:30:00", "23:59:59.999999"),
    "instant": text("date-time", *INSTANTS),
    "uuid": text("uuid", "0190163d-8694-739b-aea5-966c26f8ad91"),
    "local": Case(
        {"type": "string", "format": "local-date-time"},
        ["2020-01-31T08:30:00.25", None, "1999-12-31T00:00:00"],
        "timestamp[us]",
        "datetime64[us]",
        polars.Datetime("us"),
        [datetime(2020, 1, 31, 8, 30, 0, 250000), None, datetime(1999, 12, 31)],  # noqa: DTZ001 - local
    ),
    "took": Case(
        {"type": "string", "format": "duration"},
        ["-P1DT0.000001S", None, "PT1H30M"],
        "duration[us]",
        "timedelta64[us]",
        polars.Duration("us"),
        [-timedelta(days=1, microseconds=1), None, timedelta(hours=1, minutes=30)],
    ),
    "boolean": Case(BOOLEAN, [True, None, False], "bool", "boolean", polars.Boolean),
    "small": whole(-5, 130, "int64", "Int64", polars.Int64),
    "18 digits": whole(-(10**18) + 1, 10**18 - 1, "int64", "Int64", polars.Int64),
    "19 digits": whole(-(10**18), 10**18, "int64", "Int64", polars.Int64),
    "64 bits": whole(-(2**63), 2**63 - 1, "int64", "Int64", polars.Int64),
    "unsigned": whole(0, 2**64 - 1, "uint64", "UInt64", polars.UInt64),
    "beyond": whole(-1, 2**63, "decimal128(19, 0)", "object", polars.Decimal(19, 0)),
    "far": whole(10**40 - 1, 10**40, "decimal256(41, 0)", "object", None),
    "price": exact("0", "3", 2, "decimal128(3, 2)", polars.Decimal(3, 2)),
    "fine": exact("-1", "1", 18, "decimal128(19, 18)", polars.Decimal(19, 18)),
    "wide": exact("-1e15", "1e15", 2, "decimal128(18, 2)", polars.Decimal(18, 2)),
    "both": exact("1e30", f"{10**30 + 1}", 18, "decimal256(49, 18)", None),
}  # fmt: skip
#: Words that nobody enforces.
LOOSE = {
    "text": text(None, "Ada"),
    "date": text("date", "not a day"),
    "time": text("time", "noon"),
    "instant": text("date-time", "yesterday"),
    "uuid": text("uuid", "mine"),
    "local": text("local-date-time", "then"),
    "took": text("duration", "long"),
    "boolean": Case(BOOLEAN, [1, None, 0], "int64", "Int64", polars.Int64),
    "small": whole(-5, 130, "int64", "Int64", polars.Int64),
    "price": exact("0", "3", 2, "decimal128(3, 2)", polars.Decimal(3, 2)),
}


def test_every_type_and_format_that_a_definition_may_have_is_in_the_lists() -> None:
    for cases in (ENFORCED, LOOSE):
        every = {(one.json_type, one.format) for one in TYPES}
        assert {case.kind for case in cases.values()} == every


@pytest.fixture(scope="module")
def dataset(running: Service, account: Account) -> Iterator[Dataset]:
    with Client(running.proxy_url, email=account.email, password=account.password) as client:
        yield client.create_dataset("Types", slug=f"types-{secrets.token_hex(4)}")


def create(dataset: Dataset, cases: dict[str, Case], *, enforced: bool) -> Schema:
    properties = {name: case.spec for name, case in cases.items()}
    definition = {"type": "object", "properties": properties}
    definition |= {"formats": "enforced"} if enforced else {}
    return dataset.create_schema("Types", definition, slug=f"types-{secrets.token_hex(4)}")


def rows_of(cases: dict[str, Case]) -> list[dict[str, Any]]:
    count = max(len(case.values) for case in cases.values())
    return [
        {
            name: case.values[row]
            for name, case in cases.items()
            if row < len(case.values) and case.values[row] is not None
        }
        for row in range(count)
    ]


@pytest.mark.parametrize("enforced", [True, False], ids=["enforced", "words"])
def test_every_type_becomes_a_frame_and_goes_back_in(dataset: Dataset, enforced: bool) -> None:
    cases = ENFORCED if enforced else LOOSE
    schema, rows = create(dataset, cases, enforced=enforced), rows_of(cases)
    schema.ingest(rows)
    assert [dict(one) for one in schema.search()] == rows
    in_polars = [name for name, case in cases.items() if case.polars is not None]

    table = schema.search().to_arrow()
    assert {one.name: str(one.type) for one in table.schema} == {
        name: case.arrow for name, case in cases.items()
    }
    frame = schema.search().to_pandas()
    assert {name: str(kind) for name, kind in frame.dtypes.items()} == {
        name: case.pandas for name, case in cases.items()
    }
    polar = schema.search(fields=in_polars).to_polars()
    assert dict(polar.schema) == {name: cases[name].polars for name in in_polars}

    for name, case in cases.items():
        values = [row.get(name) for row in rows]
        if case.framed is not None:
            values = [*case.framed, *[None] * (len(rows) - len(case.framed))]
        assert table[name].to_pylist() == values
        kept = [
            None if gone else one for one, gone in zip(frame[name], frame[name].isna(), strict=True)
        ]
        if case.pandas == "float64":
            assert kept == [value if value is None else float(value) for value in values]
        else:
            assert kept == values
        if name in in_polars:
            assert polar[name].to_list() == values

    # What float64 holds of numbers with decimals is all that pandas gives back.
    narrow = [name for name in cases if name not in ("fine", "both")]
    for given, names in ((table, [*cases]), (polar, in_polars), (frame[narrow], narrow)):
        back = create(dataset, cases, enforced=enforced)
        assert back.ingest(given) == len(rows)
        expected = [{name: row[name] for name in names if name in row} for row in rows]
        assert [dict(one) for one in back.search()] == expected


def test_fields_that_are_asked_for_keep_their_types(dataset: Dataset) -> None:
    schema = create(dataset, ENFORCED, enforced=True)
    schema.ingest(rows_of(ENFORCED))
    asked = schema.search(fields=["boolean"])
    assert asked.to_arrow().schema == pyarrow.schema([("boolean", pyarrow.bool_())])
    assert asked.to_polars().schema == {"boolean": polars.Boolean}
    assert str(asked.to_pandas()["boolean"].dtype) == "boolean"


def test_polars_names_the_field_that_it_has_no_type_for(dataset: Dataset) -> None:
    schema = create(dataset, ENFORCED, enforced=True)
    with pytest.raises(InvalidSetting, match="as many digits as far"):
        schema.search().to_polars()


def test_why_without_a_condition_says_how_many_records_there_are(dataset: Dataset) -> None:
    schema = create(dataset, LOOSE, enforced=False)
    schema.ingest(rows_of(LOOSE))
    assert schema.why(None) == Reasons(records=3, count=3, comparisons=[])

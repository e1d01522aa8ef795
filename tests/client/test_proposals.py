"""A schema of a frame or a class: types that are declared are kept, and its own rows go in."""

from __future__ import annotations

import datetime
import secrets
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pandas
import polars
import pyarrow
import pydantic
import pytest

from encrypted_records import Client
from encrypted_records.client.sdk.proposal import proposal_of
from encrypted_records.client.sdk.sync_client import Dataset
from encrypted_records.errors import Conflict, InvalidRecords, InvalidSetting
from encrypted_records.model import field_types
from tests.support.service import Account, Service


class Ward(Enum):
    NORTH = "north"
    SOUTH = "south"


@dataclass
class Visit:
    at: datetime.datetime
    day: datetime.date
    ward: Ward
    cost: Decimal | None
    number: int
    urgent: bool
    id: uuid.UUID
    note: str = ""


class Person(msgspec.Struct, rename="camel"):
    full_name: Annotated[str, msgspec.Meta(max_length=12)]
    age: Annotated[int, msgspec.Meta(ge=0, lt=130)] | None = None


class Row(TypedDict):
    name: str
    level: Literal["low", "high"]
    score: NotRequired[float]


class Order(pydantic.BaseModel):
    reference: str = pydantic.Field(max_length=20)
    total: Decimal = pydantic.Field(max_digits=8, decimal_places=2, ge=0)
    pieces: pydantic.PositiveInt
    sent: datetime.date | None = None


@pytest.fixture(scope="module")
def dataset(running: Service, account: Account) -> Iterator[Dataset]:
    with Client(running.proxy_url, email=account.email, password=account.password) as client:
        yield client.create_dataset(f"Proposals {secrets.token_hex(4)}")


def made(source: Any) -> tuple[dict[str, Any], list[str]]:
    definition = proposal_of(source).definition
    return dict(definition["properties"]), definition.get("required", [])


def test_members_of_a_dataclass_keep_their_types() -> None:
    fields, required = made(Visit)
    assert fields == {
        "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "ward": {"type": "string", "padTo": 31},
        "cost": {"type": "number", "minimum": -(10**9), "maximum": 10**9, "precision": 9},
        "number": field_types.propose_whole_number(),
        "urgent": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
        "id": {"type": "string", "format": "uuid"},
        "note": {"type": "string", "padTo": 31},
    }
    assert required == ["at", "day", "ward", "number", "urgent", "id"]


def test_limits_of_msgspec_and_pydantic_are_kept() -> None:
    fields, required = made(Person)
    assert fields["fullName"] == {"type": "string", "maxLength": 12, "padTo": 48}
    assert fields["age"] == {"type": "integer", "minimum": 0, "maximum": 129}
    assert required == ["fullName"]
    fields, required = made(Order)
    assert fields["reference"] == {"type": "string", "maxLength": 20, "padTo": 63}
    assert fields["total"] == {"type": "number", "minimum": 0, "maximum": 10**6, "precision": 2}
    assert fields["pieces"] == {"type": "integer", "minimum": 1, "maximum": field_types.WHOLE}
    assert fields["sent"] == {"type": "string", "format": "date"}
    assert required == ["reference", "total", "pieces"]


def test_no_value_that_a_class_declares_is_published() -> None:
    for source in (Visit, Row, Order):
        text = str(proposal_of(source).definition)
        assert not any(word in text for word in ("north", "south", "low", "high", "enum"))
    assert made(Row)[1] == ["name", "level"]


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (list[str], "list"),
        (bytes, "bytes"),
        (int | str, "several types"),
        (Any, "any"),
        (Visit, "Visit"),
        (dict[str, int], "dict"),
    ],
)
def test_what_no_field_can_have_is_refused_by_the_name_of_its_member(
    annotation: Any, said: str
) -> None:
    with pytest.raises(InvalidSetting, match=f"^tags: .*{said}"):
        proposal_of(msgspec.defstruct("Holder", [("tags", annotation)]))


@pytest.mark.parametrize("source", [int, object, 7, "people.csv", [{"a": 1}], None])
def test_what_is_no_frame_and_no_class_of_records_is_refused(source: Any) -> None:
    with pytest.raises(InvalidSetting, match="a schema cannot be made of"):
        proposal_of(source)


def test_columns_of_pandas_keep_their_types_and_say_what_was_decided() -> None:
    frame = pandas.DataFrame(
        {
            "name": ["Ada", None],
            "age": [36.0, None],
            "price": [3.0, 4.0],
            "height": [1.625, None],
            "born": pandas.to_datetime(["1815-12-10", None]),
            "seen": pandas.to_datetime(["2024-01-05T10:11:12", None]),
            "at": pandas.to_datetime(["2024-01-05T10:11:12Z", None]),
            "kind": pandas.Categorical(["a", "b"]),
            "ok": pandas.array([True, None], dtype="boolean"),
            "cost": [Decimal("1.10"), Decimal("2.25")],
            "day": [datetime.date(2024, 1, 5), None],
        }
    )
    proposal = proposal_of(frame)
    fields = proposal.definition["properties"]
    assert fields["age"] == field_types.propose_whole_number()
    assert fields["price"]["precision"] == 2
    assert fields["height"]["precision"] == 5
    assert (fields["born"]["format"], fields["at"]["format"]) == ("date", "date-time")
    assert (fields["seen"]["format"], fields["name"]) == (
        "local-date-time",
        field_types.propose_text(3),
    )
    assert (fields["ok"]["format"], fields["day"]["format"]) == ("boolean", "date")
    assert fields["cost"]["precision"] == 2
    assert fields["kind"] == {"type": "string", "padTo": 31}
    assert set(proposal.notes) >= {"age", "born", "seen"}
    assert "required" not in proposal.definition


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ([["a"], ["b"]], "list"),
        ([b"a", b"b"], "binary"),
        ([1, "a"], "several kinds"),
        ([{"a": 1}, None], "struct"),
        ([Ward.NORTH, None], "several kinds"),
        ([123456.1, 0.1234567890123456], "digits"),
        (pandas.array([10**19, 1], dtype="UInt64"), "digits"),
    ],
)
def test_a_column_that_no_field_can_have_is_refused_by_its_name(column: Any, said: str) -> None:
    with pytest.raises(InvalidSetting, match=f"tags.*{said}"):
        proposal_of(pandas.DataFrame({"tags": column}))
    with pytest.raises(InvalidSetting, match="has no name"):
        proposal_of(pandas.DataFrame([[1, 2]]))
    with pytest.raises(InvalidSetting, match="has no name"):
        proposal_of(pyarrow.table([pyarrow.array([1])], names=[""]))


@pytest.mark.parametrize(
    "frame",
    [
        pandas.DataFrame([[1, "x"]], columns=["a", "a"]),
        pyarrow.table([pyarrow.array([1]), pyarrow.array(["x"])], names=["a", "a"]),
    ],
)
def test_two_columns_of_one_name_are_not_one_field(frame: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"^a: two columns have this name"):
        proposal_of(frame)


def test_tables_of_arrow_keep_what_must_not_be_missing() -> None:
    schema = pyarrow.schema(
        [
            pyarrow.field("id", pyarrow.int32(), nullable=False),
            pyarrow.field("sum", pyarrow.decimal128(12, 2)),
            pyarrow.field("empty", pyarrow.list_(pyarrow.string())),
        ]
    )
    with_rows = pyarrow.table({"id": [1], "sum": [Decimal("1.50")], "empty": [None]}, schema)
    fields, required = made(with_rows)
    assert required == ["id"]
    assert fields["id"] == {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
    assert (fields["sum"]["precision"], fields["sum"]["maximum"]) == (2, 10**10)
    assert "list" in proposal_of(with_rows).notes["empty"]


def test_a_frame_is_taken_by_its_own_schema(dataset: Dataset) -> None:
    frame = pandas.DataFrame(
        {
            "n": [1.0, None, 3.0],
            "x": [0.1 + 0.2, 1.5, None],
            "born": pandas.to_datetime(["2024-01-05", "2024-01-06", None]),
            "seen": pandas.to_datetime(["2024-01-05T10:11:12", None, "2024-01-06T00:00:00"]),
            "word": ["a", None, "ü" * 40],
        }
    )
    schema = dataset.create_schema("Frame", frame)
    assert "days" in schema.notes["born"]
    assert schema.ingest(frame) == 3
    stored = {record.get("n"): record for record in schema.search()}
    assert stored[1]["x"] == Decimal("0.30000000000000004")
    assert (stored[1]["born"], stored[1]["seen"]) == ("2024-01-05", "2024-01-05T10:11:12")
    assert stored[3]["word"] == "ü" * 40
    of_polars = polars.DataFrame({"day": [datetime.date(2024, 1, 5)], "f": [0.5]})
    schema = dataset.create_schema("Polars", of_polars)
    assert schema.ingest(of_polars) == 1
    assert dataset.create_schema("Polars", of_polars, get_or_create=True).id == schema.id
    with pytest.raises(Conflict) as caught:
        dataset.create_schema("Polars", of_polars.select("f"), get_or_create=True)
    assert caught.value.reason == "other_definition"
    with pytest.raises(InvalidRecords):
        schema.ingest([{"f": 0.55555}])


def test_instances_of_a_class_are_taken_by_its_schema(dataset: Dataset) -> None:
    moment = datetime.datetime(2024, 1, 5, 10, 11, 12, tzinfo=datetime.UTC)
    visit = Visit(
        moment, moment.date(), Ward.SOUTH, Decimal("1.25"), 7, urgent=True, id=uuid.UUID(int=5)
    )
    schema = dataset.create_schema("Visits", Visit)
    assert schema.ingest([visit]) == 1
    (record,) = schema.search('ward = "south"')
    assert dict(record) == {
        "at": "2024-01-05T10:11:12Z",
        "day": "2024-01-05",
        "ward": "south",
        "cost": Decimal("1.25"),
        "number": 7,
        "urgent": True,
        "id": str(uuid.UUID(int=5)),
        "note": "",
    }
    schema = dataset.create_schema("People", Person)
    assert schema.ingest(Person(f"Ada {at}", at) for at in range(5)) == 5
    assert schema.count("age = 3") == 1
    schema = dataset.create_schema("Orders", Order)
    assert schema.ingest([Order(reference="a", total=Decimal("1.50"), pieces=1)]) == 1
    with pytest.raises(InvalidRecords, match="cannot be stored"):
        schema.ingest([object()])  # type: ignore[list-item]

"""Files as people have them, by ``import_file``: the reading, report and refusals of ers."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import secrets
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow
import pytest
from pyarrow import parquet

from encrypted_records import AsyncClient, Client
from encrypted_records.client.sdk.sync_client import Dataset, Schema
from encrypted_records.errors import (
    Conflict,
    InvalidRecords,
    InvalidSetting,
    NotFound,
    ReadingQuestion,
    ReadingRefused,
    UploadedBefore,
)
from encrypted_records.model.samples import FileReading
from encrypted_records.proxy.workers.messages import DetectTask
from encrypted_records.proxy.workers.uploads import answer_of
from tests.support.mutated_files import FILES
from tests.support.service import Account, Service


@pytest.fixture(scope="module")
def client(running: Service, account: Account) -> Iterator[Client]:
    with Client(running.proxy_url, email=account.email, password=account.password) as client:
        yield client


@pytest.fixture
def dataset(client: Client) -> Dataset:
    return client.create_dataset(f"Files {secrets.token_hex(4)}")


def written(folder: Path, content: str, name: str = "people.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode())
    return path


@pytest.mark.parametrize(
    ("body", "said", "note"),
    [
        (b'{"rows": [{"a": 1}, {"a": 2}], "next": null}', {}, "left out beside rows: next"),
        (b"a,b\n1,2\n", {"sheet": "S"}, "not used, because the file has none: sheet"),
        (
            b'[{"a": 1}]',
            {"delimiter": ";", "header_row": 2},
            "not used, because the file has none: delimiter, header_row",
        ),
    ],
)
def test_what_else_is_worth_saying_of_a_file_is_told(
    body: bytes, said: dict[str, Any], note: str
) -> None:
    answer = answer_of(DetectTask(body, True, json.dumps(said).encode(), False))
    assert msgspec.json.decode(answer, type=FileReading).notes == [note]


def test_a_file_of_a_spreadsheet_is_stored_with_every_value(dataset: Dataset) -> None:
    path = FILES / "excel-de-cp1252.csv"
    with pytest.raises(ReadingQuestion) as caught:
        dataset.import_file(path)
    assert caught.value.reason == "reading_question"
    assert '{"encoding": "cp1252"}' in caught.value.hint
    found = caught.value.reading
    assert isinstance(found, FileReading)
    assert (found.reading["delimiter"], found.whole, found.sampled) == (";", True, 24)
    assert not list(dataset.schemas())

    done = dataset.import_file(path, reading={"encoding": "cp1252"})
    assert (done.stored, done.rejected, done.schema.name) == (24, 0, "excel-de-cp1252")
    umsatz = next(field for field in done.reading.fields if field.name == "Umsatz")
    assert umsatz.rewritten == 20
    # The same as by the command line, whose test compares every cell.
    (record,) = done.schema.search('Kundennr = "00022"')
    assert record["Umsatz"] == Decimal("1234.62")
    assert (record["Geburtsdatum"], record["Aktiv"]) == ("1957-02-06", False)


def test_what_nobody_can_know_is_asked_by_its_column_and_taken_when_it_is_said(
    dataset: Dataset, tmp_path: Path
) -> None:
    path = written(tmp_path, "name,born\nAda,03/04/2021\nKurt,05/06/2021\n")
    with pytest.raises(ReadingQuestion) as caught:
        dataset.import_file(path)
    assert [
        (flaw.field, "the order of day and month" in flaw.detail) for flaw in caught.value.flaws
    ] == [("born", True)]
    assert "03/04" not in f"{caught.value} {caught.value.hint} {caught.value.__notes__}"
    done = dataset.import_file(path, reading={"columns": {"born": {"format": "dd/mm/yyyy"}}})
    assert {record["born"] for record in done.schema.search()} == {"2021-04-03", "2021-06-05"}
    kept = dataset.import_file(
        path, name="as text", reading={"columns": {"born": {"type": "text"}}}
    )
    assert {record["born"] for record in kept.schema.search()} == {"03/04/2021", "05/06/2021"}


def test_a_file_is_not_stored_twice(dataset: Dataset, tmp_path: Path) -> None:
    assert dataset.import_file(written(tmp_path, "a;b\n1;2\n", "small.csv")).stored == 1
    with pytest.raises(Conflict) as caught:
        dataset.import_file(tmp_path / "small.csv")
    assert caught.value.reason == "slug_taken"
    (schema,) = dataset.schemas()
    with pytest.raises(UploadedBefore):
        schema.import_file(tmp_path / "small.csv")
    assert schema.import_file(tmp_path / "small.csv", again=True).stored == 1
    assert schema.count() == 2


def test_rows_beyond_what_was_looked_at_are_named_and_nothing_is_stored(
    dataset: Dataset, tmp_path: Path
) -> None:
    filler = "".join(f"{at};{'x' * 1000}\n" for at in range(9_000))
    path = written(tmp_path, f"a;b\n{filler}oops;y\n")
    assert path.stat().st_size > 8 << 20
    with pytest.raises(InvalidRecords) as caught:
        dataset.import_file(path)
    assert [(flaw.row, flaw.field, flaw.code) for flaw in caught.value.flaws] == [
        (9_001, "a", "reading")
    ]
    (schema,) = dataset.schemas()
    assert schema.count() == 0
    done = dataset.import_file(path, skip_invalid=True)
    assert (done.stored, done.rejected, done.schema.id) == (9_000, 1, schema.id)


def test_first_rows_that_do_not_fit_are_named_before_a_schema_is_created(
    dataset: Dataset, tmp_path: Path
) -> None:
    path = written(tmp_path, "id;born\n1;01.02.1980\n2;31.02.1980\n3;05.06.1980\n")
    dates = {"columns": {"born": {"type": "date"}}}
    with pytest.raises(InvalidRecords, match="nothing was created or stored") as caught:
        dataset.import_file(path, reading=dates)
    assert [(flaw.row, flaw.field, flaw.detail) for flaw in caught.value.flaws] == [
        (2, "born", "is not a day as dd.mm.yyyy, as the reading requires")
    ]
    assert caught.value.hint.startswith("skip_invalid=True stores the valid rows; or")
    assert list(dataset.schemas()) == []
    done = dataset.import_file(path, reading=dates, skip_invalid=True)
    assert (done.stored, done.rejected) == (2, 1)


def test_texts_of_a_schema_that_is_there_get_the_cells_as_they_are_written(
    dataset: Dataset, tmp_path: Path
) -> None:
    schema = dataset.create_schema(
        "There",
        {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "price": {"type": "number", "minimum": 0, "maximum": 10000, "precision": 2},
            },
        },
    )
    path = written(tmp_path, "code;price\n1.234,50;1.234,50\n03/04/2021;2,00\n")
    assert schema.import_file(path).stored == 2
    assert {(one["code"], one["price"]) for one in schema.search()} == {
        ("1.234,50", Decimal("1234.5")),
        ("03/04/2021", 2),
    }


def january(dataset: Dataset, folder: Path) -> Schema:
    text = "Kunde;Umsatz;Aktiv\n007;1.234,50;ja\n008;k.A.;nein\n"
    return dataset.import_file(written(folder, text, "januar.csv")).schema


def test_the_next_file_is_read_as_the_one_before(dataset: Dataset, tmp_path: Path) -> None:
    schema = january(dataset, tmp_path)
    # By itself, 1.234 could be a number with three decimals, and nobody would be asked.
    text = "Februar\nAktiv;Umsatz;Kunde\nnein;1.234;009\n"
    done = schema.import_file(written(tmp_path, text, "februar.csv"))
    (record,) = schema.search("Kunde = '009'")
    assert (record["Umsatz"], record["Aktiv"]) == (1234, False)
    assert done.reading.kept
    assert {(one.kind, one.taken) for one in done.reading.differences} == {
        ("above", True),
        ("order", True),
    }
    with pytest.raises(UploadedBefore):
        schema.import_file(tmp_path / "februar.csv")


def test_a_file_that_differs_is_refused_with_the_words_that_take_it(
    dataset: Dataset, tmp_path: Path
) -> None:
    schema = january(dataset, tmp_path)
    path = written(tmp_path, "Kunde;Umsatz;Aktiv\n009;1,234.50;yes\n010;2.25;no\n", "feb.csv")
    with pytest.raises(ReadingRefused, match="differs from the previous file") as caught:
        schema.import_file(path)
    assert {flaw.field for flaw in caught.value.flaws} == {"Umsatz", "Aktiv"}
    assert schema.count() == 2
    said = re.findall(r"reading=(\{.*\}) accepts", caught.value.hint)
    reading = ast.literal_eval(said[0])
    done = schema.import_file(path, reading=reading, keep=True)
    assert done.stored == 2
    (record,) = schema.search("Kunde = '009'")
    assert (record["Umsatz"], record["Aktiv"]) == (Decimal("1234.5"), True)
    later = written(tmp_path, "Kunde;Umsatz;Aktiv\n011;1,235.50;yes\n", "mar.csv")
    assert schema.import_file(later).stored == 1


def test_what_was_said_of_a_file_holds_for_later_ones_only_if_it_is_to_be_kept(
    dataset: Dataset, tmp_path: Path
) -> None:
    schema = january(dataset, tmp_path)
    points = written(tmp_path, "Kunde;Umsatz;Aktiv\n009;5.25;ja\n011;7.25;nein\n", "feb.csv")
    with pytest.raises(ReadingRefused):
        schema.import_file(points)
    assert schema.import_file(points, kept=False).stored == 2
    commas = written(tmp_path, "Kunde;Umsatz;Aktiv\n010;6,25;nein\n", "mar.csv")
    assert schema.import_file(commas).stored == 1
    assert {one["Umsatz"] for one in schema.search("Umsatz < 100")} == {
        Decimal("5.25"),
        Decimal("6.25"),
        Decimal("7.25"),
    }


def test_a_reading_is_kept_only_of_a_file_that_was_stored(
    client: Client, dataset: Dataset, tmp_path: Path
) -> None:
    schema = dataset.create_schema(
        "Small",
        {
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
        },
    )
    with pytest.raises(InvalidRecords):
        schema.import_file(written(tmp_path, "n;\n5;\n50;\n"), reading=_OUT)
    none = schema.import_file(written(tmp_path, "n;\n60;\n50;\n"), reading=_OUT, skip_invalid=True)
    assert (none.stored, none.rejected) == (0, 2)
    with pytest.raises(NotFound):
        client.calls.kept_reading(schema.id)
    schema.import_file(written(tmp_path, "n;\n5;\n6;\n"), reading=_OUT)
    assert client.calls.kept_reading(schema.id)["delimiter"] == ";"


_OUT = {"columns": {"column_2": {"leave_out": True}}}


def test_a_file_of_another_kind_than_its_name_is_refused_and_nothing_is_made(
    dataset: Dataset, tmp_path: Path
) -> None:
    for said, content in {
        "PDF": b"%PDF-1.7\n",
        "web page": b"<!doctype html><title>Log in</title>",
        "archive": b"PK\x03\x04rest",
        "zero bytes": b"a;b\n1;2\n\x00\x00",
    }.items():
        (tmp_path / "a.csv").write_bytes(content)
        with pytest.raises(ReadingRefused, match=said) as caught:
            dataset.import_file(tmp_path / "a.csv")
        assert "--" not in caught.value.hint
    assert not list(dataset.schemas())


def test_refusals_speak_of_what_a_program_gives(dataset: Dataset, tmp_path: Path) -> None:
    path = written(tmp_path, "a;b\n1;2\nx;3\n")
    with pytest.raises(ReadingRefused) as caught:
        dataset.import_file(path, reading={"columns": {"a": {"type": "number"}}})
    assert 'reading={"columns": ...}' in caught.value.hint
    assert "--" not in caught.value.hint
    with pytest.raises(InvalidRecords, match="no column c"):
        dataset.import_file(path, reading={"columns": {"c": {"type": "number"}}})
    with pytest.raises(InvalidRecords):
        dataset.import_file(path, reading={"delimeter": ";"})


def test_files_of_columns_and_what_is_no_file_are_refused_by_name(
    dataset: Dataset, tmp_path: Path
) -> None:
    parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "a.csv")
    with pytest.raises(InvalidSetting, match="whose types are declared"):
        dataset.import_file(tmp_path / "a.csv")
    for path in (tmp_path / "missing.csv", tmp_path, written(tmp_path, "", "empty.csv")):
        with pytest.raises((InvalidSetting, NotFound, InvalidRecords)):
            dataset.import_file(path)
    assert not list(dataset.schemas())


def test_the_same_with_await(running: Service, account: Account, tmp_path: Path) -> None:
    path = written(tmp_path, "a;b\n1,5;ja\n2,5;nein\n")

    async def run() -> dict[str, Any]:
        async with AsyncClient(
            running.proxy_url, email=account.email, password=account.password
        ) as client:
            dataset = await client.create_dataset(f"Files {secrets.token_hex(4)}")
            done = await dataset.import_file(path, name="two", progress=True)
            return {"stored": done.stored, "types": [field.type for field in done.reading.fields]}

    assert json.dumps(asyncio.run(run())) == json.dumps(
        {"stored": 2, "types": ["number, 2 decimals", "boolean"]}
    )

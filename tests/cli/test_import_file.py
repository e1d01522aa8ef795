"""``ers import FILE``: a file as people have it becomes a schema and its records, end to end."""

from __future__ import annotations

import json
import secrets
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Ers
from tests.support.service import Service

FILES = Path(__file__).parents[1] / "ingest" / "files"


@pytest.fixture
def dataset() -> str:
    return f"d{secrets.token_hex(4)}"


def stored(ers: Ers, schema: str) -> list[dict[str, Any]]:
    said = ers.done("record", "search", "--schema", schema, "--all")
    return [json.loads(line, parse_float=Decimal)["data"] for line in said.out.splitlines()]


def test_a_file_of_a_spreadsheet_is_shown_and_stored_with_every_value(
    ers: Ers, dataset: str
) -> None:
    path = FILES / "excel-de-cp1252.csv"
    said = ers.done("import", path, "--dataset", dataset, "--yes", "--encoding", "cp1252")
    assert "semicolons, cp1252, names in row 1, 24 rows" in said.err
    assert "dd.mm.yyyy" in said.err
    assert "The server will see these names and types, and no value." in said.err
    assert "Rewritten: Umsatz 20" in said.err
    schema = f"{dataset}/excel-de-cp1252"
    definition = json.loads(ers.done("schema", "get", schema, "--definition").out)
    assert set(definition) == {"type", "rounding", "formats", "properties"}
    rows = stored(ers, schema)
    assert len(rows) == 24
    assert rows[1] == {
        "Kundennr": "00022",
        "Name": "Weiß",
        "Umsatz": Decimal("1234.62"),
        "Rabatt": Decimal("1.62500"),
        "Geburtsdatum": "1957-02-06",
        "Aktiv": False,
        "Menge": 37,
        "Notiz": "first",
    }
    assert "Umsatz" not in rows[4]


@pytest.mark.parametrize(
    "options",
    [["people.parquet", "--tight"], ["a.arrow", "--decimal", ","], ["a.csv", "--key", "a"]],
)
def test_options_of_another_kind_of_source_are_refused(ers: Ers, options: list[str]) -> None:
    assert ers("import", *options).code == 2


def test_a_guess_has_to_be_said_where_nobody_looks_at_it(ers: Ers, dataset: str) -> None:
    path = FILES / "excel-de-cp1252.csv"
    said = ers("import", path, "--dataset", dataset, "--yes")
    assert (said.code, "--encoding cp1252" in said.err) == (2, True)
    assert "cp1252 (a guess: " in said.err
    said = ers("import", path, "--dataset", dataset)
    assert (said.code, "has to be confirmed" in said.err) == (2, True)
    assert ers("schema", "list", "--dataset", dataset).code == 3


def test_what_nobody_can_know_is_asked_and_stays_text_until_it_is_said(
    ers: Ers, dataset: str
) -> None:
    path = FILES / "ambiguous-dates.csv"
    said = ers.done("import", path, "--dataset", dataset, "--yes")
    assert "ASK: --date-format when=" in said.err
    assert stored(ers, f"{dataset}/ambiguous-dates")[1] == {"id": 1007, "when": "02/06/2011"}
    ers.done(
        *("import", path, "--dataset", dataset, "--yes", "--name", "known"),
        *("--date-format", "when=dd/mm/yyyy", "--rename", "when=day"),
    )
    assert stored(ers, f"{dataset}/known")[1] == {"id": 1007, "day": "2011-06-02"}


@pytest.mark.parametrize(
    ("name", "says"),
    [("pdf.csv", "a PDF document"), ("nothing.csv", "cannot be read")],
)
def test_what_cannot_be_read_is_refused_by_name_and_stores_nothing(
    ers: Ers, dataset: str, name: str, says: str
) -> None:
    said = ers("import", FILES / name, "--dataset", dataset, "--yes")
    assert (said.code, says in said.err) == (2, True), said.err
    assert ers("schema", "list", "--dataset", dataset).code == 3


def test_a_cell_far_behind_what_was_looked_at_is_named_and_nothing_is_stored(
    ers: Ers, dataset: str, tmp_path: Path
) -> None:
    path = tmp_path / "long.csv"
    rows = [f"{at};{at},5;{'x' * 60}" for at in range(130_000)]
    path.write_text("\n".join(["id;n;text", *rows, "1;A17;y"]) + "\n")
    said = ers("import", path, "--dataset", dataset, "--yes")
    assert said.code == 6, said.err
    assert "row 130001, n: is not a number with a comma" in said.err
    assert "A17" not in said.err
    assert stored(ers, f"{dataset}/long") == []


def test_no_value_of_a_file_is_in_what_the_server_stores(
    ers: Ers, running: Service, dataset: str
) -> None:
    path = FILES / "excel-ru-cp1251.csv"
    ers.done("import", path, "--dataset", dataset, "--yes", "--encoding", "cp1251")
    values = ["see mail", "call back", "1957-02-06", "06.02.1957", "12345.75"]
    files = [one for one in running.data_dir.rglob("*") if one.is_file()]
    held = b"".join(one.read_bytes() for one in files)
    assert b"excel-ru-cp1251" in held
    assert [value for value in values if value.encode() in held] == []

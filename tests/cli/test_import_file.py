"""``ers import FILE``: a file as people have it becomes a schema and its records, end to end."""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from encrypted_records.cli.command_group import CommandLimits
from encrypted_records.cli.commands import import_file
from encrypted_records.client.proxy import uploads
from tests.cli.command import Ers, environment
from tests.support import forked
from tests.support.service import Account, Service, clean_environment

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


def test_options_of_another_kind_of_source_are_refused(ers: Ers) -> None:
    for options in (
        *(["people.parquet", "--tight"], ["a.arrow", "--decimal", ","], ["a.csv", "--key", "a"]),
        *(["a.arrow", "--reading", "none"], ["people.parquet", "--schema", "people"]),
    ):
        assert ers("import", *options).code == 2, options


def test_a_table_is_as_wide_as_its_reading_can_be_sent(
    ers: Ers, dataset: str, tmp_path: Path
) -> None:
    for name, names in (
        ("wide", [f"c{at}" for at in range(512)]),
        ("named", [f"Größe der Spalte mit dem Namen {at}" for at in range(512)]),
    ):
        rows = [";".join(f"{at},{tenths}" for at in range(512)) for tenths in (5, 25)]
        (tmp_path / f"{name}.csv").write_text("\n".join([";".join(names), *rows]))
    wide = ers("import", tmp_path / "wide.csv", "--dataset", dataset, "--yes")
    assert wide.code == 0, wide.err[-300:]
    assert len(stored(ers, f"{dataset}/wide")) == 2
    refused = ers("import", tmp_path / "named.csv", "--dataset", dataset, "--yes")
    assert refused.code != 0
    assert "names of the 512 columns together are too long" in refused.err
    assert ers("schema", "get", f"{dataset}/named").code != 0


def test_a_guess_has_to_be_said_where_nobody_looks_at_it(ers: Ers, dataset: str) -> None:
    path = FILES / "excel-de-cp1252.csv"
    said = ers("import", path, "--dataset", dataset, "--yes")
    assert (said.code, "--encoding cp1252" in said.err) == (2, True)
    assert "cp1252 (a guess: " in said.err
    said = ers("import", path, "--dataset", dataset)
    assert (said.code, "needs a confirmation" in said.err) == (2, True)
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


def test_what_cannot_be_read_is_refused_by_name_and_stores_nothing(ers: Ers, dataset: str) -> None:
    for name, says in {
        "pdf.csv": "a PDF document",
        "nothing.csv": "cannot be read",
        "plain.xlsx --sheet X": "it has: Daten; set it with --sheet",
    }.items():
        file, *options = name.split()
        said = ers("import", FILES / file, "--dataset", dataset, "--yes", *options)
        assert (said.code, says in said.err) == (2, True), said.err
    assert ers("schema", "list", "--dataset", dataset).code == 3


def test_json_that_is_nested_too_deeply_is_refused_by_name(
    ers: Ers, dataset: str, tmp_path: Path
) -> None:
    deep, plain = tmp_path / "deep.json", tmp_path / "plain.csv"
    plain.write_text("a,b\n1,2\n")
    for brackets in ("[]", ('{"a":', "}")):
        deep.write_text(brackets[0] * 100_000 + "1" + brackets[1] * 100_000)
        said = ers("import", deep, "--dataset", dataset, "--yes")
        assert (said.code, "nested too deeply" in said.err) == (2, True), said.err
        said = ers("import", plain, "--dataset", dataset, "--yes", "--reading", deep)
        assert (said.code, "does not contain a reading" in said.err) == (2, True), said.err


#: Runs ``ers``, which is killed as soon as an import has come to a step.
KILLED = """
import os, signal, sys

from encrypted_records.cli import main
from encrypted_records.cli.commands import import_file
from encrypted_records.cli.command_group import CommandLimits
from encrypted_records.client.proxy import uploads
from encrypted_records.client.limits import ClientLimits
from encrypted_records.client.proxy.uploads import LocalFile
from encrypted_records.client.proxy.client import ProxyClient

create, read_at, send = ProxyClient.create_schema, LocalFile.read_at, import_file.send
pieces, finish = LocalFile.pieces, import_file.finish
step, resumable_bytes = sys.argv[1], int(sys.argv[2])


def at(reached):
    if step == reached:
        os.kill(os.getpid(), signal.SIGKILL)


async def creating(self, **members):
    made = await create(self, **members)
    at("the schema is made")
    return made


def reading(self, offset, size):
    at("half is sent" if offset == 20_000 else "")
    return read_at(self, offset, size)


def reading_all(self):
    for piece in pieces(self):
        yield piece
        at("half is sent")


async def sending(*given):
    at("it is remembered")
    job = await send(*given)
    at("all is sent")
    return job


async def finishing(*given):
    code = await finish(*given)
    at("all is stored")
    return code


ProxyClient.create_schema, LocalFile.read_at, import_file.send = creating, reading, sending
LocalFile.pieces, import_file.finish = reading_all, finishing
client = ClientLimits(request_bytes=20_000, chunk_bytes=20_000)
main.run(sys.argv[3:], CommandLimits(resumable_bytes=resumable_bytes, client=client))
"""
IN_ONE_PIECE, IN_PIECES = 64 << 20, 3000


@pytest.mark.parametrize(
    ("step", "resumable_bytes"),
    [
        *(("the schema is made", IN_ONE_PIECE), ("it is remembered", IN_PIECES)),
        *(("half is sent", IN_ONE_PIECE), ("half is sent", IN_PIECES)),
        *(("all is sent", IN_ONE_PIECE), ("all is sent", IN_PIECES)),
        ("all is stored", IN_PIECES),
    ],
)
def test_an_import_that_is_killed_goes_on_and_stores_each_row_once(
    ers: Ers,
    running: Service,
    account: Account,
    dataset: str,
    tmp_path: Path,
    step: str,
    resumable_bytes: int,
) -> None:
    path = write_table(tmp_path)
    command = ("import", str(path), "--dataset", dataset, "--yes")
    told = environment(running, account) | {"XDG_STATE_HOME": str(tmp_path / "state")}
    killed = [sys.executable, "-c", KILLED, step, str(resumable_bytes), *command]
    died = forked.run(killed, clean_environment(**told))
    assert died.returncode == -signal.SIGKILL, died.stderr

    limits = CommandLimits(resumable_bytes=resumable_bytes)
    if step == "half is sent":
        assert stored(ers, f"{dataset}/people") == []
    said = ers.done(*command, limits=limits)
    assert said.one["status"] == "completed"
    schema = f"{dataset}/people"
    assert sorted(row["id"] for row in stored(ers, schema)) == list(range(1000, 2000))

    again = ers(*command, limits=limits)
    assert (again.code, "already exists" in again.err) == (4, True)
    assert f"store the rows there with --schema {schema}" in again.err
    assert len(stored(ers, schema)) == 1000


def test_first_rows_that_do_not_fit_are_named_before_anything_is_created(
    ers: Ers, dataset: str, tmp_path: Path
) -> None:
    path = tmp_path / "born.csv"
    path.write_text("id;born\n1;01.02.1980\n2;31.02.1980\n3;05.06.1980\n")
    command = ("import", path, "--dataset", dataset, "--yes", "--type", "born=date")
    said = ers(*command)
    assert said.code == 6
    assert "a row is invalid among the first 3: nothing was created or stored" in said.err
    assert "row 2, born: is not a day as dd.mm.yyyy" in said.err
    assert "--skip-invalid stores the valid rows" in said.err
    assert "--type born=text" in said.err
    assert dataset not in ers.done("dataset", "list").out
    ers.done(*command, "--type", "born=text")
    ers(*command, "--name", "others", "--skip-invalid")
    assert len(stored(ers, f"{dataset}/others")) == 2


def test_an_import_to_a_schema_that_does_not_exist_names_the_command_that_creates_it(
    ers: Ers, dataset: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id;n\n1;1,5\n")
    ers.done("import", path, "--dataset", dataset, "--yes")
    said = ers("import", path, "--schema", f"{dataset}/new")
    assert said.code == 3
    assert "leave out --schema" in said.err
    command = f"ers import {path} --name new --dataset {dataset}"
    assert command in said.err
    assert "ers schema create" not in said.err
    ers.done(*command.split()[1:], "--yes")
    assert len(stored(ers, f"{dataset}/new")) == 1


def test_rows_of_another_file_or_reading_never_come_into_an_import_in_silence(
    ers: Ers, dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_table(tmp_path)
    command = ("import", path, "--dataset", dataset, "--yes")

    async def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt  # its job goes on

    with monkeypatch.context() as patch:
        patch.setattr(import_file, "finish", interrupted)
        assert ers(*command).code == 130
    for more in (
        ("--rename", "n=m"),
        ("--null", "id=1001"),  # of the same definition, and read in another way
        ("--skip-invalid",),
    ):
        said = ers(*command, *more)
        assert (said.code, "--name" in said.err) == (4, True), said.err
    content = path.read_bytes()
    write_table(tmp_path, first=3000)
    said = ers(*command)
    assert (said.code, "already exists" in said.err) == (4, True), said.err
    path.write_bytes(content)
    assert ers(*command).code == 4  # it was written again: another file, for all that is known
    assert sorted(row["id"] for row in stored(ers, f"{dataset}/people")) == list(range(1000, 2000))


def test_a_row_behind_what_was_looked_at_is_named_and_all_is_stored_once_it_fits(
    ers: Ers, dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "HEAD_BYTES", 4096)
    path = tmp_path / "late.csv"
    rows = [f"{at},5;{'x' * 80}" for at in range(100)]
    command = ("import", path, "--dataset", dataset, "--yes")
    path.write_text("\n".join(["n;text", *rows, "A17;y"]) + "\n")
    said = ers(*command)
    assert said.code == 6, said.err
    assert "row 101, n: is not a number with a comma" in said.err
    assert "A17" not in said.err
    assert stored(ers, f"{dataset}/late") == []
    # Its other rows are stored on request, and its reading is kept.
    said = ers(*command, "--name", "some", "--skip-invalid")
    assert (said.code, len(stored(ers, f"{dataset}/some"))) == (6, 100)
    kept = json.loads(ers.done("schema", "get", f"{dataset}/some", "--reading").out)
    assert kept["columns"][0]["decimal"] == ","
    path.write_text("\n".join(["n;text", *rows, "17;y"]) + "\n")
    said = ers.done(*command)
    assert f"continuing with the schema {dataset}/late, which has no records yet" in said.err
    assert said.one["total"] == 101


def test_the_next_file_is_read_as_the_one_before_and_another_form_is_refused_with_its_option(
    ers: Ers, dataset: str, tmp_path: Path
) -> None:
    january, february, march = (tmp_path / f"{name}.csv" for name in ("jan", "feb", "mar"))
    january.write_text("Nr;Umsatz;Tag\n0001;1.234,50;03.11.2024\n0002;12,25;21.12.2024\n")
    said = ers.done("import", january, "--dataset", dataset, "--yes")
    schema = f"{dataset}/jan"
    assert "The reading is kept; the next file: ers import FILE --schema " in said.err
    assert f"/{schema}" in said.err.splitlines()[-1]
    kept = json.loads(ers.done("schema", "get", schema, "--reading").out)
    assert kept["columns"][1]["decimal"] == ","

    february.write_text("Tag;Nr;Umsatz\n01.02.2025;0003;1.500\n02.02.2025;0004;7,5\n")
    said = ers.done("import", february, "--schema", schema)
    assert "the columns are in another order" in said.err
    assert "Rewritten: Tag 2, Umsatz 2." in said.err
    assert {row["Nr"]: row["Umsatz"] for row in stored(ers, schema)} == {
        "0001": Decimal("1234.50"),
        "0002": Decimal("12.25"),
        "0003": Decimal("1500.00"),
        "0004": Decimal("7.50"),
    }

    march.write_text("Nr;Netto;Tag\n0005;1,500.25;03.03.2025\n0006;k.A.;04.03.2025\n")
    said = ers("import", march, "--schema", schema)
    assert said.code == 2
    assert "the column 'Netto' is new: is it 'Umsatz'?; the column 'Umsatz' is missing" in said.err
    assert "--rename Netto=Umsatz accepts this file" in said.err
    said = ers("import", march, "--schema", schema, "--rename", "Netto=Umsatz")
    assert said.code == 2
    assert "Netto has decimal points, the kept reading has commas" in said.err
    assert "--decimal Netto=." in said.err
    assert len(stored(ers, schema)) == 4
    options = ("--rename", "Netto=Umsatz", "--decimal", "Netto=.", "--null", "Netto=k.A.")
    said = ers.done("import", march, "--schema", schema, *options, "--keep")
    assert "Empty: Umsatz 1." in said.err
    kept = json.loads(ers.done("schema", "get", schema, "--reading").out)
    assert [column["source"] for column in kept["columns"]] == ["Nr", "Netto", "Tag"]
    said = ers("import", march, "--schema", schema)
    assert (said.code, "stored this file" in said.err) == (4, True), said.err
    assert len(stored(ers, schema)) == 6


def test_a_reading_is_not_kept_where_a_job_under_way_reads_the_file_in_another_way(
    ers: Ers, dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id;n\n1;1.234\n2;2.345\n")
    told = ers.done("import", path, "--dataset", dataset, "--yes", "--decimal", "n=.")
    schema = f"{dataset}/a"
    before = ers.done("schema", "get", schema, "--reading").out

    async def joined(*_: Any) -> str:
        return str(told.one["job_id"])

    monkeypatch.setattr(import_file, "send", joined)
    options = ("--decimal", "n=,", "--reading", "none", "--keep", "--yes")
    said = ers.done("import", path, "--schema", schema, *options)
    assert "was already storing this file, with another reading" in said.err
    assert ers.done("schema", "get", schema, "--reading").out == before


def test_examples_with_commas_are_told_apart(ers: Ers, dataset: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("name;height\nAda, Lovelace;1,81\nKurt, Egger;1,75\n")
    said = ers("import", path, "--dataset", dataset)
    assert "Ada, Lovelace | Kurt, Egger" in said.err
    assert "1,81 | 1,75" in said.err


def test_nothing_is_called_rewritten_by_a_job_that_stored_nothing(
    ers: Ers, dataset: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id;n\n1;1,5\n2;2,5\n")
    assert "Rewritten: n 2." in ers.done("import", path, "--dataset", dataset, "--yes").err
    path.write_text("id;n\n3;1,5\n4;2,555\n")
    said = ers("import", path, "--schema", f"{dataset}/a")
    assert (said.code, "nothing was stored" in said.err) == (6, True)
    assert "Rewritten" not in said.err
    path.write_text("id;n\n4;2,555\n5;3,555\n")
    said = ers("import", path, "--schema", f"{dataset}/a", "--skip-invalid", "--keep")
    assert said.code == 6
    assert "Rewritten" not in said.err
    assert "The reading is kept" not in said.err


@pytest.mark.parametrize(
    ("name", "read_as"),
    [
        ("title.xlsx", "a workbook: sheet Daten, names in row 4"),
        ("lines.ndjson", "JSON: an object a line"),
    ],
)
def test_workbooks_and_json_are_stored_whole_and_the_next_file_is_read_in_the_same_way(
    ers: Ers, dataset: str, tmp_path: Path, name: str, read_as: str
) -> None:
    said = ers.done("import", FILES / name, "--dataset", dataset, "--yes", "--name", "a")
    assert f"{name} is read as {read_as}, 24 rows." in said.err
    schema = f"{dataset}/a"
    rows = stored(ers, schema)
    assert len(rows) == 24
    if name == "title.xlsx":
        assert rows[1] == {
            "Kundennr": "00022",
            "Name": "Weiß",
            "Umsatz": Decimal("1234.62"),
            "Menge": 37,
            "Geboren": "1957-02-06",
            "Gesehen": "2024-02-06T03:11:17",
            "Aktiv": False,
        }
    again = tmp_path / f"next{Path(name).suffix}"
    again.write_bytes((FILES / name).read_bytes())
    said = ers("import", again, "--schema", schema)
    assert (said.code, "stored this file" in said.err) == (4, True), said.err


def test_a_reading_can_be_given_as_a_file_and_left_aside(
    ers: Ers, dataset: str, tmp_path: Path
) -> None:
    path, recipe = tmp_path / "a.csv", tmp_path / "reading.json"
    path.write_text("id;n\n1;1,5\n2;2,5\n")
    ers.done("import", path, "--dataset", dataset, "--yes", "--type", "id=text")
    schema = f"{dataset}/a"
    recipe.write_text(ers.done("schema", "get", schema, "--reading").out)
    path.write_text("id;n\n3;1,5\n4;2,5\n")
    ers.done("import", path, "--dataset", dataset, "--name", "b", "--yes", "--reading", recipe)
    assert stored(ers, f"{dataset}/b")[0] == {"id": "3", "n": Decimal("1.50")}
    path.write_text("id;n\n5;1.5\n6;2.5\n")
    assert ers("import", path, "--schema", schema).code == 2
    assert ers("import", path, "--schema", schema, "--reading", "none").code == 2  # nobody looks
    ers.done("import", path, "--schema", schema, "--reading", "none", "--yes")
    assert {row["id"] for row in stored(ers, schema)} == {"1", "2", "5", "6"}
    assert ers("import", path, "--schema", schema, "--reading", tmp_path / "none").code == 2


def test_decimals_that_a_field_does_not_keep_are_rounded_only_if_that_is_said(
    ers: Ers, dataset: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,n\n1,1.5\n2,2.5\n")
    ers.done("import", path, "--dataset", dataset, "--yes")
    schema = f"{dataset}/a"
    path.write_text("id,n\n3,1.125\n4,2.135\n")
    said = ers("import", path, "--schema", schema)
    assert (said.code, "row 1, n: has more than 2 decimals" in said.err) == (6, True)
    said = ers.done("import", path, "--schema", schema, "--round")
    assert said.one["rounded"] == {"n": 2}
    assert sorted(row["n"] for row in stored(ers, schema)) == [
        *map(Decimal, ("1.12", "1.50", "2.14", "2.50"))
    ]
    path.write_text("id,n\n5,1.135\n")
    assert ers("import", path, "--schema", schema).code == 6  # it was said of one file


def write_table(folder: Path, *, first: int = 1000) -> Path:
    path = folder / "people.csv"
    rows = [f"{number};{'name' * 20};{number},5" for number in range(first, first + 1000)]
    path.write_text("\n".join(["id;name;n", *rows]) + "\n")
    return path


PEOPLE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
    },
    "unique": [["name"]],
}


@pytest.fixture
def people(ers: Ers, dataset: str) -> str:
    ers.done("dataset", "create", "--name", dataset, "--slug", dataset)
    ers.done(
        *("schema", "create", "--dataset", dataset, "--name", "people", "--file", "-"),
        typed=json.dumps(PEOPLE),
    )
    return f"{dataset}/people"


def test_standard_input_and_pipes_are_stored_without_a_question(ers: Ers, people: str) -> None:
    said = ers.done("import", "-", "--schema", people, typed="name,age\nAda,36\n")
    assert said.one["status"] == "completed"
    assert stored(ers, people) == [{"name": "Ada", "age": 36}]
    said = ers("import", "-", typed="name\nAda\n")
    assert (said.code, said.err.splitlines()[0]) == (2, "error: missing: --schema")


@pytest.mark.parametrize("shown", [("search", "-o", "csv"), ("export",)])
def test_records_that_were_shown_are_imported_as_they_are(
    ers: Ers, people: str, dataset: str, tmp_path: Path, shown: tuple[str, ...]
) -> None:
    rows = [{"name": "", "age": 1}, {"name": "1,5", "age": 3}, {"name": "x"}]
    ers.done("import", "-", "--schema", people, typed="\n".join(map(json.dumps, rows)))
    file = tmp_path / ("out.csv" if "csv" in shown else "out.ndjson")
    file.write_text(ers.done("record", *shown, "--schema", people).out)
    ers.done(
        *("schema", "create", "--dataset", dataset, "--name", "copy", "--file", "-"),
        typed=json.dumps({"type": "object", "properties": PEOPLE["properties"]}),
    )
    if "csv" in shown:
        ers.done("import", file, "--schema", f"{dataset}/copy", "--yes")
        assert stored(ers, f"{dataset}/copy") == rows
    else:  # each line names its schema
        assert ers("import", file).code == 6  # by its unique field
        ers.done("import", file, "--on-conflict", "replace", "--by", "name")


def test_objects_with_a_member_called_data_are_read_in_the_same_way_with_a_schema(
    ers: Ers, dataset: str, tmp_path: Path
) -> None:
    file, next_file = tmp_path / "events.json", tmp_path / "next.json"
    file.write_text('[{"at": 1, "data": {"kind": "x"}}, {"at": 2, "data": {"kind": "y"}}]')
    next_file.write_text('[{"at": 3, "data": {"kind": "z"}}]')
    ers.done("import", file, "--dataset", dataset, "--yes")
    ers.done("import", next_file, "--schema", f"{dataset}/events", "--yes")
    assert stored(ers, f"{dataset}/events") == [
        {"at": at, "data.kind": kind} for at, kind in ((1, "x"), (2, "y"), (3, "z"))
    ]


def test_rows_replace_others_and_a_file_is_stored_again_on_request(
    ers: Ers, people: str, tmp_path: Path
) -> None:
    file = tmp_path / "people.csv"
    file.write_text("name;age\nAda;36\nAlan;41\n")
    ers.done("import", file, "--schema", people, "--yes")
    said = ers("import", file, "--schema", people)
    assert (said.code, "to store it again: --again" in said.err) == (4, True)
    said = ers("import", file, "--schema", people, "--again")
    assert (said.code, "rows were rejected, nothing was stored" in said.err) == (6, True)
    assert "--on-conflict skip stores the other rows; with --on-conflict replace" in said.err
    file.write_text("name;age\nAda;37\n")
    by = ("import", file, "--schema", people, "--by", "name")
    for unfit in ((), ("--on-conflict", "skip")):
        said = ers(*by, *unfit)
        assert (said.code, "hint: add --on-conflict replace, or leave" in said.err) == (2, True)
        assert "X-On-Conflict" not in said.err
    said = ers.done(*by, "--on-conflict", "replace")
    assert said.one["replaced"] == 1
    assert ers.done("job", "get", said.one["job_id"]).one["replaced"] == 1
    assert sorted(stored(ers, people), key=str) == [
        {"name": "Ada", "age": 37},
        {"name": "Alan", "age": 41},
    ]
    file.write_text("name;age\nGrace;85\n")
    job = ers.done("import", file, "--schema", people, "--detach").out.strip()
    assert ers.done("job", "watch", job).one["status"] == "completed"


def test_the_earlier_command_for_files_still_works_and_names_this_one(
    ers: Ers, people: str, tmp_path: Path
) -> None:
    file = tmp_path / "people.csv"
    file.write_text("name,age\nAda,36\n")
    said = ers.done("job", "upload", file, "--schema", people)
    assert said.err == "ers job upload is now called ers import --exact\n"
    assert stored(ers, people) == [{"name": "Ada", "age": 36}]


def test_options_that_do_not_go_together_are_refused_and_nothing_is_stored(
    ers: Ers, people: str, tmp_path: Path
) -> None:
    file = tmp_path / "people.csv"
    file.write_text("name,age\nAda,36\n")
    for options in (
        *(["--exact", "--decimal", ","], ["--exact", "--name", "x"], ["--format", "csv"]),
        *(["--again", "--name", "new"], ["--exact", "--tight"]),
    ):
        where = [] if "new" in options else ["--schema", people]
        assert ers("import", file, *where, *options, "--yes").code == 2, options
    assert stored(ers, people) == []


def test_files_follow_a_schema_that_gains_and_loses_fields(
    ers: Ers, people: str, tmp_path: Path
) -> None:
    """Every refusal names the options that accept the file."""
    file, definition = tmp_path / "people.csv", tmp_path / "people.json"
    file.write_text("name;age\nAda;36\n")
    ers.done("import", file, "--schema", people, "--yes")

    properties = {**PEOPLE["properties"], "phone": {"type": "string"}}
    definition.write_text(json.dumps(PEOPLE | {"properties": properties}))
    ers.done("schema", "change", people, "--file", definition, "--apply")
    file.write_text("name;age;phone\nAlan;41;0043\n")
    said = ers("import", file, "--schema", people)
    assert said.code == 2
    assert "'phone' is new, and the schema has a field of this name" in said.err
    assert "hint: --rename phone=phone accepts this file; with --keep" in said.err
    ers.done("import", file, "--schema", people, "--rename", "phone=phone", "--keep")

    del properties["age"]
    definition.write_text(json.dumps(PEOPLE | {"properties": properties}))
    ers.done("schema", "change", people, "--file", definition, "--drop", "age", "--apply")
    file.write_text("name;age;phone\nGrace;85;0001\n")
    said = ers("import", file, "--schema", people)
    assert said.code == 2
    assert "the schema no longer has the field 'age' of the column 'age'" in said.err
    assert "hint: --leave-out age accepts this file; with --keep" in said.err
    said = ers("import", file, "--schema", people, "--reading", "none")
    assert (said.code, "hint: --leave-out age stores none of them" in said.err) == (2, True)
    ers.done("import", file, "--schema", people, "--leave-out", "age", "--keep")
    file.write_text("name;age;phone\nEdsger;72;0002\n")
    ers.done("import", file, "--schema", people)
    assert sorted(stored(ers, people), key=str) == [
        {"name": "Ada"},
        {"name": "Alan", "phone": "0043"},
        {"name": "Edsger", "phone": "0002"},
        {"name": "Grace", "phone": "0001"},
    ]


def test_a_file_whose_name_is_not_utf_8_is_stored(ers: Ers, dataset: str, tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv"))
    path.write_text("name\nAda\n")
    ers.done("import", path, "--dataset", dataset, "--yes")
    (made,) = ers.done("schema", "list", "--dataset", dataset).lines
    assert made["name"] == "caf\\xe9"
    assert stored(ers, f"{dataset}/{made['slug']}") == [{"name": "Ada"}]

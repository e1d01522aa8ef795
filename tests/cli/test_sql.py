"""``ers sql`` runs SELECT over records, and writes tables, CSV, JSON or Parquet."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow import ArrowInvalid, parquet

from encrypted_records import Client
from tests.cli.command import Ers, run_line
from tests.cli.terminals import COMMAND, at_terminal
from tests.support.service import Account, Service

DOCUMENT = Path(__file__).parents[2] / "docs" / "sql.md"

DEFINITION: dict[str, Any] = {
    "type": "object",
    "formats": "enforced",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "paid": {"type": "number", "minimum": 0, "maximum": 1000, "precision": 2},
        "born": {"type": "string", "format": "date"},
    },
    "required": ["name"],
}
SHIFTS = {"type": "object", "properties": {"at": {"type": "string"}}, "required": []}
PEOPLE: list[dict[str, Any]] = [
    {"name": "Ada", "age": 36, "paid": 12.5, "born": "1815-12-10"},
    {"name": "Grace", "age": 85},
    {"name": "\u001b[31mAlan", "age": 41},
]


@pytest.fixture(scope="module")
def people(running: Service, account: Account) -> str:
    """A dataset with the table people."""
    with Client(running.proxy_url, email=account.email, password=account.password) as client:
        made = client.create_dataset("Clinic", slug="clinic")
        made.create_schema("People", DEFINITION, slug="people").ingest(PEOPLE)
    return "clinic"


def test_results_have_the_form_that_is_asked_for(ers: Ers, people: str) -> None:
    asked = "SELECT name, age, paid, born FROM people WHERE age < 40"
    one = ("sql", "--dataset", people)
    expected = {"name": "Ada", "age": 36, "paid": 12.5, "born": "1815-12-10"}
    assert ers.done(*one, asked).one == expected
    assert ers.done(*one, "-o", "csv", asked).out == "name,age,paid,born\nAda,36,12.50,1815-12-10\n"
    assert json.loads(ers.done(*one, "-o", "json", asked).out) == [expected]
    assert "Ada   36   12.50  1815-12-10" in ers.done(*one, "-o", "table", asked).out


def test_statements_come_from_a_file_or_from_a_pipe(ers: Ers, people: str, tmp_path: Path) -> None:
    file = tmp_path / "some.sql"
    file.write_text("SELECT count(*) AS n FROM people;\n-- and\nSELECT 1 AS a, 2 AS a, 3 AS a")
    # Columns of one name are all there.
    told = [{"n": 3}, {"a": 1, "a_1": 2, "a_2": 3}]
    assert ers.done("sql", "--dataset", people, "--file", file).lines == told
    assert ers.done("sql", "--dataset", people, typed=file.read_text()).lines == told
    file.write_bytes(b"SELECT '\xff'")
    refused = ers("sql", "--dataset", people, "--file", file)
    assert refused.code == 2
    assert "the statements are not UTF-8" in refused.err


def test_an_error_names_what_there_is(ers: Ers, people: str) -> None:
    told = ers("sql", "--dataset", people, "SELECT * FROM persons")
    assert told.code == 2
    assert "persons" in told.err
    assert "tables: people" in told.err
    told = ers("sql", "--dataset", people, "DELETE FROM people")
    assert told.code == 2
    assert "only SELECT" in told.err


def test_a_hint_quotes_names_that_statements_have_to_quote(ers: Ers) -> None:
    ers.done("dataset", "create", "--name", "Imported files", "--slug", "imported-files")
    named = ("--dataset", "imported-files", "--name", "Staff", "--slug", "staff")
    ers.done("schema", "create", *named, "--file", "-", typed=json.dumps(SHIFTS))
    told = ers("sql", "SELECT count(*) AS n FROM imported-files.staff")
    assert told.code == 2
    assert 'keywords and names with hyphens are quoted: "imported-files".staff' in told.err
    told = ers("sql", "SELECT at\nFROM staff")
    assert 'are quoted: "at"' in told.err
    told = ers("sql", "SELECT count(*) AS n FROM staffs")
    assert '"imported-files".staff' in told.err
    assert ers.done("sql", 'SELECT count(*) AS n FROM "imported-files".staff').one == {"n": 0}


@pytest.mark.usefixtures("ers")  # its variables are this process's
def test_parquet_has_exact_types_and_of_a_statement_that_fails_is_no_whole_file(
    people: str,
) -> None:
    statement = "SELECT name, paid FROM people ORDER BY age"
    done = subprocess.run(
        [*COMMAND, "sql", "--dataset", people, "-o", "parquet", statement],
        capture_output=True,
        check=True,
        env=dict(os.environ),
    )
    table = parquet.read_table(io.BytesIO(done.stdout))
    assert str(table.schema.field("paid").type) == "decimal128(6, 2)"
    assert table["name"].to_pylist()[0] == "Ada"

    for statement, known in (
        ("SELECT INTERVAL '26 hours' AS stay", timedelta(hours=26)),
        ("SELECT INTERVAL '1 month' AS stay", None),
    ):
        done = subprocess.run(
            [*COMMAND, "sql", "-o", "parquet", statement],
            capture_output=True,
            check=False,
            env=dict(os.environ),
        )
        if known is None:
            assert "cast the column to VARCHAR" in done.stderr.decode()
        else:
            assert parquet.read_table(io.BytesIO(done.stdout))["stay"].to_pylist() == [known]

    statement = """
        SELECT CASE WHEN n < 3000000 THEN n ELSE error('too far') END AS n FROM range(3000001) t(n)
    """
    done = subprocess.run(
        [*COMMAND, "sql", "--dataset", people, "-o", "parquet", statement],
        capture_output=True,
        check=False,
        env=dict(os.environ),
    )
    assert done.returncode != 0
    assert "too far" in done.stderr.decode()
    with pytest.raises(ArrowInvalid):
        parquet.read_table(io.BytesIO(done.stdout))


@pytest.mark.usefixtures("ers")
def test_a_prompt_describes_no_table_that_was_deleted(running: Service, account: Account) -> None:
    with Client(running.proxy_url, email=account.email, password=account.password) as client:
        made = client.create_dataset("Passing", slug="passing")
        schema = made.create_schema("Shifts", SHIFTS, slug="shifts")
        with at_terminal(dict(os.environ), "sql", "--dataset", "passing") as terminal:
            terminal.answer("=> ", "\\d shifts")
            terminal.expect("VARCHAR")
            schema.delete()
            terminal.answer("=> ", "\\d shifts")
            terminal.expect("there is no table shifts")
            terminal.answer("=> ", "\\q")
            assert terminal.end() == 0


@pytest.mark.usefixtures("ers")
def test_a_prompt_lists_tables_runs_statements_and_goes_on_after_errors(people: str) -> None:
    with at_terminal(dict(os.environ), "sql", "--dataset", people) as terminal:
        terminal.answer("=> ", "\\dt")
        terminal.expect("people")
        terminal.answer("=> ", "\\d people")
        terminal.expect("DECIMAL(6,2)")
        terminal.answer("=> ", "SELECT name FROM people")
        terminal.answer("-> ", "WHERE age > 80;")
        terminal.expect("Grace")
        terminal.answer("=> ", "-- two lines, of which the first ends in a text")
        terminal.answer("=> ", "SELECT 'a;")
        terminal.answer("-> ", "b' AS told; -- done")
        terminal.expect("a;\\nb")
        terminal.answer("=> ", "SELECT 'open;")
        terminal.answer("-> ", "\\?")
        terminal.expect("discards")
        terminal.expect("-> ")
        terminal.interrupt()
        terminal.answer("=> ", "SELECT nme FROM people;")
        terminal.expect("42703")
        terminal.answer("=> ", "\\timing")
        terminal.answer("=> ", "SELECT 1;")
        terminal.expect(" ms")
        terminal.answer("=> ", "\\q")
        assert terminal.end() == 0


PATIENTS = json.dumps(
    {
        "type": "object",
        "formats": "enforced",
        "properties": {
            "city": {"type": "string"},
            "age": {"type": "integer", "minimum": 0, "maximum": 130},
            "born": {"type": "string", "format": "date"},
        },
        "required": [],
    }
)


@pytest.fixture
def medical(ers: Ers, running: Service, monkeypatch: pytest.MonkeyPatch) -> Account:
    """An account of its own with the table that the documents ask."""
    account = running.new_account()
    monkeypatch.setenv("ERS_EMAIL", account.email)
    monkeypatch.setenv("ERS_PASSWORD", account.password)
    ers.done("dataset", "create", "--name", "Medical", "--slug", "medical")
    named = ("--dataset", "medical", "--name", "Patient", "--slug", "patient")
    ers.done("schema", "create", *named, "--file", "-", typed=PATIENTS)
    rows = json.dumps([{"city": "Oslo", "age": 70, "born": "1956-01-31"}, {"city": "Rome"}])
    ers.done("record", "create", "--schema", "patient", "--file", "-", typed=rows)
    return account


def documented(language: str) -> str:
    """The commands of docs/sql.md."""
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL))


@pytest.mark.usefixtures("medical")
def test_commands_of_the_document_run(tmp_path: Path) -> None:
    (tmp_path / "report.sql").write_text("SELECT count(*) FROM patient;")
    lines = [line for line in documented("bash").splitlines() if line.startswith("ers sql")]
    assert len(lines) >= 4
    folder = Path(sys.executable).parent
    told = dict(os.environ) | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    for line in lines:
        said = run_line(told, line, tmp_path)
        assert said.code == 0, (line, said.err)
    assert "Oslo,70" in (tmp_path / "old.csv").read_text()
    assert parquet.read_table(tmp_path / "patients.parquet").num_rows == 2


def test_python_of_the_document_runs(running: Service, medical: Account) -> None:
    with Client(running.proxy_url, email=medical.email, password=medical.password) as client:
        exec(documented("python"), {"client": client})


def test_cells_for_a_spreadsheet_are_texts_and_numbers_and_no_formulas(
    ers: Ers, people: str
) -> None:
    asked = "SELECT '=1+1' AS a, -0.5::DOUBLE AS b, ['a', '-x'] AS c, NULL AS d"
    said = ers.done("sql", "-o", "csv", "--safe-cells", asked)
    assert said.out == '"a","b","c","d"\n"\'=1+1",-0.5,"[""a"",""\'-x""]",\n'
    refused = ers("sql", "--safe-cells", asked)
    assert (refused.code, "--safe-cells is for CSV" in refused.err) == (2, True)

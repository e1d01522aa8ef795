"""``ers schema infer`` proposes what hides lengths; an estimate of a sample says what they tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.command import Ers

SECRET = "x" * 70


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """The sex goes with the length of the note, and is said nowhere else."""
    path = tmp_path / "people.csv"
    rows = [("m,short" if at % 3 else f"f,{SECRET}") + f",{at}" for at in range(120)]
    path.write_text("\n".join(["sex,note,number", *rows]) + "\n")
    return path


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    path = tmp_path / "bare.json"
    texts = {name: {"type": "string"} for name in ("sex", "note")}
    number = {"type": "integer", "minimum": 0, "maximum": 999}
    path.write_text(json.dumps({"type": "object", "properties": texts | {"number": number}}))
    return path


def test_a_definition_is_proposed_with_choices_or_without(ers: Ers, sample: Path) -> None:
    hidden = json.loads(ers.done("schema", "infer", str(sample)).out)
    assert set(hidden) == {"type", "rounding", "properties"}
    assert hidden["properties"]["sex"] == {"type": "string", "padTo": 31}
    said = ers.done(
        *("schema", "infer", str(sample), "--enum", "sex", "--required", "note"),
        *("--unique", "number", "--tight"),
    )
    asked = json.loads(said.out)
    assert asked["properties"]["sex"] == {"type": "string", "enum": ["f", "m"]}
    assert (asked["required"], asked["unique"]) == (["note"], [["number"]])
    assert asked["properties"]["number"]["maximum"] < 1000
    assert "The server will see these values of sex: f, m" in said.err


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (["--enum", "number"], "number is not a text column with few values"),
        (["--enum", "nothing"], "the file has no field nothing"),
        (["--unique", "sex"], "a value of sex occurs more than once"),
    ],
)
def test_what_the_rows_forbid_is_not_proposed(
    ers: Ers, sample: Path, asked: list[str], says: str
) -> None:
    said = ers("schema", "infer", str(sample), *asked)
    assert (said.code, says in said.err, said.out) == (2, True, "")


def test_rows_with_the_same_value_of_a_unique_field_are_counted_and_two_of_them_named(
    ers: Ers, tmp_path: Path
) -> None:
    path = tmp_path / "people.csv"
    path.write_text("email;n\na@example.org;1\nb@example.org;2\na@example.org;3\n")
    for command in (("schema", "infer"), ("import", "--yes")):
        said = ers(*command, path, "--unique", "email")
        assert said.code == 2
        assert "a value of email occurs more than once, such as in rows 1 and 3" in said.err
        assert "1 row of 3 had the value of an earlier row" in said.err
        assert "hint: correct the rows, or leave out --unique email" in said.err
        assert "a@example.org" not in said.err


def test_a_field_can_be_unique_although_some_rows_have_no_value(ers: Ers, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("email;n\na@example.org;1\n;2\n;3\n")
    proposed = json.loads(ers.done("schema", "infer", path, "--unique", "email").out)
    assert proposed["unique"] == [["email"]]


def test_a_definition_is_proposed_for_files_as_people_have_them_by_the_reading_of_an_import(
    ers: Ers, tmp_path: Path
) -> None:
    text = "Kunde;Umsatz;Seit\nMüller;1.234,50;03.11.2024\nGrün;12,25;21.12.2024\n"
    file, kept = tmp_path / "kunden.csv", tmp_path / "reading.json"
    file.write_bytes(text.encode("utf-16"))
    said = ers.done("schema", "infer", str(file), "--reading", str(kept))
    fields = json.loads(said.out)["properties"]
    assert [fields[name]["type"] for name in ("Kunde", "Umsatz")] == ["string", "number"]
    assert fields["Seit"]["format"] == "date"
    reading = json.loads(kept.read_text())
    assert (reading["delimiter"], reading["columns"][1]["decimal"]) == (";", ",")
    assert "is read as CSV: semicolons, utf-16-le" in said.err

    text = ers.done("schema", "infer", str(file), "--type", "Umsatz=text").out
    assert json.loads(text)["properties"]["Umsatz"]["type"] == "string"
    piped = ers("schema", "infer", "-", "--type", "Umsatz=text", typed="a\n1\n")
    assert (piped.code, "this file is read exactly" in piped.err) == (2, True)
    typed = json.loads(ers.done("schema", "infer", "-", typed="a\n1\n").out)
    assert typed["properties"]["a"]["type"] == "integer"
    columns = tmp_path / "people.parquet"
    columns.write_bytes(b"PAR1")
    refused = ers("schema", "infer", str(columns))
    assert (refused.code, "have declared types" in refused.err) == (2, True)


def test_an_estimate_says_what_lengths_tell_and_what_hiding_them_costs(
    ers: Ers, sample: Path, bare: Path
) -> None:
    asked = ("schema", "estimate", "--file", str(bare), "--sample", str(sample))
    said = ers.done(*asked, "--output", "table").out
    assert "guesses 100.0 % of the values from the stored lengths" in said
    assert "66.7 % from the most frequent value alone" in said
    assert '"padTo": 71 would hide the lengths, for' in said
    assert SECRET not in said
    told = json.loads(ers.done(*asked, "--output", "json").out)
    lengths = {field["name"]: field["lengths"] for field in told["fields"]}
    assert lengths["sex"]["attack"] == 1
    assert lengths["note"]["pad_to"] == 71
    assert lengths["note"]["pad_to_adds"]["bytes"] == pytest.approx(2 * 40 / 3, abs=0.1)


def test_without_a_schema_one_is_inferred_from_the_sample(ers: Ers, sample: Path) -> None:
    asked = ("schema", "estimate", "--sample", str(sample), "--output", "json")
    told = json.loads(ers.done(*asked).out)
    assert told["records"] == 1_000_000
    for field in told["fields"]:
        # All but free text, which is much longer now and then.
        if field["name"] != "note":
            assert field["lengths"]["pad_to"] is None


def test_rows_that_do_not_fit_are_counted_on_the_way(
    ers: Ers, sample: Path, tmp_path: Path
) -> None:
    definition = {"type": "string", "enum": ["m"]}
    path = tmp_path / "narrow.json"
    properties = {"sex": definition, "note": {"type": "string", "maxLength": 80}}
    number = {"number": {"type": "integer", "minimum": 0, "maximum": 999}}
    path.write_text(json.dumps({"type": "object", "properties": properties | number}))
    asked = ("schema", "estimate", "--file", str(path), "--sample", str(sample))
    said = ers.done(*asked, "--output", "table")
    assert "40 rows of the sample do not match the schema" in said.err
    assert "x" * 10 not in said.out + said.err


def test_nothing_to_estimate_is_a_mistake(ers: Ers) -> None:
    assert ers("schema", "estimate").code == 2

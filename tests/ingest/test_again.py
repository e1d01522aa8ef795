"""The next file is read by the reading of the one before, or each difference is named."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from encrypted_records.errors import ErsError
from encrypted_records.ingest.blocks import UnreadRow
from encrypted_records.ingest.check import validate
from encrypted_records.ingest.parsing import read_numbers
from encrypted_records.ingest.reading.choices import NOTHING, ReadingChoices, detect_as, read_again
from encrypted_records.ingest.reading.detect import Detection, detect, propose
from encrypted_records.ingest.reading.recipe import Recipe
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.samples import ReadingDifference
from tests.ingest.test_reading import content, is_same, records, rows_by
from tests.support.mutated_files import EXPECTED, KEPT_AS_TEXT, TABLES

ROWS = [
    "1;Müller;1.234,50;03.11.2024;ja",
    "2;Grün;12,25;21.12.2024;nein",
    "3;Öztürk;2.500,00;13.01.2025;ja",
]
HEAD = "id;Name;Umsatz;Tag;Aktiv"
JANUARY = "\n".join([HEAD, *ROWS]) + "\n"

POINTS = f"{HEAD}\n1;Müller;1234.50;13.11.2024;ja\n2;Grün;12.25;21.12.2024;nein\n"


def kept(text: str | bytes = JANUARY) -> Recipe:
    body = text if isinstance(text, bytes) else text.encode()
    return detect(body, whole=True).recipe


def again(
    text: str | bytes, recipe: Recipe | None = None, **said: Any
) -> tuple[Detection, list[ReadingDifference]]:
    body = text if isinstance(text, bytes) else text.encode()
    told = msgspec.convert(said, ReadingChoices) if said else NOTHING
    return read_again(body, recipe or kept(), told, whole=True)


def kinds(differences: list[ReadingDifference], *, taken: bool) -> list[str]:
    return [difference.kind for difference in differences if difference.taken is taken]


@pytest.mark.parametrize("name", TABLES)
def test_a_file_has_no_difference_from_itself_and_is_read_in_the_same_way(name: str) -> None:
    body = content(name)
    recipe = detect(body, whole=True).recipe
    found, differences = read_again(body, recipe, NOTHING, whole=True)
    assert differences == []
    assert found.recipe == recipe
    assert len(EXPECTED[name]["rows"]) == len(records(found.recipe, body))


#: Files that the reading of their first half does not take, and what it names.
NOT_TAKEN = {"gov-us-suppressed.csv": ["below"], "type-late.csv": ["null"]}
#: A file that is cut in the middle is none.
IN_ONE_PIECE = (".json", ".xlsx")


@pytest.mark.parametrize("name", [name for name in TABLES if not name.endswith(IN_ONE_PIECE)])
def test_a_schema_of_the_first_half_of_a_file_takes_the_whole_or_says_why(name: str) -> None:
    body, wanted = content(name), EXPECTED[name]
    lines = body.splitlines(keepends=True)
    first = detect(b"".join(lines[: len(lines) // 2]), whole=True)
    definition = parse_definition(json.dumps(propose(first)[0]))
    found, differences = read_again(body, first.recipe, NOTHING, whole=True)
    assert kinds(differences, taken=False) == NOT_TAKEN.get(name, [])
    if name in NOT_TAKEN:
        return
    rows = records(found.recipe, body)
    assert len(rows) == len(wanted["rows"])
    for number, (row, cells) in enumerate(zip(rows, wanted["rows"], strict=True), 1):
        _, flaws = validate(definition, read_numbers(definition, row), row=number, pointer="")
        assert not flaws
        for column, cell in zip(found.recipe.columns, cells, strict=True):
            assert column.name is not None
            if (name, column.name) not in KEPT_AS_TEXT:
                assert is_same(column.type, row.get(column.name), cell), (column, row)


def test_rows_in_another_charset_behind_the_head_of_a_file_are_refused_and_never_garbled() -> None:
    """The head that is compared is only the first 8 MiB of a file from the command line."""
    recipe = kept(JANUARY.encode("cp1252"))
    head = f"{HEAD}\n" + "1;Meier;1,50;03.11.2024;ja\n" * 3
    late = "2;Müller;1,50;03.11.2024;ja\n3;Étienne „MENÜ“;2,5;04.11.2024;nein\n"
    sample = head.encode()
    found, differences = read_again(sample, recipe, NOTHING, whole=False)
    assert (found.recipe.encoding, differences) == ("cp1252", [])
    bad = [
        row for row in rows_by(found.recipe, sample + late.encode()) if isinstance(row, UnreadRow)
    ]
    assert [(one.row, one.error.field) for one in bad] == [(4, "Name"), (5, "Name")]
    rows = records(found.recipe, sample + late.encode("cp1252"))
    assert [row["Name"] for row in rows[3:]] == ["Müller", "Étienne „MENÜ“"]


def lines(*rows: str, head: str = HEAD) -> str:
    return "\n".join([head, *rows]) + "\n"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (JANUARY.encode("utf-8-sig"), None),
        ("Umsätze im Februar\n\n" + JANUARY, "above"),
        (lines("Grün;2;nein;12,25;21.12.2024", head="Name;id;Aktiv;Umsatz;Tag"), "order"),
        (JANUARY.encode("utf-16"), "encoding"),
    ],
)
def test_a_difference_that_changes_no_value_is_taken_and_said(
    text: str | bytes, kind: str | None
) -> None:
    found, differences = again(text)
    assert kinds(differences, taken=False) == []
    assert kinds(differences, taken=True) == ([kind] if kind else [])
    body = text if isinstance(text, bytes) else text.encode()
    rows = records(found.recipe, body)
    assert {
        "id": "2",
        "Name": "Grün",
        "Umsatz": "12.25",
        "Tag": "2024-12-21",
        "Aktiv": "false",
    } in rows


def test_utf_8_is_taken_where_the_charset_was_a_guess_and_the_other_way_is_asked() -> None:
    guessed = kept(JANUARY.encode("cp1252"))
    assert guessed.encoding == "cp1252"
    found, differences = again(JANUARY, guessed)
    assert (kinds(differences, taken=True), found.recipe.encoding) == (["encoding"], "utf-8")
    found, differences = again(lines("4;Meier;1,00;01.02.2025;ja"), guessed)
    assert (differences, found.recipe.encoding) == ([], "cp1252")
    _, differences = again(JANUARY.encode("cp1252"))
    assert kinds(differences, taken=False) == ["encoding"]
    found, differences = again(JANUARY.encode("cp1252"), encoding="cp1252")
    assert (differences, found.recipe.encoding) == ([], "cp1252")


@pytest.mark.parametrize(
    ("text", "kind", "column"),
    [
        (POINTS.replace(";", ","), "decimal", "Umsatz"),
        (POINTS, "decimal", "Umsatz"),
        (JANUARY.replace(".11.2024", "/11/2024").replace(".12.2024", "/12/2024")
         .replace(".01.2025", "/01/2025"), "date_format", "Tag"),
        (JANUARY.replace("ja", "yes").replace("nein", "no"), "boolean", "Aktiv"),
        (lines(*ROWS, "4;Groß;k.A.;01.02.2025;ja"), "null", "Umsatz"),
        (lines(*ROWS, "4;Groß;12,5 $;01.02.2025;ja"), "null", "Umsatz"),
        (JANUARY.replace("\n", "\n").replace("Umsatz", "Netto"), "new", "Netto"),
        (lines("1;Müller;ja", head="id;Name;Aktiv"), "missing", "Umsatz"),
        (lines(*[f"{row};x" for row in ROWS], head=f"{HEAD};Notiz"), "new", "Notiz"),
        (lines(*ROWS, "Alle Angaben ohne Gewähr und Garantie"), "below", None),
        (lines(*ROWS, "4;Groß;1,00"), "short_rows", None),
        (JANUARY.replace(";", "|"), "delimiter", None),
    ],
)  # fmt: skip
def test_a_difference_that_may_change_values_is_named_with_what_takes_it(
    text: str, kind: str, column: str | None
) -> None:
    found, differences = again(text)
    named = [
        difference for difference in differences if not difference.taken and difference.kind == kind
    ]
    assert [(one.column) for one in named][:1] == [column], differences
    if not all(difference.say for difference in differences if not difference.taken):
        return
    said: dict[str, Any] = {}
    for difference in differences:
        for member, value in (difference.say or {}).items():
            if member == "columns":
                for name, own in value.items():
                    said.setdefault("columns", {}).setdefault(name, {}).update(own)
            else:
                said[member] = value
    found, left = again(text, **said)
    assert kinds(left, taken=False) == []
    assert records(found.recipe, text.encode())


def test_cells_that_fit_both_ways_are_refused_where_the_file_speaks_for_the_other() -> None:
    recipe = kept("id;Preis;Rabatt\n1;1.234,50;1,5\n2;2.000,25;2,75\n")
    _, differences = again("id;Preis;Rabatt\n1;1.234;1.5\n2;2.000;2.75\n", recipe)
    assert [
        (difference.kind, difference.column) for difference in differences if not difference.taken
    ] == [
        ("decimal", "Preis"),
        ("decimal", "Rabatt"),
    ]
    assert "fit both" in differences[0].detail
    found, differences = again("id;Preis;Rabatt\n1;1.234;1,5\n2;2.000;2,75\n", recipe)
    assert differences == []
    assert records(found.recipe, b"id;Preis;Rabatt\n1;1.234;1,5\n2;2.000;2,75\n")[0] == {
        "id": "1",
        "Preis": "1234",
        "Rabatt": "1.5",
    }


def test_a_date_that_may_be_either_is_read_as_in_the_file_before() -> None:
    recipe = kept("id,day\n1,25/12/2024\n2,13/01/2025\n")
    found, differences = again("id,day\n1,01/02/2025\n2,03/04/2025\n", recipe)
    assert differences == []
    assert records(found.recipe, b"id,day\n1,01/02/2025\n")[0]["day"] == "2025-02-01"
    _, differences = again("id,day\n1,01/22/2025\n2,03/04/2025\n", recipe)
    assert kinds(differences, taken=False) == ["date_format"]


def test_a_file_without_names_is_read_by_the_number_of_its_columns() -> None:
    recipe = kept("1;2,5\n2;3,5\n3;4,5\n")
    assert recipe.header_row == 0
    assert again("4;5,5\n5;6,5\n", recipe)[1] == []
    assert kinds(again("4;5,5;a\n5;6,5;b\n", recipe)[1], taken=False) == ["new"]
    assert "names" in kinds(again("id;n\n4;5,5\n5;6,5\n", recipe)[1], taken=False)


def test_a_first_row_of_few_cells_is_not_left_out_where_no_names_stand_above_it() -> None:
    recipe, text = kept("1;2,5;3,5;4,5\n2;3,5;4,5;5,5\n3;4,5;5,5;6,5\n"), "4;;;\n5;6,5;7,5;8,5\n"
    _, (difference,) = again(text, recipe)
    assert (difference.kind, difference.taken) == ("above", False)
    assert difference.say is not None
    found, differences = again(text, recipe, **difference.say)
    assert (differences, len(records(found.recipe, text.encode()))) == ([], 2)


def test_what_stood_below_the_table_is_counted_anew_and_never_cuts_a_row_off() -> None:
    recipe = kept(lines(*ROWS, "Alle Angaben ohne Gewähr und Garantie"))
    assert recipe.below == 1
    found, differences = again(JANUARY, recipe)
    assert (found.recipe.below, kinds(differences, taken=True)) == (0, ["below"])
    assert len(records(found.recipe, JANUARY.encode())) == 3
    more = lines(*ROWS, "Alle Angaben ohne Gewähr und Garantie", "Stand: Februar")
    _, differences = again(more, recipe)
    assert [(difference.kind, difference.taken, difference.say) for difference in differences] == [
        ("below", False, {"below": 2})
    ]
    _, differences = read_again(JANUARY.encode(), recipe, NOTHING, whole=False)
    assert kinds(differences, taken=False) == ["below"]


def test_what_is_said_goes_before_what_is_kept_and_the_rest_stays() -> None:
    recipe = detect_as(
        JANUARY.encode(),
        msgspec.convert({"columns": {"Umsatz": {"name": "revenue"}}}, ReadingChoices),
        whole=True,
    ).recipe
    text = JANUARY.replace("Umsatz", "Netto").replace("1.234,50", "1,234.50")
    text = text.replace("12,25", "12.25").replace("2.500,00", "2,500.00")
    found, differences = again(text, recipe, columns={"Netto": {"name": "revenue", "decimal": "."}})
    assert kinds(differences, taken=False) == []
    assert records(found.recipe, text.encode())[0]["revenue"] == "1234.50"


def test_a_form_that_is_said_of_all_columns_goes_before_that_of_the_kept_reading() -> None:
    numbers, days = "id;Preis\n1;1.234\n2;2.500\n", "id,day\n1,01/02/2025\n2,03/04/2025\n"
    commas = kept("id;Preis\n1;1.234,50\n2;2.000,25\n")
    for columns in ({}, {"Preis": {"null": ["k.A."]}}):
        found, differences = again(numbers, commas, decimal=".", columns=columns)
        assert differences == []
        assert records(found.recipe, numbers.encode())[0]["Preis"] == "1.234"
    european = kept("id,day\n1,25/12/2024\n2,13/01/2025\n")
    found, differences = again(days, european, format="mm/dd/yyyy")
    assert differences == []
    assert records(found.recipe, days.encode())[0]["day"] == "2025-01-02"


def test_a_column_that_the_file_does_not_have_is_refused_where_something_is_said_of_it() -> None:
    with pytest.raises(ErsError, match="no column Nmae"):
        again(JANUARY, columns={"Nmae": {"leave_out": True}})


def test_letters_that_speak_for_another_charset_are_asked_about() -> None:
    guessed = kept(JANUARY.encode("cp1252"))
    _, differences = again(JANUARY.encode("mac_roman"), guessed)
    assert [(difference.kind, difference.say) for difference in differences] == [
        ("encoding", {"encoding": "mac_roman"})
    ]
    # A bullet is no letter of its languages, and of no other one's either.
    found, differences = again(JANUARY.replace("Grün", "Grün •").encode("cp1252"), guessed)
    assert (differences, found.recipe.encoding) == ([], "cp1252")


@pytest.mark.parametrize("body", [b"%PDF-1.7", b"<html><body>log in</body></html>", b""])
def test_another_kind_of_file_is_refused_by_name(body: bytes) -> None:
    with pytest.raises(ErsError):
        read_again(body, kept(), NOTHING, whole=True)


SINGLE = "id,name\n'1','a'\n'2','b,c'\n'3','d'\n"


def test_other_quotes_than_those_of_the_file_before_are_refused() -> None:
    """Else each text of February would be stored with its quotes."""
    double = kept(SINGLE.replace("'", '"'))
    assert double.quote == '"'
    _, differences = again(SINGLE, double)
    assert "quote" in kinds(differences, taken=False)
    single = kept(SINGLE)
    assert single.quote == "'"
    _, differences = again(SINGLE.replace("'", '"'), single)
    assert "quote" in kinds(differences, taken=False)


def test_a_file_without_quotes_is_read_by_the_quotes_of_the_file_before() -> None:
    text = "id,name\n4,e\n5,'f,g'\n6,h\n"
    found, differences = again(text, kept(SINGLE))
    assert differences == []
    assert [row["name"] for row in records(found.recipe, text.encode())] == ["e", "f,g", "h"]
    broken, differences = "id,name\n4,e\n5,'t Hooft\n6,h\n", []
    with pytest.raises(ErsError, match="quote"):
        again(broken, kept(SINGLE))


def test_empty_texts_that_the_file_before_did_not_have_are_kept() -> None:
    before = kept("id,note\n1,a\n2,b\n")
    text = 'id,note\n1,""\n2,\n3,c\n'
    found, differences = again(text, before)
    assert differences == []
    assert [row.get("note") for row in records(found.recipe, text.encode())] == ["", None, "c"]


def of_fields(
    text: str, *fields: str, texts: tuple[str, ...] = (), **said: Any
) -> tuple[Detection, list[ReadingDifference]]:
    """Read with the reading of January, for a schema that has these fields by now."""
    told = msgspec.convert(said, ReadingChoices) if said else NOTHING
    return read_again(text.encode(), kept(), told, whole=True, fields=fields, texts=texts)


def test_a_column_whose_field_is_gone_is_named_with_the_fields_that_have_no_column() -> None:
    found, (difference,) = of_fields(JANUARY, "id", "Name", "Tag", "Aktiv", "Note")
    assert (difference.kind, difference.taken, difference.column) == ("field", False, "Umsatz")
    assert "no longer has the field 'Umsatz'" in difference.detail
    assert difference.detail.endswith("fields without a column: Note")
    assert difference.say == {"columns": {"Umsatz": {"leave_out": True}}}
    _, differences = of_fields(JANUARY, "id", "Name", "Tag", "Aktiv", **difference.say)
    assert differences == []
    renamed: dict[str, Any] = {"columns": {"Umsatz": {"name": "Note"}}}
    found, differences = of_fields(JANUARY, "id", "Name", "Tag", "Aktiv", "Note", **renamed)
    assert differences == []
    assert [column.name for column in found.recipe.columns][2] == "Note"


def test_a_column_that_is_missing_with_its_field_is_no_difference() -> None:
    text = lines("1;Müller;03.11.2024;ja", head="id;Name;Tag;Aktiv")
    assert of_fields(text, "id", "Name", "Tag", "Aktiv")[1] == []
    _, (difference,) = of_fields(text, "id", "Name", "Umsatz", "Tag", "Aktiv")
    assert difference.kind == "missing"


def test_a_new_column_of_a_field_is_offered_to_it_and_stays_text_where_the_field_is() -> None:
    text = lines("1;Müller;1,00;03.11.2024;ja;0043", head=f"{HEAD};Akte")
    fields = ("id", "Name", "Umsatz", "Tag", "Aktiv", "Akte")
    _, (difference,) = of_fields(text, *fields, texts=("Name", "Akte"))
    assert (difference.kind, difference.taken) == ("new", False)
    assert difference.say == {"columns": {"Akte": {"name": "Akte"}}}
    found, differences = of_fields(text, *fields, texts=("Name", "Akte"), **difference.say)
    assert differences == []
    assert records(found.recipe, text.encode())[0]["Akte"] == "0043"

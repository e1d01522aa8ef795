"""Files as people have them: each is read right, is text, or is refused by name; never wrong."""

from __future__ import annotations

import io
import json
from csv import writer as csv_writer
from datetime import timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import ErsError, InvalidRecords
from encrypted_records.ingest.blocks import RawRecord, RecordStart, UnreadRow
from encrypted_records.ingest.check import validate
from encrypted_records.ingest.parsing import read_numbers
from encrypted_records.ingest.reading import columns
from encrypted_records.ingest.reading import detect as detecting
from encrypted_records.ingest.reading.choices import ReadingChoices, SaidOfColumn, detect_as
from encrypted_records.ingest.reading.detect import Detection, detect, propose
from encrypted_records.ingest.reading.parser import (
    CellCounts,
    FileHead,
    ReadingParser,
    head_of,
    parser_by,
    read_head,
)
from encrypted_records.ingest.reading.recipe import Recipe, read_recipe
from encrypted_records.model.definition_parser import parse_definition
from tests.support.mutated_files import (
    EXPECTED,
    FILES,
    KEPT_AS_TEXT,
    TABLES,
    count_of_mutations,
    mutations,
)
from tests.support.workbooks import DAY, MOMENT, SPAN, TIME, ods, ods_cell, sheet, truth, xlsx
from tests.support.workbooks import number as cell_of

KINDS = {"integer": "number", "string": "text", "date-time": "local"}


def content(name: str) -> bytes:
    return (FILES / name).read_bytes()


def rows_by(
    recipe: Recipe, body: bytes, step: int = 1 << 20, start: RecordStart | None = None
) -> list[RawRecord | UnreadRow]:
    head = head_of(body, recipe, final=True)
    assert isinstance(head, FileHead)
    begin = start or head.start
    parser = parser_by(recipe, head, begin)
    rows: list[RawRecord | UnreadRow] = []
    for at in range(0 if recipe.is_read_whole else begin.offset, len(body), step):
        rows += [record for block in parser.feed(body[at : at + step]) for record in block.records]
    return rows + [record for block in parser.finish() for record in block.records]


def records(recipe: Recipe, body: bytes) -> list[dict[str, Any]]:
    rows = rows_by(recipe, body)
    assert not [row for row in rows if isinstance(row, UnreadRow)]
    return [row.data for row in rows if isinstance(row, RawRecord)]


def is_same(kind: str, found: str | None, wanted: str | None) -> bool:
    if found is None or wanted is None or found == wanted:
        return found == wanted
    if kind == "number":
        return Decimal(found) == Decimal(wanted)
    return kind == "date-time" and found.replace("Z", "+00:00") == wanted


@pytest.mark.parametrize("name", TABLES)
def test_each_cell_of_a_file_is_what_its_author_meant(name: str) -> None:
    wanted, body = EXPECTED[name], content(name)
    found = detect(body, whole=True)
    recipe = found.recipe
    if wanted["container"] != "json":
        assert recipe.header_row == wanted["header_row"]
    if recipe.container == "csv":
        assert recipe.delimiter == wanted["delimiter"]
    if recipe.container == "csv" and not body.isascii():
        assert recipe.encoding == wanted["encoding"]
    columns = wanted["columns"]
    assert [column.name for column in recipe.columns] == [column["name"] for column in columns]
    for column, one in zip(recipe.columns, columns, strict=True):
        kind = KINDS.get(one["type"], one["type"])
        assert column.type == kind or (column.type, one["type"]) == ("date-time", "date-time")
    rows = records(recipe, body)
    assert len(rows) == len(wanted["rows"])
    for row, cells in zip(rows, wanted["rows"], strict=True):
        for column, cell in zip(recipe.columns, cells, strict=True):
            assert column.name is not None
            if (name, column.name) not in KEPT_AS_TEXT:
                assert is_same(column.type, row.get(column.name), cell), (column, row, cell)


@pytest.mark.parametrize("name", TABLES)
def test_a_file_is_taken_by_its_own_proposal_which_holds_no_value_of_it(name: str) -> None:
    body = content(name)
    found = detect(body, whole=True)
    proposed, _ = propose(found)
    assert not {"enum", "const", "required", "unique"} & set(json.dumps(proposed).split('"'))
    definition = parse_definition(json.dumps(proposed))
    for number, row in enumerate(records(found.recipe, body), 1):
        _, flaws = validate(definition, read_numbers(definition, row), row=number, pointer="")
        assert not flaws


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_the_same_however_the_bytes_come_and_wherever_reading_begins(name: str) -> None:
    body = content(name)
    recipe = detect(body, whole=True).recipe
    whole = rows_by(recipe, body)
    assert rows_by(recipe, body, 7) == whole
    head = head_of(body, recipe, final=True)
    assert head is not None
    parser = parser_by(recipe, head, head.start)
    blocks = [*parser.feed(body[head.start.offset :]), *parser.finish()]
    for block in blocks:
        again = rows_by(recipe, body, start=block.start)
        assert again[: block.count] == block.records


def blocks_of(body: bytes, recipe: Recipe) -> list[Any]:
    """The blocks of a file that comes in pieces."""
    head = read_head(body, recipe, final=True)
    assert head is not None
    parser = ReadingParser(recipe, head, head.start)
    blocks: list[Any] = []
    for at in range(head.start.offset, len(body), 50_000):
        blocks += parser.feed(body[at : at + 50_000])
    return [*blocks, *parser.finish()]


def test_reading_begins_again_at_each_block_of_a_long_file() -> None:
    rows = [f'{at};"a ""{at}""\r\nü{at % 7}";{at},5' for at in range(9000)]
    body = "\r\n".join(["id;text;n", *rows]).encode("cp1252")
    recipe = detect(body, whole=True).recipe
    whole = rows_by(recipe, body)
    blocks = blocks_of(body, recipe)
    assert len(blocks) > 1
    assert [record for block in blocks for record in block.records] == whole
    for block in blocks:
        assert rows_by(recipe, body, start=block.start)[: block.count] == block.records
    assert whole[8999] == RawRecord(
        9000, None, {"id": "8999", "text": 'a "8999"\r\nü4', "n": "8999.5"}
    )


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (content("pdf.csv"), "a PDF document"),
        (b"<!DOCTYPE html><html><body>Please log in</body></html>", "a web page"),
        (b"\x1f\x8b\x08\x00aaaa", "compressed with gzip"),
        (b"PK\x03\x04aaaa", "an archive"),
        (b"PAR1aaaa", "a Parquet file"),
        (b"a,b\n1,\x00\n", "zero bytes"),
        (("name\n" + "Müller\n" * 9).encode() + "Grün\n".encode("cp1252"), "first in line 11"),
        (b"", "the file is empty"),
        (b"a,b,c\n1,2,3\n4,5,6\n7,8,9\nx,y\n1,2\n3,4\n5,6\n", "two tables"),
        (b"a,b\n1,2\n3,4,5\n", "row 2 has more cells"),
        (b'a,b\n1,"x"y\n', "row 2: text after a closing quote"),
        (b",".join(b"c%d" % at for at in range(600)) + b"\n", "more than 512 columns"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(body: bytes, says: str) -> None:
    with pytest.raises(InvalidRecords) as caught:
        detect(body, whole=True)
    assert (caught.value.reason, says in caught.value.message) == ("reading", True)


def csv(*cells: str, name: str = "x") -> Detection:
    return detect("\n".join([f"{name};y", *(f"{cell};1" for cell in cells)]).encode(), whole=True)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["1.234,50", "7"], "number"),
        (["1'234.50", "7"], "number"),
        (["(1.50)", "7.25"], "number"),
        (["12-", "7,5"], "number"),
        (["12 %", "7,5 %"], "number"),
        (["1e-07", "0.5"], "number"),
        (["1E10", "2E11"], "text"),
        (["007", "8"], "text"),
        (["+4", "5"], "text"),
        (["<0.5", "1"], "text"),
        (["1234567890123456789", "1"], "text"),
        (["5 $", "5 €"], "text"),
        (["ja", "nein"], "boolean"),
        (["ja", "ja"], "text"),
        (["1", "0"], "number"),
        (["m", "f"], "text"),
        (["31.12.1999", "1.1.2000"], "date"),
        (["31.12.99", "1.1.00"], "text"),
        (["30.02.1999", "01.01.2000"], "text"),
        (["2024-01-05", "06.01.2024"], "text"),
        (["2024-01-05 10:11", "2024-01-06 10:12"], "local"),
        (["2024-01-05T10:11:12Z", "2024-01-06T10:12:13+0100"], "date-time"),
        (["2024-01-05T10:11:12Z", "2024-01-06T10:12:13"], "text"),
        (["10:11", "23:59"], "time"),
        (["PT1H30M", "P1D"], "duration"),
        (["PT1H", "P1M"], "text"),
        (["P1D", "P2W"], "text"),
        (["10", "may"], "text"),
    ],
)
def test_a_column_is_of_a_type_if_all_cells_read_one_way(cells: list[str], kind: str) -> None:
    assert csv(*cells).recipe.columns[0].type == kind


@pytest.mark.parametrize(
    ("cells", "last"),
    [
        (["1", "2", "3"], "1,234"),
        (["1", "2", "3"], "1.5"),
        (["1", "2", "3"], "4 €"),
        (["1 €", "2", "3"], "4 $"),
        (["1", "2", "3"], "A17"),
        (["1.234", "2.345", "3.456"], "1.234,5"),
        (["1.234", "5.678", "9.012"], "7"),
        (["01/02/2024", "03/04/2024", "05/06/2024"], "13/02/2024"),
        (["2024-01-05", "2024-02-06", "2024-03-07"], "soon"),
        (["10:00", "11:30", "12:45"], "24:61"),
        (["1e-07", "2", "3"], "1E10"),
    ],
)
def test_a_late_cell_decides_as_an_early_one_does(
    monkeypatch: pytest.MonkeyPatch, cells: list[str], last: str
) -> None:
    """Whichever cells are tried first, all of them decide."""
    wanted = [csv(*cells, *[last] * times) for times in (1, 3)]
    monkeypatch.setattr(columns, "_FIRST", 2)
    assert [csv(*cells, *[last] * times) for times in (1, 3)] == wanted


@pytest.mark.parametrize(
    ("cells", "ask", "column", "stored"),
    [
        (["03/04/2021", "05/06/2021"], "date_format", {"format": "dd/mm/yyyy"}, "2021-04-03"),
        (["1,234", "2,345"], "decimal", {"decimal": ","}, "1.234"),
        (["1,234", "2,345"], "decimal", {"decimal": "."}, "1234"),
    ],
)
def test_what_nobody_can_know_stays_text_until_it_is_said(
    cells: list[str], ask: str, column: dict[str, Any], stored: str
) -> None:
    body = "\n".join(["x;y", *(f"{cell};1" for cell in cells)]).encode()
    found = detect(body, whole=True)
    assert (found.decided[0].ask, found.recipe.columns[0].type) == (ask, "text")
    assert records(found.recipe, body)[0]["x"] == cells[0]
    said = ReadingChoices(columns={"x": SaidOfColumn(**column)})
    assert records(detect_as(body, said, whole=True).recipe, body)[0]["x"] == stored


BIRTHDAYS = ["05.10.1938", "26.04.1942", "30.01.1970", "31.02.1980", "unbekannt"]


@pytest.mark.parametrize(
    "column",
    [{"type": "date"}, {"format": "dd.mm.yyyy"}, {"type": "date", "format": "DD.MM.YYYY"}],
)
def test_a_column_stated_as_dates_is_read_by_the_form_that_fits_most_cells(
    column: dict[str, Any],
) -> None:
    body = "\n".join(["born;y", *(f"{cell};1" for cell in BIRTHDAYS)]).encode()
    said = ReadingChoices(columns={"born": SaidOfColumn(**column)})
    found = detect_as(body, said, whole=True)
    assert (found.recipe.columns[0].type, found.recipe.columns[0].format) == ("date", "dd.mm.yyyy")
    assert found.decided[0].note == (
        "rows with values that are not a date dd.mm.yyyy are not valid: '31.02.1980', 'unbekannt'"
    )


def test_a_word_for_no_value_applies_to_a_text_column_that_is_stated_as_dates() -> None:
    body = "\n".join(["born;y", *(f"{cell};1" for cell in BIRTHDAYS)]).encode()
    columns = {"born": SaidOfColumn(type="date")}
    found = detect_as(body, ReadingChoices(columns=columns, null=["unbekannt"]), whole=True)
    assert found.recipe.columns[0].null == ["unbekannt"]
    assert found.decided[0].note == (
        "rows with values that are not a date dd.mm.yyyy are not valid: '31.02.1980'"
    )


def test_a_column_stated_as_numbers_is_read_by_the_marks_that_fit_most_cells() -> None:
    body = b"x;y\n1.234,50;1\n2,75;1\n12,00;1\nviel;1\n"
    said = ReadingChoices(columns={"x": SaidOfColumn(type="number")})
    column = detect_as(body, said, whole=True).recipe.columns[0]
    assert (column.decimal, column.thousands) == (",", ".")


def test_an_unknown_form_of_dates_is_named_beside_the_known_ones() -> None:
    said = ReadingChoices(columns={"x": SaidOfColumn(format="tt.mm.jjjj")})
    with pytest.raises(InvalidRecords, match=r"not 'tt\.mm\.jjjj': yyyy-mm-dd, .*dd\.mm\.yyyy"):
        detect_as(b"x;y\n31.12.2024;1\n", said, whole=True)


def test_what_is_said_of_a_column_has_to_read_most_of_it() -> None:
    with pytest.raises(InvalidRecords, match="x: 'A' cannot be read as number"):
        detect_as(
            b"x;y\n1;1\nA;1\n",
            ReadingChoices(columns={"x": SaidOfColumn(type="number")}),
            whole=True,
        )
    with pytest.raises(InvalidRecords, match="no column z"):
        detect_as(
            b"x;y\n1;1\n", ReadingChoices(columns={"z": SaidOfColumn(null=["A"])}), whole=True
        )
    said = ReadingChoices(columns={"x": SaidOfColumn(null=["A"])})
    found = detect_as(b"x;y\n1;1\nA;1\n", said, whole=True)
    assert records(found.recipe, b"x;y\n1;1\nA;1\n") == [{"x": "1", "y": "1"}, {"y": "1"}]


def test_a_cell_that_does_not_read_is_named_by_row_and_field_and_not_repeated() -> None:
    recipe = csv("1,5", "2,5").recipe
    rows = rows_by(recipe, b"x;y\n1,5;1\nsecret;1\n3.5;1\n1,5\n1;2;3\n")
    flaws = [row.error for row in rows if isinstance(row, UnreadRow)]
    assert [(flaw.code, flaw.row, flaw.field) for flaw in flaws] == [
        ("reading", 2, "x"),
        ("reading", 3, "x"),
        ("csv_row", 4, None),
        ("csv_row", 5, None),
    ]
    assert "secret" not in repr(flaws)


@pytest.mark.parametrize(
    ("cell", "zone"),
    [("9999-12-31 23:59:59", "America/New_York"), ("0001-01-01 00:00:00", "Asia/Tokyo")],
)
def test_a_moment_that_is_of_no_year_in_utc_is_an_error_of_its_row(cell: str, zone: str) -> None:
    body = b"x;y\n2024-01-05 10:11:12;1\n"
    recipe = detect_as(body, ReadingChoices(time_zone=zone), whole=True).recipe
    rows = rows_by(recipe, body + f"{cell};1\n".encode())
    assert [row.row for row in rows if isinstance(row, UnreadRow)] == [2]


def test_columns_in_another_order_are_taken_and_others_are_refused_by_number() -> None:
    """A job keeps why it failed, and a row that is taken for names has cells of a record."""
    recipe = csv("1,5", "2,5").recipe
    assert records(recipe, b"y;x\n1;7,25\n") == [{"y": "1", "x": "7.25"}]
    with pytest.raises(InvalidRecords) as failed:
        read_head(b"secret;y\n1;2\n", recipe, final=True)
    assert "missing in the file: 1; new in the file: 1" in failed.value.message
    assert "secret" not in failed.value.message


def test_cells_of_blanks_are_counted_as_one_however_long_they_are() -> None:
    tally, blanks = CellCounts(), [" " * length for length in range(100)]
    tally.add("x", [*blanks, "k.A.", "1,5", "2"], [*[None] * 101, "1.5", "2"])
    assert tally.absent == {"x": {"": 100, "k.A.": 1}}
    assert tally.rewritten == {"x": 1}


def test_a_recipe_is_a_value_that_holds_nothing_else() -> None:
    recipe = detect(content("excel-de-cp1252.csv"), whole=True).recipe
    written = msgspec.json.encode(recipe)
    assert read_recipe(written) == recipe
    for wrong in (
        b"{}",
        b"[",
        written.replace(b'"version":1', b'"version":2'),
        written.replace(b'"container"', b'"more":1,"container"'),
        written.replace(b'"cp1252"', b'"zlib"'),
        written.replace(b'"delimiter":";"', b'"delimiter":"\\n"'),
        written.replace(b'"Menge"', b'"Name"'),
        written.replace(b'"dd.mm.yyyy"', b'"ddd"'),
    ):
        with pytest.raises(InvalidRecords):
            read_recipe(wrong)


@pytest.mark.parametrize("note", ["Notes: all amounts in euros;;", "Sum;7", "Sum;;;61"])
def test_a_note_below_rows_that_were_not_looked_at_is_named_and_never_a_record(
    monkeypatch: pytest.MonkeyPatch, note: str
) -> None:
    monkeypatch.setattr(detecting, "MAX_ROWS", 100)
    table = "a;b;c;d\n" + "x;y;;1\nx\n" * 60 + "long first cell of a row;;;\nx;y;z;1\n"
    body = f"{table}{note}\n".encode()
    found = detect(body, whole=True)
    assert (found.whole, found.recipe.below, found.recipe.short_rows) == (False, None, True)
    rows = rows_by(found.recipe, body)
    assert [row.row for row in rows if isinstance(row, UnreadRow)] == [123]
    below = detect_as(body, ReadingChoices(below=1), whole=True)
    assert len(records(below.recipe, body)) == 122
    assert len(records(detect_as(body, ReadingChoices(below=0), whole=True).recipe, body)) == 123
    assert len(records(found.recipe, table.encode())) == 122


@pytest.mark.parametrize(
    "total",
    [
        "Summe;;;7.900,00",
        "Gesamtsumme:;;;7.900,00",
        ";Total;2;7.900,00",
        "Sous-total;; ;7.900,00 €",
    ],
)
def test_a_row_of_totals_is_left_out_and_shown(total: str) -> None:
    table = "Name;Abteilung;Tage;Gehalt\nAda;IT;20;4.100,50\nBen;HR;21;3.799,50\n"
    body = f"{table}{total}\nStand: 30.11.2026\n".encode()
    found = detect(body, whole=True)
    shown = " ".join(filter(None, total.split(";")))
    assert (found.below, found.recipe.below) == ((shown, "Stand: 30.11.2026"), 2)
    assert "below" in found.guessed
    assert [record["Name"] for record in records(found.recipe, body)] == ["Ada", "Ben"]


@pytest.mark.parametrize(
    "record",
    [
        "Total;Energie;20;3.000,00",
        "Total;Energie;;3.000,00",
        "Summerfield;;;3.000,00",
        "Media;;;3.000,00",
        "Summe;;;",
    ],
)
def test_a_record_that_only_resembles_totals_is_a_record(record: str) -> None:
    table = "Name;Abteilung;Tage;Gehalt\nAda;IT;20;4.100,50\nBen;HR;21;3.799,50\n"
    body = f"{table}{record}\n".encode()
    found = detect(body, whole=True)
    assert found.recipe.below == 0
    assert len(records(found.recipe, body)) == 3


def test_a_note_at_the_end_is_the_same_wherever_reading_begins() -> None:
    body = ("a;b;c;d\n" + f"x;{'y' * 90};;1\n" * 9000 + "x\n" * 30).encode()
    recipe = msgspec.structs.replace(detect(body, whole=True).recipe, below=None, short_rows=True)
    blocks = blocks_of(body, recipe)
    whole = [record for block in blocks for record in block.records]
    assert [one.row for one in whole if isinstance(one, UnreadRow)] == [*range(9001, 9031)]
    for block in blocks:
        assert rows_by(recipe, body, start=block.start)[: block.count] == block.records


def test_mutated_files_are_read_or_refused_and_their_proposal_takes_them() -> None:
    count = count_of_mutations(250)
    taken = 0
    for body in mutations(count):
        try:
            found = detect(body, whole=True)
            rows = rows_by(found.recipe, body)
        except ErsError:
            continue
        taken += 1
        definition = parse_definition(json.dumps(propose(found)[0]))
        for row in rows:
            if isinstance(row, RawRecord):
                raw = read_numbers(definition, row.data)
                assert not validate(definition, raw, row=row.row, pointer="")[1]
            else:
                assert "\ufffd" not in row.error.detail
    assert taken > count // 5


@pytest.mark.parametrize(
    ("body", "first"),
    [
        # As ers record export, R and PostgreSQL write them: quotes stand where they mean something.
        ('id,note\n1,""\n2,"a,b"\n3,x\n', {"id": "1", "note": ""}),
        ('"id","note"\n"1",""\n"2",\n"3","x"\n', {"id": "1", "note": ""}),
        # All cells are in quotes: a gap is nothing else than a gap.
        ('"id","note"\n"1",""\n"2","b"\n', {"id": "1"}),
        ('id,"note"\n1,""\n2,""\n', {"id": "1"}),
        ("id,note\n1,\n2,b\n", {"id": "1"}),
        # A gap among numbers is a gap in whichever form.
        ('id,n,t\n1,"",a\n2,5,b\n3,,c\n', {"id": "1", "t": "a"}),
    ],
)
def test_empty_texts_in_quotes_are_kept_where_quotes_tell_them_from_gaps(
    body: str, first: dict[str, str]
) -> None:
    found = detect(body.encode(), whole=True)
    assert records(found.recipe, body.encode())[0] == first
    told = "are empty texts" in " ".join(found.notes)
    assert told is (found.recipe.empty_quotes == "text")
    absent = {one.name: one.absent for one in propose(found)[1]}
    rows = records(found.recipe, body.encode())
    assert absent == {name: sum(name not in row for row in rows) for name in absent}


_NUMBERS = st.decimals(-(10**12), 10**12, places=3, allow_nan=False)
#: Ways to write values of a column; each draws all cells of it in one form.
_WAYS: list[st.SearchStrategy[str]] = [
    _NUMBERS.map(lambda one: f"{one:,}"),
    _NUMBERS.map(lambda one: f"{one:,}".translate(str.maketrans(",.", ".,"))),
    _NUMBERS.map(lambda one: f"{one} €"),
    st.integers(-(10**20), 10**20).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.dates().map(lambda one: one.strftime("%d.%m.%Y")),
    st.dates().map(lambda one: f"{one.month}/{one.day}/{one.year}"),
    st.datetimes().map(lambda one: one.isoformat(" ")),
    st.datetimes().map(lambda one: one.strftime("%m/%d/%Y %I:%M %p")),
    st.times().map(str),
    st.timedeltas(timedelta(-9), timedelta(9)).map(lambda one: f"PT{one.total_seconds():.6f}S"),
    st.datetimes().map(lambda one: f"{one.isoformat()}+01:00"),
    st.sampled_from(["ja", "nein", "NA", "-", ""]),
    st.sampled_from(["true", "false", "null"]),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=9),
    st.text("0123456789.,-/:Ee ", max_size=9),
]


#: Cells of a workbook in their own types, of Excel and of LibreOffice.
_CELLS: list[tuple[st.SearchStrategy[str | float], st.SearchStrategy[str]]] = [
    (st.floats(-1e12, 1e12), st.floats(-1e12, 1e12).map(lambda one: ods_cell("float", str(one)))),
    (
        st.integers(61, 2_000_000).map(lambda one: cell_of(str(one), DAY)),
        st.dates().map(lambda one: ods_cell("date", one.isoformat())),
    ),
    (
        st.floats(61, 100_000).map(lambda one: cell_of(str(one), MOMENT)),
        st.datetimes().map(lambda one: ods_cell("date", one.isoformat())),
    ),
    (
        st.floats(0, 40).map(lambda one: cell_of(str(one), SPAN)),
        st.integers(0, 10**5).map(lambda one: ods_cell("time", f"PT{one}M")),
    ),
    (
        st.floats(0, 0.99).map(lambda one: cell_of(str(one), TIME)),
        st.times().map(lambda one: ods_cell("time", one.strftime("PT%HH%MM%SS"))),
    ),
    (
        st.booleans().map(truth),
        st.booleans().map(lambda one: ods_cell("boolean", str(one).lower())),
    ),
    (st.text("ab1,. ", max_size=6), st.text("ab1,. ", max_size=6)),
]


@st.composite
def workbooks(draw: st.DrawFn, names: list[str], count: int) -> bytes:
    """A sheet with a column of one kind of cells under each name."""
    which = draw(st.integers(0, 1))
    kinds = draw(st.lists(st.sampled_from(_CELLS), min_size=len(names), max_size=len(names)))
    columns = [draw(st.lists(kind[which], min_size=count, max_size=count)) for kind in kinds]
    head = [name.replace("\x01", "") or "n" for name in names]
    rows = [head, *map(list, zip(*columns, strict=True))]
    return ods(rows) if which else xlsx({"Data": sheet(rows)})


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Tables of columns in such forms, as CSV, JSON and workbooks write them."""
    count = draw(st.integers(1, 12))
    ways = draw(st.lists(st.sampled_from(_WAYS), min_size=1, max_size=5))
    columns = [draw(st.lists(way, min_size=count, max_size=count)) for way in ways]
    names = draw(
        st.lists(st.text("abÄA\u0308 .\x01", max_size=4), min_size=len(ways), max_size=len(ways))
    )
    rows = list(zip(*columns, strict=True))
    form = draw(st.sampled_from(["csv", "json", "ndjson", "within", "xlsx", "ods"]))
    objects = [dict(zip(names, row, strict=True)) for row in rows]
    match form:
        case "json":
            return json.dumps(objects).encode()
        case "ndjson":
            return "\n".join(map(json.dumps, objects)).encode()
        case "within":
            return json.dumps({"rows": objects, "next": None}).encode()
        case "xlsx" | "ods":
            return draw(workbooks(names, count))
    text = io.StringIO()
    writer = csv_writer(text, delimiter=draw(st.sampled_from(",;\t|")))
    writer.writerows([names, *rows] if draw(st.booleans()) else rows)
    return text.getvalue().encode(draw(st.sampled_from(["utf-8", "utf-8-sig", "utf-16"])))


@given(files())
def test_any_file_that_is_read_is_taken_by_its_own_proposal(body: bytes) -> None:
    try:
        found = detect(body, whole=True)
    except InvalidRecords as error:
        assert error.reason == "reading"
        return
    definition = parse_definition(json.dumps(propose(found)[0]))
    rows = records(found.recipe, body)
    assert len(rows) == found.rows
    for number, row in enumerate(rows, 1):
        assert not validate(definition, read_numbers(definition, row), row=number, pointer="")[1]


@given(st.lists(st.lists(st.text("ab1,;\"'\n .-", max_size=6), min_size=2, max_size=4), max_size=9))
def test_whatever_is_written_comes_back_or_is_refused(rows: list[list[str]]) -> None:
    body = "\n".join(",".join(cells) for cells in [["a", "b"], *rows]).encode()
    try:
        found = detect(body, whole=True)
        rows_by(found.recipe, body)
    except ErsError:
        return
    parse_definition(json.dumps(propose(found)[0]))


@pytest.mark.parametrize(
    "body",
    ["é,e\u0301,m²,m2\n1,2,3,4\n4,5,6,7\n", '[{"é": 1, "e\u0301": 2}, {"é": 3, "e\u0301": 4}]'],
)
def test_names_that_differ_in_their_normalization_alone_become_two_fields(body: str) -> None:
    found = detect(body.encode(), whole=True)
    definition = parse_definition(json.dumps(propose(found)[0]))
    assert list(definition.fields)[:2] == ["é", "e\u0301_2"]
    assert found.changed["e\u0301_2"] == "e\u0301"
    assert found.changed.get("m2_2", "m2") == "m2"
    assert records(found.recipe, body.encode())[0]["e\u0301_2"] == "2"


@pytest.mark.parametrize("row", [b";\n", b"1,2\n", b",".join([b"7"] * 512) + b"\n"])
def test_of_a_file_of_many_rows_the_first_are_looked_at_and_all_are_read(row: bytes) -> None:
    cells = row.count(b",") + row.count(b";") + 1
    count = 120_000 if cells < 3 else 1200
    found = detect(row * count, whole=True)
    assert found.rows <= detecting.MAX_ROWS
    assert found.rows * cells <= detecting.MAX_CELLS + cells
    assert not found.whole
    if row != b";\n":  # its rows hold nothing
        assert len(rows_by(found.recipe, row * count)) == count


def test_rows_without_values_are_left_out_and_counted_and_blank_lines_are_nothing() -> None:
    text = 'id,note\n1,a\n"",\n\n,\n2,""\n---,---\n3,b\n,\n'
    found = detect(text.encode(), whole=True)
    assert "rows left out because they have only empty cells or a drawn line: 4" in found.notes
    assert [row["id"] for row in records(found.recipe, text.encode())] == ["1", "2", "3"]
    long = text + "4,c\n,\n" * 40_000
    for below in (0, None):
        recipe = msgspec.structs.replace(found.recipe, below=below)
        head = read_head(long.encode(), recipe, final=True)
        assert head is not None
        parser = ReadingParser(recipe, head, head.start)
        parser.tally = CellCounts()
        body = long.encode()[head.start.offset :]
        count = sum(
            block.count
            for at in range(0, len(body), 100_000)
            for block in parser.feed(body[at : at + 100_000])
        )
        count += sum(block.count for block in parser.finish())
        assert (count, parser.tally.valueless_rows) == (40_003, 40_004)


def test_no_row_is_left_out_of_a_file_whose_rows_all_have_values() -> None:
    found = detect(b"id,note\n1,a\n\n2,\n", whole=True)
    assert found.notes == ()

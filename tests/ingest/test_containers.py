"""Workbooks and documents of JSON: every cell is as in the program, or the file is refused."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

from encrypted_records.errors import ErsError, InvalidRecords
from encrypted_records.ingest.blocks import RawRecord, RecordStart, UnreadRow
from encrypted_records.ingest.reading import workbook
from encrypted_records.ingest.reading.choices import NOTHING, ReadingChoices, read_again
from encrypted_records.ingest.reading.detect import Detection, Wanted, detect
from encrypted_records.ingest.reading.parser import head_of, parser_by
from encrypted_records.model import ids
from tests.ingest.test_reading import records, rows_by
from tests.support.workbooks import (
    DAY,
    MOMENT,
    SPAN,
    TIME,
    Cell,
    fault,
    formula,
    number,
    ods,
    ods_cell,
    packed,
    sheet,
    truth,
    xlsx,
)

ROWS: list[list[Cell]] = [["id", "n"], [1, 2.5], [2, 3.5]]


#: A formula as a library writes it that computes nothing.
UNCOMPUTED = '<c r="@"><f>1+1</f><v></v></c>'


def one_sheet(*rows: list[Cell], more: str = "") -> bytes:
    return xlsx({"Data": sheet(rows, more)})


def look(body: bytes, **wanted: Any) -> Detection:
    return detect(body, whole=True, wanted=Wanted(**wanted))


def test_cells_of_each_kind_are_stored_as_the_program_shows_them() -> None:
    body = one_sheet(
        ["code", "n", "day", "moment", "time", "ok", "sum"],
        [
            *("007", 1234.5, number("45292", DAY), number("45292.5", MOMENT)),
            *(number("0.5", TIME), truth(True), formula("2.5")),
        ],
        [
            *("012", 7, number("45293", DAY), number("45293", MOMENT)),
            *(number("0.25", TIME), truth(False), formula("3")),
        ],
    )
    found = look(body)
    assert records(found.recipe, body) == [
        {
            "code": "007",
            "n": "1234.5",
            "day": "2024-01-01",
            "moment": "2024-01-01T12:00:00",
            "time": "12:00:00",
            "ok": "true",
            "sum": "2.5",
        },
        {
            "code": "012",
            "n": "7",
            "day": "2024-01-02",
            "moment": "2024-01-02T00:00:00",
            "time": "06:00:00",
            "ok": "false",
            "sum": "3",
        },
    ]
    types = [column.type for column in found.recipe.columns]
    assert types == ["text", "number", "date", "local", "time", "boolean", "number"]


def test_the_first_day_of_1904_is_refused_among_days_and_never_a_time() -> None:
    rows = [["day"], [number("43830", DAY)], [number("0", DAY)]]
    with pytest.raises(InvalidRecords, match=r"cell A3 .* first day of 1904"):
        detect(xlsx({"S": sheet(rows)}, from_1904=True), whole=True)
    clocks = [["clock"], [number("0.5", TIME)], [number("0", TIME)]]
    found = detect(xlsx({"S": sheet(clocks)}, from_1904=True), whole=True)
    assert [one.column.type for one in found.decided] == ["time"]


def test_days_of_a_workbook_that_counts_from_1904_are_the_same_days() -> None:
    body = xlsx({"S": sheet([["day"], [number("43830", DAY)]])}, from_1904=True)
    assert records(look(body).recipe, body) == [{"day": "2024-01-01"}]


def test_a_number_is_never_taken_for_a_number_with_thousands() -> None:
    body = one_sheet(["n"], [1.234], [2.345])
    assert records(look(body).recipe, body) == [{"n": "1.234"}, {"n": "2.345"}]
    texts = one_sheet(["n", "k"], ["1,234", 1], ["2,345", 2])
    found = look(texts)
    assert (found.decided[0].ask, found.recipe.columns[0].type) == ("decimal", "text")


def test_numbers_that_are_texts_are_numbers_where_all_of_them_read_so() -> None:
    body = one_sheet(["n", "id"], ["12", "0012"], [13, 14])
    rows = records(look(body).recipe, body)
    assert rows == [{"n": "12", "id": "0012"}, {"n": "13", "id": "14"}]


def test_digits_behind_the_fifteenth_are_told_and_spans_are_no_times_of_day() -> None:
    body = one_sheet(["n", "span"], [0.1 + 0.2, number("1.5", SPAN)], [1.5, number("0.25", SPAN)])
    found = look(body)
    assert "1 numbers have more than 15 digits; 15 are kept" in found.notes
    assert found.recipe.columns[1].type == "duration"
    assert [row["span"] for row in records(found.recipe, body)] == ["P1DT12H", "PT6H"]
    assert records(found.recipe, body)[0]["n"] == "0.3"


def test_decimals_of_a_second_that_are_not_read_are_told() -> None:
    fine = ods_cell("time", "PT05H30M10.1234567S"), ods_cell("date", "2024-01-05T10:11:12.1234565")
    plain = ods_cell("time", "PT05H30M10.123456S"), ods_cell("date", "2024-01-05T10:11:12.5")
    found = look(ods([["time", "at"], [*fine], [*plain]]))
    assert found.notes == ("2 times are finer; 6 decimals of a second are kept",)
    assert look(ods([["time", "at"], [*plain]])).notes == ()

    # 10:11:12.123456 as pandas writes it; and 10:11:12.123, and a price of the same digits.
    moments = number("45296.4244458733333", MOMENT), number("45296.42444586806", MOMENT)
    found = look(one_sheet(["at", "price"], [moments[0], 1.5], [moments[1], number("4.244458", 0)]))
    assert found.notes == ("1 times are finer; 3 decimals of a second are kept",)


def test_zeros_that_a_format_shows_in_front_of_a_number_are_kept() -> None:
    styles = (
        '<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><numFmts>'
        '<numFmt numFmtId="170" formatCode="00000"/></numFmts><cellXfs><xf numFmtId="0"/>'
        '<xf numFmtId="170"/></cellXfs></styleSheet>'
    )
    body = one_sheet(["zip", "n"], [number("1067", 1), 5], [number("80331", 1), 6])
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    body = packed(parts | {"xl/styles.xml": styles})
    assert [row["zip"] for row in records(look(body).recipe, body)] == ["01067", "80331"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (one_sheet(["a", "b"], [1, fault()]), "cell B2 of the sheet contains an error"),
        (one_sheet(["a", "b"], [1, formula(None)]), "B2 of the sheet contains a formula without"),
        (one_sheet(["a", "b"], [1, UNCOMPUTED]), "B2 of the sheet contains a formula without"),
        (
            xlsx({"S": sheet([["a"], [formula("0")]])}, more='<calcPr fullCalcOnLoad="1"/>'),
            "A2 of the sheet contains a formula without",
        ),
        (one_sheet(["a"], [number("-0.25", TIME)]), "A2 of the sheet is a negative number"),
        (one_sheet(["a"], [number("1e308", SPAN)]), "is damaged"),
        (one_sheet(["a"], [number("-1e308", SPAN)]), "is damaged"),
        (ods([["a"], [ods_cell("float", "1234567890123456")]]), "A2 of the sheet contains a num"),
        (ods([["a"], ['<table:table-cell table:formula="of:=1"/>']]), "A2 of the sheet contains a"),
        (
            ods([["a"], ['<table:table-cell office:value-type="string"><text:p>x<text:tab/>y'
                         "</text:p></table:table-cell>"]]),
            "A2 of the sheet contains a tab or a line break",
        ),
        (
            ods([["a", "b"], ['<table:table-cell table:number-columns-spanned="2"/>',
                              "<table:covered-table-cell/>"], ["x", "y"]]),
            "the cells A2:B2 of the table are merged",
        ),
        (ods([["a"], [ods_cell("boolean", "1")]]), "A2 of the sheet contains a value"),
        (one_sheet(["a"], [number("1e400")]), "A2 of the sheet is not a number"),
        (one_sheet(["a"], [number("NaN")]), "A2 of the sheet is not a number"),
        (
            one_sheet(["a"], ['<c r="@" t="d"><v>2024-01-05T10:11:12.1234567</v></c>']),
            "A2 of the sheet contains a value that programs",
        ),
        (one_sheet(["a"], [number("12345678901234567890")]), "A2 of the sheet contains a num"),
        (
            one_sheet(*ROWS, more='<mergeCells><mergeCell ref="A2:A3"/></mergeCells>'),
            "the cells A2:A3 of the table are merged",
        ),
        (one_sheet(*ROWS, [], ["item", "price"], ["x", 2], ["y", 3]), "another begins at row 5"),
        (
            one_sheet(["a", "b", None, "c"], [1, 2, None, 3], [1, 2], [1, 2]),
            "side by side: column C is empty",
        ),
        (ods([["a"], ["1"]])[:-40], "a damaged or truncated archive"),
        (packed({"a.txt": "x"}), "an archive"),
        (packed({"[Content_Types].xml": "x", "word/document.xml": "x"}), "not a workbook"),
        (packed({"[Content_Types].xml": "x", "xl/workbook.xml": "<x"}), "is damaged"),
        (xlsx({"S": sheet([])}), "no cells"),
        (
            xlsx({"S": '<worksheet><sheetData><row r="1"><c r="A1"><v>1</v></c></row>'
                       '<row r="9"><c r="XFD1048576"><v>1</v></c></row></sheetData></worksheet>'}),
            "more than 5,000,000 cells",
        ),
        (
            ods([[ods_cell("float", "1").replace("<table:table-cell ",
                 '<table:table-cell table:number-columns-repeated="99999999" ')]]),
            "more than 5,000,000 cells",
        ),
        (b"\xd0\xcf\x11\xe0aaaa", "protected by a password"),
    ],
)  # fmt: skip
def test_a_workbook_that_cannot_be_stored_is_refused_by_the_place(body: bytes, says: str) -> None:
    with pytest.raises(InvalidRecords) as caught:
        look(body)
    assert (caught.value.reason, says in caught.value.message) == ("reading", True), caught.value


def repacked(body: bytes, change: Callable[[str], str]) -> bytes:
    """A workbook with other parts of XML."""
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    return packed({name: change(part) for name, part in parts.items()})


def test_xml_that_is_cut_off_or_longer_than_it_says_never_reaches_the_library() -> None:
    cut = repacked(ods([["a"], ["b"]]), lambda part: part.partition("</table:table>")[0])
    body = bytearray(one_sheet(["a"], ["x" * 1000]))
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        size = archive.getinfo("xl/worksheets/s1.xml").file_size.to_bytes(4, "little")
    assert body.count(size) == 2
    for one in (cut, bytes(body).replace(size, (100).to_bytes(4, "little"))):
        with pytest.raises(InvalidRecords, match="damaged"):
            look(one)


def test_a_text_that_may_be_a_number_of_another_form_stays_text_beside_numbers() -> None:
    body = one_sheet(["n"], [5], ["1,234"], [7])
    found = look(body)
    assert (found.recipe.columns[0].type, found.decided[0].ask) == ("text", None)
    assert [row["n"] for row in records(found.recipe, body)] == ["5", "1,234", "7"]


def test_zeros_in_front_of_a_number_are_kept_of_libreoffice_as_well() -> None:
    body = ods([["zip"], [ods_cell("float", "1067", "01067")], [ods_cell("float", "80331")]])
    assert [row["zip"] for row in records(look(body).recipe, body)] == ["01067", "80331"]


def test_spans_of_libreoffice_are_spans_also_where_they_are_shorter_than_a_day() -> None:
    spans = [[ods_cell("time", one)] for one in ("PT07H30M15S", "PT36H30M00.5S", "-PT2H30M0S")]
    body = ods([["worked"], *spans])
    found = look(body)
    assert found.recipe.columns[0].type == "duration"
    rows = [row["worked"] for row in records(found.recipe, body)]
    assert rows == ["PT7H30M15S", "P1DT12H30M0.5S", "-PT2H30M"]


def test_chunks_of_a_workbook_with_long_texts_are_cut_by_their_text() -> None:
    rows: list[list[Cell]] = [["x" * 30_000]] * 100
    body = one_sheet(["a"], *rows)
    recipe = look(body).recipe
    head = head_of(body, recipe, final=True)
    assert head is not None
    parser = parser_by(recipe, head, head.start)
    blocks = [*parser.feed(body), *parser.finish()]
    assert [(one.start.offset, one.start.row, one.count) for one in blocks] == [
        (0, 1, 35),
        (1_050_000, 36, 35),
        (2_100_000, 71, 30),
    ]
    late = RecordStart(blocks[1].start.offset, 40)
    assert len(rows_by(recipe, body, start=late)) == 61


def test_why_a_job_failed_names_no_sheet_of_its_workbook() -> None:
    body = one_sheet(*ROWS)
    recipe = look(body).recipe
    with pytest.raises(InvalidRecords) as caught:
        rows_by(recipe, xlsx({"Patient X": sheet(ROWS)}))
    assert "Patient" not in f"{caught.value.message} {caught.value.hint}"


def test_an_object_with_data_and_an_id_of_its_own_is_no_record_of_this_service() -> None:
    body = b'[{"id": 5, "data": {"x": 1}}, {"id": 6, "data": {"x": 2}}]'
    assert records(look(body).recipe, body)[0] == {"id": "5", "data.x": "1"}
    record, schema = ids.new_id(), ids.new_id()
    shown = {
        "id": ids.to_text(record),
        "url": ids.reference("records", record),
        "schema": ids.reference("schemas", schema),
        "data": {"x": 1},
    }
    body = json.dumps([shown]).encode()
    assert records(look(body).recipe, body) == [{"x": "1"}]


def test_a_bomb_is_refused_before_it_unfolds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workbook, "MAX_UNPACKED", 1 << 20)
    with pytest.raises(InvalidRecords, match="expands to more than 1 MiB"):
        look(one_sheet(["a"], ["x" * (2 << 20)]))


def test_the_largest_sheet_that_is_shown_is_read_and_the_others_are_named() -> None:
    sheets = {"Cover": sheet([["x"]]), "Data": sheet(ROWS), "Old": sheet([*ROWS, *ROWS[1:]])}
    body = xlsx(sheets, hidden=["Old"])
    found = look(body)
    assert (found.recipe.sheet, found.guessed) == ("Data", ("sheet",))
    assert found.notes == ("hidden sheets are not read: Old", "further sheets are not read: Cover")
    assert look(body, sheet="Old").guessed == ()
    assert len(records(look(body, sheet="Old").recipe, body)) == 4
    with pytest.raises(InvalidRecords, match="no sheet of that name"):
        look(body, sheet="X")


def test_a_workbook_of_libreoffice_is_read_like_any_other() -> None:
    body = ods(
        [
            ["Nr", "Tag", "Zeit", "Betrag", "Ja"],
            [
                *("001", ods_cell("date", "2024-01-05"), ods_cell("date", "2024-01-05T10:11:12")),
                *(ods_cell("currency", "1234.5", "1.234,50 €"), ods_cell("boolean", "true")),
            ],
            [
                *("002", ods_cell("date", "2024-01-06"), ods_cell("date", "2024-01-06")),
                *(ods_cell("float", "2"), ods_cell("boolean", "false")),
            ],
        ]
    )
    assert records(look(body).recipe, body)[1] == {
        "Nr": "002",
        "Tag": "2024-01-06",
        "Zeit": "2024-01-06T00:00:00",
        "Betrag": "2",
        "Ja": "false",
    }


def test_a_table_below_a_title_and_above_a_note_is_found_in_a_sheet() -> None:
    rows: list[list[Cell]] = [["Sales 2024"], [], *ROWS, ["All amounts in thousands"]]
    body = xlsx({"S": sheet(rows)})
    found = look(body)
    recipe = found.recipe
    assert (recipe.header_row, recipe.above, recipe.below, found.guessed) == (3, 1, 1, ("below",))
    assert len(records(recipe, body)) == 2


def test_rows_of_a_long_sheet_are_the_same_wherever_a_chunk_of_a_job_begins() -> None:
    rows: list[list[Cell]] = [[at, f"row {at}"] for at in range(12_000)]
    body = one_sheet(["id", "text"], *rows)
    recipe = look(body).recipe
    head = head_of(body, recipe, final=True)
    assert head is not None
    parser = parser_by(recipe, head, head.start)
    blocks = [*parser.feed(body), *parser.finish()]
    assert [block.start.row for block in blocks] == [1, 5001, 10001]
    for block in blocks:
        assert rows_by(recipe, body, start=block.start)[: block.count] == block.records


def test_the_next_workbook_is_read_as_the_one_before() -> None:
    kept = look(one_sheet(*ROWS)).recipe
    more = one_sheet([], ["n", "id"], [7.5, 3])
    found, differences = read_again(more, kept, NOTHING, whole=True)
    assert all(difference.taken for difference in differences)
    assert records(found.recipe, more) == [{"n": "7.5", "id": "3"}]
    texts = one_sheet(["id", "n"], [1, "x"])
    _, differences = read_again(texts, kept, NOTHING, whole=True)
    assert [difference.kind for difference in differences if not difference.taken] == ["value"]
    with pytest.raises(
        InvalidRecords, match="the file is CSV, and the previous file was a workbook"
    ):
        read_again(b"id,n\n1,2\n", kept, NOTHING, whole=True)
    with pytest.raises(InvalidRecords, match="no sheet of that name"):
        read_again(xlsx({"Neu": sheet(ROWS)}), kept, NOTHING, whole=True)
    renamed = xlsx({"Neu": sheet(ROWS)})
    found, differences = read_again(renamed, kept, ReadingChoices(sheet="Neu"), whole=True)
    assert (found.recipe.sheet, differences) == ("Neu", [])


@pytest.mark.parametrize(
    "document",
    [
        {"data": [{"id": 1, "a": {"b": "x"}}, {"id": 2, "tags": [1, "y"]}], "next": None},
        [{"id": 1, "a": {"b": "x"}}, {"id": 2, "tags": [1, "y"]}],
    ],
)
def test_objects_are_flattened_and_lists_are_texts_of_json(document: Any) -> None:
    body = json.dumps(document, indent=1).encode()
    found = look(body)
    assert [column.name for column in found.recipe.columns] == ["id", "a.b", "tags"]
    assert "lists are stored as JSON texts: tags" in found.notes
    assert records(found.recipe, body) == [{"id": "1", "a.b": "x"}, {"id": "2", "tags": '[1,"y"]'}]
    if isinstance(document, dict):
        assert "left out beside data: next" in found.notes


def test_values_of_json_keep_their_kind() -> None:
    body = (
        b'{"id": "0012", "price": "1.50", "n": 1.50, "e": "", "ok": true, "day": "2024-01-05"}\n'
        b'{"id": "13", "price": "2", "n": 1e3, "e": null, "ok": false, "day": "2024-01-06"}\n'
    )
    found = look(body)
    types = [column.type for column in found.recipe.columns]
    assert types == ["text", "text", "number", "text", "boolean", "date"]
    rows = records(found.recipe, body)
    assert rows[0]["e"] == ""
    assert ("e" in rows[1], rows[1]["n"]) == (False, "1000")


def test_a_late_member_that_was_not_seen_is_named_and_never_dropped() -> None:
    body = b'{"a": 1}\n' * 3
    rows = rows_by(look(body).recipe, body + b'{"a": 2, "b": 3}\nx\n')
    assert [(row.row, row.error.code) for row in rows if isinstance(row, UnreadRow)] == [
        (4, "reading"),
        (5, "reading"),
    ]


def test_a_late_number_that_would_be_spelled_otherwise_is_named_and_long_ones_stay() -> None:
    long = b"9" * 300 + b".5"
    body = b'{"a": "x"}\n{"a": ' + long + b"}\n"
    rows = rows_by(look(body).recipe, body + b'{"a": 1e400}\n')
    assert [row.data["a"] for row in rows if isinstance(row, RawRecord)] == ["x", long.decode()]
    assert [row.row for row in rows if isinstance(row, UnreadRow)] == [3]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"a": {"0": 1}, "b": {"0": 2}}', "as pandas writes it"),
        (b'{"a": [{"x": 1}], "b": [{"x": 1}]}', "several lists of objects"),
        (b"[1, 2]", "expected an object"),
        (b'[{"a": 1}', "not JSON"),
        (b'{"a": 1, "a": 2}\n{"a": 1}\n', "same key twice"),
        (b'[{"a": {"b": 1}, "a.b": 2}]', "the same name when objects are flattened"),
        (b'[{"a": 1}, {"a": 1e400}]', "row 2: a number with an exponent has more than 400"),
        (b'[{"a": {"b": -1e-400}}]', "row 1: a number with an exponent has more than 400"),
        (b'{"a":' * 50 + b"1" + b"}" * 50, "nested"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "no objects"),
        (b"[" + b",".join(b'{"c%d": 1}' % at for at in range(600)) + b"]", "more than 512"),
    ],
)
def test_json_that_is_no_table_is_refused_by_name(body: bytes, says: str) -> None:
    with pytest.raises(ErsError) as caught:
        look(body)
    assert (caught.value.reason, says in caught.value.message) == ("reading", True), caught.value

"""Rows that are read many at once are those that are read one by one, and those of a plain reading
of the grammar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encrypted_records.ingest.blocks import RawRecord, RecordStart, UnreadRow
from encrypted_records.ingest.reading import parser as reading_parser
from encrypted_records.ingest.reading.parser import CellCounts, FileHead, ReadingParser
from encrypted_records.ingest.reading.recipe import FileColumn, Recipe
from encrypted_records.ingest.reading.text_table import rows_of


def slowly(text: str, delimiter: str, quote: str) -> Iterator[tuple[list[str], set[int]]]:
    """The rows of a text that ends outside quotes, by one character at a time."""
    cells: list[str] = []
    quoted: set[int] = set()
    cell, state = "", "begin"
    text = re.sub("\r(?!\n)", "\n", text)
    at = 0
    while at < len(text):
        mark = text[at]
        ends = "\r\n" if text.startswith("\r\n", at) else "\n" if mark == "\n" else ""
        if state == "inside":
            if text.startswith(quote * 2, at):
                cell, at = cell + quote, at + 1
            elif mark == quote:
                state = "behind"
            else:
                cell += mark
        elif mark == quote and state == "begin":
            state = "inside"
            quoted.add(len(cells))
        elif mark == delimiter or ends:
            cells.append(cell)
            cell, state = "", "begin"
            if ends:
                yield cells, quoted
                cells, quoted = [], set()
                at += len(ends) - 1
        elif state != "behind":
            cell, state = cell + mark, "bare"
        at += 1
    if cells or cell or state != "begin":
        yield [*cells, cell], quoted


_CELLS = st.sampled_from(["", "a", "b c", '"', 'x"y', ";", ",", "\n", "\r\n", "é", '""', "--"])
_LINES = st.lists(
    st.tuples(
        st.lists(_CELLS, min_size=1, max_size=4),
        st.booleans(),
        st.sampled_from(["\n", "\r\n", "\r"]),
    ),
    max_size=6,
)


@settings(max_examples=300)
@given(_LINES)
def test_rows_are_those_of_a_plain_reading(lines: list[tuple[list[str], bool, str]]) -> None:
    """Cells in quotes where they need them, or all of a line."""

    def written(cell: str, *, wants: bool) -> str:
        needs = wants or cell.startswith('"') or any(mark in cell for mark in ";\r\n")
        return '"' + cell.replace('"', '""') + '"' if needs else cell

    text = "".join(
        ";".join(written(cell, wants=wants) for cell in cells) + end for cells, wants, end in lines
    )
    found = list(rows_of(text, ";", '"', final=True))
    # Line ends in quotes are kept as they are written; the plain reading makes one of them.
    cells = [[re.sub("\r(?!\n)", "\n", cell) for cell in row.cells] for row in found]
    wanted = list(slowly(text, ";", '"'))
    assert cells == [cells for cells, _ in wanted]
    assert [set(row.quoted) for row in found] == [quoted for _, quoted in wanted]
    assert [row.end for row in found][-1:] == [len(text)][: len(found)]


_RECIPE = Recipe(
    [
        FileColumn("a", "a", null=["none"]),
        FileColumn("b", "b", type="number", decimal=",", thousands=".", null=["k.A."]),
        FileColumn("c", "c", type="date", format="dd.mm.yyyy"),
    ],
    encoding="cp1252",
    delimiter=";",
    header_row=0,
)
#: Rows that read, and lines of which a person would look at each.
_ROWS = st.tuples(
    st.sampled_from(["", "x", "-", " ", "none", "Grün", "\\N"]),
    st.sampled_from(["", "1", "1.234,50", "-2,5", "k.A.", "-0,00", "2,5-"]),
    st.sampled_from(["", "06.02.1957", "6.2.1957", "   "]),
).map(";".join)
_OTHERS = st.one_of(
    st.sampled_from(["", ";;", "---;;----", "x;1", "a;1;06.02.1957;b", '"x";"1";""', '"";1;']),
    # And one that is no day, UTF-8 as Windows-1252 has it, no number, two rows, and a note.
    st.sampled_from(["x;;31.2.2000", "Ã¼;1;", "x;--1;", "x;1;\ry;2;", "Total of all;;"]),
)


@settings(max_examples=300)
@given(
    st.lists(_ROWS, max_size=5),
    st.one_of(st.none(), _OTHERS),
    st.lists(_ROWS, max_size=3),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([0, 2, None]),
    st.booleans(),
)
def test_rows_that_are_read_by_column_are_those_that_are_read_one_by_one(
    before: list[str],
    other: str | None,
    behind: list[str],
    end: str,
    below: int | None,
    short: bool,
) -> None:
    recipe = Recipe(
        _RECIPE.columns,
        encoding="cp1252",
        delimiter=";",
        header_row=0,
        below=below,
        short_rows=short,
    )
    filler = [f"x;{number};01.02.2003" for number in range(60)]
    some = [*before, *([] if other is None else [other]), *filler, *behind]
    text = "".join(line + end for line in some)

    def read(block: int) -> tuple[list[RawRecord | UnreadRow], Any]:
        parser = ReadingParser(recipe, FileHead(RecordStart(0, 1), (0, 1, 2)), RecordStart(0, 1))
        parser.tally = CellCounts()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading_parser, "BLOCK_BYTES", block)
            parser._wait = block
            blocks = [*parser.feed(text.encode("cp1252")), *parser.finish()]
        rows = [record for block in blocks for record in block.records]
        return rows, parser.tally

    assert read(1) == read(1 << 30)


@pytest.mark.parametrize(
    ("encoding", "own", "other"),
    [
        ("cp1252", "Grün", "Müller"),
        ("cp1252", "CAFÉ…", "Łódź"),
        ("cp1252", "ÄÖÜ", "Мария"),
        ("cp1251", "Её", "Мария"),
        ("gb18030", "女", "王小明"),
        ("cp932", "山田", "鈴木"),
        ("cp949", "남", "김철수"),
        ("big5", "女", "王小明"),
    ],
)
def test_a_text_in_utf_8_among_lines_of_another_charset_is_named_by_its_row(
    encoding: str, own: str, other: str
) -> None:
    lines = f"{own};1;\n".encode(encoding) * 60
    recipe = msgspec.structs.replace(_RECIPE, encoding=encoding)
    parser = ReadingParser(recipe, FileHead(RecordStart(0, 1), (0, 1, 2)), RecordStart(0, 1))
    parser._wait = 1
    rows = [
        record
        for block in parser.feed(lines + f"{other};1;\n".encode() + lines)
        for record in block.records
    ]
    assert [row.row for row in rows if isinstance(row, UnreadRow)] == [61]
    assert {row.data["a"] for row in rows if isinstance(row, RawRecord)} == {own}
    assert len(rows) == 121

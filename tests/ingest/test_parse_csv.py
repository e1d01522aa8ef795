"""CSV uploads: what RFC 4180 and the interface say, wherever the bytes happen to be cut."""

from __future__ import annotations

import csv
import io
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import InvalidRecords, Malformed, TooLarge
from encrypted_records.ingest import parsing
from encrypted_records.ingest.blocks import (
    MAX_RECORD_BYTES,
    CellBlock,
    RawRecord,
    RecordBlock,
    RecordStart,
    UnreadRow,
)
from encrypted_records.ingest.parsing import (
    BLOCK_BYTES,
    CsvParser,
    check_columns,
    read_header,
    read_numbers,
)
from encrypted_records.model.definition_parser import parse_definition

SCHEMA = "2JZrK9LZcQyCsYHgvEuy9G"


def blocks_of(
    data: bytes, cuts: list[int] | None = None, *, block_bytes: int = BLOCK_BYTES
) -> list[RecordBlock | CellBlock]:
    header = read_header(data, final=True)
    assert header is not None
    parser = CsvParser(header, RecordStart(header.size, 1), block_bytes=block_bytes)
    blocks: list[RecordBlock | CellBlock] = []
    rest = data[header.size :]
    places = sorted({0, len(rest), *(cut % (len(rest) + 1) for cut in cuts or [])})
    for begin, end in itertools.pairwise(places):
        blocks += parser.feed(rest[begin:end])
    return [*blocks, *parser.finish()]


def parsed(
    data: bytes, cuts: list[int] | None = None, *, block_bytes: int = BLOCK_BYTES
) -> list[RawRecord | UnreadRow]:
    blocks = blocks_of(data, cuts, block_bytes=block_bytes)
    return [record for block in blocks for record in block.records]


def rows(data: bytes) -> list[dict[str, Any]]:
    found = []
    for record in parsed(data):
        assert isinstance(record, RawRecord)
        found.append(record.data)
    return found


def bad(data: bytes) -> list[int]:
    return [record.row for record in parsed(data) if isinstance(record, UnreadRow)]


def test_the_example_of_the_interface_is_read() -> None:
    data = f"name,age,schema_id:{SCHEMA}\nAda,36\nGrace,85\n".encode()
    assert parsed(data) == [
        RawRecord(1, f"/api/schemas/{SCHEMA}/", {"name": "Ada", "age": "36"}),
        RawRecord(2, f"/api/schemas/{SCHEMA}/", {"name": "Grace", "age": "85"}),
    ]


def test_a_header_without_schema_leaves_it_to_the_request() -> None:
    [record] = parsed(b"name\nAda\n")
    assert record == RawRecord(1, None, {"name": "Ada"})


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbfa,b\n1,2\n",
        b"a,b\r\n1,2\r\n",
        b"a,b\n1,2",
        b"a,b\n\n1,2\n\r\n\n",
        b'"a","b"\n"1","2"\n',
        b"a,b,schema_id:x\n1,2,\n",
    ],
    ids=["BOM", "CRLF", "no last line end", "blank lines", "quotes", "cell below schema_id"],
)
def test_spellings_of_one_table_mean_the_same(data: bytes) -> None:
    assert rows(data) == [{"a": "1", "b": "2"}]


def test_an_empty_cell_is_absent_and_a_quoted_one_is_the_empty_string() -> None:
    assert rows(b'a,b,c\n,"",x\n') == [{"b": "", "c": "x"}]


def test_quoted_cells_hold_commas_quotes_and_newlines() -> None:
    assert rows(b'a,b\n"x,""y""\r\nz",2\n') == [{"a": 'x,"y"\r\nz', "b": "2"}]


@pytest.mark.parametrize(
    "row",
    [b"1", b"1,2,3", b"1,2,", b'1,"2"x', b'1"2,3', b"1,\xff", b"1\r2,3"],
    ids=["short", "long", "one more", "after quotes", "quote inside", "not UTF-8", "lone CR"],
)
def test_a_bad_row_is_named_and_the_rows_around_it_are_read(row: bytes) -> None:
    data = b"a,b\n1,2\n" + row + b"\n3,4\n"
    assert bad(data) == [2]
    assert [one.row for one in parsed(data)] == [1, 2, 3]


def test_a_quote_that_is_never_closed_is_named_by_its_row() -> None:
    with pytest.raises(Malformed, match="row 2"):
        parsed(b'a,b\n1,2\n"3,4\n5,6\n')


@pytest.mark.slow
def test_a_row_without_end_is_refused_before_memory_is_full() -> None:
    header = read_header(b"a\n", final=True)
    assert header is not None
    parser = CsvParser(header, RecordStart(header.size, 1))
    parser.feed(b'"')
    with pytest.raises(TooLarge, match="record 1"):
        for _ in range(2 * MAX_RECORD_BYTES // (1 << 20) + 1):
            parser.feed(b"x\n" * (1 << 19))


@pytest.mark.parametrize(
    "data",
    [b"", b"\n1,2\n", b",\n", b"a,a\n1,2\n", b"a,,b\n", b"\xff\n", b'a,"b\n', b"schema_id:x\n"],
    ids=["nothing", "blank", "no names", "twice", "empty", "not UTF-8", "open quote", "no column"],
)
def test_a_header_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRecords) as caught:
        read_header(data, final=True)
    assert caught.value.reason == "csv_header"


@pytest.mark.parametrize(
    "data",
    [
        b"," * 600 + b"\n",
        ",".join(f"f{at}" for at in range(514)).encode() + b"\n",
        b"a" * ((1 << 20) + 1),
        b'"' + b"a\n" * (1 << 19) + b"a",
    ],
    ids=["commas", "names", "a line", "quotes"],
)
@pytest.mark.parametrize("final", [False, True])
def test_a_header_has_at_most_512_columns_and_a_mib(data: bytes, final: bool) -> None:
    with pytest.raises(InvalidRecords) as caught:
        read_header(data, final=final)
    assert caught.value.reason == "csv_header"
    assert "more than 512 columns" in caught.value.message or "1 MiB" in caught.value.message


def test_a_header_in_another_charset_is_answered_with_how_to_declare_it() -> None:
    with pytest.raises(InvalidRecords, match="the header is not UTF-8") as refused:
        read_header("größe,name\n".encode("cp1252"), final=True)
    assert "charset=windows-1252" in refused.value.hint


def test_a_header_is_waited_for_until_its_line_ends() -> None:
    assert read_header(b"a,b", final=False) is None
    assert read_header(b'a,"b\n', final=False) is None
    assert read_header(b'a,"b\nc"\n1', final=False) == parsing.Header(("a", "b\nc"), None, 8)


def test_columns_are_held_against_the_schema_without_repeating_unknown_names() -> None:
    definition = parse_definition(
        '{"type": "object", "required": ["name"], "properties": {"name": {"type": "string"},'
        ' "age": {"type": "integer", "minimum": 0, "maximum": 9}}}'
    )
    check_columns(["age", "name"], definition)
    with pytest.raises(InvalidRecords, match="columns 2, 3 are not in the schema") as caught:
        check_columns(["name", "Ada", "36"], definition)
    assert "Ada" not in caught.value.message
    with pytest.raises(InvalidRecords, match="required name"):
        check_columns(["age"], definition)


@pytest.mark.parametrize(
    ("text", "value"),
    [("36", 36), ("-0036", -36), ("1.50", "1.50"), ("1e3", None), ("+1", None), (" 1", None),
     ("1.", None), (".5", None), ("0x1", None), ("٣", None), ("9" * 500, None)],
)  # fmt: skip
def test_numbers_are_plain_decimals(text: str, value: Any) -> None:
    definition = parse_definition(
        '{"type": "object", "properties": {"n": {"type": "number", "minimum": -100,'
        ' "maximum": 100, "precision": 2}, "s": {"type": "string"}}}'
    )
    found = read_numbers(definition, {"n": text, "s": text, "unknown": text})
    assert found["s"] == found["unknown"] == text
    assert found["n"] == text if value is None else str(found["n"]) == str(value)


cells = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=6)
tables = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), max_size=12)
)


@given(
    tables,
    st.lists(st.integers(0, 10**6), max_size=8),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(16, 200),
)
def test_any_table_is_read_as_the_standard_library_wrote_it_wherever_it_is_cut(
    table: list[list[str]], cuts: list[int], newline: str, block: int
) -> None:
    width = len(table[0]) if table else 1
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator=newline)
    names = [f"c{number}" for number in range(width)]
    writer.writerows([names, *table])

    found = parsed(text.getvalue().encode(), cuts, block_bytes=block)

    expected = [
        RawRecord(row, None, dict(zip(names, values, strict=True)))
        for row, values in enumerate(table, 1)
    ]
    assert found == expected


@given(tables, st.data())
def test_parsing_can_begin_at_any_block(table: list[list[str]], data: st.DataObject) -> None:
    width = len(table[0]) if table else 1
    text = io.StringIO(newline="")
    names = [f"c{number}" for number in range(width)]
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([names, *table])
    whole = text.getvalue().encode()
    blocks = blocks_of(whole, list(range(0, len(whole), 10)), block_bytes=8)
    if not blocks:
        return
    number = data.draw(st.integers(0, len(blocks) - 1))
    header = read_header(whole, final=True)
    assert header is not None
    parser = CsvParser(header, blocks[number].start, block_bytes=8)
    again = [*parser.feed(whole[blocks[number].start.offset :]), *parser.finish()]
    expected = [record for block in blocks[number:] for record in block.records]
    assert [record for block in again for record in block.records] == expected

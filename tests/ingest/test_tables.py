"""Rows by column or one by one: the same records, the same flaws, the same chunks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import Malformed
from encrypted_records.ingest import check
from encrypted_records.ingest.blocks import CellBlock, Grid, RecordBlock, RecordStart
from encrypted_records.ingest.check import (
    STANDARD,
    Checker,
    ChunkLimits,
    Findings,
    RecordColumns,
    SchemaLookup,
)
from encrypted_records.ingest.parsing import CsvParser, Header
from encrypted_records.model.ciphertext_lengths import padded_width
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import ID_BYTES

DEFINITION = parse_definition(
    b"""{"type": "object", "formats": "enforced", "required": ["name"], "properties": {
        "name": {"type": "string"},
        "id": {"type": "string", "format": "uuid"},
        "code": {"type": "string", "maxLength": 3},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "count": {"type": "integer", "minimum": -99, "maximum": 9999},
        "even": {"type": "integer", "minimum": 0, "maximum": 100, "multipleOf": 2},
        "price": {"type": "number", "minimum": 0, "maximum": 1000, "precision": 2}}}"""
)
SCHEMA = bytes(ID_BYTES)
#: What is right in one column is wrong in another; some is wrong everywhere.
PLAIN = "a b ab word 0 -0 7 12 -12 007 100 10000 1.5 12.345 +1 1_0 --1 1- - 1e3 é é ٣ ½".split()
ID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
LONG = ["9" * 18, "9" * 19, "-" + "0" * 18 + "7", "0" * 30, f"-{'9' * 18}", "x" * 40]
IDS = [ID, ID.upper(), ID[:-1], f"{ID[:-1]}g", ID.replace("-", ""), ID.replace("-", "a")]
CELLS = [*PLAIN, *LONG, *IDS, "", "-100", " 1", "1 ", '"q"', '"a,b"', "a\rb"]
USUAL = {
    "name": st.sampled_from(["Ann", "Bob", "Zoë"]),
    "id": st.sampled_from(["", ID, ID.upper()]),
    "code": st.sampled_from(["", "abc"]),
    "kind": st.sampled_from(["a", "b"]),
    "count": st.integers(-99, 9999).map(str),
    "even": st.sampled_from(["", "0", "42"]),
    "price": st.sampled_from(["0", "9.99", "1000", "0.125", "0.120"]),
}


@st.composite
def files(draw: st.DrawFn) -> tuple[Header, bytes]:
    """A header and the rows below it: mostly sound, of a few rows with anything in them."""
    names = draw(st.permutations(list(USUAL)))[: draw(st.integers(1, len(USUAL)))]
    rows = draw(st.lists(st.tuples(*(USUAL[name] for name in names)), max_size=12))
    lines = [list(row) for row in rows]
    for _ in range(draw(st.integers(0, 2)) if lines else 0):
        line = draw(st.sampled_from(lines))
        line[draw(st.integers(0, len(names) - 1))] = draw(st.sampled_from(CELLS))
    if lines and draw(st.integers(0, 9)) == 0:
        draw(st.sampled_from(lines)).append(draw(st.sampled_from(["", "more"])))
    end = draw(st.sampled_from(["\n", "\r\n", "\n\n"]))
    text = "".join(",".join(line) + end for line in lines)
    if draw(st.booleans()):
        text = text.removesuffix(end)
    return Header(tuple(names), None, 0), text.encode()


def parsed(
    header: Header, rows: bytes, piece: int, *, by_column: bool = True
) -> list[RecordBlock | CellBlock]:
    blocks: list[RecordBlock | CellBlock] = []
    parser = CsvParser(header, RecordStart(0, 1), block_bytes=piece, by_column=by_column)
    for at in range(0, len(rows), piece):
        blocks += parser.feed(rows[at : at + piece])
    return [*blocks, *parser.finish()]


def by_row(header: Header, rows: bytes, piece: int) -> list[RecordBlock | CellBlock]:
    return parsed(header, rows, piece, by_column=False)


def schemas() -> SchemaLookup:
    return SchemaLookup(lambda _: DEFINITION, named=SCHEMA)


def findings(blocks: list[RecordBlock | CellBlock], limits: ChunkLimits = STANDARD) -> Findings:
    checker = Checker(schemas(), text=True, limits=limits)
    checker.take(blocks)
    return checker.finish()


def gathered(blocks: list[RecordBlock | CellBlock], first: int, last: int) -> tuple[int, object]:
    """What is stored of the rows ``first`` to ``last``."""
    parts = [block.part(first, last) for block in blocks]
    found = check.gather(schemas(), parts, text=True).get(SCHEMA, RecordColumns(DEFINITION))
    return found.count, found.values


def check_both_ways(
    header: Header,
    rows: bytes,
    piece: int,
    first: int,
    last: int,
    limits: ChunkLimits = STANDARD,
) -> None:
    one_by_one, blocks = by_row(header, rows, piece), parsed(header, rows, piece)
    assert [block.start for block in blocks] == [one.start for one in one_by_one]
    assert [block.records for block in blocks] == [one.records for one in one_by_one]
    assert findings(blocks, limits) == findings(one_by_one, limits)
    assert gathered(blocks, first, last) == gathered(one_by_one, first, last)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("name", USUAL)
def test_any_cell_in_any_column_is_taken_or_refused_alike(name: str, cell: str) -> None:
    header = Header(tuple(USUAL), None, 0)
    usual = dict(zip(USUAL, ["Ann", ID, "abc", "a", "-7", "42", "9.99"], strict=True))
    rows = [usual, usual | {name: cell}, usual]
    text = "".join(",".join(row.values()) + "\n" for row in rows)
    check_both_ways(header, text.encode(), 1000, 1, 3)


@given(
    files(),
    st.integers(1, 200),
    st.integers(1, 9),
    st.integers(6, 40),
    st.integers(120, 900),
    st.data(),
)
def test_both_ways_find_and_store_the_same(
    file: tuple[Header, bytes],
    piece: int,
    most: int,
    cells: int,
    padded: int,
    data: st.DataObject,
) -> None:
    try:
        rows = sum(block.count for block in by_row(*file, piece))
    except Malformed:
        with pytest.raises(Malformed):
            parsed(*file, piece)
        return
    begin = data.draw(st.integers(1, rows + 1))
    end = data.draw(st.integers(begin, rows + 1))
    limits = ChunkLimits(records=most, cells=cells, padded=padded)
    check_both_ways(*file, piece, begin, end, limits)


def test_a_chunk_of_padded_fields_stays_below_what_the_api_takes() -> None:
    """A record of a few bytes may have a hundred times as many sealed."""
    fields = {f"f{at}": {"type": "string", "maxLength": 256} for at in range(512)}
    wide = parse_definition(json.dumps({"type": "object", "properties": fields}))
    assert padded_width(wide) == 512 * 1088
    lookup = SchemaLookup(lambda _: wide, named=SCHEMA)
    header = Header(tuple(fields), None, 0)
    rows = (",".join("x" * 512) + "\n").encode() * 100
    for blocks in (parsed(header, rows, 1 << 20), by_row(header, rows, 1 << 20)):
        checker = Checker(lookup, text=True)
        checker.take(blocks)
        chunks = checker.finish().chunks
        assert [chunk.last - chunk.first + 1 for chunk in chunks] == [30, 30, 30, 10]
    assert 30 * 512 * (1088 + 100) < 64 << 20


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_sound_rows_without_quotes_go_by_column(end: str) -> None:
    header = Header(("name", "count", "price", "code"), None, 0)
    rows = end.join(["Ann,1,2.50,", "", "Zoë,-7,0,abc", ""]).encode()
    (table,) = parsed(header, rows, 1000)
    assert isinstance(table, CellBlock)
    assert findings([table]).rows == 2
    accepted = check.accept_table(schemas(), table)
    assert accepted is not None
    assert list(accepted.columns["count"]) == [1, -7]
    assert list(accepted.columns["code"]) == [None, "abc"]


def test_usual_rows_are_checked_without_making_texts_of_their_cells() -> None:
    header = Header(("name", "id", "code", "kind", "count"), None, 0)
    rows = f"Ann,{ID},abc,a,-7\nBob,,,,\n".encode()
    (table,) = parsed(header, rows, 1000)
    assert check.fit_table(schemas(), table) is not None
    assert isinstance(table, CellBlock)
    assert isinstance(table.columns, Grid)
    assert "_cells" not in vars(table.columns)


@pytest.mark.parametrize("cell", ["", "1.5", "10000", "1-"])
def test_what_is_not_seen_from_bytes_is_left_to_who_reads_the_cells(cell: str) -> None:
    header = Header(("name", "count"), None, 0)
    name = "Zoë" if not cell else "Ann"
    (table,) = parsed(header, f"{name},{cell}\n".encode(), 1000)
    assert check.fit_table(schemas(), table) is None


@given(st.lists(st.integers(-99, 9999) | st.none(), min_size=1))
def test_integers_are_read_from_bytes_as_they_are_from_texts(numbers: list[int | None]) -> None:
    header = Header(("name", "count"), None, 0)
    rows = "".join(f"Ann,{'' if number is None else number}\n" for number in numbers)
    (table,) = parsed(header, rows.encode(), 1 << 20)
    accepted = check.accept_table(schemas(), table)
    assert accepted is not None
    assert list(accepted.columns["count"]) == numbers


def test_texts_that_repeat_are_one_object_each_and_others_are_left_alone() -> None:
    columns = RecordColumns(DEFINITION)
    for begin in (0, 2000):
        rows = range(begin, begin + 2000)
        few = [None if row % 7 == 0 else f"name {row % 5}" for row in rows]
        own = [f"code {row}" for row in rows]
        columns.extend({"name": few, "code": own}, len(rows), begin + 1)
    names, codes = columns.values["name"], columns.values["code"]
    assert names == [None if row % 7 == 0 else f"name {row % 5}" for row in range(4000)]
    assert codes == [f"code {row}" for row in range(4000)]
    assert len(set(map(id, names))) == 6
    assert columns.values["kind"] == [None] * 4000

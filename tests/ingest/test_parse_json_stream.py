"""JSON uploads of any size: one meaning, however they are spelled and wherever they are cut."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from encrypted_records.errors import Malformed, TooLarge
from encrypted_records.ingest.blocks import (
    MAX_RECORD_BYTES,
    CellBlock,
    Parser,
    RawRecord,
    RecordBlock,
    UnreadRow,
)
from encrypted_records.ingest.parsing import BLOCK_BYTES, ArrayParser, LinesParser, layout_of

S = "/api/schemas/x/"


def parser_of(
    data: bytes, *, schema_named: bool = False, block_bytes: int = BLOCK_BYTES
) -> tuple[Parser, int]:
    found = layout_of(data)
    assert found is not None
    layout, start = found
    kind = ArrayParser if layout == "array" else LinesParser
    parser = kind(start, schema_named=schema_named, block_bytes=block_bytes)
    return parser, start.offset


def blocks_of(
    data: bytes, cuts: list[int] | None = None, **options: Any
) -> list[RecordBlock | CellBlock]:
    parser, begin = parser_of(data, **options)
    rest = data[begin:]
    places = sorted({0, len(rest), *(cut % (len(rest) + 1) for cut in cuts or [])})
    blocks: list[RecordBlock | CellBlock] = []
    for start, end in itertools.pairwise(places):
        blocks += parser.feed(rest[start:end])
    return [*blocks, *parser.finish()]


def parsed(data: bytes | str, **options: Any) -> list[RawRecord | UnreadRow]:
    body = data.encode() if isinstance(data, str) else data
    return [record for block in blocks_of(body, **options) for record in block.records]


def test_an_array_and_lines_hold_the_same_records() -> None:
    one, two = '{"schema": "s", "data": {"a": 1}}', '{"data": {"a": 2.50}, "schema": "s"}'
    expected = [RawRecord(1, "s", {"a": 1}), RawRecord(2, "s", {"a": Decimal("2.50")})]
    assert parsed(f"[{one},{two}]") == expected
    assert parsed(f" \n[ {one} ,\n {two} ] \n") == expected
    assert parsed(f"\ufeff[{one},{two}]") == expected
    assert parsed(f"{one}\n{two}") == expected
    assert parsed(f"{one}\r\n\n{two}\n") == expected


def test_an_array_may_be_empty() -> None:
    assert parsed("[]") == parsed(" [ ] ") == []


@pytest.mark.parametrize("data", ["", "  ", "\ufeff"])
def test_nothing_shows_no_layout(data: str) -> None:
    assert layout_of(data.encode()) is None


@pytest.mark.parametrize("data", ["1", '"x"', "null", "name,age"])
def test_what_is_neither_is_refused(data: str) -> None:
    with pytest.raises(Malformed):
        layout_of(data.encode())


GOOD = '{"schema":"s","data":{}}'


@pytest.mark.parametrize(
    "data",
    [
        f"[{GOOD}",
        f"[{GOOD},",
        f"[{GOOD},]",
        f"[{GOOD}{GOOD}]",
        f"[,{GOOD}]",
        f"[{GOOD}]x",
        f"[{GOOD}],{GOOD}",
        f"[{GOOD}}}]",
        '[{"schema":"s","data":{"a":01}}]',
        '[{"schema":"s","data":{"a":"\x01"}}]',
        '[{"schema":"s","data":{"a"}}]',
        f"[{GOOD},{GOOD[:-3]}",
        '[{"schema":"s","data":' + "[" * 100_000 + "]" * 100_000 + "}]",
    ],
)
def test_an_array_that_is_no_json_is_refused_as_a_whole(data: str) -> None:
    with pytest.raises(Malformed):
        parsed(data)


def test_bytes_that_are_no_utf8_are_refused() -> None:
    with pytest.raises(Malformed, match="UTF-8"):
        parsed(b'[{"schema":"s","data":{"a":"\xff"}}]')
    with pytest.raises(Malformed, match="UTF-8"):
        parsed(b'[{"schema":"s","data":{"a":"\xed\xa0\x80"}},' + GOOD.encode() + b"]")


@pytest.mark.parametrize(
    "record",
    [
        '{"schema":"s","data":{"a":1,"a":2}}',
        '{"schema":"s","data":{"a" :1,"a":":"}}',
        '{"schema":"s","schema":"t","data":{}}',
        '{"schema":"s","data":{"a":{"b":1,"b":1}}}',
        '{"schema":"s","data":{"a":NaN}}',
        '{"schema":"s","data":{"a":-Infinity}}',
        '{"schema":"s","data":{"a":1.' + "0" * 400 + "}}",
        '{"schema":"s","data":{"a":1e99999999999999999999}}',
        '{"schema":"s","data":{"\\ud800":1}}',
        '{"schema":"s"}',
        '{"schema":"s","data":1}',
        '{"schema":"s","data":{},"more":1}',
        '{"data":{}}',
        "1",
        "null",
        "[]",
        '"x"',
    ],
)
def test_a_bad_record_is_named_and_the_ones_around_it_are_read(record: str) -> None:
    for text in (f"[{GOOD},{record},{GOOD}]", f"{GOOD}\n{record}\n{GOOD}"):
        first, second, third = parsed(text)
        assert isinstance(second, UnreadRow)
        assert second.error.row == 2
        assert (first, third) == (RawRecord(1, "s", {}), RawRecord(3, "s", {}))


def test_a_line_that_is_no_json_is_a_bad_row_of_its_own() -> None:
    first, second, third = parsed(f'{GOOD}\n{{"a": }}\n{GOOD}')
    assert isinstance(first, RawRecord)
    assert isinstance(second, UnreadRow)
    assert isinstance(third, RawRecord)


def test_half_a_surrogate_pair_is_left_for_validation_as_in_direct_ingest() -> None:
    [record] = parsed('[{"schema":"s","data":{"a":"\\ud800"}}]')
    assert record == RawRecord(1, "s", {"a": "\ud800"})


def test_a_record_may_leave_out_its_schema_where_the_request_names_it() -> None:
    [record] = parsed('[{"data":{"a":1}}]', schema_named=True)
    assert record == RawRecord(1, None, {"a": 1})
    [record] = parsed(f"[{GOOD}]", schema_named=True)
    assert record == RawRecord(1, "s", {})


def test_a_record_without_end_is_refused_before_memory_is_full() -> None:
    for head in (b'[{"schema":"s","data":{"a":"', b'{"schema":"s","data":{"a":"'):
        parser, begin = parser_of(head)
        parser.feed(head[begin:])
        with pytest.raises(TooLarge, match="record 1"):
            for _ in range(2 * MAX_RECORD_BYTES // (1 << 20) + 1):
                parser.feed(b"},{" * (1 << 18))


values = st.one_of(
    st.none(),
    st.integers(-(10**20), 10**20),
    st.text('",:}{][\\ \n\u00e9a', max_size=8),
    st.decimals(
        allow_nan=False, allow_infinity=False, places=3, min_value=-(10**6), max_value=10**6
    ),
)
records = st.builds(
    lambda data, first: {"schema": S, "data": data} if first else {"data": data, "schema": S},
    st.dictionaries(st.text('ab",:} ', max_size=3), values, max_size=4),
    st.booleans(),
)


def written(items: list[Any], indent: int | None = None) -> list[str]:
    """Each record as JSON, with decimals as numbers."""

    def texts(item: Any) -> str:
        numbers = {f"\u2603{start}": value for start, value in enumerate(item["data"].values())}
        data = dict(zip(item["data"], numbers, strict=True))
        text = json.dumps(item | {"data": data}, indent=indent, ensure_ascii=False)
        for mark, value in numbers.items():
            own = str(value) if isinstance(value, Decimal) else json.dumps(value)
            text = text.replace(f'"{mark}"', own)
        return text

    return [texts(item) for item in items]


@given(
    st.lists(records, max_size=12),
    st.lists(st.integers(0, 10**6), max_size=8),
    st.sampled_from([None, 1]),
    st.integers(8, 300),
    st.booleans(),
)
@example([{"data": {"a": "},{"}, "schema": S}] * 3, [], None, 8, False)
def test_any_records_are_read_as_they_were_written_wherever_they_are_cut(
    items: list[Any], cuts: list[int], indent: int | None, block: int, lines: bool
) -> None:
    if lines and items:
        text = "\n".join(written(items))
    else:
        text = f"[{', '.join(written(items, indent))}]"

    found = parsed(text, cuts=cuts, block_bytes=block)
    assert found == [RawRecord(row, S, item["data"]) for row, item in enumerate(items, 1)]


@given(st.lists(records, min_size=1, max_size=12), st.booleans(), st.data())
def test_parsing_can_begin_at_any_block(items: list[Any], lines: bool, data: st.DataObject) -> None:
    texts = written(items)
    whole = ("\n".join(texts) if lines else f"[{','.join(texts)}]").encode()
    blocks = blocks_of(whole, list(range(0, len(whole), 20)), block_bytes=16)
    chosen = data.draw(st.sampled_from(blocks))
    kind = LinesParser if lines else ArrayParser
    parser = kind(chosen.start, schema_named=False, block_bytes=16)
    again = parser.feed(whole[chosen.start.offset :]) + parser.finish()
    expected = [
        record
        for block in blocks
        if block.start.row >= chosen.start.row
        for record in block.records
    ]
    assert [record for block in again for record in block.records] == expected

"""Files of records become what a batch job takes, whatever form they have."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather, parquet

from encrypted_records.cli.input import upload_sources as sources
from encrypted_records.cli.input.files import SAMPLE_BYTES, read_sample
from encrypted_records.cli.input.json_stream import values_of
from encrypted_records.cli.input.upload_sources import source_of
from encrypted_records.errors import InvalidRecords, InvalidSetting, Malformed
from encrypted_records.model import json_text, strict_json

PLAIN = [{"name": "Ada", "age": 36}, {"name": "Alan"}]
WHOLE = [{"data": one} for one in PLAIN]


def sent(path: Path | str, kind: str | None = None) -> bytes:
    return b"".join(source_of(str(path), kind).pieces())


def records(text: bytes) -> list[Any]:
    return [json.loads(line, parse_float=Decimal) for line in text.splitlines()]


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "text", "media_type"),
    [
        ("a.csv", "name,age\nAda,36\n", "text/csv"),
        ("a.json", json.dumps(WHOLE), "application/json"),
        ("a.ndjson", "\n".join(map(json.dumps, WHOLE)), "application/x-ndjson"),
        ("a.jsonl", '{"schema": "/api/schemas/x/", "data": {}}', "application/x-ndjson"),
        ("no ending", "  \n[" + json.dumps(WHOLE[0]) + "]", "application/json"),
        ("no ending", json.dumps(WHOLE[0]), "application/x-ndjson"),
        ("no ending", "name,age\nAda,36\n", "text/csv"),
        ("broken.json", "[{", "application/json"),
    ],
)
def test_what_a_job_takes_is_sent_as_it_is(
    tmp_path: Path, name: str, text: str, media_type: str
) -> None:
    path = written(tmp_path, name, text)
    source = source_of(str(path))
    assert source.media_type == media_type
    assert b"".join(source.pieces()).decode() == text
    assert (source.size, source.file) == (len(text), path)


@pytest.mark.parametrize("lines", [True, False], ids=["lines", "array"])
def test_plain_objects_are_wrapped(tmp_path: Path, lines: bool) -> None:
    text = "\n\n".join(map(json.dumps, PLAIN)) if lines else json.dumps(PLAIN)
    source = source_of(str(written(tmp_path, "plain.json" if not lines else "plain.jsonl", text)))
    assert source.media_type == "application/x-ndjson"
    assert source.file is None
    assert records(b"".join(source.pieces())) == WHOLE


@given(st.lists(st.dictionaries(st.text(max_size=3), st.integers(), min_size=1), min_size=1))
def test_lines_are_wrapped_wherever_the_pieces_end(items: list[dict[str, int]]) -> None:
    text = "\n".join(map(json.dumps, items)).encode()
    for size in (1, 2, 7, 1000):
        pieces = (text[at : at + size] for at in range(0, len(text), size))
        wrapped = b"".join(sources.wrap_lines(pieces))
        assert records(wrapped) == [{"data": one} for one in items]


def test_numbers_keep_every_digit_when_objects_are_wrapped(tmp_path: Path) -> None:
    number = "0.1000000000000000055511151231257827"
    text = f'[{{"n": {number}}}, {{"data": {{"n": {number}}}}}]'
    wrapped = sent(written(tmp_path, "a.json", text))
    assert records(wrapped) == [{"data": {"n": Decimal(number)}}] * 2


@pytest.mark.parametrize(
    ("text", "kind", "media_type", "expected"),
    [
        ("name\nAda\n", None, "text/csv", "name\nAda\n"),
        (json.dumps(WHOLE), None, "application/json", json.dumps(WHOLE)),
        ("[not json", "csv", "text/csv", "[not json"),
        (
            '{"n": 1}\n{"n": 2}',
            None,
            "application/x-ndjson",
            '{"data":{"n": 1}}\n{"data":{"n": 2}}\n',
        ),
        ("", None, "text/csv", ""),
    ],
)
def test_standard_input_is_recognised_or_told(
    text: str, kind: str | None, media_type: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    source = source_of("-", kind)
    assert source.media_type == media_type
    assert b"".join(source.pieces()).decode() == expected


def test_a_plain_array_on_standard_input_is_wrapped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(PLAIN).encode())))
    assert records(b"".join(source_of("-").pieces())) == WHOLE


TABLE = pyarrow.table(
    {
        "name": ["Ada", None, "Zo\u00eb"],
        "age": pyarrow.array([36, 41, None], pyarrow.int16()),
        "height": pyarrow.array([1.65, None, 0.1], pyarrow.float64()),
        "price": pyarrow.array([Decimal("1.10"), None, Decimal("2.00")], pyarrow.decimal128(9, 2)),
        "born": pyarrow.array([date(1815, 12, 10), None, None]),
    }
)
ROWS: list[dict[str, Any]] = [
    {"name": "Ada", "age": 36, "height": 1.65, "price": Decimal("1.10"), "born": "1815-12-10"},
    {"age": 41},
    {"name": "Zo\u00eb", "height": 0.1, "price": Decimal("2.00")},
]


def write_stream(table: pyarrow.Table, path: str) -> None:
    with pyarrow.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.parquet", parquet.write_table),
        ("a.feather", feather.write_feather),
        ("a.arrow", write_stream),
    ],
)
def test_rows_of_columnar_files_become_lines_without_their_nulls(
    tmp_path: Path, name: str, write: Any
) -> None:
    write(TABLE, str(tmp_path / name))
    source = source_of(str(tmp_path / name))
    assert source.media_type == "application/x-ndjson"
    text = b"".join(source.pieces())
    found = [json.loads(line)["data"] for line in text.splitlines()]
    assert found == [{k: float(v) if k == "price" else v for k, v in row.items()} for row in ROWS]
    assert b"1.10" in text


def test_a_number_that_is_none_is_refused_with_its_row(tmp_path: Path) -> None:
    path = tmp_path / "nan.parquet"
    parquet.write_table(pyarrow.table({"n": [1.0, float("nan")]}), path)
    with pytest.raises(InvalidRecords) as refused:
        sent(path)
    assert (refused.value.flaws[0].row, refused.value.flaws[0].field) == (2, "n")


@pytest.mark.parametrize("name", ["no.parquet", "no.arrow"])
def test_a_damaged_columnar_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{name} cannot be read"):
        sent(tmp_path / name)
    with pytest.raises(InvalidSetting, match="is no Parquet or Arrow file"):
        sent(written(tmp_path, name, "not columnar at all"))


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidSetting) as refused:
        sent(tmp_path / "a.parquet")
    assert "encrypted-records[arrow]" in refused.value.hint


def test_a_sample_ends_at_a_line_break_outside_of_quotes(tmp_path: Path) -> None:
    row = '"a\nb",1\n'
    text = "text,n\n" + row * (SAMPLE_BYTES // len(row) + 100)
    body, kind = read_sample(str(written(tmp_path, "long.csv", text)))
    assert kind == "text/csv"
    assert len(body) <= SAMPLE_BYTES
    assert len(body) > SAMPLE_BYTES - 2 * len(row)
    assert text.startswith(body.decode())
    assert body.decode().removeprefix("text,n\n") == row * ((len(body) - 7) // len(row))


VALUES = [
    0,
    -1,
    Decimal("0.125"),
    10**30,
    True,
    None,
    "",
    'a"]\\',
    "\u20ac",
    [],
    [[1], {}],
    {"a": [2]},
]


@given(
    st.lists(st.sampled_from(VALUES), max_size=5),
    st.sampled_from([1, 2, 3, 7, 1000]),
    st.booleans(),
    st.sampled_from(["", " ", "\n\t"]),
)
def test_values_are_read_one_by_one_wherever_the_pieces_end(
    items: list[Any], size: int, lines: bool, blank: str
) -> None:
    if lines:  # a text that begins with an array is that array
        items = [one for one in items if not isinstance(one, list)]
    texts = [json_text.encode(one).decode() for one in items]
    whole = "\n".join(texts) if lines else f"{blank}[{f'{blank},'.join(texts)}{blank}]{blank}"
    text = whole.encode()

    found = values_of(text[at : at + size] for at in range(0, len(text), size))

    assert list(found) == [strict_json.loads(one) for one in texts]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1}, {"a": }]', "value 2 is not JSON"),
        ('[{"a": 1} {"a": 2}]', "value 1 is followed by neither a comma nor the array's end"),
        ('[{"a": 1}', "value 1 is followed by neither"),
        ("[1,]", "value 2 is not JSON"),
        ("[1] 2", "something follows the end of the array"),
        ('{"a": 1, "a": 2}', "value 1: an object has the same key twice"),
        ('{"a": NaN}', "value 1: NaN is no JSON number"),
        ("[" * 100_000, "value 1 is nested too deeply"),
        ("[", "the text breaks off in value 1"),
        ('"\\x', "value 1 is not JSON"),
    ],
)
def test_what_is_no_json_is_refused_where_it_stands(text: str, message: str) -> None:
    pieces = (text[at : at + 5].encode() for at in range(0, len(text), 5))
    with pytest.raises(Malformed, match=re.escape(message)):
        list(values_of(pieces))


def test_values_come_before_the_rest_is_read() -> None:
    def pieces() -> Iterator[bytes]:
        yield b'[{"a": 1}, {"a": '
        raise AssertionError("nobody has asked for more")

    assert next(values_of(pieces())) == {"a": 1}

"""Files of records become what a batch job takes, whatever form they have."""

from __future__ import annotations

import io
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas
import polars
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import feather, parquet

from encrypted_records.cli.input import upload_sources as sources
from encrypted_records.cli.input.files import (
    SAMPLE_BYTES,
    objects_in,
    open_input,
    read_definition,
    read_sample,
    values_of,
)
from encrypted_records.cli.input.upload_sources import FileSource, source_of
from encrypted_records.client.sdk import frames
from encrypted_records.errors import InvalidRecords, InvalidSetting, Malformed
from encrypted_records.model import strict_json
from tests.support.fifo import fifo

PLAIN = [{"name": "Ada", "age": 36}, {"name": "Alan"}]
WHOLE = [{"data": one} for one in PLAIN]


def source_at(path: Path | str, kind: str | None = None) -> FileSource:
    return source_of(open_input(str(path)), kind)


def sent(path: Path | str, kind: str | None = None) -> bytes:
    return b"".join(source_at(path, kind).pieces())


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
    source = source_at(path)
    assert source.media_type == media_type
    assert b"".join(source.pieces()).decode() == text
    assert source.size == len(text)
    assert source.file is not None and source.file.path == path


@pytest.mark.parametrize("lines", [True, False], ids=["lines", "array"])
def test_plain_objects_are_wrapped(tmp_path: Path, lines: bool) -> None:
    text = "\n\n".join(map(json.dumps, PLAIN)) if lines else json.dumps(PLAIN)
    source = source_at(written(tmp_path, "plain.json" if not lines else "plain.jsonl", text))
    assert source.media_type == "application/x-ndjson"
    assert source.file is None
    assert records(b"".join(source.pieces())) == WHOLE


@given(st.lists(st.dictionaries(st.text(max_size=3), st.integers(), min_size=1), min_size=1))
def test_lines_are_wrapped_wherever_the_pieces_end(items: list[dict[str, int]]) -> None:
    text = "\n".join(map(json.dumps, items)).encode()
    for size in (1, 2, 7, 1000):
        pieces = (text[at : at + size] for at in range(0, len(text), size))
        wrapped = b"".join(sources.wrap_lines(pieces))
        assert records(wrapped) == [{"data": item} for item in items]


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
    source = source_at("-", kind)
    assert source.media_type == media_type
    assert b"".join(source.pieces()).decode() == expected


def test_a_plain_array_on_standard_input_is_wrapped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(PLAIN).encode())))
    assert records(b"".join(source_at("-").pieces())) == WHOLE


#: More than is looked at, so that what was looked at would be missing.
LONG = b"".join(b'{"name":"person %d"}\n' % number for number in range(10_000))


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", b"name\n" + LONG, b"name\n" + LONG),
        ("63", LONG, LONG.replace(b'{"name"', b'{"data":{"name"').replace(b"}\n", b"}}\n")),
        ("a.ndjson", LONG.replace(b"name", b"schema"), None),
        ("empty.csv", b"", b""),
    ],
)
def test_all_that_comes_out_of_a_pipe_is_sent(
    tmp_path: Path, name: str, content: bytes, expected: bytes | None
) -> None:
    with fifo(tmp_path / name, content) as path:
        source = source_at(path)
        text = b"".join(source.pieces())

    assert (source.size, source.file) == (None, None)
    if expected is None:
        expected = b"".join(b'{"data":' + line + b"}\n" for line in content.splitlines())
    assert text == expected


@pytest.mark.parametrize("read", [objects_in, read_sample, read_definition])
def test_no_reader_of_a_path_opens_it_twice(tmp_path: Path, read: Callable[[str], Any]) -> None:
    text = json.dumps([{"name": "x" * 100_000}]).encode()
    with fifo(tmp_path / "people.json", text) as path:
        found = read(str(path))
        whole = list(found) if read is objects_in else found
    expected: dict[str, Any] = {
        "objects_in": [{"name": "x" * 100_000}],
        "read_sample": (text, "application/json"),
        "read_definition": msgspec.Raw(text),
    }
    assert whole == expected[read.__name__]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.feather"])
def test_a_pipe_of_columns_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with (
        fifo(tmp_path / name, b"PAR1" + b"x" * 100_000) as path,
        pytest.raises(
            InvalidSetting, match="is a pipe, and Parquet and Arrow files are not read"
        ) as refused,
    ):
        source_at(path)
    assert "write it into a file first" in refused.value.hint


def test_a_file_is_what_it_was_when_it_was_opened(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "name\nAda\n")
    source = source_at(path)
    written(tmp_path, "other.csv", "name\nEve\n").replace(path)
    assert b"".join(source.pieces()) == b"name\nAda\n"
    columns = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"n": [1]}), columns)
    source = source_at(columns)
    other = tmp_path / "other.parquet"
    parquet.write_table(pyarrow.table({"n": [2]}), other)
    other.replace(columns)
    assert b"".join(source.pieces()) == b'{"data":{"n":1}}\n'


def test_a_file_without_a_size_of_its_own_is_read_to_its_end() -> None:
    """As those of /proc are."""
    source = source_at("/proc/self/status", "csv")
    assert (source.size, source.file) == (None, None)
    assert b"".join(source.pieces()).startswith(b"Name:")


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
    source = source_at(tmp_path / name)
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
    with pytest.raises(InvalidSetting, match="is not a Parquet or Arrow file"):
        sent(written(tmp_path, name, "not columnar at all"))


def test_without_pyarrow_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "a.parquet", "PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidSetting) as refused:
        sent(path)
    assert "encrypted-records[arrow]" in refused.value.hint


ROWS_OF_ONE_TEXT = 100
TEXT = "A" * (1 << 20)


def _few_bytes_of_many(kind: str, path: Path) -> None:
    """A file of 100 rows of 1 MiB each, which are one text: 100 MB from some hundred bytes."""
    places = pyarrow.array([0] * ROWS_OF_ONE_TEXT, pyarrow.int32())
    texts = pyarrow.DictionaryArray.from_arrays(places, pyarrow.array([TEXT]))
    if kind == "run-ends":
        ends = pyarrow.array([ROWS_OF_ONE_TEXT], pyarrow.int32())
        texts = pyarrow.RunEndEncodedArray.from_arrays(ends, pyarrow.array([TEXT]))
    if kind == "parquet":
        parquet.write_table(
            pyarrow.table({"x": texts}),
            path,
            compression="zstd",
            store_schema=False,
            dictionary_pagesize_limit=1 << 26,
        )
        return
    if kind == "views":
        polars.DataFrame({"x": polars.Series(["A", "B"]).replace("A", TEXT)})[
            [0] * ROWS_OF_ONE_TEXT
        ].write_ipc(path, compat_level=polars.CompatLevel.newest())
        return
    with pyarrow.ipc.new_file(path, pyarrow.schema({"x": texts.type})) as writer:
        writer.write_batch(pyarrow.record_batch({"x": texts}))


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
def test_texts_of_any_encoding_are_read(tmp_path: Path, encoding: str) -> None:
    parquet.write_table(
        pyarrow.table({"name": ["Ada", "Adam", None]}),
        tmp_path / "a.parquet",
        use_dictionary=False,
        column_encoding={"name": encoding},
    )
    found = [json.loads(line)["data"] for line in sent(tmp_path / "a.parquet").splitlines()]
    assert found == [{"name": "Ada"}, {"name": "Adam"}, {}]


@pytest.mark.parametrize("kind", ["parquet", "dictionary", "run-ends", "views"])
def test_a_text_that_many_rows_share_takes_memory_once(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ("a.parquet" if kind == "parquet" else "a.arrow")
    _few_bytes_of_many(kind, path)
    assert path.stat().st_size < 5 << 20
    slices: list[int] = []
    real = frames.cells_of_arrow

    def note(column: Any, *where: Any) -> Any:
        slices.append(len(column))
        return real(column, *where)

    monkeypatch.setattr(frames, "cells_of_arrow", note)

    rows = sum(len(piece.splitlines()) for piece in source_at(path).pieces())

    assert rows == ROWS_OF_ONE_TEXT
    assert (max(slices), sum(slices)) == (32, ROWS_OF_ONE_TEXT)


@pytest.mark.parametrize("library", ["polars", "categories", "pandas", "pyarrow"])
def test_frames_whose_rows_share_a_text_are_turned_some_rows_at_a_time(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = pyarrow.array([0] * 100, pyarrow.int32())
    texts = pyarrow.DictionaryArray.from_arrays(places, pyarrow.array([TEXT]))
    column: Any = polars.Series([TEXT]).new_from_index(0, 100)
    frame: Any = pyarrow.table({"x": texts})
    if library == "polars":
        frame = polars.DataFrame({"x": column})
    elif library == "categories":
        frame = polars.DataFrame({"x": column.cast(polars.Categorical)})
    elif library == "pandas":
        frame = pandas.DataFrame({"x": pandas.Series(texts, dtype=pandas.ArrowDtype(texts.type))})
    turns = "_cells_of_polars" if library in ("polars", "categories") else "cells_of_arrow"
    slices: list[int] = []
    real = getattr(frames, turns)

    def note(column: Any, *where: Any) -> Any:
        slices.append(len(column))
        return real(column, *where)

    monkeypatch.setattr(frames, turns, note)
    rows: Any = frames.rows_of(frame)
    assert sum(len(row["x"]) for row in rows) == 100 << 20
    assert slices == [32, 32, 32, 4]


def test_a_batch_of_large_rows_is_small(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    row = [random.randbytes(1 << 20) for _ in range(70)]
    table = pyarrow.table({"x": pyarrow.array(row, pyarrow.binary(1 << 20)), "n": range(70)})
    parquet.write_table(table, path)
    assert {batch.num_rows for batch in sources.batches_of(path)} == {31, 8}


#: Each text is all of the one before it, so that a page holds one, and many lengths.
WRITE_TEXTS = """
table = pyarrow.table({"x": ["A" * (1 << 20)] * 250})
encoding = {"x": "DELTA_BYTE_ARRAY"}
parquet.write_table(table, path, use_dictionary=False, column_encoding=encoding)
"""
#: One row with a list of which all texts are one: no dictionary is left of it.
WRITE_LIST = """
texts = pyarrow.array(["A" * (1 << 20)] * 250)
lists = pyarrow.ListArray.from_arrays(pyarrow.array([0, 250], pyarrow.int32()), texts)
parquet.write_table(pyarrow.table({"x": lists}), path, dictionary_pagesize_limit=1 << 26)
"""
WRITE_ARROW = """
batch = pyarrow.record_batch({"x": numpy.zeros(250 << 17, numpy.int64)})
options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
with pyarrow.ipc.new_file(path, batch.schema, options=options) as writer:
    writer.write_batch(batch)
"""
READ = """
upload_sources._MOST_BYTES = 64 << 20
try:
    print(next(upload_sources.batches_of(Path(path))).num_rows)
except InvalidSetting as refused:
    print(refused.message, refused.hint)
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print("MiB", peak >> (20 if sys.platform == "darwin" else 10))
"""
IMPORTS = """
import resource, sys
from pathlib import Path
import numpy, pyarrow
from pyarrow import parquet
from encrypted_records.cli.input import upload_sources
from encrypted_records.errors import InvalidSetting
path = sys.argv[1]
"""


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("texts.parquet", WRITE_TEXTS),
        ("list.parquet", WRITE_LIST),
        ("bomb.arrow", WRITE_ARROW),
    ],
)
def test_a_block_that_unfolds_to_more_than_the_limit_is_refused_by_name(
    tmp_path: Path, name: str, write: str
) -> None:
    """Its own lists say nothing of that, or need not be true. No limit of the system is at work. In
    processes of their own, which have no memory left from before."""
    path = tmp_path / name

    def run(program: str) -> str:
        command = [sys.executable, "-c", IMPORTS + program, str(path)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    run(write)
    assert path.stat().st_size < 1 << 20
    said = run(READ)

    assert f"{name} needs more than 2 GiB of memory at once" in said
    assert "as CSV" in said
    # Of 250 MiB, beside what the program itself takes.
    assert int(said.rpartition("MiB")[2]) < 256


def test_a_file_whose_reader_ends_in_the_middle_is_not_taken_for_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a library does not survive a file: what came before that is whole batches."""
    program = """
import os, pyarrow
batch = pyarrow.record_batch({"x": [1, 2, 3]})
with os.fdopen(1, "wb") as out:
    writer = pyarrow.ipc.new_stream(out, batch.schema)
    writer.write_batch(batch)
    out.flush()
    os.kill(os.getpid(), 9)
"""
    (tmp_path / "reader.py").write_text(program)
    command = tmp_path / "python"
    command.write_text(f"#!/bin/sh\nexec {sys.executable} {tmp_path / 'reader.py'}\n")
    command.chmod(0o700)
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"x": [1, 2, 3, 4]}), path)
    assert sum(batch.num_rows for batch in sources.batches_of(path)) == 4
    monkeypatch.setattr(sys, "executable", str(command))
    batches = sources.batches_of(path)
    assert next(batches).num_rows == 3
    with pytest.raises(InvalidSetting, match="or is damaged"):
        next(batches)


def test_the_reader_finds_its_libraries_as_the_command_does_and_gets_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pyarrow.table({"name": ["Ada"]})
    parquet.write_table(table, tmp_path / "people.parquet")
    given: dict[str, str] = {}

    start: Callable[..., Any] = subprocess.Popen

    def started(*args: Any, env: dict[str, str], **more: Any) -> Any:
        given.update(env)
        return start(*args, env=env, **more)

    monkeypatch.setattr(subprocess, "Popen", started)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("ERS_PASSWORD", "a secret")
    (batch,) = sources.batches_of(tmp_path / "people.parquet")
    assert batch.to_pylist() == [{"name": "Ada"}]
    assert given["PYTHONPATH"] == str(tmp_path)
    assert "a secret" not in given.values()


def test_a_large_batch_of_arrow_comes_in_small_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    batch = pyarrow.record_batch({"x": np.arange(12 << 20)})
    with pyarrow.ipc.new_file(path, batch.schema) as writer:
        writer.write_batch(batch)
    parts = list(sources.batches_of(path))
    assert [part.num_rows for part in parts] == [4 << 20] * 3
    assert [part.column(0)[0].as_py() for part in parts] == [0, 4 << 20, 8 << 20]


def test_places_beyond_the_end_of_a_batch_are_not_read(tmp_path: Path) -> None:
    ends = np.array([0, 3, 7, 10], np.int32).tobytes()
    schema = pyarrow.schema({"x": pyarrow.string()})
    with pyarrow.ipc.new_file(tmp_path / "a.arrow", schema) as writer:
        writer.write_batch(pyarrow.record_batch({"x": ["Ada", "Kurt", "Eve"]}))
    content = (tmp_path / "a.arrow").read_bytes()
    assert content.count(ends) == 1
    beyond = np.array([0, 3, 1 << 30, 10], np.int32).tobytes()
    (tmp_path / "a.arrow").write_bytes(content.replace(ends, beyond))
    with pytest.raises(InvalidSetting, match="or is damaged"):
        sent(tmp_path / "a.arrow")


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
        items = [item for item in items if not isinstance(item, list)]
    texts = [strict_json.encode(item).decode() for item in items]
    whole = "\n".join(texts) if lines else f"{blank}[{f'{blank},'.join(texts)}{blank}]{blank}"
    text = whole.encode()

    found = values_of(text[at : at + size] for at in range(0, len(text), size))

    assert list(found) == [strict_json.loads(text) for text in texts]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"a": 1}, {"a": }]', "value 2 is not JSON"),
        ('[{"a": 1} {"a": 2}]', "value 1 is followed by neither a comma nor the array's end"),
        ('[{"a": 1}', "value 1 is followed by neither"),
        ("[1,]", "value 2 is not JSON"),
        ("[1] 2", "something follows the end of the array"),
        ('{"a": 1, "a": 2}', "value 1: an object has the same key twice"),
        ('{"a": NaN}', "value 1: NaN is not a JSON number"),
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

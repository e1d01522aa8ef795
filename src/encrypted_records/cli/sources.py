"""Files of records -> what a batch job takes, piece by piece.

CSV, and JSON whose records have their ``data``, go as they are. Plain objects of field names and
values are wrapped, and the rows of Parquet and Arrow files become JSON lines; both on the way, so
that memory stays flat.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from encrypted_records.cli.files import STDIN, cannot_read, pieces_of
from encrypted_records.cli.values import values_of
from encrypted_records.client.media import media_type
from encrypted_records.errors import InvalidSetting

KINDS = {"csv": "text/csv", "json": "application/json", "ndjson": "application/x-ndjson"}
_LINES = KINDS["ndjson"]
_COLUMNAR = (".parquet", ".arrow", ".feather")
_CHUNK_BYTES = 1 << 20
#: Enough to see what kind of records a file holds.
_LOOK_BYTES = 64 << 10
_ROWS = 10_000


@dataclass(frozen=True)
class Source:
    """
    Attributes:
        pieces: the bytes to send.
        size: how many there are; None where that is not known before.
        file: the file that is sent as it is, from any place in it; None where there is none.
    """

    media_type: str
    pieces: Callable[[], Iterator[bytes]]
    size: int | None = None
    file: Path | None = None


def source_of(path: str, kind: str | None = None) -> Source:
    """
    Args:
        path: of a file; ``-`` is standard input.
        kind: one of KINDS; None is what name and first bytes say.

    Raises:
        InvalidSetting: it cannot be read, or needs a library that is not installed.
    """
    if path == STDIN:
        return _piped(kind)
    if Path(path).suffix.lower() in _COLUMNAR:
        return Source(_LINES, lambda: lines_of(_columnar_rows(path)))
    try:
        with Path(path).open("rb") as file:
            start = file.read(_LOOK_BYTES)
        size = Path(path).stat().st_size
    except OSError as error:
        raise cannot_read(path, error) from None
    found = KINDS[kind] if kind else media_type(path, start)
    if found == "text/csv" or not _is_plain(start):
        return Source(found, lambda: pieces_of(path), size, Path(path))
    return _plain(found, lambda: pieces_of(path))


def _piped(kind: str | None) -> Source:
    start = sys.stdin.buffer.read(_LOOK_BYTES)
    found = KINDS[kind] if kind else media_type(STDIN, start)
    if found == "text/csv" or not _is_plain(start):
        return Source(found, lambda: chain((start,), pieces_of(STDIN)))
    return _plain(found, lambda: chain((start,), pieces_of(STDIN)))


def _plain(found: str, pieces: Callable[[], Iterator[bytes]]) -> Source:
    """Plain objects of field names and values, each to be wrapped as ``data``."""
    if found == _LINES:
        return Source(_LINES, lambda: _wrapped(_split(pieces())))
    return Source(
        _LINES,
        lambda: lines_of(one if _has_data(one) else {"data": one} for one in values_of(pieces())),
    )


def _is_plain(start: bytes) -> bool:
    """Whether the first record of JSON is an object of field names and values."""
    text = start.decode("utf-8-sig", errors="ignore").lstrip().removeprefix("[").lstrip()
    try:
        first, _end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return False  # broken, or long: let the service say so
    return isinstance(first, dict) and not _has_data(first)


def _has_data(item: object) -> bool:
    """No field has an object for a value, so that ``data`` with one is no field."""
    return not isinstance(item, Mapping) or isinstance(item.get("data"), Mapping)


def _split(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    yield rest


def _wrapped(lines: Iterator[bytes]) -> Iterator[bytes]:
    gathered: list[bytes] = []
    size = 0
    for line in lines:
        text = line.strip().removeprefix(b"\xef\xbb\xbf")
        if text:
            gathered.append(b'{"data":' + text + b"}\n")
            size += len(text)
        if size >= _CHUNK_BYTES:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join(gathered)


def lines_of(rows: Iterator[Any]) -> Iterator[bytes]:
    """JSON lines, some at a time."""
    import msgspec  # noqa: PLC0415 - slow to import

    encoder = msgspec.json.Encoder(decimal_format="number")
    gathered = bytearray()
    for row in rows:
        gathered += encoder.encode(row) + b"\n"
        if len(gathered) >= _CHUNK_BYTES:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)


def _columnar_rows(path: str) -> Iterator[dict[str, Any]]:
    """The rows of a Parquet, Arrow or Feather file as record objects; nulls are left out."""
    from encrypted_records.client.rows import check  # noqa: PLC0415 - slow to import

    row = 0
    for batch in _batches(path):
        for data in batch.to_pylist():
            row += 1
            yield {"data": {name: value for name, value in data.items() if value is not None}}
            check(data, row)


def _batches(path: str) -> Iterator[Any]:
    try:
        import pyarrow  # noqa: PLC0415 - optional, and slow to import
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise InvalidSetting(
            f"{path} can only be read with pyarrow, which is not installed",
            hint="install encrypted-records[arrow], or turn the file into CSV",
        ) from None
    try:
        if Path(path).suffix.lower() == ".parquet":
            with parquet.ParquetFile(path) as file:
                yield from file.iter_batches(batch_size=_ROWS)
            return
        with pyarrow.memory_map(path) as mapped:
            try:
                opened = pyarrow.ipc.open_file(mapped)
                yield from (opened.get_batch(at) for at in range(opened.num_record_batches))
            except pyarrow.ArrowInvalid:  # the streaming format has no directory
                mapped.seek(0)
                yield from pyarrow.ipc.open_stream(mapped)
    except OSError as error:
        raise cannot_read(path, error) from None
    except pyarrow.ArrowInvalid:
        raise InvalidSetting(f"{path} is no Parquet or Arrow file, or is damaged") from None

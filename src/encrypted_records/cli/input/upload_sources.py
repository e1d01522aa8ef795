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
from typing import Any, cast

from encrypted_records.cli.input.files import STDIN, cannot_read, pieces_of
from encrypted_records.cli.input.json_stream import values_of
from encrypted_records.errors import InvalidSetting
from encrypted_records.model.media_types import Format

KINDS = {kind.value: kind.media_type for kind in Format}
_LINES = Format.NDJSON.media_type
COLUMNAR = (".parquet", ".arrow", ".feather")
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
        file: the file that is sent as it is, from any place in it; None without a file.
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
        return _read_pipe(kind)
    if Path(path).suffix.lower() in COLUMNAR:
        return Source(_LINES, lambda: gather(columnar_lines(path)))
    try:
        with Path(path).open("rb") as file:
            start = file.read(_LOOK_BYTES)
        size = Path(path).stat().st_size
    except OSError as error:
        raise cannot_read(path, error) from None
    media_type = KINDS[kind] if kind else Format.of_file(path, start).media_type
    if media_type == Format.CSV.media_type or not _is_plain(start):
        return Source(media_type, lambda: pieces_of(path), size, Path(path))
    return _plain(media_type, lambda: pieces_of(path))


def _read_pipe(kind: str | None) -> Source:
    start = sys.stdin.buffer.read(_LOOK_BYTES)
    media_type = KINDS[kind] if kind else Format.of_file(STDIN, start).media_type
    if media_type == Format.CSV.media_type or not _is_plain(start):
        return Source(media_type, lambda: chain((start,), pieces_of(STDIN)))
    return _plain(media_type, lambda: chain((start,), pieces_of(STDIN)))


def _plain(media_type: str, pieces: Callable[[], Iterator[bytes]]) -> Source:
    """Plain objects of field names and values, each to be wrapped as ``data``."""
    if media_type == _LINES:
        return Source(_LINES, lambda: wrap_lines(pieces()))
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


def wrap_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """JSON lines of plain objects -> JSON lines of records, some at a time."""
    return _wrap(_split(pieces))


def _split(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    yield rest


def _wrap(lines: Iterator[bytes]) -> Iterator[bytes]:
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
    return gather(_line_of(row) for row in rows)


def _line_of(row: Any) -> bytes:
    from encrypted_records.model import json_text  # noqa: PLC0415 - slow to import

    try:
        return json_text.encode(row) + b"\n"
    except UnicodeEncodeError:
        # Half of a surrogate pair is sent as it came, so that the job names its row and field.
        return json_text.encode(_with_escapes(row)) + b"\n"


def _with_escapes(value: Any) -> Any:
    """The same to encode, with texts that have escapes where a character has no UTF-8."""
    from msgspec import Raw  # noqa: PLC0415 - slow to import

    if isinstance(value, str):
        return Raw(json.dumps(value).encode())
    if isinstance(value, list):
        return [_with_escapes(item) for item in value]
    if isinstance(value, dict):
        return {name: _with_escapes(item) for name, item in value.items()}
    return value


def gather(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The same, in pieces that are worth sending."""
    buffer = bytearray()
    for line in lines:
        buffer += line
        if len(buffer) >= _CHUNK_BYTES:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


def columnar_lines(path: str) -> Iterator[bytes]:
    """The rows of a Parquet, Arrow or Feather file as JSON lines; nulls are left out.

    Raises:
        InvalidSetting: it cannot be read.
        InvalidRecords: a value cannot be stored.
    """
    from encrypted_records.client.sdk.frames import rows_of  # noqa: PLC0415 - slow to import
    from encrypted_records.client.sdk.rows import encode_row  # noqa: PLC0415

    number = 0
    for batch in batches_of(path):
        for row in cast(Iterator[Mapping[str, Any]], rows_of(batch)):
            number += 1
            yield encode_row(row, number)[1]


def batches_of(path: str) -> Iterator[Any]:
    """The record batches of a Parquet, Arrow or Feather file, one after the other.

    Raises:
        InvalidSetting: it cannot be read, or pyarrow is not installed.
    """
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

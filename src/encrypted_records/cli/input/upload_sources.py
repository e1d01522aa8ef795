"""Convert files of records to the input of a batch job, piece by piece.

CSV, and JSON whose records have ``data``, are sent unchanged. Plain objects of field names and
values are wrapped, and the rows of Parquet and Arrow files become JSON lines. Both are converted
while streaming, so that memory use stays constant.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from encrypted_records.cli.input import column_reader
from encrypted_records.cli.input.files import STDIN, values_of
from encrypted_records.client.proxy.uploads import LocalFile, reading
from encrypted_records.errors import InvalidSetting
from encrypted_records.model import record_formats
from encrypted_records.model.record_formats import Format

KINDS = {kind.value: kind.media_type for kind in Format}
_LINES = Format.NDJSON.media_type
COLUMNAR = (".parquet", ".arrow", ".feather")
#: Prefixes of column names that only exports and searches write.
_OURS = ("schema_id:", "leave_out:")
_CHUNK_BYTES = 1 << 20
#: Memory limit for reading a columnar file, whatever the file's metadata says.
_MOST_BYTES = 2 << 30
#: The reason for refusing a pipe.
NOT_COLUMNAR = "Parquet and Arrow files are not read from start to end"


@dataclass(frozen=True)
class FileSource:
    """
    Attributes:
        name: the file's name.
        pieces: the bytes to send, readable once.
        size: their number; None if it is not known in advance.
        file: the regular file, if it is sent unchanged and from any offset; None otherwise.
    """

    name: str
    media_type: str
    pieces: Callable[[], Iterator[bytes]]
    size: int | None = None
    file: LocalFile | None = None


def source_of(file: LocalFile, kind: str | None = None) -> FileSource:
    """
    Args:
        kind: one of KINDS; None detects it from the name and the first bytes.

    Raises:
        InvalidSetting: it cannot be read, or needs a library that is not installed.
    """
    if file.path.suffix.lower() in COLUMNAR:
        file.require_size(NOT_COLUMNAR)
        return FileSource(file.path.name, _LINES, lambda: gather(columnar_lines(file)))
    media_type = KINDS[kind] if kind else file.media_type
    name = "" if file.path == Path(STDIN) else file.path.name
    if media_type == Format.CSV.media_type or not _is_plain(file.start):
        as_it_is = None if file.size is None else file
        return FileSource(name, media_type, file.pieces, file.size, as_it_is)
    # Plain objects of field names and values, each to be wrapped as ``data``.
    wrap = wrap_lines if media_type == _LINES else _wrap_values
    return FileSource(name, _LINES, lambda: wrap(file.pieces()))


def _wrap_values(pieces: Iterator[bytes]) -> Iterator[bytes]:
    return lines_of(value if _has_data(value) else {"data": value} for value in values_of(pieces))


def _is_plain(start: bytes) -> bool:
    """Whether the first JSON record is a plain object of field names and values."""
    first = _first_of(start.decode("utf-8-sig", errors="ignore"))
    return isinstance(first, dict) and not _has_data(first)


def _first_of(text: str) -> Any:
    """The first value of a JSON array or of JSON lines; None if it is invalid or longer than
    ``text``: then the service reports it.
    """
    try:
        return json.JSONDecoder().raw_decode(text.lstrip().removeprefix("[").lstrip())[0]
    except (ValueError, RecursionError):
        return None


def is_exact(file: LocalFile, *, names_schema: bool) -> bool:
    """Whether a file is certainly in the format of the HTTP API: it is a pipe, has typed columns,
    or begins like an export or a search result.

    Args:
        names_schema: whether the schema of its records is known, so that JSON may omit it.
    """
    if file.size is None or file.path.suffix.lower() in COLUMNAR:
        return True
    text = file.start.decode("utf-8-sig", errors="ignore")
    if Format.of_file(str(file.path), file.start) is Format.CSV:
        return any(name.startswith(_OURS) for name in _header(text))
    first = _first_of(text)
    if not isinstance(first, dict) or not record_formats.is_exported_record(first):
        return False
    return names_schema or "schema" in first


def names_schema(file: LocalFile, kind: str | None) -> bool:
    """Whether a file names the schema of its first record, or is too broken to tell here."""
    if file.path.suffix.lower() in COLUMNAR:
        return False
    text = file.start.decode("utf-8-sig", errors="ignore")
    if (KINDS[kind] if kind else file.media_type) == Format.CSV.media_type:
        return not text or any(name.startswith(_OURS[0]) for name in _header(text))
    first = _first_of(text)
    return not isinstance(first, dict) or "schema" in first


def _header(text: str) -> list[str]:
    try:
        return next(csv.reader(text.split("\n", 1)[:1]), [])
    except csv.Error:  # a workbook, for example
        return []


def _has_data(item: object) -> bool:
    """Whether an item has ``data`` with an object, which is no field, as no field has an object."""
    return not isinstance(item, Mapping) or isinstance(item.get("data"), Mapping)


def wrap_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """JSON lines of plain objects -> JSON lines of records, several at a time."""
    texts = (line.strip().removeprefix(b"\xef\xbb\xbf") for line in _split(pieces))
    return gather(b'{"data":' + text + b"}\n" for text in texts if text)


def _split(pieces: Iterator[bytes]) -> Iterator[bytes]:
    unfinished = b""
    for piece in pieces:
        *lines, unfinished = (unfinished + piece).split(b"\n")
        yield from lines
    yield unfinished


def lines_of(rows: Iterator[Any]) -> Iterator[bytes]:
    """JSON lines, several at a time."""
    return gather(_line_of(row) for row in rows)


def _line_of(row: Any) -> bytes:
    from encrypted_records.model import strict_json  # noqa: PLC0415 - slow to import

    try:
        return strict_json.encode(row) + b"\n"
    except UnicodeEncodeError:
        # Half of a surrogate pair is sent unchanged, so that the job reports its row and field.
        return strict_json.encode(_with_escapes(row)) + b"\n"


def _with_escapes(value: Any) -> Any:
    """The value for encoding, with escapes in texts for characters that have no UTF-8."""
    from msgspec import Raw  # noqa: PLC0415 - slow to import

    if isinstance(value, str):
        return Raw(json.dumps(value).encode())
    if isinstance(value, list):
        return [_with_escapes(item) for item in value]
    if isinstance(value, dict):
        return {name: _with_escapes(item) for name, item in value.items()}
    return value


def gather(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The same lines, joined to larger pieces."""
    buffer = bytearray()
    for line in lines:
        buffer += line
        if len(buffer) >= _CHUNK_BYTES:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


def columnar_lines(file: LocalFile) -> Iterator[bytes]:
    """The rows of a Parquet, Arrow or Feather file as JSON lines; nulls are left out.

    Raises:
        InvalidSetting: it cannot be read.
        InvalidRecords: a value cannot be stored.
    """
    from encrypted_records.client.sdk.frames import rows_of  # noqa: PLC0415 - slow to import
    from encrypted_records.client.sdk.rows import encode_row  # noqa: PLC0415

    number = 0
    for batch in batches_of(file):
        for row in cast(Iterator[Mapping[str, Any]], rows_of(batch)):
            number += 1
            yield encode_row(row, number)[1]


def batches_of(file: LocalFile | Path) -> Iterator[Any]:
    """The record batches of a Parquet, Arrow or Feather file. Texts in dictionaries stay there, and
    a batch of Parquet has no more rows than fit into about 32 MiB.

    Raises:
        InvalidSetting: it cannot be read, or would take gigabytes of memory; or pyarrow is not
            installed.
    """
    if isinstance(file, Path):
        file = LocalFile(file)
    try:
        import pyarrow  # noqa: PLC0415 - optional, and slow to import
    except ImportError:
        raise InvalidSetting(
            f"{file.path} can only be read with pyarrow, which is not installed",
            hint="install encrypted-records[arrow], or turn the file into CSV",
        ) from None
    file.require_size(NOT_COLUMNAR)
    kind = "parquet" if file.path.suffix.lower() == ".parquet" else "arrow"
    # The process gets no secrets, and cannot import modules from the current folder.
    command = [sys.executable, "-P", "-m", column_reader.__name__, kind, str(_MOST_BYTES)]
    with reading(file.path):
        process = subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=file.rewind(), stdout=subprocess.PIPE, env=_environment()
        )
    assert process.stdout is not None
    is_complete = False
    try:
        with suppress(pyarrow.ArrowException, OSError):  # the exit code gives the reason
            yield from pyarrow.ipc.open_stream(process.stdout)
            is_complete = True
        process.stdout.close()  # else it would block on writing while nothing is read
        _require_read(file.path, process.wait(), is_complete=is_complete)
        file.require_unchanged()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _environment() -> dict[str, str]:
    """The environment variables by which Python and its libraries are found."""
    found_by = ("PYTHON", "LD_", "DYLD_")
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(found_by) or name in ("HOME", "PATH")
    }


def _require_read(path: Path, ending: int, *, is_complete: bool) -> None:
    """
    Args:
        ending: the exit code of the reading process.
        is_complete: whether all of its output was received.

    Raises:
        InvalidSetting: the file was not read completely.
    """
    if ending == column_reader.TOO_MUCH:
        raise InvalidSetting(
            f"{path} needs more than 2 GiB of memory at once to be decoded",
            hint="write it with smaller row groups or batches, or as CSV",
        )
    if ending > column_reader.UNREADABLE:
        number = ending - column_reader.UNREADABLE
        with reading(path):
            raise OSError(number, os.strerror(number))
    # Also if it was killed, as happens when a library reads beyond a damaged file.
    if ending or not is_complete:
        raise InvalidSetting(f"{path} is not a Parquet or Arrow file, or is damaged")

"""Read what commands are given in files, or on standard input as ``-``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any

from encrypted_records.cli.terminal import STDOUT
from encrypted_records.client.media import LocalFile
from encrypted_records.errors import InvalidSetting
from encrypted_records.model.record_formats import Format

STDIN = "-"
#: A sample is cut here; a definition is inferred from at most 10,000 rows of it.
SAMPLE_BYTES = 8 << 20
#: A definition has at most 1 MiB; a JSON file to infer from fits a request of the proxy.
_WHOLE_BYTES = 16 << 20


def read_definition(path: str) -> Any:
    """A JSON Schema, ready to be sent exactly as it is written.

    Raises:
        InvalidSetting: it cannot be read.
        Malformed: it is no JSON.
    """
    import msgspec  # noqa: PLC0415 - slow to import

    from encrypted_records.model import strict_json  # noqa: PLC0415

    text = read(path, _WHOLE_BYTES)
    strict_json.loads(text)
    return msgspec.Raw(text.removeprefix(b"\xef\xbb\xbf"))


def read(path: str, limit: int) -> bytes:
    """The content of a file.

    Raises:
        InvalidSetting: it cannot be read, or has more than ``limit`` bytes.
    """
    content = _begin(path, limit + 1)
    if len(content) > limit:
        raise InvalidSetting(f"{path} has more than {limit >> 20} MiB")
    return content


def objects_in(path: str) -> Iterator[Any]:
    """The values of a JSON array, or of a file with one JSON value per line; numbers are exact.

    Raises:
        InvalidSetting: the file cannot be read, or has other content.
        Malformed: the file is not JSON.
    """
    from encrypted_records.cli.input.json_stream import values_of  # noqa: PLC0415 - slow to import

    pieces = pieces_of(path)
    start = next(pieces, b"")
    if Format.of_file(path, start) is Format.CSV:
        raise InvalidSetting(f"{path} is neither a JSON array nor one JSON object per line")
    yield from values_of(chain((start,), pieces))


def pieces_of(path: str) -> Iterator[bytes]:
    """The content of a file of any size, as it is read.

    Raises:
        InvalidSetting: it cannot be read.
    """
    with open_input(path) as file:
        yield from file.pieces()


def open_input(path: str) -> LocalFile:
    """A file, or standard input, opened for the only time.

    Raises:
        InvalidSetting: it cannot be read.
    """
    if path != STDIN:
        return LocalFile(Path(path))
    return LocalFile(Path(STDIN), sys.stdin.buffer)


def _begin(path: str, size: int) -> bytes:
    """The first ``size`` bytes of a file, or fewer."""
    return _first(pieces_of(path), size)


def _first(pieces: Iterator[bytes], size: int) -> bytes:
    content = b""
    for piece in pieces:
        content += piece
        if len(content) >= size:
            break
    return content[:size]


@contextmanager
def open_result(path: str | None) -> Iterator[IO[bytes]]:
    """Open the destination of a result: standard output, a pipe, or a file that appears only when
    it is complete.

    Raises:
        InvalidSetting: the file cannot be written.
    """
    if path is None:
        try:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        except OSError as error:
            error.filename = STDOUT
            raise
        return
    if Path(path).exists() and not Path(path).is_file():
        # A pipe or a device, which a file in its place would cut off from who reads it.
        try:
            with Path(path).open("wb") as stream:
                yield stream
        except BrokenPipeError:
            raise
        except OSError as error:
            raise cannot_write(path, error) from None
        return
    draft = Path(f"{path}.part")
    try:
        file = draft.open("xb")
    except FileExistsError:
        hint = f"if no other export is running, delete {draft}"
        raise InvalidSetting(f"another export to {path} is running", hint=hint) from None
    except OSError as error:
        raise cannot_write(path, error) from None
    try:
        with file:
            yield file
        draft.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from None
    finally:
        draft.unlink(missing_ok=True)


def is_there(path: str) -> bool:
    return Path(path).exists()


class LineCounter:
    """Counts the records of an export as it passes.

    Args:
        form: ``ndjson``, or ``csv``, where a line break in quotes ends no record.
    """

    def __init__(self, form: str) -> None:
        self._csv = form == "csv"
        self._quoted = False
        self._ends = 0

    def add(self, piece: bytes) -> None:
        if not self._csv:
            self._ends += piece.count(b"\n")
            return
        for at, part in enumerate(piece.split(b'"')):
            self._quoted ^= at > 0
            self._ends += 0 if self._quoted else part.count(b"\n")

    @property
    def records(self) -> int:
        """The number of records read; a header does not count."""
        return max(self._ends - self._csv, 0)


def cannot_write(path: str, error: OSError) -> InvalidSetting:
    return InvalidSetting(f"{path} cannot be written: {(error.strerror or 'it fails').lower()}")


def read_sample(path: str) -> tuple[bytes, str]:
    """The first rows of a file, whole ones, and its media type.

    Raises:
        InvalidSetting: it cannot be read, or is one JSON array that is too large for a sample.
    """
    with open_input(path) as file:
        return sample_of(file)


def sample_of(file: LocalFile) -> tuple[bytes, str]:
    """Read a sample like :func:`read_sample`, from an open file."""
    path = str(file.path)
    body = _first(file.pieces(), _WHOLE_BYTES + 1)
    kind = Format.of_file(path, body)
    if kind is Format.JSON:
        if len(body) > _WHOLE_BYTES:
            raise InvalidSetting(
                f"{path} is a JSON array of more than {_WHOLE_BYTES >> 20} MiB",
                hint="give a file with its first records, or one record per line",
            )
        return body, kind.media_type
    sample = _whole_lines(body[:SAMPLE_BYTES]) if len(body) > SAMPLE_BYTES else body
    return sample, kind.media_type


def _whole_lines(body: bytes) -> bytes:
    """The part up to the last line break outside quotes: an even number of quotes precedes it."""
    end = body.rfind(b"\n") + 1
    while end and body.count(b'"', 0, end) % 2:
        end = body.rfind(b"\n", 0, end - 1) + 1
    return body[:end]

"""Read input files of commands, or standard input as ``-``: definitions, and records in JSON,
individually or in batches.

Memory use stays constant, and numbers exact, however long a JSON text is.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from encrypted_records.cli.terminal import STDOUT, TerminalOutput
from encrypted_records.client.proxy.uploads import LocalFile
from encrypted_records.client.sdk.names import Names
from encrypted_records.errors import Flaw, InvalidRecords, InvalidSetting, Malformed
from encrypted_records.model.record_formats import RECORD_MEMBERS, Format
from encrypted_records.model.strict_json import JsonItems, JsonValue, skip_blanks

_ITEMS = JsonItems("value", "text")
#: Maximum characters of a value; a record has at most 16 MiB.
_LONGEST = 32 << 20


def values_of(pieces: Iterator[bytes]) -> Iterator[Any]:
    """The items of an array, or the values of a text that is not an array, such as one per line.

    Raises:
        Malformed: not UTF-8, not JSON, or refused by :mod:`~encrypted_records.model.strict_json`;
            the message identifies the value by its number, never by its content.
    """
    text = _TextStream(pieces)
    number = 1
    if text.next() != "[":
        while text.next():
            yield _require(text.take(_ITEMS.read, number), number)
            number += 1
        return
    text.skip()
    is_last = False
    while not is_last:
        step = text.take(_ITEMS.step, number)
        if step.item is not None:
            yield _require(step.item, number)
        is_last = step.is_last
        number += 1
    _ITEMS.check_end(text.next(), 0)


def _require(found: JsonValue, number: int) -> Any:
    """
    Raises:
        Malformed: the value is refused.
    """
    if found.fault:
        raise Malformed(f"value {number}: {found.fault}")
    return found.value


class _Ends(Protocol):
    @property
    def end(self) -> int: ...


T = TypeVar("T", bound=_Ends)


class _TextStream:
    """Characters that are read on demand, and dropped after use."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._text = ""
        self._at = 0
        self._ended = False

    def next(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            self._at = skip_blanks(self._text, self._at)
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._read()

    def skip(self) -> None:
        self._at += 1

    def take(self, read: Callable[..., T | None], number: int) -> T:
        """The ``number``-th value, found in this text by ``read`` of :class:`JsonItems`."""
        while True:
            found = read(self._text, self._at, number, final=self._ended)
            if found is not None:
                self._at = found.end
                return found
            if len(self._text) - self._at > _LONGEST:
                raise Malformed(f"value {number} has more than {_LONGEST} characters")
            self._read()

    def _read(self) -> None:
        piece = next(self._pieces, b"")
        self._ended = not piece
        try:
            more = self._decode(piece, self._ended)
        except UnicodeDecodeError:
            raise Malformed("not UTF-8") from None
        self._text = self._text[self._at :] + more
        self._at = 0


async def batches(items: Iterator[Any], at_once: int) -> AsyncIterator[list[Any]]:
    """Yield batches of up to ``at_once`` items; reading them does not block the event loop."""
    while batch := await asyncio.to_thread(lambda: list(islice(items, at_once))):
        yield batch


async def records_from(
    items: Iterator[Any], default: str | None, names: Names, at_once: int
) -> AsyncIterator[list[dict[str, Any]]]:
    """Objects with ``schema`` (a path) and ``data``, in batches of ``at_once``; the last batch may
    be smaller.

    Args:
        items: such objects, with or without ``schema`` (which may be any name), possibly with the
            further members of answers; or plain objects of field names and values. No field has an
            object as its value, so the two are always distinct.
        default: the schema of items without one.

    Raises:
        InvalidRecords: an item is not a record, or has no schema and there is no default.
        NotFound, InvalidSetting: as :meth:`Names.schema`.
    """
    paths: dict[str | None, str | None] = {None: default}
    before = 0
    async for batch in batches(items, at_once):
        flaws: list[Flaw] = []
        records = []
        for row, item in enumerate(batch, before + 1):
            if not isinstance(item, dict):
                flaws.append(Flaw("record", "expected an object", row=row))
                continue
            is_record = isinstance(item.get("data"), dict) and item.keys() <= RECORD_MEMBERS
            named, data = (item.get("schema"), item["data"]) if is_record else (None, item)
            if named is not None and not isinstance(named, str):
                flaws.append(
                    Flaw("record", "expected the name of a schema", row=row, field="schema")
                )
                continue
            if named not in paths:
                paths[named] = (await names.schema(str(named))).url
            if paths[named] is None:
                flaws.append(Flaw("record", "names no schema; --schema names one for all", row=row))
            records.append({"schema": paths[named], "data": data})
        if flaws:
            raise InvalidRecords(
                "not every item is a record", flaws=tuple(flaws), hint="nothing was stored"
            )
        before += len(batch)
        yield records


STDIN = "-"
#: Maximum bytes of a sample; a definition is inferred from at most 10,000 rows of it.
SAMPLE_BYTES = 8 << 20
#: A definition has at most 1 MiB; a JSON file to infer from fits a request of the proxy.
_WHOLE_BYTES = 16 << 20


def read_definition(path: str) -> Any:
    """A JSON Schema, ready to be sent exactly as written.

    Raises:
        InvalidSetting: it cannot be read.
        Malformed: it is not JSON.
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
    content = _first(pieces_of(path), limit + 1)
    if len(content) > limit:
        raise InvalidSetting(f"{path} has more than {limit >> 20} MiB")
    return content


def objects_in(path: str) -> Iterator[Any]:
    """The values of a JSON array, or of a file with one JSON value per line; numbers are exact.

    Raises:
        InvalidSetting: the file cannot be read, or has other content.
        Malformed: the file is not JSON.
    """
    pieces = pieces_of(path)
    start = next(pieces, b"")
    if Format.of_file(path, start) is Format.CSV:
        raise InvalidSetting(f"{path} is neither a JSON array nor one JSON object per line")
    yield from values_of(chain((start,), pieces))


def pieces_of(path: str) -> Iterator[bytes]:
    """The content of a file of any size, in pieces.

    Raises:
        InvalidSetting: it cannot be read.
    """
    with open_input(path) as file:
        yield from file.pieces()


def open_input(path: str) -> LocalFile:
    """A file, or standard input, opened only once.

    Raises:
        InvalidSetting: it cannot be read.
    """
    if path != STDIN:
        return LocalFile(Path(path))
    return LocalFile(Path(STDIN), sys.stdin.buffer)


def _first(pieces: Iterator[bytes], size: int) -> bytes:
    """The first ``size`` bytes of a file, or fewer."""
    content = b""
    for piece in pieces:
        content += piece
        if len(content) >= size:
            break
    return content[:size]


@contextmanager
def open_result(path: str | None) -> Iterator[IO[bytes]]:
    """Open the destination of a result: standard output, a pipe, or a file that appears only when
    it is complete, even if the power fails. A file that it replaces keeps its permissions.

    Raises:
        InvalidSetting: the file cannot be written.
    """
    if path is None:
        try:
            file: Any = TerminalOutput() if sys.stdout.isatty() else sys.stdout.buffer
            yield file
            file.flush()
        except OSError as error:
            error.filename = STDOUT
            raise
        return
    if Path(path).exists() and not Path(path).is_file():
        # A pipe or a device; replacing it by a file would cut off its reader.
        try:
            with Path(path).open("wb") as stream:
                yield stream
        except BrokenPipeError:
            raise
        except OSError as error:
            raise cannot_write(path, error) from None
        return
    target = Path(path).resolve()
    draft = target.with_name(f"{target.name}.part")
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666
    try:
        file = open(draft, "xb", opener=partial(os.open, mode=mode))  # noqa: SIM115 # closed below
    except FileExistsError:
        hint = f"if no other export is running, delete {draft}"
        raise InvalidSetting(f"another export to {path} is running", hint=hint) from None
    except OSError as error:
        raise cannot_write(path, error) from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except OSError as error:
        raise cannot_write(path, error) from None
    finally:
        draft.unlink(missing_ok=True)


def is_there(path: str) -> bool:
    return Path(path).exists()


class LineCounter:
    """Counts the records of an export while it is streamed.

    Args:
        form: ``ndjson``, or ``csv``, where a line break in quotes does not end a record.
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
    """The first complete rows of a file, and its media type.

    Raises:
        InvalidSetting: it cannot be read, or is a single JSON array that is too large for a sample.
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

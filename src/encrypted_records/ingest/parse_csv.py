"""CSV uploads -> raw records, as RFC 4180 and the interface have it.

The first row is the header. Its last entry may be ``schema_id:<id>``, which has no column below
it. Rows end in LF or CRLF; blank lines are none. An empty cell without quotes is absent, one with
quotes is the empty string. Everything else that RFC 4180 does not allow is refused, not guessed:
a quote inside a cell without quotes, text after a closing quote, a row of another width.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, AnyStr

from encrypted_records.errors import InvalidRecords, Malformed
from encrypted_records.ingest.blocks import (
    MAX_RECORD_BYTES,
    BadRow,
    Block,
    Place,
    RawRecord,
    Table,
    bad_row,
    record_too_large,
)
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.ids import reference
from encrypted_records.model.strict_json import MAX_NUMBER_LENGTH

SCHEMA_ENTRY = "schema_id:"
#: Lines are read in blocks of about so many bytes.
BLOCK_BYTES = 128 << 10
_BOM = b"\xef\xbb\xbf"
_CELL = re.compile(r'(?:"((?:[^"]|"")*)"|([^",]*))(,|\Z)')
#: A line that ends inside a quoted cell.
_OPEN = re.compile(rb'(?:(?:"(?:[^"]|"")*"|[^",]*),)*"(?:[^"]|"")*')
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Header:
    """The names of the columns, the id of the schema where the header names one, and how many
    bytes of the upload it takes."""

    names: tuple[str, ...]
    schema: str | None
    size: int


def read_header(start: bytes, *, final: bool) -> Header | None:
    """The header that an upload begins with; None where ``start`` does not reach its end yet.

    Args:
        final: whether ``start`` is the whole upload.

    Raises:
        InvalidRecords: ``csv_header``; there is none, or not a sound one. No name is repeated: a
            file without a header has a record in its place.
    """
    skipped = len(_BOM) if start.startswith(_BOM) else 0
    first = next(_whole_lines(start[skipped:]), b"")
    end = skipped + len(first)
    if not final and not first.endswith(b"\n"):
        if len(start) > MAX_RECORD_BYTES:
            raise bad_header("the header does not end")
        return None
    try:
        line = _without_newline(start[skipped:end].decode())
    except UnicodeDecodeError:
        raise bad_header("the header is not UTF-8") from None
    cells = _cells(line)
    if cells is None:
        raise bad_header("the header is not sound CSV")
    if not any(cells):
        raise bad_header("there is no header row")
    schema = None
    if (cells[-1] or "").startswith(SCHEMA_ENTRY):
        schema = (cells.pop() or "").removeprefix(SCHEMA_ENTRY)
    if not cells:
        raise bad_header("there is no column beside the schema's id")
    empty = [number for number, cell in enumerate(cells, 1) if not cell]
    if empty:
        raise bad_header(f"{_columns(empty)} without a name")
    names = [cell for cell in cells if cell]
    twice = [number for number, name in enumerate(names, 1) if name in names[: number - 1]]
    if twice:
        raise bad_header(f"{_columns(twice)} named like an earlier one")
    return Header(tuple(names), schema, end)


def check_columns(names: Sequence[str], definition: SchemaDefinition) -> None:
    """Hold the columns against the schema's fields.

    Raises:
        InvalidRecords: ``csv_header``; unknown columns, or required fields without one.
    """
    unknown = [number for number, name in enumerate(names, 1) if name not in definition.fields]
    if unknown:
        raise bad_header(f"{_columns(unknown)} no field of the schema")
    missing = sorted(definition.required - set(names))
    if missing:
        raise bad_header(f"no column for the required {', '.join(missing)}")


def _columns(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers[:20])) + (", ..." if len(numbers) > 20 else "")
    return f"column {listed} is" if len(numbers) == 1 else f"columns {listed} are"


def bad_header(detail: str) -> InvalidRecords:
    return InvalidRecords(
        f"the CSV's header: {detail}",
        code="csv_header",
        hint="the first row names fields of the schema, once each; its last entry is"
        " schema_id:<schema id>, unless the request names the schema",
    )


class CsvParser:
    """Rows below a header, from ``place`` on. Values are text; :func:`typed` reads numbers."""

    def __init__(self, header: Header, place: Place) -> None:
        self._names = header.names
        #: below ``schema_id:...`` some programs write one more empty cell
        self._spare = header.schema is not None
        self._schema = header.schema and reference("schemas", header.schema)
        self._place = place
        self._buffer = b""
        self._wait = BLOCK_BYTES

    def feed(self, data: bytes) -> Sequence[Block | Table]:
        """
        Raises:
            TooLarge: a row does not end where one must.
        """
        self._buffer += data
        if len(self._buffer) >= self._wait:
            return self._take(final=False)
        return []

    def finish(self) -> Sequence[Block | Table]:
        """
        Raises:
            Malformed: the last row ends inside quotes.
        """
        return self._take(final=True)

    def _take(self, *, final: bool) -> Sequence[Block | Table]:
        end = len(self._buffer) if final else self._buffer.rfind(b"\n") + 1
        table = self._table(self._buffer[:end])
        if table is not None:
            self._buffer = self._buffer[end:]
            self._place = Place(self._place.offset + end, self._place.row + table.count)
            self._wait = BLOCK_BYTES
            return [table]
        place, size, lines = self._place, 0, []
        for line in _whole_lines(self._buffer[:end]):
            size += len(line)
            text = _without_newline(line)
            if text:
                lines.append(text)
        records = [self._record(row, line) for row, line in enumerate(lines, place.row)]
        self._buffer = self._buffer[size:]
        self._place = Place(place.offset + size, place.row + len(records))
        # Whoever closes no quote must not make us read the same bytes again and again.
        self._wait = BLOCK_BYTES if size else 2 * len(self._buffer)
        if final and self._buffer:
            raise Malformed(
                f"row {self._place.row} ends inside quotes",
                hint="look for a quote in this row that is not closed",
            )
        if len(self._buffer) > MAX_RECORD_BYTES:
            raise record_too_large(self._place.row)
        return [Block(place, records)] if records else []

    def _table(self, rows: bytes) -> Table | None:
        """Rows by column, where no cell is quoted and nothing is wrong with their form."""
        if b'"' in rows:
            return None
        try:
            text = rows.decode()
        except UnicodeDecodeError:
            return None
        if "\r" in text:
            text = text.replace("\r\n", "\n")
            if "\r" in text:
                return None
        cells = [line.split(",") for line in text.split("\n") if line]
        if set(map(len, cells)) != {len(self._names)}:
            return None
        columns: dict[str, Sequence[str | None]] = {}
        for name, column in zip(self._names, zip(*cells, strict=True), strict=True):
            columns[name] = [cell or None for cell in column] if "" in column else column
        return Table(self._place, self._schema, columns, len(cells))

    def _record(self, row: int, line: bytes) -> RawRecord | BadRow:
        try:
            text = line.decode()
        except UnicodeDecodeError:
            return bad_row(row, "csv_row", "the row is not UTF-8")
        cells = _cells(text)
        if cells is None:
            return bad_row(row, "csv_row", "the row is not sound CSV: look at its quotes")
        width = len(self._names)
        if self._spare and len(cells) == width + 1 and cells[-1] is None:
            cells.pop()
        if len(cells) != width:
            return bad_row(row, "csv_row", f"the row has {len(cells)} cells, not {width}")
        data = {
            name: cell for name, cell in zip(self._names, cells, strict=True) if cell is not None
        }
        return RawRecord(row, self._schema, data)


def typed(definition: SchemaDefinition, cells: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row: text of numeric fields as a number, where it is one in plain decimal
    notation, and otherwise as it came, for validation to refuse."""
    numeric = definition.numeric
    return {name: as_number(text) if name in numeric else text for name, text in cells.items()}


def as_number(text: str) -> int | Decimal | str:
    """A number in plain decimal notation; any other text as it is."""
    if len(text) > MAX_NUMBER_LENGTH or not _NUMBER.fullmatch(text):
        return text
    return Decimal(text) if "." in text else int(text)


def _whole_lines(chunk: bytes) -> Iterator[bytes]:
    """Rows with their line ends; the last one is left out where it ends inside quotes."""
    if b'"' not in chunk:
        yield from _split(chunk)
        return
    pending: list[bytes] = []
    for line in _split(chunk):
        odd = line.count(b'"') % 2 == 1
        if pending:
            pending.append(line)
            if odd:
                yield b"".join(pending)
                pending = []
        elif odd and _OPEN.fullmatch(line):
            pending.append(line)
        else:
            yield line


def _split(chunk: bytes) -> list[bytes]:
    """Lines with their ends. Only LF ends one: bytes.splitlines() takes a lone CR as well."""
    lines = [line + b"\n" for line in chunk.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _without_newline(line: AnyStr) -> AnyStr:
    if isinstance(line, str):
        return line.removesuffix("\n").removesuffix("\r")
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _cells(line: str) -> list[str | None] | None:
    """The cells of a row, absent ones None; None where it is not sound CSV."""
    if '"' not in line:
        return None if "\r" in line else [cell or None for cell in line.split(",")]
    cells: list[str | None] = []
    at = 0
    while True:
        found = _CELL.match(line, at)
        if found is None:
            return None
        quoted, bare, separator = found.groups()
        if quoted is None:
            if "\r" in bare:
                return None
            cells.append(bare or None)
        else:
            cells.append(quoted.replace('""', '"'))
        if not separator:
            return cells
        at = found.end()

"""Parse bodies and uploads of any size into raw records: CSV, arrays of JSON, lines of JSON.

CSV is read by RFC 4180 and the interface. The first row is the header. Its last entry may be
``schema_id:<id>``, which has no column below it. A column whose name begins with ``leave_out:`` is
not read. Rows end in LF or CRLF; blank lines are not rows. An empty cell is absent without quotes,
and the empty string with quotes. Everything else that RFC 4180 does not allow is refused, not
guessed: a quote inside a cell without quotes, text after a closing quote, a row of another width.

An upload of JSON is an array of record objects, or has an object per line. Records are accepted and
interpreted as by :mod:`encrypted_records.model.strict_json`. The common case is fast: a piece of
the array is cut off after the last ``}`` that a comma follows and decoded as a separate array. A
cut in the wrong place (inside a string, or between the members of a record) leaves brackets or
quotes open, so that it never decodes; then the previous cut is tried. If the fast way cannot
guarantee a property, such as that no object has a key twice, the piece is decoded again, strictly
and record by record.
"""

from __future__ import annotations

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, AnyStr, Literal

import msgspec

from encrypted_records.errors import Flaw, InvalidRecords, Malformed, TooLarge
from encrypted_records.ingest.blocks import (
    MAX_RECORD_BYTES,
    CellBlock,
    Grid,
    RawRecord,
    RecordBlock,
    RecordStart,
    UnreadRow,
    bad_row,
    record_too_large,
)
from encrypted_records.model import record_formats, strict_json
from encrypted_records.model.definition import MAX_FIELDS, SchemaDefinition
from encrypted_records.model.ids import reference
from encrypted_records.model.record_formats import LEFT_OUT, SCHEMA_ENTRY, misplaced_members
from encrypted_records.model.strict_json import JsonItems, escape_pointer

#: Approximate bytes of a block of lines, or of a piece in which records of JSON are decoded.
BLOCK_BYTES = 128 << 10
#: Maximum bytes of a header; 512 quoted names of 200 characters take less.
MAX_HEADER_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_CELL = re.compile(r'(?:"((?:[^"]|"")*)"|([^",]*))(,|\Z)')
#: Matches a line that ends inside a quoted cell.
_OPEN = re.compile(rb'(?:(?:"(?:[^"]|"")*"|[^",]*),)*"(?:[^"]|"")*')


@dataclass(frozen=True, slots=True)
class Header:
    """The names of all columns, including columns that are left out; the schema id, if the header
    has it; and the header's size in bytes of the upload."""

    names: tuple[str, ...]
    schema: str | None
    size: int

    @property
    def fields(self) -> tuple[str | None, ...]:
        """The field of each column; None for a column that is left out."""
        return tuple(None if name.startswith(LEFT_OUT) else name for name in self.names)


def read_header(start: bytes, *, final: bool, charset: str = "UTF-8") -> Header | None:
    """The header of an upload; None if ``start`` does not reach its end yet.

    Args:
        final: whether ``start`` is the whole upload.
        charset: of the upload as sent, for the error.

    Raises:
        InvalidRecords: ``csv_header``; there is no valid header. The error repeats no name, because
            the first row of a file without a header is a record.
    """
    skipped = len(_BOM) if start.startswith(_BOM) else 0
    first = next(_whole_lines(start[skipped : skipped + MAX_HEADER_BYTES]), b"")
    end = skipped + len(first)
    if not first.endswith(b"\n"):
        if len(start) > skipped + MAX_HEADER_BYTES:
            raise bad_header(f"the header does not end within {MAX_HEADER_BYTES >> 20} MiB")
        if not final:
            return None
    try:
        line = _without_newline(start[skipped:end].decode())
    except UnicodeDecodeError:
        raise bad_header(f"the header is not {charset}", CHARSET_HINT) from None
    cells = _cells(line)
    if cells is None:
        raise bad_header("the header is not valid CSV")
    if len(cells) > MAX_FIELDS + 1:
        raise bad_header(f"there are more than {MAX_FIELDS} columns")
    if not any(cells):
        raise bad_header("there is no header row")
    schema = None
    if (cells[-1] or "").startswith(SCHEMA_ENTRY):
        schema = (cells.pop() or "").removeprefix(SCHEMA_ENTRY)
    if not cells:
        raise bad_header("it has no column except the schema's id")
    empty = [number for number, cell in enumerate(cells, 1) if not cell]
    if empty:
        raise bad_header(f"{_columns(empty)} without a name")
    names = [cell for cell in cells if cell]
    header = Header(tuple(names), schema, end)
    fields = header.fields
    twice = [at for at, name in enumerate(fields, 1) if name and name in fields[: at - 1]]
    if twice:
        raise bad_header(f"{_columns(twice)} named like an earlier one")
    if not any(fields):
        raise bad_header("all columns are left out")
    return header


def check_columns(names: Sequence[str], definition: SchemaDefinition) -> None:
    """Compare the columns with the schema's fields.

    Raises:
        InvalidRecords: ``csv_header``; unknown columns, or required fields without a column.
    """
    numbered = list(enumerate(names, 1))
    left_out = {number for number, name in numbered if name.startswith(LEFT_OUT)}
    fields = {number for number, name in numbered if name in definition.fields}
    if left_out & fields:
        # A schema may be older than this meaning of a name: its field is not silently dropped.
        both = sorted(left_out & fields)
        raise bad_header(
            f"{_columns(both)} a field of the schema, and the name also means that the"
            " column is left out"
        )
    unknown = [number for number, _ in numbered if number not in left_out | fields]
    if unknown:
        reason = _usual_reason(names, definition)
        raise bad_header(f"{_columns(unknown)} not in the schema{reason}")
    missing = sorted(definition.required - set(names))
    if missing:
        raise bad_header(f"it has no column for the required {', '.join(missing)}")


def _usual_reason(names: Sequence[str], definition: SchemaDefinition) -> str:
    """The usual reason for unknown columns. They are not named, because in a file without a header
    they are the values of its first record."""
    if any(name not in definition.fields and name.strip() in definition.fields for name in names):
        return "; some names have spaces around them"
    return _other_separators(names)


def _other_separators(names: Sequence[str]) -> str:
    """The reason why a header has only one column, if it may have other separators than commas."""
    if len(names) == 1:
        for mark, called in ((";", "semicolons"), ("\t", "tabs"), ("|", "pipes")):
            if mark in names[0]:
                return f"; it has {called} instead of commas"
    return ""


def _columns(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers[:20])) + (", ..." if len(numbers) > 20 else "")
    return f"column {listed} is" if len(numbers) == 1 else f"columns {listed} are"


_OF_NAMES = "the first row must name fields of the schema, each once"
CHARSET_HINT = (
    "save it as UTF-8, or declare its charset (text/csv; charset=windows-1252); ers import and"
    " import_file detect it"
)
_OF_SCHEMA = "end the first row with schema_id:<schema id>, or name the schema in the request"


def bad_header(detail: str, hint: str = _OF_NAMES) -> InvalidRecords:
    return InvalidRecords(f"the CSV's header: {detail}", code="csv_header", hint=hint)


def bad_schema(detail: str, code: str) -> InvalidRecords:
    """The error for an invalid last entry of the header."""
    error = bad_header(f"its last entry {detail}", _OF_SCHEMA)
    error.flaws = (Flaw(code, detail, field="schema_id"),)
    return error


def no_schema(names: Sequence[str]) -> InvalidRecords:
    """The error if neither the header, which has these names, nor the request names a schema."""
    reason = _other_separators(names)
    return bad_header(f"its last entry must be schema_id:<schema id>{reason}", _OF_SCHEMA)


class CsvParser:
    """Rows below a header, from ``start`` on.

    Values are text; :func:`read_numbers` reads numbers.
    """

    def __init__(
        self,
        header: Header,
        start: RecordStart,
        *,
        block_bytes: int = BLOCK_BYTES,
        by_column: bool = True,
        charset: str = "UTF-8",
    ) -> None:
        """
        Args:
            by_column: whether blocks without quotes are parsed by column, which is faster.
            charset: of the upload as sent, for errors.
        """
        self._fields = header.fields
        self._charset = charset
        #: some programs write an extra empty cell below ``schema_id:...``
        self._spare = header.schema is not None
        self._schema = header.schema and reference("schemas", header.schema)
        self._start = start
        self._buffer = b""
        self._block_bytes = block_bytes
        self._wait = self._block_bytes
        self._by_column = by_column

    def feed(self, data: bytes) -> Sequence[RecordBlock | CellBlock]:
        """
        Raises:
            TooLarge: a row exceeds the maximum size.
        """
        self._buffer += data
        if len(self._buffer) >= self._wait:
            return self._take(final=False)
        return []

    def finish(self) -> Sequence[RecordBlock | CellBlock]:
        """
        Raises:
            Malformed: the last row ends inside quotes.
        """
        return self._take(final=True)

    def _take(self, *, final: bool) -> Sequence[RecordBlock | CellBlock]:
        end = len(self._buffer) if final else self._buffer.rfind(b"\n") + 1
        table = self._table(self._buffer[:end]) if self._by_column else None
        if table is not None:
            self._buffer = self._buffer[end:]
            self._start = RecordStart(self._start.offset + end, self._start.row + table.count)
            self._wait = self._block_bytes
            return [table]
        start, size, lines = self._start, 0, []
        for line in _whole_lines(self._buffer[:end]):
            size += len(line)
            text = _without_newline(line)
            if text:
                lines.append(text)
        records = [self._record(row, line) for row, line in enumerate(lines, start.row)]
        self._buffer = self._buffer[size:]
        self._start = RecordStart(start.offset + size, start.row + len(records))
        # An open quote must not cause repeated reads of the same bytes.
        self._wait = self._block_bytes if size else 2 * len(self._buffer)
        if final and self._buffer:
            raise Malformed(
                f"row {self._start.row} ends inside quotes",
                hint="look for a quote in this row that is not closed",
            )
        if len(self._buffer) > MAX_RECORD_BYTES:
            raise record_too_large(self._start.row)
        return [RecordBlock(start, records)] if records else []

    def _table(self, rows: bytes) -> CellBlock | None:
        """Rows by column, if no cell is quoted and all rows are well-formed."""
        if b'"' in rows:
            return None
        if b"\r" in rows:
            rows = rows.replace(b"\r\n", b"\n")
            if b"\r" in rows:
                return None
        if not rows.endswith(b"\n"):
            rows += b"\n"
        grid = Grid.of(rows, self._fields)
        if grid is None:
            # Blank lines are not rows.
            rows = b"".join([line + b"\n" for line in rows.split(b"\n") if line])
            grid = Grid.of(rows, self._fields)
        return None if grid is None else CellBlock(self._start, self._schema, grid, grid.count)

    def _record(self, row: int, line: bytes) -> RawRecord | UnreadRow:
        try:
            text = line.decode()
        except UnicodeDecodeError:
            return bad_row(row, "csv_row", f"the row is not {self._charset}")
        cells = _cells(text)
        if cells is None:
            return bad_row(row, "csv_row", "the row is not valid CSV: check its quotes")
        width = len(self._fields)
        if self._spare and len(cells) == width + 1 and cells[-1] is None:
            cells.pop()
        if len(cells) != width:
            return bad_row(row, "csv_row", f"the row has {len(cells)} cells, not {width}")
        data = {
            name: cell
            for name, cell in zip(self._fields, cells, strict=True)
            if name is not None and cell is not None
        }
        return RawRecord(row, self._schema, data)


def read_numbers(definition: SchemaDefinition, cells: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row. Text of numeric fields becomes a number if it is in plain decimal
    notation; otherwise it is left for validation to refuse."""
    readers = definition.cell_readers
    return {name: readers[name](text) if name in readers else text for name, text in cells.items()}


def _whole_lines(chunk: bytes) -> Iterator[bytes]:
    """Rows with their line ends, without a last row that ends inside quotes."""
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
    """Lines with their ends. Only LF ends a line; bytes.splitlines() also splits at a lone CR."""
    lines = [line + b"\n" for line in chunk.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _without_newline(line: AnyStr) -> AnyStr:
    if isinstance(line, str):
        return line.removesuffix("\n").removesuffix("\r")
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _cells(line: str) -> list[str | None] | None:
    """The cells of a row, None for absent cells; None if the row is not valid CSV."""
    if '"' not in line:
        return None if "\r" in line else [cell or None for cell in line.split(",")]
    cells: list[str | None] = []
    at = 0
    while True:
        match = _CELL.match(line, at)
        if match is None:
            return None
        quoted, bare, separator = match.groups()
        if quoted is None:
            if "\r" in bare:
                return None
            cells.append(bare or None)
        else:
            cells.append(quoted.replace('""', '"'))
        if not separator:
            return cells
        at = match.end()


MAX_DIRECT_RECORDS = 100
#: Maximum number of names listed per record.
_MOST_UNKNOWN = 10


def parse_records(body: bytes, *, limit: int = MAX_DIRECT_RECORDS) -> list[RawRecord]:
    """A JSON array of 1 to ``limit`` record objects.

    Raises:
        Malformed: not strict JSON.
        TooLarge: more than ``limit`` records, or more than ``strict_json.MAX_VALUES`` values.
        InvalidRecords: not an array of objects with ``schema`` and ``data``.
    """
    strict_json.refuse_many(body)
    items = strict_json.loads(body, halves=True)
    if not isinstance(items, list) or not items:
        detail = "expected a JSON array of at least one record object"
        raise InvalidRecords(detail, flaws=(Flaw("type", detail, pointer=""),))
    if len(items) > limit:
        raise TooLarge(
            f"{len(items)} records in one request; the limit is {limit}",
            code="too_many_records",
            hint="send them in several requests",
        )
    records: list[RawRecord] = []
    errors: list[Flaw] = []
    for row, item in enumerate(items, 1):
        members: dict[str, Any] = item if isinstance(item, dict) else {}
        unknown = [name for name in members if name not in record_formats.RECORD_MEMBERS]
        wrong = list(record_formats.misplaced_members(members))
        problem = shape_problem(item, schema_named=False)
        if unknown or wrong:
            detail = "there is no such member; a record has only schema and data"
            found = [("unknown_member", name, detail) for name in unknown[:_MOST_UNKNOWN]]
            found += [("read_only", name, what) for name, what in wrong]
            errors += [
                Flaw(code, what, f"/{row - 1}/{escape_pointer(name)}", row)
                for code, name, what in found
            ]
        elif problem is not None:
            errors.append(Flaw("record", problem, pointer=f"/{row - 1}", row=row))
        else:
            records.append(RawRecord(row, item["schema"], item["data"]))
    if errors:
        raise InvalidRecords("not every record has the right form", flaws=tuple(errors))
    return records


def shape_problem(item: Any, *, schema_named: bool) -> str | None:
    """The reason why an item is not a record object; None for a record object.

    Args:
        schema_named: whether the request names the schema, so that a record need not.
    """
    if not isinstance(item, dict):
        return "expected an object with schema and data"
    sent = item.keys() - record_formats.READ_ONLY_MEMBERS
    if sent != record_formats.SENT_MEMBERS and not (schema_named and sent == {"data"}):
        return "a record object has exactly schema and data"
    if not isinstance(item["data"], dict):
        return "data must be an object"
    return None


Layout = Literal["array", "lines"]

#: Number of cuts that are tried before the piece is decoded record by record.
_CUTS = 8
_BLANK = b" \t\r\n"
_COMMA = re.compile(rb"[ \t\r\n]*,")
_SPACED_COLON = re.compile(rb'"[ \t\r\n]+:')
_ITEMS = JsonItems("record", "upload")
_decoder = msgspec.json.Decoder(list[Any], float_hook=strict_json.decimal)
_REFUSED = (msgspec.DecodeError, Malformed, RecursionError, UnicodeDecodeError)


def layout_of(start: bytes) -> tuple[Layout, RecordStart] | None:
    """Whether an upload is an array or lines, and where its first record may begin; None if
    ``start`` is too short.

    Raises:
        Malformed: it is neither an array nor lines.
    """
    skipped = len(_BOM) if start.startswith(_BOM) else 0
    text = start[skipped:].lstrip(_BLANK)
    if not text:
        return None
    begin = len(start) - len(text)
    if text[:1] == b"[":
        return "array", RecordStart(begin + 1, 1)
    if text[:1] == b"{":
        return "lines", RecordStart(begin, 1)
    raise Malformed("expected a JSON array of record objects, or one record object per line")


class _Buffered(ABC):
    """The common base of both layouts: bytes are buffered until they contain whole records.

    Args:
        start: the position of a record, or of the end of the records.
        schema_named: whether the request names the schema, so that records need not.
        block_bytes: approximate number of bytes that are decoded together.
    """

    def __init__(
        self, start: RecordStart, *, schema_named: bool, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self._start = start
        self._schema_named = schema_named
        self._buffer = b""
        self._block_bytes = block_bytes
        self._wait = block_bytes

    def feed(self, data: bytes) -> list[RecordBlock]:
        """
        Raises:
            Malformed: not JSON, so that the beginning of the next record is unknown.
            TooLarge: a record exceeds the maximum size.
        """
        self._buffer += data
        if len(self._buffer) < self._wait:
            return []
        blocks = self._take(final=False)
        # A record without an end must not be read repeatedly.
        self._wait = self._block_bytes if blocks else 2 * len(self._buffer)
        if len(self._buffer) > MAX_RECORD_BYTES:
            raise record_too_large(self._start.row)
        return blocks

    def finish(self) -> list[RecordBlock]:
        """
        Raises:
            Malformed: as :meth:`feed`; also if the upload is truncated.
        """
        return self._take(final=True)

    def drain(self) -> list[RecordBlock]:
        """The records of all bytes so far, which may be truncated.

        Raises:
            Malformed: as :meth:`feed`.
        """
        return self._take(final=False)

    @abstractmethod
    def _take(self, *, final: bool) -> list[RecordBlock]:
        """The complete blocks; with ``final``, all remaining records."""

    def _block(self, size: int, records: list[RawRecord | UnreadRow]) -> list[RecordBlock]:
        """The block of ``records``, which are the first ``size`` bytes of the buffer."""
        block = RecordBlock(self._start, records)
        self._buffer = self._buffer[size:]
        self._start = RecordStart(self._start.offset + size, self._start.row + len(records))
        return [block] if records else []

    def _record(self, row: int, item: Any) -> RawRecord | UnreadRow:
        problem = shape_problem(item, schema_named=self._schema_named)
        if problem is not None:
            return bad_row(row, "record", problem)
        for name, what in misplaced_members(item):
            return bad_row(row, "read_only", f"{name} {what}")
        return RawRecord(row, item.get("schema"), item["data"])


class ArrayParser(_Buffered):
    """The records of one array."""

    def __init__(
        self, start: RecordStart, *, schema_named: bool, block_bytes: int = BLOCK_BYTES
    ) -> None:
        super().__init__(start, schema_named=schema_named, block_bytes=block_bytes)
        self._ended = False

    def _take(self, *, final: bool) -> list[RecordBlock]:
        blocks: list[RecordBlock] = []
        while cut := self._cut_off():
            blocks += cut
        if final or not blocks:
            blocks += self._one_by_one(final=final)
        return blocks

    def _cut_off(self) -> list[RecordBlock]:
        """A block of the records that can be decoded at once; no block if no cut works."""
        end = min(len(self._buffer), 2 * self._block_bytes)
        for _ in range(_CUTS):
            end = self._buffer.rfind(b"}", 0, end)
            if end < 0:
                break
            after = _COMMA.match(self._buffer, end + 1)
            if after is None:
                continue
            items = _decode(b"[" + self._buffer[: end + 1] + b"]")
            if items is not None:
                records = [
                    self._record(row, item) for row, item in enumerate(items, self._start.row)
                ]
                return self._block(after.end(), records)
        return []

    def _one_by_one(self, *, final: bool) -> list[RecordBlock]:
        """Decode the whole records in the buffer, and the end of the array, strictly."""
        text = _text(self._buffer, self._start.row)
        records: list[RawRecord | UnreadRow] = []
        used = 0
        while not self._ended:
            row = self._start.row + len(records)
            step = _ITEMS.step(text, used, row, final=final)
            if step is None:
                break
            if step.item is not None and step.item.fault:
                records.append(bad_row(row, "malformed", step.item.fault))
            elif step.item is not None:
                records.append(self._record(row, step.item.value))
            self._ended, used = step.is_last, step.end
        if self._ended:
            _ITEMS.check_end(text, used)
            used = len(text)
        return self._block(len(text[:used].encode()), records)


class LinesParser(_Buffered):
    """Record objects, one per line. Blank lines are not records."""

    def _take(self, *, final: bool) -> list[RecordBlock]:
        size = len(self._buffer) if final else self._buffer.rfind(b"\n") + 1
        lines = [line.strip(_BLANK) for line in self._buffer[:size].split(b"\n")]
        lines = [line for line in lines if line]
        whole = all(line[:1] == b"{" and line[-1:] == b"}" for line in lines)
        items = _decode(b"[" + b",".join(lines) + b"]") if whole else None
        rows = range(self._start.row, self._start.row + len(lines))
        if items is not None and len(items) == len(lines):
            records = [self._record(row, item) for row, item in zip(rows, items, strict=True)]
        else:
            records = [self._line(row, line) for row, line in zip(rows, lines, strict=True)]
        return self._block(size, records)

    def _line(self, row: int, line: bytes) -> RawRecord | UnreadRow:
        try:
            return self._record(row, strict_json.loads(line, halves=True))
        except Malformed as error:
            return bad_row(row, "malformed", error.message)


def _decode(text: bytes) -> list[Any] | None:
    """The items of an array of record objects; None if only a strict reader can decide.

    Every member of an object adds a colon after a quote. So if their number equals the number of
    decoded members, no object has the same key twice.
    """
    try:
        items = _decoder.decode(text)
    except _REFUSED:
        return None
    members = 0
    for item in items:
        if type(item) is not dict:
            return None
        members += len(item)
        data = item.get("data")
        if type(data) is dict:
            members += len(data)
    if text.count(b'":') != members or _SPACED_COLON.search(text):
        return None
    return items


def _text(data: bytes, row: int) -> str:
    """The longest prefix of ``data`` without an incomplete UTF-8 character.

    Raises:
        Malformed: the data is not UTF-8.
    """
    try:
        return codecs.utf_8_decode(data, "strict", False)[0]
    except UnicodeDecodeError:
        raise Malformed(f"not UTF-8, in record {row} or soon after it") from None

"""Parse a file by its recipe into blocks of rows in canonical text, like the parsers of uploads.

Texts are read as they arrive; JSON objects and workbooks have separate parsers.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import ne

import msgspec

from encrypted_records.errors import Flaw, InvalidRecords, Malformed
from encrypted_records.ingest.blocks import (
    MAX_RECORD_BYTES,
    CellBlock,
    RawRecord,
    RecordBlock,
    RecordStart,
    UnreadRow,
    record_too_large,
)
from encrypted_records.ingest.parsing import layout_of
from encrypted_records.ingest.reading.json_rows import find_objects, flatten, parser_of, rows_of_all
from encrypted_records.ingest.reading.recipe import (
    ABSENT,
    MOMENTS,
    TYPE_OF,
    FileColumn,
    Recipe,
    reader_of,
)
from encrypted_records.ingest.reading.text_table import (
    BYTE_ORDER_MARKS,
    ParsedRow,
    columns_of,
    count_below,
    is_left_out,
    is_no_row,
    refused,
    rows_of,
    was_utf8,
)
from encrypted_records.ingest.reading.workbook import MAX_BYTES, is_workbook, moments_of, read_sheet

#: Number of bytes that are read at once.
BLOCK_BYTES = 128 << 10
#: Maximum bytes of a header and the lines above it.
MAX_HEAD_BYTES = 1 << 20
#: Maximum number of distinct cells, of all columns together, that are cached with their values.
_KEPT = 100_000
_UNREADABLE = "\ufffd"
_ODD = re.compile("[\ud800-\udfff\ufffd]")
#: Two bytes that every UTF-8 character beyond ASCII contains.
_UTF8 = re.compile(rb"[\xc2-\xf4][\x80-\xbf]")
#: Number of last rows that may be notes below the table if its end was not examined. Each parser
#: holds them back, so that they are in the same block wherever parsing began.
_WATCHED = 50
_NOTE = "looks like a note or a total below the table; say how many rows are below, or none"

Convert = Callable[[str], str | None]


class CellCounts(msgspec.Struct, kw_only=True):
    """Counts of the cells that a parser has read. ``rewritten`` counts, by field, cells that
    are stored in another spelling; ``absent`` counts absent cells by their text; ``short_rows``
    lack their last cells; ``valueless_rows`` of CSV are left out because they have only empty
    cells, or are only a drawn line."""

    rewritten: dict[str, int] = {}
    absent: dict[str, dict[str, int]] = {}
    short_rows: int = 0
    valueless_rows: int = 0  # absent in reports of earlier versions

    def add(self, name: str, cells: Sequence[str], values: Sequence[str | None]) -> None:
        """Add cells of a field, with the stored value of each."""
        changed = sum(map(ne, cells, values))
        if not changed:
            return
        absent = compress(cells, (value is None for value in values))
        # Blank cells may have any length, and as many lengths as there are rows.
        words = Counter("" if cell.isspace() else cell for cell in absent)
        if words:
            known = self.absent.setdefault(name, {})
            known.update((word, known.get(word, 0) + count) for word, count in words.items())
        if changed > words.total():
            self.rewritten[name] = self.rewritten.get(name, 0) + changed - words.total()

    def as_json(self, recipe: Recipe, rows: int) -> bytes:
        """The report of a file with ``rows`` rows, and of how it was read."""
        counts = msgspec.structs.asdict(self)
        return msgspec.json.encode(CellReport(**counts, reading=recipe, rows=rows))


class CellReport(CellCounts, kw_only=True):
    """The report that jobs store."""

    reading: Recipe
    rows: int


class _Unreadable(ValueError):
    """A cell does not have the form in its column's recipe."""


@dataclass(frozen=True, slots=True)
class FileHead:
    """The position of the first record, and the column of the recipe for each column of the
    file.
    """

    start: RecordStart
    order: tuple[int, ...]


def read_head(start: bytes, recipe: Recipe, *, final: bool) -> FileHead | None:
    """The head of a file; None if ``start`` does not reach its end yet.

    Raises:
        InvalidRecords: ``reading``; columns are missing or new.
        TooLarge: a quote does not close.
    """
    mark = _mark_of(start, recipe)
    text = _decode(start[mark:], recipe)
    if recipe.header_row == 0:
        skipped = _skip_lead(text, recipe)
        at = mark + _size(text[:skipped], recipe)
        return FileHead(RecordStart(at, 1), tuple(range(len(recipe.columns))))
    names = None
    end = 0
    for number, row in enumerate(rows_of(text, recipe.delimiter, recipe.quote, final=final), 1):
        if number == recipe.header_row:
            names, end = row.cells, row.end
            break
    if names is None:
        if final or len(start) > MAX_HEAD_BYTES:
            raise refused(
                f"the file has no row {recipe.header_row}, where its column names should be"
            )
        return None
    order = match_names(names, recipe)
    return FileHead(RecordStart(mark + _size(text[:end], recipe), 1), order)


def _skip_lead(text: str, recipe: Recipe) -> int:
    """Skip the lines above a table without names."""
    left, end = recipe.above, 0
    has_mark = text[:4].lower() == "sep="
    if not left and not has_mark:
        return 0
    for row in rows_of(text, recipe.delimiter, recipe.quote, final=True):
        is_lead = has_mark and end == 0
        if not is_lead and not is_no_row(row):
            if not left:
                break
            left -= 1
        end = row.end
    return end


def _mark_of(start: bytes, recipe: Recipe) -> int:
    for mark, name in BYTE_ORDER_MARKS.items():
        if start.startswith(mark):
            if name != recipe.encoding:
                raise refused(
                    f"the file begins like {name}, and the reading has {recipe.encoding}",
                    "detect the file's reading again",
                    "encoding",
                )
            return len(mark)
    return 0


def match_names(names: Sequence[str], recipe: Recipe) -> tuple[int, ...]:
    """For each column of the file, the number of its column in the recipe.

    Raises:
        InvalidRecords: ``reading``; columns are missing or new.
    """
    places: dict[str, list[int]] = {}
    for at, column in enumerate(recipe.columns):
        places.setdefault(column.source, []).append(at)
    order: list[int] = []
    new: list[int] = []
    padded = [*names, *[""] * (len(recipe.columns) - len(names))]
    for number, name in enumerate(padded, 1):
        if places.get(name):
            order.append(places[name].pop(0))
        else:
            new.append(number)
    missing = sorted(at + 1 for left in places.values() for at in left)
    if new or missing:
        # Columns are named by number: names may be cells, and a job keeps its failure message.
        said = [
            f"{what}: {', '.join(map(str, those[:20]))}"
            for what, those in (("missing in the file", missing), ("new in the file", new))
            if those
        ]
        raise refused(
            f"the columns are not those of the reading; {'; '.join(said)}",
            "detect the file's reading again",
        )
    return tuple(order)


def _errors(recipe: Recipe) -> str:
    return "surrogatepass" if recipe.encoding.startswith("utf-16") else "surrogateescape"


def _decode(data: bytes, recipe: Recipe) -> str:
    """Decode all complete characters of some bytes; other bytes become lone surrogates."""
    decoder = codecs.getincrementaldecoder(recipe.encoding)(_errors(recipe))
    return decoder.decode(data)


def _size(text: str, recipe: Recipe) -> int:
    """The size of a text in bytes of the file."""
    return len(text.encode(recipe.encoding, _errors(recipe)))


class ReadingParser:
    """Rows of a file, from ``start`` on, in the protocol of :class:`blocks.Parser`."""

    def __init__(self, recipe: Recipe, head: FileHead, start: RecordStart) -> None:
        self._recipe = recipe
        self._start = start
        self._buffer = b""
        self._wait = BLOCK_BYTES
        self._is_legacy = not recipe.encoding.startswith("utf-")
        #: whether no cell of a block has characters that may be misread
        self._is_clean = False
        self.take_order(head.order)
        #: counts the outcomes of cells, if requested
        self.tally: CellCounts | None = None

    def take_order(self, order: Sequence[int]) -> None:
        """Set the order of the file's columns, by their numbers in the recipe."""
        recipe = self._recipe
        self._columns = [recipe.columns[at] for at in order]
        self._readers = [reader_of(column, recipe) for column in self._columns]
        self._nulls = [frozenset({"", ABSENT, *column.null}) for column in self._columns]
        self._known: list[dict[str, str | None]] = [{} for _ in self._columns]

    def feed(self, data: bytes) -> Sequence[RecordBlock | CellBlock]:
        """
        Raises:
            TooLarge: a row exceeds the maximum size.
        """
        self._buffer += data
        return self._take(final=False) if len(self._buffer) >= self._wait else []

    def finish(self) -> Sequence[RecordBlock | CellBlock]:
        """
        Raises:
            Malformed: the last row ends inside quotes.
        """
        return self._take(final=True)

    def _take(self, *, final: bool) -> Sequence[RecordBlock | CellBlock]:
        recipe = self._recipe
        text = _decode(self._buffer, recipe)
        if final and _size(text, recipe) < len(self._buffer):
            text += _UNREADABLE
        self._is_clean = text.isascii() or not (
            _ODD.search(text) or (self._is_legacy and _UTF8.search(self._buffer))
        )
        table = None if final else self._table_of(text)
        if table is not None:
            blocks: Sequence[RecordBlock | CellBlock] = [table[0]]
            end = table[1]
        else:
            blocks, end = self._read(text, final=final)
        size = _size(text[:end], recipe)
        self._buffer = b"" if final else self._buffer[size:]
        count = sum(block.count for block in blocks)
        self._start = RecordStart(self._start.offset + size, self._start.row + count)
        self._wait = BLOCK_BYTES if size else 2 * len(self._buffer)
        if len(self._buffer) > MAX_RECORD_BYTES:
            raise record_too_large(self._start.row)
        return blocks

    @property
    def _held(self) -> int:
        """The number of last rows that are not, or may not be, records."""
        return _WATCHED if self._recipe.below is None else self._recipe.below

    def _table_of(self, text: str) -> tuple[CellBlock, int] | None:
        """The lines of a text by column, and their end; None if lines must be parsed singly."""
        recipe = self._recipe
        width = len(self._columns)
        self._forget()
        found = columns_of(text, recipe.delimiter, recipe.quote, width, self._held)
        if found is None:
            return None
        table = self._table(found[0], len(found[0][0]))
        return None if table is None else (table, found[1])

    def _read(self, text: str, *, final: bool) -> tuple[Sequence[RecordBlock | CellBlock], int]:
        """The rows of a text, parsed singly, and their end."""
        recipe = self._recipe
        rows = list(rows_of(text, recipe.delimiter, recipe.quote, final=final))
        if final and rows and rows[-1].flaw == "a quote is not closed":
            raise Malformed(
                f"row {self._start.row + sum(1 for row in rows if not is_no_row(row)) - 1} ends"
                " inside quotes",
                hint="look for a quote in this row that is not closed",
            )
        every = rows
        if final:
            rows = self.watch(rows)
        held = (recipe.below or 0) if final else self._held
        if held:
            real = [at for at, row in enumerate(rows) if not is_no_row(row)]
            kept = real[: len(real) - held] if len(real) > held else []
            rows = rows[: kept[-1] + 1] if kept else []
        if self.tally is not None:
            self.tally.valueless_rows += sum(map(is_left_out, every if final else rows))
        end = rows[-1].end if rows else 0
        return self._blocks([row for row in rows if not is_no_row(row)]), end

    def watch(self, rows: list[ParsedRow]) -> list[ParsedRow]:
        """Flag the last rows of a file that look like notes below the table, if the end of the file
        was not seen before.
        """
        if self._recipe.below is not None:
            return rows
        real = [row for row in rows if not is_no_row(row)]
        count = count_below(real[-_WATCHED:], len(self._columns))
        last = [row._replace(flaw=row.flaw or _NOTE) for row in real[len(real) - count :]]
        return real[: len(real) - count] + last

    def _blocks(self, rows: list[ParsedRow]) -> Sequence[RecordBlock | CellBlock]:
        if not rows:
            return []
        self._forget()
        width, short = len(self._columns), self._recipe.short_rows
        if all(
            row.flaw is None and (len(row.cells) == width or (short and len(row.cells) < width))
            for row in rows
        ):
            whole = [
                cells if len(cells) == width else cells + [""] * (width - len(cells))
                for cells in (row.cells for row in rows)
            ]
            table = self._table(list(zip(*whole, strict=True)), len(rows), rows)
            if table is not None:
                return [table]
        records = [self._record(row, self._start.row + at) for at, row in enumerate(rows)]
        return [RecordBlock(self._start, records)]

    def _table(
        self, by_column: Sequence[Sequence[str]], count: int, rows: Sequence[ParsedRow] = ()
    ) -> CellBlock | None:
        """A block of cells by column, with ``rows`` for quoted cells; None if a cell cannot be
        read."""
        columns: dict[str, Sequence[str | None]] = {}
        keeps = self._recipe.empty_quotes == "text"
        for at, column in enumerate(self._columns):
            if column.name is None:
                continue
            try:
                converted = self._values(at, by_column[at])
            except _Unreadable:
                return None
            if rows and keeps and column.type == "text":
                converted = [
                    "" if cell is None and at in row.quoted and not row.cells[at] else cell
                    for row, cell in zip(rows, converted, strict=True)
                ]
            columns[column.name] = converted
        if self.tally is not None:
            for at, column in enumerate(self._columns):
                if column.name is not None:
                    self.tally.add(column.name, by_column[at], columns[column.name])
            self.tally.short_rows += sum(len(row.cells) < len(self._columns) for row in rows)
        return CellBlock(self._start, None, columns, count)

    def _values(self, at: int, cells: Sequence[str]) -> Sequence[str | None]:
        """A column of a block: each different cell is read once.

        Raises:
            _Unreadable: as :meth:`_value`.
        """
        if self._readers[at] is None and (self._is_clean or all(map(str.isascii, cells))):
            nothing = self._nulls[at]
            if nothing.isdisjoint(cells):
                return cells
            return [None if cell in nothing else cell for cell in cells]
        known = self._known[at]
        for cell in set(cells).difference(known):
            known[cell] = self._convert(at, cell)
        return [known[cell] for cell in cells]

    def _forget(self) -> None:
        """Limit the cached cells; columns with many distinct cells gain least from the cache."""
        while sum(map(len, self._known)) > _KEPT:
            max(self._known, key=len).clear()

    def _value(self, at: int, cell: str) -> str | None:
        """
        Raises:
            _Unreadable: the cell does not have the column's form.
        """
        known = self._known[at]
        if cell in known:
            return known[cell]
        value = known[cell] = self._convert(at, cell)
        return value

    def _convert(self, at: int, cell: str) -> str | None:
        if cell in self._nulls[at]:
            return None
        if not cell.isascii() and (
            _ODD.search(cell) or (self._is_legacy and was_utf8(cell, self._recipe.encoding))
        ):
            raise _Unreadable
        read = self._readers[at]
        if read is None:
            return cell
        if not cell.strip():
            return None
        value = read(cell)
        if value is None:
            raise _Unreadable
        return value

    def _record(self, row: ParsedRow, number: int) -> RawRecord | UnreadRow:
        width, cells = len(self._columns), row.cells
        if row.flaw is not None:
            code = "csv_row" if self._recipe.container == "csv" else "reading"
            return UnreadRow(number, Flaw(code, row.flaw, row=number))
        if len(cells) > width or (len(cells) < width and not self._recipe.short_rows):
            detail = f"{len(cells)} cells, where the names are {width}"
            return UnreadRow(number, Flaw("csv_row", detail, row=number))
        data: dict[str, str] = {}
        read: list[tuple[str, str, str | None]] = []
        for at, cell in enumerate(cells):
            column = self._columns[at]
            if column.name is None:
                continue
            try:
                value = self._value(at, cell)
            except _Unreadable:
                return UnreadRow(number, _flaw(column, number, self._recipe))
            if value is None and column.type == "text" and at in row.quoted and not cell:
                value = "" if self._recipe.empty_quotes == "text" else None
            if value is not None:
                data[column.name] = value
            read.append((column.name, cell, value))
        if self.tally is not None:
            for name, cell, value in read:
                self.tally.add(name, [cell], [value])
            self.tally.short_rows += len(cells) < width
        return RawRecord(number, None, data)


def _flaw(column: FileColumn, row: int, recipe: Recipe) -> Flaw:
    forms: dict[str, str | None] = {
        "number": f"a number with {'a comma' if column.decimal == ',' else 'a point'}",
        "date": f"a day as {column.format}",
        "boolean": f"{column.true} or {column.false}",
        **dict.fromkeys(MOMENTS, f"a time as {column.format} with hours and minutes"),
        **{name: kind.cell_form for name, kind in TYPE_OF.items()},
    }
    form = forms.get(column.type, f"text in {recipe.encoding}")
    return Flaw("reading", f"is not {form}, as the reading requires", row=row, field=column.name)


#: Why the reading's column is refused.
NO_FIELD = "is not a field of the schema"


def check_fields(recipe: Recipe, fields: Sequence[str], required: Sequence[str]) -> None:
    """Compare the recipe's names with the schema's.

    Raises:
        InvalidRecords: ``reading``; a column is not a field, or a required field has no column.
    """
    names = [column.name for column in recipe.columns if column.name is not None]
    unknown = [name for name in names if name not in fields]
    missing = [name for name in required if name not in names]
    if unknown or missing:
        parts = [f"not fields of the schema: {', '.join(unknown[:20])}"] if unknown else []
        parts += [f"no column for the required {', '.join(missing[:20])}"] if missing else []
        raise InvalidRecords(
            f"the reading has columns that do not match: {'; '.join(parts)}",
            code="reading",
            flaws=tuple(Flaw("reading", NO_FIELD, field=name) for name in unknown),
            hint="leave out columns that are not fields, or give them the names of fields",
        )


#: Maximum rows of a block of a file that is read as a whole, and characters after which a block
#: ends.
_BLOCK_ROWS, _BLOCK_TEXT = 5_000, 1 << 20
_LINES = "ndjson"


def head_of(start: bytes, recipe: Recipe, *, final: bool) -> FileHead | None:
    """Read the head of a file like :func:`read_head`, in any container."""
    if recipe.container == "csv":
        return read_head(start, recipe, final=final)
    if not start.strip() and not final and len(start) <= MAX_HEAD_BYTES:
        return None
    order = tuple(range(len(recipe.columns)))
    if recipe.container == "workbook":
        if len(start) < 60 and not final:
            return None
        if not is_workbook(start):
            raise refused("the file is not a workbook, but the reading is of one")
        return FileHead(RecordStart(0, 1), order)
    found = layout_of(start)
    if found is None:
        return FileHead(RecordStart(0, 1), order)
    layout, begin = found
    if recipe.is_read_whole:
        return FileHead(RecordStart(0, 1), order)
    if (layout == "lines") is not (recipe.container == _LINES):
        raise refused("the file and the reading must both be a JSON array, or both JSON lines")
    return FileHead(begin, order)


def parser_by(recipe: Recipe, head: FileHead, start: RecordStart) -> ReadingParser:
    """The parser of a file with this reading, from ``start`` on."""
    if recipe.container == "csv":
        return ReadingParser(recipe, head, start)
    return (WholeParser if recipe.is_read_whole else ObjectsParser)(recipe, head, start)


class ObjectsParser(ReadingParser):
    """Parses the objects of an array, or one object per line."""

    def __init__(self, recipe: Recipe, head: FileHead, start: RecordStart) -> None:
        super().__init__(recipe, head, start)
        self._objects = parser_of(recipe.container, start)

    def feed(self, data: bytes) -> Sequence[RecordBlock | CellBlock]:
        """
        Raises:
            Malformed, TooLarge: as the parsers of JSON.
        """
        return [made for block in self._objects.feed(data) for made in self._of(block)]

    def finish(self) -> Sequence[RecordBlock | CellBlock]:
        """
        Raises:
            Malformed: as :meth:`feed`.
        """
        return [made for block in self._objects.finish() for made in self._of(block)]

    def drain(self) -> Sequence[RecordBlock | CellBlock]:
        """The objects of all bytes so far, which may be truncated.

        Raises:
            Malformed: as :meth:`feed`.
        """
        return [made for block in self._objects.drain() for made in self._of(block)]

    def _of(self, block: RecordBlock) -> Sequence[RecordBlock | CellBlock]:
        self._start = block.start
        names = [column.source for column in self._recipe.columns]
        rows: list[ParsedRow] = []
        for record in block.records:
            if isinstance(record, UnreadRow):
                rows.append(ParsedRow([], frozenset(), 0, record.error.detail))
            else:
                rows += rows_of_all([flatten(record.data[""])], names)
        return self._blocks(rows)


class WholeParser(ReadingParser):
    """Parses a workbook, or a document with the records in a member, once it is complete. Reading
    always begins at the first byte: the offset of a block counts the characters of earlier cells,
    by which a job cuts its chunks."""

    def __init__(self, recipe: Recipe, head: FileHead, start: RecordStart) -> None:
        super().__init__(recipe, head, start)
        self._first = start.row
        self._body = bytearray()

    def feed(self, data: bytes) -> Sequence[RecordBlock | CellBlock]:
        """
        Raises:
            InvalidRecords: ``reading``; the file is too long.
        """
        self._body += data
        if len(self._body) > MAX_BYTES:
            raise refused(
                f"the file has more than {MAX_BYTES >> 20} MiB, and has to be read as a whole"
            )
        return []

    def finish(self) -> Sequence[RecordBlock | CellBlock]:
        """
        Raises:
            InvalidRecords: ``reading``; the file cannot be read, or has other columns.
        """
        try:
            rows = self._rows(bytes(self._body))
        except InvalidRecords as error:
            # A hint may contain sheet names, and a job keeps its failure message.
            raise refused(error.message) from None
        self._body = bytearray()
        blocks: list[RecordBlock | CellBlock] = []
        before, first, text = 0, 0, 0
        for at, row in enumerate(rows, 1):
            text += sum(map(len, row.cells))
            if at - first == _BLOCK_ROWS or text >= _BLOCK_TEXT or at == len(rows):
                skipped = max(first, min(self._first - 1, at))
                self._start = RecordStart(before, skipped + 1)
                blocks += self._blocks(rows[skipped:at])
                before, first, text = before + text, at, 0
        return blocks

    def _rows(self, body: bytes) -> list[ParsedRow]:
        recipe = self._recipe
        if recipe.container == "json":
            objects = find_objects(body, whole=True, wanted=recipe.sheet)
            every = [flatten(item) for item in objects.items]
            return list(rows_of_all(every, [column.source for column in recipe.columns]))
        rows = read_sheet(body, recipe.sheet).rows
        header = recipe.header_row
        first = header
        if header:
            if header > len(rows):
                raise refused(f"the sheet has no row {header}, where its column names should be")
            self.take_order(match_names(rows[header - 1].cells, recipe))
        real = [row for row in moments_of(rows, first) if not is_no_row(row)]
        above = sum(1 for row in rows[: max(header - 1, 0)] if not is_no_row(row))
        real = real[above + bool(header) if header else recipe.above :]
        real = self.watch(real)
        below = recipe.below or 0
        return real[: len(real) - below] if below else real

"""Parsers of files with a reading that are no lines of text: objects of JSON, and workbooks."""

from __future__ import annotations

from collections.abc import Sequence

from encrypted_records.errors import InvalidRecords
from encrypted_records.ingest.blocks import BadRow, CellBlock, RecordBlock, RecordStart
from encrypted_records.ingest.parse_json_stream import layout_of
from encrypted_records.ingest.reading.charset import refused
from encrypted_records.ingest.reading.dialect import ParsedRow
from encrypted_records.ingest.reading.json_rows import (
    find_objects,
    flatten,
    parser_of,
    rows_of_all,
)
from encrypted_records.ingest.reading.parser import (
    MAX_HEAD_BYTES,
    FileHead,
    ReadingParser,
    match_names,
    read_head,
)
from encrypted_records.ingest.reading.recipe import Recipe
from encrypted_records.ingest.reading.table import is_no_row
from encrypted_records.ingest.reading.workbook import (
    MAX_BYTES,
    is_workbook,
    moments_of,
    read_sheet,
)

#: Rows of a block, of a file that is read whole; and characters of which one ends.
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
    """The objects of an array, or one a line."""

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
        """The objects of all that was fed so far, which may break off.

        Raises:
            Malformed: as :meth:`feed`.
        """
        return [made for block in self._objects.drain() for made in self._of(block)]

    def _of(self, block: RecordBlock) -> Sequence[RecordBlock | CellBlock]:
        self._start = block.start
        names = [column.source for column in self._recipe.columns]
        rows: list[ParsedRow] = []
        for record in block.records:
            if isinstance(record, BadRow):
                rows.append(ParsedRow([], frozenset(), 0, record.error.detail))
            else:
                rows += rows_of_all([flatten(record.data[""])], names)
        return self._blocks(rows)


class WholeParser(ReadingParser):
    """A workbook, or a document with the records in one of its members: read when all is there.
    Reading begins at the first byte, wherever a record is: the offset of a block counts the
    characters of the cells before it, by which a job cuts its chunks."""

    def __init__(self, recipe: Recipe, head: FileHead, start: RecordStart) -> None:
        super().__init__(recipe, head, start)
        self._first = start.row
        self._body = bytearray()

    def feed(self, data: bytes) -> Sequence[RecordBlock | CellBlock]:
        """
        Raises:
            InvalidRecords: ``reading``; it is too long.
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
            InvalidRecords: ``reading``; it cannot be read, or has other columns.
        """
        try:
            rows = self._rows(bytes(self._body))
        except InvalidRecords as error:
            # A hint may have names of sheets in it, and a job keeps why it failed.
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

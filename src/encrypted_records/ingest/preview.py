"""The first rows of a file as an upload would read them, with their errors. Pure.

The parsers and the validation are those of an upload, so that preview and upload agree. A sample is
the head of a file, cut at the end of a row. The distribution of each column's values is shown above
the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any

import msgspec

from encrypted_records.errors import Flaw, Malformed
from encrypted_records.ingest.blocks import Parser, RawRecord, RecordStart, UnreadRow
from encrypted_records.ingest.check import text_of_cell, validate
from encrypted_records.ingest.layouts import Layout, parser_for, recognize
from encrypted_records.ingest.parsing import Header, check_columns, read_numbers
from encrypted_records.ingest.reading.parser import (
    BLOCK_BYTES,
    FileHead,
    ObjectsParser,
    check_fields,
)
from encrypted_records.ingest.reading.recipe import FileColumn, Recipe
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.field_types.base import as_decimal
from encrypted_records.model.field_types.plain import NUMBER
from encrypted_records.model.record_formats import Format
from encrypted_records.model.samples import Common, Preview, PreviewRow, Spread

#: Maximum number of listed values, and number of histogram bins.
MOST_COMMON = 4
BINS = 16


@dataclass(slots=True)
class SeenValues:
    """The values of a column seen so far."""

    values: Counter[Any] = field(default_factory=Counter)

    def add(self, value: Any) -> None:
        """Add a cell; None if the row has no cell. Lists and objects count as a single value."""
        if value is not None:
            self.values[value if isinstance(value, str | int | Decimal) else ""] += 1

    def spread(self, name: str, *, numeric: bool) -> Spread:
        present, distinct = self.values.total(), len(self.values)
        if not numeric:
            common = [
                Common(text_of_cell(value), count)
                for value, count in self.values.most_common(MOST_COMMON)
            ]
            return Spread(name, present, distinct, common, None, None, [])
        numbers = [
            (number, count)
            for value, count in self.values.items()
            if (number := _number(value)) is not None
        ]
        if not numbers:
            return Spread(name, present, distinct, [], None, None, [])
        least, most = min(numbers)[0], max(numbers)[0]
        return Spread(name, present, distinct, [], least, most, _bins(numbers, least, most))


def _number(value: Any) -> Decimal | None:
    number = NUMBER.of_cell(value) if isinstance(value, str) else value
    return as_decimal(number)


def _bins(numbers: Sequence[tuple[Decimal, int]], least: Decimal, most: Decimal) -> list[int]:
    width = most - least
    if not width:
        return [sum(count for _, count in numbers)]
    bins = [0] * BINS
    try:
        for number, count in numbers:
            bins[min(BINS - 1, int((number - least) * BINS / width))] += count
    except ArithmeticError:  # further apart than Decimal computes with; no field accepts them
        return []
    return bins


#: Maximum number of rows that are checked.
MAX_CHECKED = 10_000
#: Maximum number of listed errors.
MAX_ERRORS = 100


def preview(
    definition: SchemaDefinition,
    sample: bytes,
    kind: Format,
    *,
    shown: int,
    reading: Recipe | None = None,
    whole: bool = True,
) -> Preview:
    """Preview an upload of ``sample`` to a schema with ``definition``.

    Args:
        shown: the number of rows in the preview.
        reading: how the file is read; None reads it strictly by its format.
        whole: whether the sample is the complete file; otherwise it may end anywhere.

    Raises:
        InvalidRecords: ``csv_header``: the header has other names than the definition. ``reading``:
            columns of the reading are not fields.
        Malformed, TooLarge: the sample cannot be read.
    """
    recognized = recognize(sample, kind, final=True, reading=reading)
    if recognized is None:
        raise Malformed("the sample has no rows")
    layout, start = recognized
    is_text = isinstance(layout, Header | FileHead)
    if isinstance(layout, Header):
        check_columns(layout.names, definition)
    names: Iterable[str | None] = definition.fields
    if reading is not None:
        check_fields(reading, list(definition.fields), [])
        names = [column.name for column in reading.columns]
    elif isinstance(layout, Header):
        names = layout.fields
    found = Preview([name for name in names if name is not None], [], [], 0, 0, [])
    seen = {name: SeenValues() for name in found.columns}
    texts = {} if reading is None else _texts(layout, start, sample, reading, shown, whole=whole)
    parser = parser_for(layout, start, schema_named=True, reading=reading)
    for record in _records(_parts(parser, sample[start.offset :], whole=whole)):
        if found.checked == MAX_CHECKED:
            break
        found.checked += 1
        errors: tuple[Flaw, ...] | list[Flaw]
        if isinstance(record, UnreadRow):
            data: dict[str, Any] = {}
            errors = (record.error,)
        else:
            data = record.data
            raw = read_numbers(definition, data) if is_text else data
            errors = validate(definition, raw, row=record.row, pointer="")[1]
        for name, values in seen.items():
            values.add(data.get(name))
        if errors:
            found.bad_rows += 1
            found.errors += errors[: MAX_ERRORS - len(found.errors)]
        if len(found.rows) < shown:
            cells = [_text(data.get(name)) for name in found.columns]
            written = texts.get(record.row, {})
            as_written = [_text(written.get(name)) for name in found.columns]
            row = PreviewRow(record.row, cells, [] if reading is None else as_written)
            found.rows.append(row)
    found.fields = [
        column.spread(name, numeric=name in definition.numeric) for name, column in seen.items()
    ]
    return found


def _parts(parser: Parser, data: bytes, *, whole: bool) -> Iterator[Sequence[Any]]:
    yield parser.feed(data)
    # A truncated row does not count. The parser still holds all rows of a short sample.
    if not whole and isinstance(parser, ObjectsParser):
        yield parser.drain()
    elif whole or len(data) < BLOCK_BYTES:
        yield parser.finish()


def _texts(
    layout: Layout, start: RecordStart, sample: bytes, reading: Recipe, shown: int, *, whole: bool
) -> dict[int, dict[str, Any]]:
    """The cells of the first rows as written, by row and field."""
    columns = [FileColumn(column.source, column.name) for column in reading.columns]
    plain = msgspec.structs.replace(reading, columns=columns)
    parser = parser_for(layout, start, schema_named=True, reading=plain)
    data = sample[start.offset :]
    if not reading.is_read_whole and len(data) > 4 * BLOCK_BYTES:
        data, whole = data[: 4 * BLOCK_BYTES], False
    records = _records(_parts(parser, data, whole=whole))
    return {
        record.row: record.data
        for record in islice(records, shown)
        if isinstance(record, RawRecord)
    }


def _records(parts: Iterable[Sequence[Any]]) -> Iterator[RawRecord | UnreadRow]:
    for blocks in parts:
        for block in blocks:
            yield from block.records


def _text(value: Any) -> str | None:
    return None if value is None else text_of_cell(value)

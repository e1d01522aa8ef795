"""The first rows of a file as an upload would read them, and which of them would not fit. Pure.

The parsers and the validation are those of an upload, so that a preview promises nothing that the
upload does not keep. A sample is the head of a file, cut where a row ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from encrypted_records.errors import Flaw, Malformed
from encrypted_records.ingest.blocks import BadRow, RawRecord
from encrypted_records.ingest.check import text_of_cell
from encrypted_records.ingest.layouts import parser_for, recognize
from encrypted_records.ingest.parse_csv import Header, check_columns, read_numbers
from encrypted_records.ingest.spread import Seen, Spread
from encrypted_records.ingest.validate import validate
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.media_types import Format

#: Rows that are checked; later ones are not.
MAX_CHECKED = 10_000
#: Errors that are listed.
MAX_ERRORS = 100


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """``cells`` in the order of the preview's columns, None where a row has no value."""

    row: int
    cells: list[str | None]


@dataclass
class Preview:
    """``errors`` are the first ones; ``bad_rows`` is how many of the ``checked`` have any."""

    columns: list[str]
    #: what the checked rows have in each of the columns
    fields: list[Spread] = field(default_factory=list)
    rows: list[PreviewRow] = field(default_factory=list)
    checked: int = 0
    bad_rows: int = 0
    errors: list[Flaw] = field(default_factory=list)


def preview(definition: SchemaDefinition, sample: bytes, kind: Format, *, shown: int) -> Preview:
    """What an upload of ``sample`` would do to records of ``definition``.

    Args:
        shown: how many rows are shown.

    Raises:
        InvalidRecords: ``csv_header``: the header has other names than the definition.
        Malformed, TooLarge: nothing can be read.
    """
    recognized = recognize(sample, kind, final=True)
    if recognized is None:
        raise Malformed("there is no row in it")
    layout, start = recognized
    is_csv = isinstance(layout, Header)
    if isinstance(layout, Header):
        check_columns(layout.names, definition)
    if isinstance(layout, Header):
        found = Preview([name for name in layout.fields if name is not None])
    else:
        found = Preview(list(definition.fields))
    seen = {name: Seen() for name in found.columns}
    parser = parser_for(layout, start, schema_named=True)
    for record in _records(parser.feed(sample[start.offset :]), parser.finish()):
        if found.checked == MAX_CHECKED:
            break
        found.checked += 1
        errors: tuple[Flaw, ...] | list[Flaw]
        if isinstance(record, BadRow):
            data: dict[str, Any] = {}
            errors = (record.error,)
        else:
            data = record.data
            raw = read_numbers(definition, data) if is_csv else data
            errors = validate(definition, raw, row=record.row, pointer="")[1]
        for name, one in seen.items():
            one.add(data.get(name))
        if errors:
            found.bad_rows += 1
            found.errors += errors[: MAX_ERRORS - len(found.errors)]
        if len(found.rows) < shown:
            found.rows.append(PreviewRow(record.row, [_text(data.get(n)) for n in found.columns]))
    found.fields = [
        one.spread(name, numeric=name in definition.numeric) for name, one in seen.items()
    ]
    return found


def _records(*parts: Any) -> Iterator[RawRecord | BadRow]:
    for blocks in parts:
        for block in blocks:
            yield from block.records


def _text(value: Any) -> str | None:
    return None if value is None else text_of_cell(value)

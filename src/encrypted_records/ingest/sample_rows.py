"""The rows of a sample, as its text gives them: definitions and estimates are made from them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from encrypted_records.errors import Flaw, InvalidRecords
from encrypted_records.ingest.blocks import BadRow, CellBlock, RecordBlock, RecordStart
from encrypted_records.ingest.parse_csv import BLOCK_BYTES, CsvParser, Header, read_header
from encrypted_records.ingest.reading.dialect import rows_of
from encrypted_records.model import record_formats, strict_json
from encrypted_records.model.definition import MAX_FIELD_NAME, MAX_FIELDS
from encrypted_records.model.field_types.base import as_decimal
from encrypted_records.model.record_formats import Format
from encrypted_records.model.strict_json import escape_pointer

#: Rows of the sample that are read; later rows are not.
MAX_SAMPLED = 10_000
#: Bytes of a header's line: of as many names as there may be, each of them quoted.
MAX_HEADER = (MAX_FIELDS + 1) * (4 * MAX_FIELD_NAME + len('"",'))

#: By name. A cell of CSV is text whatever it holds, and None where it is empty without quotes.
Row = Mapping[str, Decimal | str | bool | None]


def read_rows(sample: bytes, kind: Format) -> Iterator[Row]:
    """Read rows of CSV with a header row as an upload does; or of a JSON array of records or of
    bare objects, or of one JSON object per line.

    Raises:
        Malformed: not JSON, or a quote in CSV is not closed.
        TooLarge: a row is longer than the limit.
        InvalidRecords: no header, too many names or a repeated name, a row that an upload would
            refuse; or not objects, or values that no field can store.
    """
    return _csv_rows(sample) if kind is Format.CSV else _json_rows(sample)


def _csv_rows(sample: bytes) -> Iterator[Row]:
    header = _header(sample)
    names = [name for name in header.fields if name is not None]
    for block in _blocks(sample, header):
        for record in block.records:
            if isinstance(record, BadRow):
                raise InvalidRecords(
                    "a row of the sample would be refused",
                    flaws=(record.error,),
                    hint="correct the row; or let ers import or /api/readings/detect/ detect the"
                    " file's form",
                )
            yield {name: record.data.get(name) for name in names}


def _header(sample: bytes) -> Header:
    # Before a reader makes millions of names of it.
    if sample.find(b"\n", 0, MAX_HEADER) < 0 and len(sample) > MAX_HEADER:
        raise too_wide()
    text = sample[:MAX_HEADER].decode("utf-8-sig", "replace")
    first = next(rows_of(text, ",", '"', final=True), None)
    if first is not None and len(first.cells) > MAX_FIELDS + 1:
        raise too_wide()
    try:
        header = read_header(sample, final=True)
    except InvalidRecords as error:
        error.hint = "give each column its own name in the first row"
        raise
    assert header is not None  # the sample is final
    if len(header.names) > MAX_FIELDS:
        raise too_wide()
    return header


def _blocks(sample: bytes, header: Header) -> Iterator[RecordBlock | CellBlock]:
    parser = CsvParser(header, RecordStart(header.size, 1))
    for at in range(header.size, len(sample), BLOCK_BYTES):
        yield from parser.feed(sample[at : at + BLOCK_BYTES])
    yield from parser.finish()


def too_wide() -> InvalidRecords:
    return InvalidRecords(
        f"the sample has more than {MAX_FIELDS} columns",
        code="too_many_columns",
        hint=f"a schema has at most {MAX_FIELDS} fields; leave some columns out",
    )


def _json_rows(body: bytes) -> Iterator[Row]:
    for number, item in enumerate(_json_items(body), 1):
        if not isinstance(item, dict):
            raise InvalidRecords(
                "every row of the sample must be an object",
                flaws=(Flaw("type", "expected an object", row=number),),
            )
        # No field has an object for a value, so that data with anything else is a field.
        whole = isinstance(item.get("data"), dict) and item.keys() <= record_formats.RECORD_MEMBERS
        record = item["data"] if whole else item
        yield {name: _value(value, name, number) for name, value in record.items()}


def _json_items(body: bytes) -> Iterator[Any]:
    stripped = body.lstrip(b"\xef\xbb\xbf \t\r\n")
    if stripped.startswith(b"["):
        items = strict_json.loads(stripped, halves=True)
        assert isinstance(items, list)
        yield from items
        return
    for line in io.BytesIO(stripped):
        if line.strip():
            yield strict_json.loads(line, halves=True)


def _value(value: Any, name: str, row: int) -> Decimal | str | bool | None:
    if isinstance(value, str) and not strict_json.is_encodable(value):
        raise _refused("unicode", f"a text {strict_json.HALF}", name, row)
    if value is None or isinstance(value, str | bool):
        return value
    number = as_decimal(value)
    if number is None:
        raise _refused("type", "only strings, numbers, true and false can be stored", name, row)
    return number


def _refused(code: str, detail: str, name: str, row: int) -> InvalidRecords:
    pointer = f"/{row - 1}/{escape_pointer(name)}"
    return InvalidRecords(
        "a value of the sample does not fit into any field",
        flaws=(Flaw(code, detail, pointer, row, name),),
        hint="leave the field out, or turn its values into strings or numbers",
    )

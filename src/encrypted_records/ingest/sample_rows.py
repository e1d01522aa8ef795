"""The rows of a sample, as its text gives them: definitions and estimates are made from them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from encrypted_records.errors import Flaw, InvalidRecords
from encrypted_records.ingest.reading.dialect import Row as CsvRow
from encrypted_records.ingest.reading.dialect import rows_of
from encrypted_records.model import record_form, strict_json
from encrypted_records.model.csv_text import LEFT_OUT, SCHEMA_ENTRY
from encrypted_records.model.definition import MAX_FIELD_NAME, MAX_FIELDS
from encrypted_records.model.media_types import Format
from encrypted_records.model.rules import as_decimal
from encrypted_records.model.strict_json import escape_pointer

#: Rows of the sample that are read; later rows are not.
MAX_SAMPLED = 10_000
#: Characters of a header's line: of as many names as there may be, each of them quoted.
MAX_HEADER = (MAX_FIELDS + 1) * (2 * MAX_FIELD_NAME + len('"",'))

#: By name. A cell of CSV is text whatever it holds, and None where it is empty.
Row = Mapping[str, Decimal | str | bool | None]


def read_rows(sample: bytes, kind: Format) -> Iterator[Row]:
    """Of CSV text with a header row; or of an array of records or of bare objects, or one of them
    per line.

    Raises:
        Malformed: not JSON.
        TooLarge: a quote of CSV does not close.
        InvalidRecords: no header, too many names or one twice, a row that has more cells than the
            header; or not objects, or values that no field can hold.
    """
    return _csv_rows(_text(sample)) if kind is Format.CSV else _json_rows(sample)


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRecords(f"not UTF-8 at byte {error.start}") from None


def _csv_rows(text: str) -> Iterator[Row]:
    # Before a reader makes millions of names of it.
    if text.find("\n", 0, MAX_HEADER) < 0 and len(text) > MAX_HEADER:
        raise too_wide()
    rows = (row for row in rows_of(text, ",", '"', final=True) if row.cells != [""])
    header = _cells(next(rows, None), 0)
    if header and header[-1].startswith(SCHEMA_ENTRY):
        header.pop()
    if len(header) > MAX_FIELDS:
        raise too_wide()
    if not any(name.strip() for name in header):
        raise InvalidRecords("the sample has no header row", code="csv_header")
    read = [name for name in header if not name.startswith(LEFT_OUT)]
    if len(set(read)) < len(read):
        raise InvalidRecords("a name stands twice in the header", code="csv_header")
    for number, row in enumerate(rows, 1):
        cells = _cells(row, number)
        if len(cells) > len(header):
            raise InvalidRecords(
                "a row has more cells than the header",
                flaws=(Flaw("csv_row", "more cells than the header has names", row=number),),
            )
        yield {
            name: cell or None
            for name, cell in zip_longest(header, cells, fillvalue="")
            if not name.startswith(LEFT_OUT)
        }


def _cells(row: CsvRow | None, number: int) -> list[str]:
    if row is not None and row.flaw is not None:
        raise InvalidRecords(
            f"not CSV in {f'row {number}' if number else 'the header'}: {row.flaw}",
            hint="quote cells that hold quotes, commas or line breaks, and double quotes in them",
        )
    return [] if row is None else row.cells


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
        whole = isinstance(item.get("data"), dict) and item.keys() <= record_form.MEMBERS
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
        "a value of the sample fits no field",
        flaws=(Flaw(code, detail, pointer, row, name),),
        hint="leave the field out, or turn its values into strings or numbers",
    )

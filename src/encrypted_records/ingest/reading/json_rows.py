"""Convert JSON objects to rows of cells; members of inner objects get names like ``addr.city``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from encrypted_records.errors import InvalidRecords, Malformed
from encrypted_records.ingest.blocks import RawRecord, RecordStart, UnreadRow
from encrypted_records.ingest.parsing import ArrayParser, LinesParser, layout_of
from encrypted_records.ingest.reading.text_table import ParsedRow, refused
from encrypted_records.model import record_formats, strict_json
from encrypted_records.model.definition import MAX_FIELDS

#: Maximum nesting depth of objects.
_MAX_DEPTH = 20
#: Maximum bytes of a document that is a single object with the records, and is read as a whole.
MAX_WRAPPED = 16 << 20
#: Maximum digits of a number with an exponent when written out.
_MAX_DIGITS = 400
_TOO_LONG = f"a number with an exponent has more than {_MAX_DIGITS} digits; write it as a text"


class _Items:
    """Accepts any value as a record; the caller converts it."""

    def _record(self, row: int, item: Any) -> RawRecord | UnreadRow:
        return RawRecord(row, None, {"": item})


class _Array(_Items, ArrayParser):
    pass


class _Lines(_Items, LinesParser):
    pass


def parser_of(container: str, start: RecordStart) -> ArrayParser | LinesParser:
    """A parser of the values of an array or of lines, each as the only value of its record."""
    kind = _Lines if container == "ndjson" else _Array
    return kind(start, schema_named=True)


@dataclass(frozen=True)
class Objects:
    """``start`` is the position of the first object; ``member`` is the name of the list in a
    document that is a single object. ``items`` are the examined objects; ``whole`` tells whether
    they are all."""

    container: str
    start: RecordStart
    items: list[Any]
    whole: bool
    member: str | None = None
    others: tuple[str, ...] = ()


def find_objects(
    sample: bytes, *, whole: bool, wanted: str | None = None, most: int = 1 << 62
) -> Objects:
    """
    Args:
        sample: the file's first bytes; all of it if ``whole``.
        wanted: the member of a document that contains the records.
        most: maximum number of objects that are examined.

    Raises:
        InvalidRecords: ``reading``; it is not JSON, or has no objects.
    """
    try:
        found = layout_of(sample)
        assert found is not None
        layout, start = found
        if layout == "lines" and (wanted is not None or not _has_lines(sample, whole=whole)):
            return _unwrap(sample, start, wanted, whole=whole)
        container = "ndjson" if layout == "lines" else "json"
        items, ends = _items_of(container, start, sample, most, whole=whole)
    except Malformed as error:
        raise refused(f"the file is not JSON: {error.message}") from None
    if not items and not whole:
        raise _too_large()
    if not items:
        raise refused("the file contains no objects")
    return Objects(container, start, items, whole and ends)


def _items_of(
    container: str, start: RecordStart, sample: bytes, most: int, *, whole: bool
) -> tuple[list[Any], bool]:
    parser = parser_of(container, start)
    items: list[Any] = []
    body = sample[start.offset :]
    for at in range(0, len(body) + 1, 1 << 20):
        is_last = at + (1 << 20) > len(body)
        blocks = parser.feed(body[at : at + (1 << 20)])
        if is_last:
            blocks += parser.finish() if whole else parser.drain()
        for block in blocks:
            for record in block.records:
                if isinstance(record, UnreadRow):
                    raise refused(f"row {record.row}: {record.error.detail}")
                items.append(record.data[""])
        if len(items) > most:
            return items[:most], False
    return items, True


def _has_lines(sample: bytes, *, whole: bool) -> bool:
    """Whether the first line is a complete object."""
    line, mark, _ = sample.strip().partition(b"\n")
    if not mark and not whole:
        return True  # the line is longer than the sample
    try:
        first = strict_json.loads(line.removeprefix(b"\xef\xbb\xbf"), halves=True)
    except Malformed:
        return False
    return bool(mark) or not (_lists_of(first) or _is_of_columns(first))


def _unwrap(sample: bytes, start: RecordStart, wanted: str | None, *, whole: bool) -> Objects:
    if not whole or len(sample) > MAX_WRAPPED:
        raise _too_large()
    document = strict_json.loads(sample[start.offset :], halves=True)
    lists = _lists_of(document)
    if wanted is not None:
        if wanted not in lists:
            raise refused("the file has no list of objects of that name", "", "sheet")
        member = wanted
    elif len(lists) == 1:
        member = next(iter(lists))
    elif lists:
        raise refused(
            "the file contains several lists of objects",
            f"name one of them: {', '.join(list(lists)[:20])}",
            "sheet",
        )
    elif _is_of_columns(document):
        raise refused(
            "the file is an object of columns, as pandas writes it",
            "write it with orient='records'",
        )
    else:
        return Objects("ndjson", start, [document], whole=True)
    others = tuple(name for name in document if name != member)
    return Objects("json", RecordStart(0, 1), list(lists[member]), True, member, others)


def _too_large() -> InvalidRecords:
    return refused(
        "the file is one JSON object, and too large to be examined here, because it has"
        " to be read as a whole",
        "save its records as JSON lines: one object on each line",
    )


def _is_of_columns(document: Any) -> bool:
    return len(document) > 1 and all(isinstance(value, Mapping) for value in document.values())


def _lists_of(document: Any) -> dict[str, list[Any]]:
    if not isinstance(document, Mapping):
        return {}
    return {
        name: value
        for name, value in document.items()
        if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value)
    }


@dataclass(frozen=True)
class ObjectCells:
    """The cells of an object by column name; ``texts`` are the columns of texts, ``lists`` the
    columns of lists."""

    cells: dict[str, str]
    texts: frozenset[str]
    lists: frozenset[str]
    flaw: str | None = None


def flatten(item: Any) -> ObjectCells:
    """The members of an object; members of inner objects get both names, joined by a point. A list
    becomes JSON text; a null member has no cell."""
    cells: dict[str, str] = {}
    texts: set[str] = set()
    lists: set[str] = set()
    if not isinstance(item, Mapping):
        return ObjectCells({}, frozenset(), frozenset(), "expected an object")
    if record_formats.is_exported_record(item):
        item = item["data"]
    flaw = _flatten(item, "", 0, (cells, texts, lists))
    return ObjectCells(cells, frozenset(texts), frozenset(lists), flaw)


_Into = tuple[dict[str, str], set[str], set[str]]


def _flatten(item: Mapping[str, Any], before: str, depth: int, into: _Into) -> str | None:
    cells, texts, lists = into
    if depth > _MAX_DEPTH:
        return f"objects are nested more than {_MAX_DEPTH} deep"
    flaw = None
    for key, value in item.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping) and value:
            flaw = flaw or _flatten(value, f"{name}.", depth + 1, into)
            continue
        if name in cells:
            return "two members have the same name when objects are flattened"
        if value is None:
            continue
        if isinstance(value, list | Mapping):
            lists.add(name)
            cells[name] = strict_json.encode(value).decode()
        elif isinstance(value, bool):
            cells[name] = "true" if value else "false"
        elif isinstance(value, str):
            texts.add(name)
            cells[name] = value
        elif isinstance(value, Decimal) and abs(value.adjusted()) >= _MAX_DIGITS:
            flaw = flaw or _TOO_LONG
        else:
            cells[name] = format(value, "f") if isinstance(value, Decimal) else str(value)
    return flaw


def names_of_all(rows: Sequence[ObjectCells]) -> list[str]:
    """The names of all columns, in order of appearance.

    Raises:
        InvalidRecords: ``reading``; there are too many.
    """
    names = list(dict.fromkeys(name for row in rows for name in row.cells))
    if len(names) > MAX_FIELDS:
        raise refused(f"the file has more than {MAX_FIELDS} columns")
    return names


def rows_of_all(rows: Sequence[ObjectCells], names: Sequence[str]) -> Iterator[ParsedRow]:
    """Rows with a cell for each of the names. Texts count as quoted: an empty text is a text."""
    places = {name: at for at, name in enumerate(names)}
    for row in rows:
        cells = [row.cells.get(name, "") for name in names]
        quoted = frozenset(places[name] for name in row.texts if name in places)
        flaw = row.flaw
        if flaw is None and not row.cells.keys() <= places.keys():
            flaw = "has a member that the reading does not know"
        yield ParsedRow(cells, quoted, 0, flaw)

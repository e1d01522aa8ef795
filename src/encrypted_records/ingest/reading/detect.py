"""Detect from the head of a file how it is read, with uncertainties, and propose a definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from operator import itemgetter
from typing import Any

from encrypted_records.ingest.reading.columns import Decided, decide_all
from encrypted_records.ingest.reading.json_rows import (
    find_objects,
    flatten,
    names_of_all,
    rows_of_all,
)
from encrypted_records.ingest.reading.recipe import (
    ABSENT,
    ONE_FORM,
    TYPE_OF,
    FileColumn,
    Recipe,
    reader_of,
)
from encrypted_records.ingest.reading.text_table import (
    DetectedCharset,
    Layout,
    ParsedRow,
    find_charset,
    find_dialect,
    find_layout,
    is_left_out,
    is_no_row,
    names_of,
    refused,
    rows_of,
)
from encrypted_records.ingest.reading.workbook import (
    MAX_BYTES,
    is_workbook,
    moments_of,
    read_sheet,
    require_one_table,
)
from encrypted_records.model import field_types
from encrypted_records.model.definition import MAX_FIELDS
from encrypted_records.model.field_types.calendar import DATE, INSTANT, LOCAL
from encrypted_records.model.field_types.plain import BOOLEAN
from encrypted_records.model.samples import FieldReading

#: Maximum rows and cells that are examined. All rows of 8 MiB, of two bytes each, took 33 s and 1.6
#: GB; later rows are read like these, or reported.
MAX_ROWS = 100_000
MAX_CELLS = 500_000
#: Maximum cells of the head of a longer file. 70,000 rows of 7 columns took 2.2 s of CPU time.
MAX_CELLS_OF_HEAD = 250_000
#: Maximum length of a cell, in characters.
MAX_CELL = 1 << 20
_OTHERS = {
    b"PK\x03\x04": ("an archive", "unpack it"),
    b"\xd0\xcf\x11\xe0": (
        "an Excel workbook of an old form, or protected by a password",
        "save it as .xlsx or CSV, without a password",
    ),
    b"%PDF": ("a PDF document", "export the data as CSV"),
    b"\x1f\x8b": ("compressed with gzip", "unpack it"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "unpack it"),
    b"BZh": ("compressed with bzip2", "unpack it"),
    b"PAR1": ("a Parquet file", "import it under a name that ends in .parquet"),
    b"ARROW1": ("an Arrow file", "import it under a name that ends in .arrow"),
    b"SQLite format 3": ("a database of SQLite", "export a table as CSV"),
    b"{\\rtf": ("a document of a word processor", "export the data as CSV"),
}
_EMPTY_TEXTS = (
    'in columns of text, empty cells in quotes ("") are empty texts; those without quotes '
    "are absent values"
)
_VALUELESS = "rows left out because they have only empty cells or a drawn line"
_MARKUP = (b"<!doctype", b"<html", b"<?xml", b"<head", b"<body")


@dataclass(frozen=True)
class Wanted:
    """The caller's statements about a file, which override detection."""

    encoding: str | None = None
    delimiter: str | None = None
    header_row: int | None = None
    below: int | None = None
    sheet: str | None = None
    quote: str | None = None


NOTHING_SAID = Wanted()


@dataclass(frozen=True)
class Detection:
    """The result of detection. ``rows`` is the number of rows that were examined, and ``whole``
    tells whether they are the complete file; ``guessed`` are members of the recipe that may be
    wrong, ``words`` are words of the file that give evidence; ``changed`` has, for each name that
    was changed, the name in the file.
    """

    recipe: Recipe
    decided: Sequence[Decided]
    rows: int
    above: tuple[str, ...]
    below: tuple[str, ...]
    guessed: tuple[str, ...]
    words: tuple[str, ...]
    changed: Mapping[str, str]
    cells: Sequence[Counter[str]] = field(repr=False)
    short: int = 0
    whole: bool = True
    empty: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def container_of(sample: bytes) -> str:
    """``csv``, ``json`` or ``workbook``, by the first bytes of a file.

    Raises:
        InvalidRecords: ``reading``; the file is another kind of file.
    """
    if is_workbook(sample):
        return "workbook"
    for magic, (what, hint) in _OTHERS.items():
        if sample.startswith(magic):
            raise refused(f"the file is {what}", hint)
    start = sample.removeprefix(b"\xef\xbb\xbf").lstrip()[:20].lower()
    if start.startswith(_MARKUP):
        raise refused("the file is a web page or XML", "was the download behind a login?")
    return "json" if start.startswith((b"[", b"{")) else "csv"


@dataclass(frozen=True)
class _Source:
    """Examined rows of a file, ``whole`` if they are all, and further facts: members of the recipe,
    and columns by the file's types of values."""

    rows: Sequence[ParsedRow]
    whole: bool
    recipe: dict[str, Any]
    guessed: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    numbers: Collection[int] = ()
    texts: Collection[int] = ()


def detect(sample: bytes, *, whole: bool, wanted: Wanted = NOTHING_SAID) -> Detection:
    """
    Args:
        sample: the file's first bytes; all of it if ``whole``.

    Raises:
        InvalidRecords: ``reading``; it cannot be read.
        TooLarge: a quote does not close.
    """
    match container_of(sample):
        case "workbook":
            return _detect_sheet(sample, wanted, whole=whole)
        case "json":
            return _detect_objects(sample, wanted, whole=whole)
    charset, text = _read_text(sample, wanted, whole=whole)
    lead, delimiter, quote = dialect_of(text, wanted)
    most = MAX_CELLS if whole else MAX_CELLS_OF_HEAD
    rows, ends = _first_rows(rows_of(text, delimiter, quote, final=whole), most)
    whole = whole and ends
    _limit(rows)
    source = _Source(
        rows,
        whole,
        {"encoding": charset.name, "delimiter": delimiter, "quote": quote},
        ("encoding",) if charset.guessed else (),
        charset.words,
    )
    return _find(source, _layout(rows, wanted, lead=lead, whole=whole), wanted)


def _detect_sheet(sample: bytes, wanted: Wanted, *, whole: bool) -> Detection:
    if not whole:
        raise refused(
            "the workbook is too large to be examined here, because it has to be read as a whole",
            f"ers import takes workbooks of up to {MAX_BYTES >> 20} MiB; or save the sheet as CSV",
        )
    sheet = read_sheet(sample, wanted.sheet)
    rows, ends = _first_rows(sheet.rows)
    _limit(rows)
    layout = _layout(rows, wanted, lead=0, whole=ends)
    rows = list(moments_of(rows, layout.first))
    require_one_table(sheet, layout.header, layout.first, len(layout.below))
    notes = list(sheet.notes)
    if sheet.hidden:
        notes.append(f"hidden sheets are not read: {', '.join(sheet.hidden[:20])}")
    if sheet.others:
        notes.append(f"further sheets are not read: {', '.join(sheet.others[:20])}")
    source = _Source(
        rows,
        ends,
        {"container": "workbook", "sheet": sheet.name},
        ("sheet",) if sheet.others and wanted.sheet is None else (),
        notes=tuple(notes),
        numbers=sheet.numbers,
        texts=sheet.mixed,
    )
    return _find(source, layout, wanted)


def _detect_objects(sample: bytes, wanted: Wanted, *, whole: bool) -> Detection:
    found = find_objects(sample, whole=whole, wanted=wanted.sheet, most=MAX_ROWS)
    every = [flatten(item) for item in found.items]
    flawed = next((at for at, row in enumerate(every, 1) if row.flaw is not None), 0)
    if flawed:
        raise refused(f"row {flawed}: {every[flawed - 1].flaw}")
    names = names_of_all(every)
    if not names:
        raise refused("the objects of the file have no members")
    every = every[: max(1, MAX_CELLS // len(names))]
    rows = list(rows_of_all(every, names))
    _limit(rows)
    texts = {at for at, name in enumerate(names) if any(name in row.texts for row in every)}
    lists = [name for name in names if any(name in row.lists for row in every)]
    notes = [f"lists are stored as JSON texts: {', '.join(lists[:20])}"] if lists else []
    if found.others:
        notes.append(f"left out beside {found.member}: {', '.join(found.others[:20])}")
    source = _Source(
        rows,
        found.whole and len(every) == len(found.items),
        {"container": found.container, "sheet": found.member, "empty_quotes": "text"},
        notes=tuple(notes),
        numbers=set(range(len(names))) - texts,
        texts=texts | {names.index(name) for name in lists},
    )
    layout = Layout(len(names), 1, tuple(names), 0, (), ())
    return _find(source, layout, replace(wanted, below=0))


def _find(source: _Source, layout: Layout, wanted: Wanted) -> Detection:
    data = list(source.rows[layout.first :])
    left_out = sum(map(is_left_out, data)) if source.recipe.get("container") is None else 0
    if source.recipe.get("container") not in ("json", "ndjson"):  # any object is a record
        data = [row for row in data if not is_no_row(row)]
    if layout.below:
        data = data[: len(data) - len(layout.below)]
    _require_one_table(data, layout)
    width = (
        max([layout.width, *(len(row.cells) for row in data)])
        if not layout.header
        else max(layout.width, len(layout.names))
    )
    names, changed = names_of(layout.names, width)
    sources = (
        _sources(layout.names, width) if layout.header else [f"#{at + 1}" for at in range(width)]
    )
    columns, empty = _gather(data, width)
    texts = _empty_texts(source.rows, data, source.recipe)
    decided = decide_all(sources, names, columns, numbers=source.numbers, texts=source.texts)
    short = sum(1 for row in data if len(row.cells) < width)
    recipe = Recipe(
        columns=[column.column for column in decided],
        header_row=layout.header,
        above=len(layout.above),
        below=len(layout.below) if source.whole else wanted.below,
        short_rows=short > 0,
        **source.recipe | ({"empty_quotes": "text"} if texts else {}),
    )
    for at, count in texts.items():
        if decided[at].column.type == "text":
            empty[at] -= count
            columns[at][""] = count
    notes = source.notes
    if texts:
        notes += (_EMPTY_TEXTS,)
    if left_out:
        notes += (f"{_VALUELESS}: {left_out:,}",)
    guessed = source.guessed
    guessed += ("below",) if layout.below and wanted.below is None else ()
    return Detection(
        recipe,
        decided,
        len(data),
        layout.above,
        layout.below,
        guessed,
        source.words,
        changed,
        columns,
        short,
        source.whole,
        tuple(empty),
        notes,
    )


def _empty_texts(
    rows: Sequence[ParsedRow], data: Sequence[ParsedRow], recipe: Mapping[str, Any]
) -> Counter[int]:
    """The number of empty texts of each column, if quotes distinguish them from absent values: the
    column has empty cells both with and without quotes, or no cell of the file, including names,
    has needless quotes."""
    if recipe.get("container") is not None:
        return Counter()
    found = Counter(
        at
        for row in data
        if row.quoted and "" in row.cells
        for at in row.quoted
        if not row.cells[at]
    )
    if not found:
        return found
    are_both = any(
        at < len(row.cells) and not row.cells[at] and at not in row.quoted
        for row in data
        for at in found
    )
    marks = (recipe["delimiter"], recipe["quote"], "\r", "\n")
    if are_both or not any(_has_needless_quotes(row, marks) for row in rows):
        return found
    return Counter()


def _has_needless_quotes(row: ParsedRow, marks: Sequence[str]) -> bool:
    """Whether a nonempty cell is in quotes that its content does not need."""
    return any(
        cell.strip() and cell == cell.strip() and not any(mark in cell for mark in marks)
        for cell in (row.cells[at] for at in row.quoted)
    )


def _first_rows(rows: Iterable[ParsedRow], most: int = MAX_CELLS) -> tuple[list[ParsedRow], bool]:
    """The rows to examine, and whether these are all."""
    some: list[ParsedRow] = []
    cells = 0
    for row in rows:
        if len(some) == MAX_ROWS or cells > most:
            return some, False
        some.append(row)
        cells += len(row.cells)
    return some, True


def text_of(sample: bytes, wanted: Wanted, *, whole: bool) -> str:
    """
    Raises:
        InvalidRecords: ``reading``; it is not text, or has another charset than stated.
    """
    return _read_text(sample, wanted, whole=whole)[1]


def _read_text(sample: bytes, wanted: Wanted, *, whole: bool) -> tuple[DetectedCharset, str]:
    charset = _charset(sample, wanted, whole=whole)
    text = sample[charset.mark :].decode(
        charset.name, errors="replace" if charset.guessed else "ignore"
    )
    if not text.strip():
        raise refused("the file is empty")
    return charset, text


def _charset(sample: bytes, wanted: Wanted, *, whole: bool) -> DetectedCharset:
    if wanted.encoding is None:
        return find_charset(sample, whole=whole)
    marks = {"utf-8": b"\xef\xbb\xbf", "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}
    mark = marks.get(wanted.encoding, b"")
    found = DetectedCharset(wanted.encoding, len(mark) if mark and sample.startswith(mark) else 0)
    try:
        text = sample[found.mark :].decode(wanted.encoding)
    except UnicodeDecodeError as error:
        if whole or error.start < len(sample) - found.mark - 4:
            line = sample.count(b"\n", 0, error.start) + 1
            raise refused(
                f"the file is not {wanted.encoding}, first in line {line}", "", "encoding"
            ) from None
        text = ""
    if "\x00" in text:
        raise refused(f"the file is not {wanted.encoding}", "", "encoding")
    return found


def dialect_of(text: str, wanted: Wanted) -> tuple[int, str, str]:
    """The number of leading rows that state the delimiter (``sep=;``), the delimiter and the
    quote.
    """
    first = text[:32].splitlines()[:1]
    if first and first[0].lower().startswith("sep=") and len(first[0]) == len("sep=") + 1:
        return 1, first[0][-1], '"'
    delimiter, quote = find_dialect(text)
    if wanted.delimiter is not None and wanted.delimiter != delimiter:
        delimiter, quote = wanted.delimiter, '"'
    return 0, delimiter, quote if wanted.quote is None else wanted.quote


def _layout(rows: Sequence[ParsedRow], wanted: Wanted, *, lead: int, whole: bool) -> Layout:
    layout = find_layout(rows[lead:], whole=whole)
    header, first = layout.header + (lead if layout.header else 0), layout.first + lead
    names, above = layout.names, layout.above
    if wanted.header_row is not None:
        header = wanted.header_row
        if header > len(rows):
            raise refused(f"the file has no row {header}", "", "header_row")
        first = header or lead
        names = tuple(rows[header - 1].cells) if header else ()
        above = tuple(
            " ".join(row.cells) for row in rows[lead : max(header - 1, 0)] if not is_no_row(row)
        )
    below = layout.below
    if wanted.below is not None:
        real = [row for row in rows[first:] if not is_no_row(row)]
        count = wanted.below if whole else 0
        below = tuple(" ".join(row.cells)[:200] for row in real[len(real) - count :])
        below = below if count else ()
    return Layout(layout.width, header, names, first, above, below)


def _sources(names: Sequence[str], width: int) -> list[str]:
    return [names[at] if at < len(names) else "" for at in range(width)]


def _limit(rows: Sequence[ParsedRow]) -> None:
    for number, row in enumerate(rows, 1):
        if len(row.cells) > 4 * MAX_FIELDS:
            raise refused(f"row {number} has more than {4 * MAX_FIELDS} cells")
        if any(len(cell) > MAX_CELL for cell in row.cells):
            raise refused(f"row {number} has a cell of more than a MiB")
        if row.flaw is not None:
            raise refused(f"row {number}: {row.flaw}", "double the quotes inside cells in quotes")


def _require_one_table(data: Sequence[ParsedRow], layout: Layout) -> None:
    """Refuse long runs of rows of two widths, which are two tables."""
    wrong = [
        at
        for at, row in enumerate(data)
        if len(row.cells) > max(layout.width, len(layout.names) or 1)
    ]
    if wrong:
        raise refused(
            f"row {wrong[0] + 1} has more cells than the {layout.width} columns",
            "is it a second table, or does the file use another delimiter?",
            "delimiter",
        )
    short = [len(row.cells) < layout.width for row in data]
    changes = sum(1 for before, after in pairwise(short) if before != after)
    if (
        sum(short) > 2
        and changes == 1
        and len(set(map(len, (r.cells for r, s in zip(data, short, strict=True) if s)))) == 1
    ):
        first = short.index(True) if not short[0] else short.index(False)
        raise refused(f"the file contains two tables: another begins at row {first + 1}")


def _gather(data: Sequence[ParsedRow], width: int) -> tuple[list[Counter[str]], list[int]]:
    columns = [Counter(map(itemgetter(at), _widened(data, width))) for at in range(width)]
    return columns, [column.pop("", 0) + column.pop(ABSENT, 0) for column in columns]


def _widened(data: Sequence[ParsedRow], width: int) -> Iterator[Sequence[str]]:
    missing = [""] * width
    for row in data:
        yield row.cells if len(row.cells) >= width else row.cells + missing[len(row.cells) :]


_EXAMPLES = 2
#: Maximum number of distinct texts of a field that are reported.
_FEW = 50
_SHOWN = 60


def propose(found: Detection, *, tight: bool = False) -> tuple[dict[str, Any], list[FieldReading]]:
    """A definition without values of the file, and a report of each field."""
    properties: dict[str, dict[str, Any]] = {}
    reports: list[FieldReading] = []
    for choice, cells, empty in zip(found.decided, found.cells, found.empty, strict=True):
        column = choice.column
        if column.name is None:
            continue
        stored, report = _look(column, found, cells)
        field, name, note = _field(column, stored, found, tight=tight)
        notes = [text for text in (choice.note, note) if text]
        absent = empty + sum(report[1].values())
        texts = stored if column.type == "text" else None
        properties[column.name] = field
        reports.append(
            FieldReading(
                column.name,
                name,
                "; ".join(notes) or None,
                choice.ask,
                _examples(column, found, cells),
                report[0],
                absent,
                report[1],
                sorted(texts) if texts and len(texts) <= _FEW else None,
                not absent and len(stored) == sum(stored.values()),
            )
        )
    return field_types.propose_definition(properties, []), reports


def _look(
    column: FileColumn, found: Detection, cells: Counter[str]
) -> tuple[Counter[str], tuple[int, dict[str, int]]]:
    """The stored values, the number of cells that are spelled differently, and the cells that mean
    an absent value.
    """
    read = reader_of(column, found.recipe)
    stored: Counter[str] = Counter()
    words: dict[str, int] = {}
    rewritten = 0
    for cell, count in cells.items():
        if cell in column.null:
            words[cell] = count
            continue
        value = cell if read is None else read(cell)
        if value is None:
            continue
        stored[value] += count
        rewritten += count * (value != cell)
    return stored, (rewritten, words)


def _examples(column: FileColumn, found: Detection, cells: Counter[str]) -> list[list[str]]:
    read = reader_of(column, found.recipe)
    shown = []
    for cell in cells:
        value = None if cell in column.null else cell if read is None else read(cell)
        if value is not None:
            shown.append([cell[:_SHOWN], value[:_SHOWN]])
        if len(shown) == _EXAMPLES:
            break
    return shown


def _field(
    column: FileColumn, stored: Counter[str], found: Detection, *, tight: bool
) -> tuple[dict[str, Any], str, str | None]:
    """A field, its type in words, and a note on what to check."""
    match column.type:
        case "number":
            return _number(column, stored, tight=tight)
        case "date":
            return DATE.propose(), f"date, {column.format}", None
        case kind if kind in ONE_FORM:
            return TYPE_OF[kind].propose(), TYPE_OF[kind].said, None
        case "boolean":
            return BOOLEAN.propose(), "boolean", None
        case "date-time":
            return INSTANT.propose(), "date and time", None
        case "local":
            if found.recipe.time_zone is not None:
                return INSTANT.propose(), "date and time", None
            return LOCAL.propose(), LOCAL.said, "no time zone: local times"
    longest = max((len(text.encode("utf-8", "replace")) for text in stored), default=0)
    zeros = any(text[:1] == "0" and text[1:2].isdigit() for text in stored)
    return field_types.propose_text(longest), "text", "leading zeros are kept" if zeros else None


def _number(
    column: FileColumn, stored: Counter[str], *, tight: bool
) -> tuple[dict[str, Any], str, str | None]:
    numbers = [Decimal(text) for text in stored]
    digits = max((number.adjusted() + 1 for number in numbers), default=1)
    decimals = max((_decimals(number) for number in numbers), default=0)
    points = any("." in text for text in stored)
    field: dict[str, Any] | None = field_types.propose_whole_number()
    if points or field_types.is_amount(column.name or ""):
        field = field_types.propose_decimal(digits, decimals)
    assert field is not None  # columns with too many digits are text
    if tight and numbers:
        low, high = min(numbers), max(numbers)
        least = -field_types.headroom(-low) if low < 0 else 0
        most = field_types.headroom(high) if high > 0 else 0
        field["minimum"] = max(least, field["minimum"])
        field["maximum"] = min(most, field["maximum"])
    if "precision" not in field:
        return field, "whole number", None
    return field, f"number, {field['precision']} decimals", None


def _decimals(number: Decimal) -> int:
    exponent = number.normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0

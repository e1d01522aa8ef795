"""Read workbooks of Excel and LibreOffice into rows of cells in canonical text.

A library reads values. Before that, this module checks the archive: its unpacked size, and cells
that the library silently drops or changes (errors, formulas that were never computed, digits beyond
those of a floating-point number). The file is refused with the place of such a cell.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import product
from math import isfinite
from typing import Any
from xml.parsers import expat

from encrypted_records.errors import InvalidRecords
from encrypted_records.ingest.reading.text_table import ParsedRow, refused

MAGIC = b"PK\x03\x04"
#: Maximum bytes of a workbook, and of its unpacked content; and cells, including empty cells
#: between others.
MAX_BYTES = 16 << 20
MAX_UNPACKED = 256 << 20
MAX_PLACES = 5_000_000
#: Decimal digits that spreadsheet programs keep of a number.
_DIGITS = 15
_NOTHING: frozenset[int] = frozenset()
#: Excel counts a nonexistent day, 29 February 1900, so earlier days are ambiguous.
_FIRST_DAY = date(1900, 3, 1)
_CELL = re.compile(rb"<(?:\w{1,20}:)?c(?=[\s/>])([^<>]*)>")
#: Maximum bytes of a cell, with the longest text that programs keep.
_MAX_CELL = 400_000
_PLACE = re.compile(rb"""\br=["']([A-Z]{1,3})([0-9]{1,7})["']""")
_KIND = re.compile(rb"""\bt=["'](\w+)["']""")
_STYLE = re.compile(rb"""\bs=["']([0-9]+)["']""")
_VALUE = re.compile(rb"<(?:\w{1,20}:)?v(?:\s[^<>]*)?>([^<]*)<")
_FORMULA = re.compile(rb"<(?:\w{1,20}:)?f[\s/>]")
_LONG = re.compile(rb"\s*-?[1-9][0-9]{%d,}\s*" % _DIGITS)
_SHEET = re.compile(rb"<(?:\w{1,20}:)?sheet\s[^<>]*>")
_RECOMPUTES = re.compile(rb"""\bfullCalcOnLoad=["'](?:1|true)["']""")
_FROM_1904 = re.compile(rb"""\bdate1904=["'](?:1|true)["']""")
_RELATION = re.compile(rb"<(?:\w{1,20}:)?Relationship\s[^<>]*>")
_FORMAT = re.compile(rb"<(?:\w{1,20}:)?numFmt\s[^<>]*>")
_XF = re.compile(rb"<(?:\w{1,20}:)?xf[\s/>][^<>]*>")
_ZEROS = re.compile(rb"0{2,18}")
_TYPED = re.compile(r"[-+]?[0-9][-0-9.,:TZ ]*|true|false")
_NEGATIVE = re.compile(rb"\s*-")
#: Texts that are a number with thousands or with decimals, in columns of numbers.
_EITHER = re.compile(r"\D*\d{1,3}(?:[.,]\d{3})+\D*")
#: Parts that the library reads when it opens a workbook, and the parts of sheets.
_XML = re.compile(r"xl/.*\.(?:xml|rels)|content\.xml|meta-inf/manifest\.xml")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d(?:\.\d+)?)")
_MOMENT = re.compile(rf"{_DAY.pattern}T{_CLOCK.pattern}")
#: Spans as this module writes them.
_SPAN = re.compile(r"-?PT\d+H\d+M\d+(?:\.\d+)?S")
#: Rows and cells of OpenDocument, and marks in their texts that the library drops.
_PART = re.compile(
    rb"<table:(table|table-row|(?:covered-)?table-cell)(?=[\s/>])([^<>]*)>"
    rb"|<text:(tab|line-break)(?=[\s/>])"
)
_FLOAT = re.compile(rb'office:value="([^"]*)"')
_TRUTH = re.compile(rb'office:boolean-value="([^"]*)"')
_TIMED = re.compile(rb'office:(?:time|date)-value="([^"]*)"')
#: More than six decimals of a second.
_FINE = re.compile(rb"\.[0-9]{6}[0-9]*[1-9]")
_DAY_MILLISECONDS = 86_400_000
#: Tolerance in milliseconds between a number of days and the time that it represents.
_ABOUT = 0.01
_SHOWN = re.compile(rb"\s*<text:p>(0[0-9]{1,17})</text:p>")
_SPANNED = re.compile(rb'table:number-(columns|rows)-spanned="([0-9]{1,9})"')
_REPEATED = re.compile(rb'table:number-(?:columns|rows)-repeated="([0-9]{1,9})"')


@dataclass(frozen=True)
class Sheet:
    """``rows`` has every row of the sheet, from the first on. ``numbers`` are the columns with
    cells that the workbook stores as numbers, not texts. ``others`` are the names of further sheets
    with cells, ``hidden`` the names of hidden sheets."""

    name: str
    rows: list[ParsedRow]
    numbers: frozenset[int]
    #: columns with such numbers and with texts that may be numbers in another form
    mixed: frozenset[int] = frozenset()
    others: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    #: first and last row and column of merged cells, from 0 on
    merged: tuple[tuple[int, int, int, int], ...] = ()


@dataclass
class _Seen:
    """Facts from the XML of a sheet: its extent, and the places of problematic cells.
    ``recomputes`` means that values of formulas are placeholders until a program opens the file."""

    recomputes: bool = False
    #: whether days are counted from 1904, so that the first of them is number 0
    from_1904: bool = False
    height: int = 0
    width: int = 0
    cells: int = 0
    errors: list[str] = field(default_factory=list)
    uncomputed: list[str] = field(default_factory=list)
    long: list[str] = field(default_factory=list)
    marked: list[str] = field(default_factory=list)
    #: places of negative numbers that a style may show as days or times: see :func:`_place`
    negative: array[int] = field(default_factory=lambda: array("Q"))
    #: places of numbers that, if they are times, have finer fractions of a second than are read
    finer: array[int] = field(default_factory=lambda: array("Q"))
    #: number of decimals of a second that are read
    decimals: int = 3
    #: places of values that no program writes
    strange: list[str] = field(default_factory=list)
    #: first and last row and column of merged cells, from 0 on
    merged: list[tuple[int, int, int, int]] = field(default_factory=list)
    #: number of displayed digits of cells that are padded with zeros, by row and column
    padded: dict[tuple[int, int], int] = field(default_factory=dict)


def is_workbook(sample: bytes) -> bool:
    """Whether a file seems, by its beginning, to be a workbook of XML in an archive."""
    names = (b"[Content_Types].xml", b"_rels/", b"xl/", b"docProps/", b"mimetype")
    return sample.startswith(MAGIC) and sample[30:60].startswith(names)


def read_sheet(body: bytes, wanted: str | None) -> Sheet:
    """The sheet with a name, or the visible sheet with the most cells.

    Args:
        body: the whole file.

    Raises:
        InvalidRecords: ``reading``; it cannot be read, or a cell has no value that could be stored.
            The message contains no sheet name, because a job keeps its failure message.
    """
    try:
        import python_calamine  # noqa: PLC0415 - optional
    except ImportError:
        raise refused(
            "the file is an Excel workbook, and the library that reads it is not installed",
            "pip install 'encrypted-records[excel]', or save it as CSV",
        ) from None
    archive = _open(body)
    try:
        _require_xml(archive)
        book = python_calamine.load_workbook(io.BytesIO(body))
        seen = _look_at_all(archive, book.sheets_metadata)
        name = _choose(book.sheets_metadata, seen, wanted)
        _require_values(seen[name])
        visible = [sheet.name for sheet in book.sheets_metadata if _is_shown(sheet)]
        shown = [sheet for sheet in visible if sheet != name and seen[sheet].cells]
        hidden = [sheet for sheet in seen if sheet not in visible]
        sheet = book.get_sheet_by_name(name)
        return _read(sheet, seen[name], tuple(shown), tuple(hidden))
    except (python_calamine.CalamineError, expat.ExpatError, OverflowError):
        raise _damaged() from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        raise _damaged() from None
    except BaseException as error:
        # A panic of the library is not a subclass of Exception.
        if type(error).__name__ != "PanicException":
            raise
        raise _damaged() from None


def _damaged() -> InvalidRecords:
    return refused("the workbook is damaged, or protected by a password")


def _require_xml(archive: zipfile.ZipFile) -> None:
    """Read all XML before the library does: the library loops forever on truncated XML, and unpacks
    parts that are longer than their entry states.

    Raises:
        ExpatError, BadZipFile: a part is not XML, or does not match its entry.
    """
    for entry in archive.infolist():
        if _XML.fullmatch(entry.filename.lower()):
            parser = expat.ParserCreate()
            parser.StartDoctypeDeclHandler = _refuse_doctype
            with archive.open(entry) as part:
                parser.ParseFile(part)


def _refuse_doctype(*_: object) -> None:
    raise _damaged()


def _open(body: bytes) -> zipfile.ZipFile:
    if len(body) > MAX_BYTES:
        raise refused(f"the workbook has more than {MAX_BYTES >> 20} MiB", "save the sheet as CSV")
    try:
        archive = zipfile.ZipFile(io.BytesIO(body))
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError):
        raise refused("the file is a damaged or truncated archive") from None
    entries = archive.infolist()
    names = [entry.filename.lower() for entry in entries]
    if not {"xl/workbook.xml", "content.xml", "xl/workbook.bin"} & set(names):
        raise refused("the file is an archive, not a workbook", "unpack it")
    if "xl/workbook.bin" in names:
        raise refused("the file is a binary workbook (.xlsb)", "save it as .xlsx or CSV")
    if len(set(names)) < len(names):
        raise refused("the workbook contains two parts of the same name")
    if sum(entry.file_size for entry in entries) > MAX_UNPACKED:
        raise refused(
            f"the workbook expands to more than {MAX_UNPACKED >> 20} MiB", "save the sheet as CSV"
        )
    return archive


def _part(archive: zipfile.ZipFile, name: str) -> bytes:
    """A part of the archive; a part that is longer than its entry states fails its checksum.

    Raises:
        InvalidRecords: the part is missing, or its XML is of a kind that programs do not write.
    """
    found = {name.lower(): name for name in archive.namelist()}.get(name.lower())
    if found is None:
        raise refused("the workbook lacks a part, and cannot be read")
    content = archive.read(found)
    head = content[:200]
    if b"\x00" in head or head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"<!" in content:
        raise refused("the workbook's XML is not as spreadsheet programs write it")
    return content


def _attribute(tag: bytes, name: bytes) -> str:
    found = re.search(rb"""\b%s=["']([^"']*)["']""" % name, tag)
    return "" if found is None else found[1].decode("utf-8", "replace")


def _look_at_all(archive: zipfile.ZipFile, sheets: Sequence[Any]) -> dict[str, _Seen]:
    """Facts about each sheet by its name; about all sheets together for OpenDocument."""
    names = [name.lower() for name in archive.namelist()]
    if "xl/workbook.xml" not in names:
        return _look_at_tables(_part(archive, "content.xml"), sheets)
    book = _part(archive, "xl/workbook.xml")
    recomputes = _RECOMPUTES.search(book) is not None
    from_1904 = _FROM_1904.search(book) is not None
    entries = _SHEET.findall(book)
    if len(entries) != len(sheets):
        raise refused("the workbook's list of sheets cannot be read")
    relations = _RELATION.findall(_part(archive, "xl/_rels/workbook.xml.rels"))
    targets = {
        _attribute(relation, rb"Id"): _attribute(relation, rb"Target") for relation in relations
    }
    zeros = _styles_of_zeros(archive) if "xl/styles.xml" in names else {}
    seen: dict[str, _Seen] = {}
    for sheet, entry in zip(sheets, entries, strict=True):
        target = targets.get(_attribute(entry, rb"\w+:id"), "")
        path = target.removeprefix("/") if target.startswith("/") else f"xl/{target}"
        is_table = "worksheets/" in path
        seen[sheet.name] = _Seen(recomputes=recomputes, from_1904=from_1904)
        if is_table:
            _look_at(seen[sheet.name], _part(archive, path), zeros)
    return seen


def _styles_of_zeros(archive: zipfile.ZipFile) -> dict[int, int]:
    """The number of digits to which a style pads numbers with zeros, by the style's number."""
    content = _part(archive, "xl/styles.xml")
    widths = {}
    for tag in _FORMAT.findall(content):
        code = _attribute(tag, rb"formatCode").encode()
        if _ZEROS.fullmatch(code):
            widths[_attribute(tag, rb"numFmtId")] = len(code)
    begin = content.find(b"cellXfs")
    styles = content[begin : content.find(b"/cellXfs", begin)] if begin >= 0 else b""
    used = [_attribute(tag, rb"numFmtId") for tag in _XF.findall(styles)]
    return {at: widths[style] for at, style in enumerate(used) if style in widths}


def _look_at(seen: _Seen, content: bytes, zeros: dict[int, int]) -> None:
    tags = _CELL.finditer(content)
    found = next(tags, None)
    while found is not None:
        behind = next(tags, None)
        end = len(content) if behind is None else behind.start()
        tag = found[1]
        place = _PLACE.search(tag)
        if place is None:
            raise refused("the workbook has cells without a position")
        row, column = int(place[2]), _number_of(place[1])
        seen.height, seen.width = max(seen.height, row), max(seen.width, column)
        if not tag.endswith(b"/"):
            seen.cells += 1
            inside = content[found.end() : min(end, found.end() + _MAX_CELL)]
            _look_at_cell(seen, tag, inside, (row, column), zeros)
        if seen.cells > MAX_PLACES:
            break
        found = behind
    _limit(seen)


def _look_at_cell(
    seen: _Seen, tag: bytes, inside: bytes, place: tuple[int, int], zeros: dict[int, int]
) -> None:
    row, column = place
    name = f"{_letters(column)}{row}"
    kind = _KIND.search(tag)
    value = _VALUE.search(inside)
    if kind is not None and kind[1] == b"e":
        seen.errors.append(name)
    elif (
        value is None
        or seen.recomputes
        or not (value[1] or (kind is not None and kind[1] == b"str"))
    ) and _FORMULA.search(inside):
        seen.uncomputed.append(name)
    elif (kind is None or kind[1] == b"n") and value is not None:
        if _LONG.fullmatch(value[1]):
            seen.long.append(name)
        style = _STYLE.search(tag)
        if style is not None and int(style[1]) in zeros:
            seen.padded[row - 1, column - 1] = zeros[int(style[1])]
        if style is not None and _NEGATIVE.match(value[1]):
            seen.negative.append(_place(row - 1, column - 1))
        if style is not None and b"." in value[1] and _is_finer(value[1]):
            seen.finer.append(_place(row - 1, column - 1))
    elif kind is not None and kind[1] == b"d" and value is not None and _FINE.search(value[1]):
        seen.strange.append(name)


def _is_finer(value: bytes) -> bool:
    """Whether a number of days has fractions of a millisecond, which the library does not read.
    Numbers of 15 digits differ by some microseconds from the time that they represent."""
    try:
        milliseconds = float(value) % 1 * _DAY_MILLISECONDS
    except ValueError:
        return False
    return abs(milliseconds - round(milliseconds)) > _ABOUT


def _place(row: int, column: int) -> int:
    return row << 20 | column


def _look_at_tables(content: bytes, sheets: Sequence[Any]) -> dict[str, _Seen]:
    """Examine the tables of OpenDocument, where a cell or a row may be written once with a
    repetition count."""
    every: list[_Seen] = []
    times = column = pending = 0
    for found in _PART.finditer(content):
        what, tag = found[1], found[2]
        if what is None:
            if every:
                every[-1].marked.append(f"{_letters(column)}{pending + 1}")
            continue
        repeated = _REPEATED.search(tag)
        count = int(repeated[1]) if repeated else 1
        if what == b"table":
            every.append(_Seen(decimals=6))
            pending = times = 0
        elif what == b"table-row":
            pending, times, column = pending + times, count, 0
        elif every:
            seen = every[-1]
            if b"value-type=" in tag:
                row = pending + times
                seen.cells += count * times
                seen.height, seen.width = max(seen.height, row), max(seen.width, column + count)
                _limit(seen)
                _look_at_value(seen, tag, content, found.end(), (pending, times, column, count))
            elif b"table:formula=" in tag:
                seen.uncomputed.append(f"{_letters(column + 1)}{pending + 1}")
            _look_at_span(seen, tag, pending, column)
            column += count
    if len(every) != len(sheets):
        raise refused("the workbook's list of sheets cannot be read")
    return {sheet.name: seen for sheet, seen in zip(sheets, every, strict=True)}


def _look_at_value(
    seen: _Seen, tag: bytes, content: bytes, end: int, places: tuple[int, int, int, int]
) -> None:
    """
    Args:
        end: of the tag.
        places: the first row and the number of rows, the first column and the number of columns.
    """
    row, rows, column, columns = places
    name = f"{_letters(column + 1)}{row + 1}"
    if b'"error"' in tag:
        seen.errors.append(name)
    truth = _TRUTH.search(tag)
    if truth is not None and truth[1] not in (b"true", b"false"):
        seen.strange.append(name)
    clock = _TIMED.search(tag)
    if clock is not None and _FINE.search(clock[1]):
        inside = product(range(row, row + rows), range(column, column + columns))
        seen.finer.extend(_place(*place) for place in inside)
    number = _FLOAT.search(tag)
    if number is None:
        return
    if _LONG.fullmatch(number[1]):
        seen.long.append(name)
    shown = _SHOWN.match(content, end)
    if shown is not None and shown[1].lstrip(b"0") in (number[1], number[1].strip(b"0")):
        inside = product(range(row, row + rows), range(column, column + columns))
        seen.padded |= dict.fromkeys(inside, len(shown[1]))


def _look_at_span(seen: _Seen, tag: bytes, row: int, column: int) -> None:
    spans = {what: int(count) for what, count in _SPANNED.findall(tag)}
    rows, columns = spans.get(b"rows", 1), spans.get(b"columns", 1)
    if rows * columns > 1:
        seen.merged.append((row, row + rows - 1, column, column + columns - 1))


def _limit(seen: _Seen) -> None:
    if seen.height * seen.width > MAX_PLACES or seen.cells > MAX_PLACES:
        raise refused(
            f"a sheet extends over more than {MAX_PLACES:,} cells",
            "save the sheet as CSV, or delete cells far from its table",
        )


def _number_of(letters: bytes) -> int:
    number = 0
    for letter in letters:
        number = number * 26 + letter - 64
    return number


def _letters(column: int) -> str:
    letters = ""
    while column:
        column, rest = divmod(column - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def _is_shown(sheet: Any) -> bool:
    return str(sheet.visible).endswith(".Visible")


def _choose(sheets: Sequence[Any], seen: dict[str, _Seen], wanted: str | None) -> str:
    if wanted is not None:
        if wanted not in seen:
            names = ", ".join(list(seen)[:20])
            raise refused("the workbook has no sheet of that name", f"it has: {names}", "sheet")
        return wanted
    shown = [sheet.name for sheet in sheets if _is_shown(sheet) and seen[sheet.name].cells]
    if not shown:
        raise refused("the workbook has no cells on a visible sheet", "", "sheet")
    cells: dict[str, int] = {name: seen[name].cells for name in shown}
    return max(cells, key=cells.__getitem__)


def _require_values(seen: _Seen) -> None:
    for places, what, hint in (
        (seen.errors, "an error", "fix the formula, or empty the cell"),
        (seen.uncomputed, "a formula without its value", "open and save it in the program"),
        (seen.long, f"a number of more than {_DIGITS} digits", "make it a text"),
        (seen.strange, "a value that programs do not write", "open and save it in a program"),
        (seen.marked, "a tab or a line break", "remove it, or save the sheet as CSV"),
    ):
        if places:
            others = f", and {len(places) - 1} more" if len(places) > 1 else ""
            raise refused(f"cell {places[0]} of the sheet contains {what}{others}", hint)


def _read(sheet: Any, seen: _Seen, others: tuple[str, ...], hidden: tuple[str, ...]) -> Sheet:
    rows: list[ParsedRow] = []
    numbers: set[int] = set()
    either: set[int] = set()
    negative = frozenset(seen.negative)
    finer = array("Q", sorted(seen.finer))
    computed = early = fine = 0
    kinds: dict[tuple[int, type], int] = {}
    left = sheet.start[1] if sheet.start else 0
    for at, cells in enumerate(sheet.iter_rows()):
        texts = [""] * left
        for column, value in enumerate(cells, left):
            if isinstance(value, float):
                if not isfinite(value):
                    raise refused(
                        f"cell {_letters(column + 1)}{at + 1} of the sheet is not a number",
                        "fix the formula, or empty the cell",
                    )
                numbers.add(column)
                text, is_computed = _text_of_number(value)
                computed += is_computed
                text = text.zfill(seen.padded[at, column]) if (at, column) in seen.padded else text
            else:
                text = _text_of(value)
                kinds.setdefault((column, type(value)), at)
                early += isinstance(value, date) and _is_early(value)
                fine += not isinstance(value, str) and _is_in(finer, _place(at, column))
                if isinstance(value, str) and _EITHER.fullmatch(value):
                    either.add(column)
                if isinstance(value, date | time) and _place(at, column) in negative:
                    raise refused(
                        f"cell {_letters(column + 1)}{at + 1} of the sheet is a negative number"
                        " that is shown as a day or a time",
                        "show it as a number, or as hours in brackets: [h]:mm:ss",
                    )
            texts.append(text)
        rows.append(ParsedRow(texts, _NOTHING, 0))
    if seen.from_1904:
        _require_no_first_day(kinds)
    notes = []
    if computed:
        notes.append(f"{computed:,} numbers have more than {_DIGITS} digits; {_DIGITS} are kept")
    if early:
        notes.append(f"{early:,} days are before March 1900, which programs count in two ways")
    if fine:
        notes.append(f"{fine:,} times are finer; {seen.decimals} decimals of a second are kept")
    merged = [
        *seen.merged,
        *((top[0], low[0], top[1], low[1]) for top, low in sheet.merged_cell_ranges or ()),
    ]
    mixed = frozenset(numbers & either)
    return Sheet(
        *(sheet.name, rows, frozenset(numbers), mixed),
        *(others, hidden, tuple(notes), tuple(merged)),
    )


def _require_no_first_day(kinds: Mapping[tuple[int, type], int]) -> None:
    """
    Args:
        kinds: columns and kinds of their values, with the row of the first such value, from 0 on.

    Raises:
        InvalidRecords: ``reading``; a column of days has a time: the library reads the first day of
            workbooks that count from 1904 as a time.
    """
    for (column, kind), row in kinds.items():
        if kind is time and {(column, date), (column, datetime)} & kinds.keys():
            raise refused(
                f"cell {_letters(column + 1)}{row + 1} of the sheet is a time among days, or the"
                " first day of 1904",
                "write it as a text, or save the sheet as CSV",
            )


def _is_in(places: array[int], place: int) -> bool:
    at = bisect_left(places, place)
    return at < len(places) and places[at] == place


def _is_early(value: date) -> bool:
    day = value.date() if isinstance(value, datetime) else value
    return day < _FIRST_DAY


def _text_of_number(value: float) -> tuple[str, bool]:
    """A number in usual notation, and whether it has digits that programs do not show."""
    if value.is_integer() and abs(value) < 10**_DIGITS:
        return str(int(value)), False
    exact = Decimal(repr(value))
    kept = Decimal(f"{value:.{_DIGITS}g}")
    shown = format(kept.normalize(), "f") if abs(kept.adjusted()) < 2 * _DIGITS else repr(value)
    return shown, exact != kept


def _text_of(value: object) -> str:
    """Any other cell as text; days and times in ISO 8601."""
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat()
        case date() | time():
            return value.isoformat()
        case timedelta():
            return _span(value)
    return str(value)


def _span(value: timedelta) -> str:
    """A span of time in ISO 8601, because bare hours could be a time of day."""
    seconds = Decimal(value // timedelta(microseconds=1)).scaleb(-6)
    sign = "-" if seconds < 0 else ""
    minutes, rest = divmod(abs(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{sign}PT{hours:f}H{minutes:f}M{rest.normalize():f}S"


def moments_of(rows: Sequence[ParsedRow], first: int) -> Iterator[ParsedRow]:
    """Rows in which a bare day in a column of moments becomes the beginning of that day, and a time
    of day in a column of spans becomes the span since midnight: the library returns days for
    moments at midnight, and for LibreOffice times for spans of less than a day."""
    width = max((len(row.cells) for row in rows), default=0)
    moments, spans = (
        [
            at
            for at in range(width)
            if any(form.fullmatch(row.cells[at]) for row in rows[first:] if at < len(row.cells))
        ]
        for form in (_MOMENT, _SPAN)
    )
    for number, row in enumerate(rows):
        cells = list(row.cells)
        for at in moments if number >= first else ():
            if at < len(cells) and _DAY.fullmatch(cells[at]):
                cells[at] += "T00:00:00"
        for at in spans if number >= first else ():
            if at < len(cells) and (found := _CLOCK.fullmatch(cells[at])):
                cells[at] = f"PT{found[1]}H{found[2]}M{found[3]}S"
        yield ParsedRow(cells, row.quoted, row.end)


def require_one_table(sheet: Sheet, header: int, first: int, below: int) -> None:
    """
    Args:
        header: the number of the row with the names, or 0.
        first: the index of the first row of the table.
        below: the number of rows with cells below the table.

    Raises:
        InvalidRecords: ``reading``; cells of the table are merged, or there are two tables.
    """
    filled = [at for at, row in enumerate(sheet.rows) if at >= first and any(row.cells)]
    filled = filled[: len(filled) - below]
    begin, end = header - 1 if header else first, filled[-1] if filled else first
    for top, bottom, left, right in sheet.merged:
        if bottom >= begin and top <= end and (top, left) != (bottom, right):
            cells = f"{_letters(left + 1)}{top + 1}:{_letters(right + 1)}{bottom + 1}"
            raise refused(f"the cells {cells} of the table are merged", "split them first")
    rows = {at: sheet.rows[at].cells for at in filled}
    for before, at, behind in zip(filled, filled[1:], filled[2:], strict=False):
        if at > before + 1 and _are_names(rows[at], rows[behind]):
            raise refused(
                f"the sheet contains two tables: another begins at row {at + 1}",
                "move it to a sheet of its own",
            )
    _require_no_gap(rows, sheet.rows[begin].cells if header else [])


def _are_names(cells: Sequence[str], below: Sequence[str]) -> bool:
    """Whether a row after an empty row has names over cells of another kind."""
    filled = [at for at, cell in enumerate(cells) if cell]
    return (
        len(filled) > 1
        and not any(_TYPED.fullmatch(cells[at]) for at in filled)
        and any(at < len(below) and _TYPED.fullmatch(below[at]) for at in filled)
    )


def _require_no_gap(rows: Mapping[int, Sequence[str]], names: Sequence[str]) -> None:
    width = max((len(cells) for cells in (*rows.values(), names)), default=0)
    by_column = [
        frozenset(at for at, cells in rows.items() if column < len(cells) and cells[column])
        for column in range(width)
    ]
    used = [
        bool(by_column[column] or (column < len(names) and names[column]))
        for column in range(width)
    ]
    for gap in range(1, width - 1):
        if used[gap] or not any(used[:gap]) or not any(used[gap + 1 :]):
            continue
        left = frozenset[int]().union(*by_column[:gap])
        right = frozenset[int]().union(*by_column[gap + 1 :])
        if left != right:
            raise refused(
                f"there are two tables side by side: column {_letters(gap + 1)} is empty",
                "move a table to a sheet of its own, or delete the empty column",
            )

"""The table in a text: its charset, the separators of its records and cells, its header and names.

A charset is certain if the bytes determine it; otherwise it is a guess, and reported as such. A
table has a header, lines above it, and lines below its rows.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from math import sqrt
from typing import NamedTuple

from encrypted_records.errors import Flaw, InvalidRecords, TooLarge
from encrypted_records.model.definition import MAX_FIELD_NAME, MAX_FIELDS
from encrypted_records.model.record_formats import LEFT_OUT, SCHEMA_ENTRY
from encrypted_records.model.texts import normalized

BYTE_ORDER_MARKS = {
    b"\xef\xbb\xbf": "utf-8",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}
#: Single-byte charsets of Latin script, with the usual letters beyond ASCII.
# ruff: noqa: RUF001 - these letters are meant
_LATIN = {
    "cp1252": "äöüßÄÖÜéèêëàâáãçñíìîïóòôõúùûÉÈÀÁÇÑÍÓÚÔåøæÅØÆœŒÿıº°ª€£µ§«»–—’‘“”…·²³½¼¾±×®©™¡¿",
    "cp1250": "ąćęłńóśźżĄĆĘŁŃÓŚŹŻčďěňřšťůžČĎĚŇŘŠŤŮŽáéíúýäöüőűŐŰ€„”–ßÄÖÜ°§",
    "cp1254": "çğıöşüÇĞİÖŞÜâîûéáäß€–’“”",
    "mac_roman": "äöüßÄÖÜéèêëàâáçñíìîïóòôúùûÉÀÇÑåøæÅØÆ’“”–°",
}
_SCRIPTS = {
    "cp1251": "\u0400-\u04ff",
    "koi8_r": "\u0430-\u044f\u0410-\u042f\u0401\u0451",
    "cp1253": "\u0370-\u03ff",
    "cp1255": "\u05d0-\u05ea",
    "cp1256": "\u0620-\u064a",
}
_EAST = {
    "cp932": "\u3040-\u30ff\u4e00-\u9fff",
    "gb18030": "\u4e00-\u9fff",
    "cp949": "\uac00-\ud7a3",
    "big5": "\u4e00-\u9fff",
}
CHARSETS = ("utf-8", "utf-16-le", "utf-16-be", *_LATIN, *_SCRIPTS, *_EAST)
_GOOD = 0.8
_UTF8_SEQUENCE = re.compile(
    rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
)
#: First code point with three bytes in UTF-8; it is above all letters of the scripts above.
_THREE_BYTES = "\u0800"
_ASCII = bytes(range(128))
_TYPOGRAPHIC = re.compile(rb"\xe2\x80[\x80-\xbf]|\xc3[\x80-\xbf]")
#: Matches only from the beginning of a word, so that a long run of letters is scanned once.
_WORD = re.compile(r"(?<![^\W\d_])[A-Za-z]*+[^\W\d_\x00-\x7f][^\W\d_]*")
#: Maximum bytes that are examined for a legacy charset.
_SCORED_BYTES = 64 << 10
_WORDS = 3


@dataclass(frozen=True, slots=True)
class DetectedCharset:
    """``mark`` is the length of a byte order mark; ``words`` are words that show whether a guess is
    right."""

    name: str
    mark: int = 0
    guessed: bool = False
    words: tuple[str, ...] = ()


def find_charset(sample: bytes, *, whole: bool) -> DetectedCharset:
    """
    Args:
        sample: the file's first bytes; all of them if ``whole``.

    Raises:
        InvalidRecords: ``reading``; the file mixes two charsets, or is not text.
    """
    for mark, name in BYTE_ORDER_MARKS.items():
        if sample.startswith(mark):
            return DetectedCharset(name, len(mark))
    if (wide := _wide(sample)) is not None:
        return DetectedCharset(wide)
    if b"\x00" in sample:
        raise refused("the file contains zero bytes, and is not text")
    cut = sample if whole else sample[: max(0, len(sample) - 3)]
    try:
        _decode_utf8(sample, whole=whole)
    except UnicodeDecodeError as error:
        return _legacy(cut, sample.count(b"\n", 0, error.start) + 1)
    return DetectedCharset("utf-8")


def _decode_utf8(sample: bytes, *, whole: bool) -> None:
    try:
        sample.decode("utf-8")
    except UnicodeDecodeError as error:
        # The end of the sample may split a character.
        if whole or error.start < len(sample) - 3 or error.reason != "unexpected end of data":
            raise


def was_utf8(cell: str, encoding: str) -> bool:
    """Whether a cell of a legacy charset is more likely text in UTF-8, such as ``MÃ¼ller`` for
    Müller in Windows-1252: the charset changes in the middle of a file. A single pair of bytes may
    be either, such as 女 and Ů: it counts as UTF-8 only for a letter that the file's single-byte
    charset has."""
    try:
        meant = cell.encode(encoding).decode("utf-8")
    except UnicodeError:
        return False
    letters = [letter for letter in meant if not letter.isascii()]
    if encoding in _EAST:
        return len(letters) > 1 and all(letter >= _THREE_BYTES for letter in letters)
    try:
        meant.encode(encoding)
    except UnicodeError:
        return len(letters) > 1
    return bool(letters)


def _wide(sample: bytes) -> str | None:
    """Detect UTF-16 without a mark: every second byte of the text is zero."""
    pairs = min(len(sample) // 2, 2048)
    if pairs < 4:
        return None
    evens, odds = sample[: 2 * pairs : 2].count(0), sample[1 : 2 * pairs : 2].count(0)
    if odds > 0.7 * pairs and evens == 0:
        return "utf-16-le"
    return "utf-16-be" if evens > 0.7 * pairs and odds == 0 else None


def _legacy(sample: bytes, line: int) -> DetectedCharset:
    good = sum(len(run) for run in _UTF8_SEQUENCE.findall(sample))
    bad = len(sample.translate(None, _ASCII)) - good
    scores = {name: _score_charset(name, sample) for name in (*_LATIN, *_SCRIPTS, *_EAST)}
    best = max(scores, key=lambda name: scores[name])
    typographic = len(_TYPOGRAPHIC.findall(sample)) >= 3
    if good > 3 * bad or (typographic and scores[best] < _GOOD):
        raise refused(f"UTF-8 and another charset are mixed, first in line {line}", "", "encoding")
    if scores[best] <= 0:
        best = "cp1252"
    words: dict[str, None] = {}
    for found in _WORD.finditer(sample.decode(best, errors="replace")):
        words[found[0]] = None
        if len(words) == _WORDS:
            break
    return DetectedCharset(best, guessed=True, words=tuple(words))


def is_likely(name: str, sample: bytes, guess: str) -> bool:
    """Whether letters beyond ASCII fit a legacy charset's languages, or fit no worse than in the
    guessed charset."""
    return _score_charset(name, sample) >= min(_score_charset(guess, sample), _GOOD)


def _score_charset(name: str, sample: bytes) -> float:
    """The share, from 0 to 1, of letters beyond ASCII that fit the charset's languages; negative if
    a byte is not a character."""
    try:
        text = sample[: _around(sample)].decode(name, errors="strict")
    except UnicodeDecodeError as error:
        if error.start < min(len(sample), _SCORED_BYTES) - 4:
            return -1.0
        text = sample[: error.start].decode(name, errors="ignore")
    high = [at for at, character in enumerate(text) if character > "\x7f"]
    if not high:
        return -1.0
    if name in _LATIN:
        usual = frozenset(_LATIN[name])
        return sum(_latin(text, at, usual) for at in high) / len(high)
    runs = re.compile(f"[{(_SCRIPTS | _EAST)[name]}]{{2,}}")
    inside = sum(len(run) for run in runs.findall(text))
    share = inside / len(high)
    if name in _SCRIPTS:
        # Words of these languages have no small letter before a capital letter.
        jumps = sum(1 for at in high if at and text[at].isupper() and text[at - 1].islower())
        return share - jumps / len(high)
    # Two bytes per character: in a text of another charset, few characters belong to the script.
    return share * 0.97


def _around(sample: bytes) -> int:
    return min(len(sample), _SCORED_BYTES)


def _latin(text: str, at: int, usual: frozenset[str]) -> float:
    character = text[at]
    before = text[at - 1] if at else " "
    after = text[at + 1] if at + 1 < len(text) else " "
    if character == "\xa0":
        return 1.0 if before.isdigit() or after.isdigit() else 0.5
    if character not in usual:
        return 0.0
    if not character.isalpha():
        return 0.7
    if before.isdigit() or after.isdigit():
        return 0.2
    if character.isupper() and before.islower():
        return 0.0
    near = (before.isascii() and before.isalpha()) or (after.isascii() and after.isalpha())
    return 1.0 if near else 0.6


def refused(detail: str, hint: str = "", member: str | None = None) -> InvalidRecords:
    """The error for a file that cannot be read reliably.

    Args:
        member: the reading option that may help; each interface names it in its own terms.
    """
    flaws = () if member is None else (Flaw("reading", detail, f"/{member}", header="X-Reading"),)
    return InvalidRecords(detail, code="reading", hint=hint, flaws=flaws)


DELIMITERS = (",", ";", "\t", "|")
#: Number of characters from which the dialect is detected.
_LOOKED_AT = 128 << 10
_ROWS = 500
_MAX_COLUMNS = 512
#: Maximum characters, and lines, before an open quote must close.
MAX_OPEN, MAX_OPEN_LINES = 1 << 20, 5000
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")
_NOTHING: frozenset[int] = frozenset()
_TYPED_CELL = re.compile(
    r"[-+(]?[\d.,'\s\u00a0\u202f]+[)%-]?|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}.{0,20}"
)


class ParsedRow(NamedTuple):
    """The cells of a record: its texts, the indexes of quoted cells, and the end of the record.

    ``flaw`` describes an error in its form.
    """

    cells: list[str]
    quoted: frozenset[int]
    end: int
    flaw: str | None = None

    @property
    def is_empty(self) -> bool:
        return not any(self.cells)


@lru_cache(maxsize=64)
def _cell(delimiter: str, quote: str) -> re.Pattern[str]:
    ends = re.escape(delimiter)
    q = re.escape(quote)
    inside = rf"{q}([^{q}]*(?:{q}{q}[^{q}]*)*){q}([^{ends}\r\n]*)"
    return re.compile(rf"(?:{inside}|((?!{q})[^{ends}\r\n]*))({ends}|\r\n|\n|\r|\Z)")


def rows_of(text: str, delimiter: str, quote: str, *, final: bool) -> Iterator[ParsedRow]:
    """The records of a text, including blank lines; if the text is not final, only complete
    records.

    A quote inside a cell that does not begin with a quote is text. Line ends are CR, LF or CRLF; in
    quotes they are kept as written.

    Raises:
        TooLarge: a quote is open for too long.
    """
    if not quote or quote not in text:
        yield from _unquoted_rows(text, delimiter, final=final)
        return
    find = _cell(delimiter, quote).match
    at, size = 0, len(text)
    cells: list[str] = []
    quoted: list[int] = []
    flaw = None
    while at < size or (cells and final):
        row = None if cells else _row_of_line(text, at, delimiter, quote)
        if row is not None:
            yield row
            at = row.end
            continue
        found = find(text, at)
        if found is None:
            _check_open(text, at)
            if final:
                yield ParsedRow(
                    [*cells, text[at:]], frozenset(quoted), size, "a quote is not closed"
                )
            return
        inside, behind, bare, end = found.groups()
        at = found.end()
        if at == size and not final and end not in ("\n", delimiter):
            return  # more of it may follow
        if inside is None:
            cells.append(bare)
        else:
            quoted.append(len(cells))
            cells.append(inside.replace(quote * 2, quote) if quote in inside else inside)
            if behind.strip():
                flaw = "text after a closing quote"
        if end != delimiter:
            yield ParsedRow(cells, frozenset(quoted), at, flaw)
            cells, quoted, flaw = [], [], None


def _row_of_line(text: str, at: int, delimiter: str, quote: str) -> ParsedRow | None:
    """The row that begins at a place, if its line can simply be split: no cell is in quotes, or all
    are and no cell contains a quote."""
    end = text.find("\n", at)
    line = text[at:end].removesuffix("\r")
    if end < 0 or "\r" in line:
        return None
    if quote not in line:
        return ParsedRow(line.split(delimiter), _NOTHING, end + 1)
    cells = line[1:-1].split(quote + delimiter + quote)
    if line[0] == line[-1] == quote and line.count(quote) == 2 * len(cells):
        return ParsedRow(cells, _all_of(len(cells)), end + 1)
    return None


@lru_cache(maxsize=64)
def _all_of(count: int) -> frozenset[int]:
    return frozenset(range(count))


def _unquoted_rows(text: str, delimiter: str, *, final: bool) -> Iterator[ParsedRow]:
    """The rows of a text without quotes, line by line."""
    size = len(text)
    for found in _LINE.finditer(text):
        if found.start() == size or (not final and found.end() == size and found[2] != "\n"):
            return
        yield ParsedRow(found[1].split(delimiter), _NOTHING, found.end())


def _check_open(text: str, at: int) -> None:
    if len(text) - at > MAX_OPEN or text.count("\n", at) > MAX_OPEN_LINES:
        raise TooLarge("a quote is not closed within a MiB", hint="look for one quote too many")


def find_dialect(text: str) -> tuple[str, str]:
    """The delimiter and the quote."""
    head = text[:_LOOKED_AT]
    whole = len(head) == len(text)
    best, highest = (",", '"'), -1.0
    for delimiter in DELIMITERS:
        for quote in _quotes(head, delimiter):
            score = _score_dialect(head, delimiter, quote, whole=whole)
            if score > highest:
                best, highest = (delimiter, quote), score
    return best


def _quotes(head: str, delimiter: str) -> tuple[str, ...]:
    lines = head.splitlines()[:_ROWS]
    single = sum(1 for line in lines if line.startswith("'") or f"{delimiter}'" in line)
    return ('"', "'") if lines and single * 2 >= len(lines) and '"' not in head else ('"',)


def _score_dialect(head: str, delimiter: str, quote: str, *, whole: bool) -> float:
    rows: list[ParsedRow] = []
    try:
        for row in rows_of(head, delimiter, quote, final=whole):
            if not row.is_empty:
                rows.append(row)
            if len(rows) >= _ROWS or len(row.cells) > 4 * _MAX_COLUMNS:
                break
    except TooLarge:
        return -1.0
    if not rows:
        return 0.0
    widths = Counter(len(row.cells) for row in rows)
    width = max(widths, key=lambda candidate: (widths[candidate], candidate))
    if width < 2:
        return 0.01
    cells = [cell for row in rows for cell in row.cells]
    filled = [cell for cell in cells if cell]
    others = [character for character in (*DELIMITERS, quote) if character != delimiter]
    typed = sum(1 for cell in filled if _TYPED_CELL.fullmatch(cell.strip())) / max(len(filled), 1)
    bare = [c for row in rows for at, c in enumerate(row.cells) if at not in row.quoted]
    clean = sum(1 for c in bare if not any(other in c for other in others)) / max(len(bare), 1)
    return widths[width] / len(rows) * sqrt(1 - 1 / width) * (0.5 + typed) * (0.3 + clean)


_FILLED = 0.6
_LONG = 12
_RULED = "-=_+"
_RULE = re.compile(rf"[{_RULED}\s]{{3,}}")
_YEAR = re.compile(r"(?:19|20)[0-9]{2}")
_VALUE = re.compile(r"[-+(]?[$£€¥]?\s?\d[\d.,'\s\u00a0\u202f/:TZ+-]*[)%-]?\s?[€$%]?")
#: The first cell of a row of sums or averages, in some languages; without words that are also names
#: of departments or places, such as "media".
_TOTAL = re.compile(
    r"((grand|net|overall)[ -]|sub-?|sous-?)?total(s|e|es)?( g[eé]n[eé]rale?| geral)?"
    r"|((gesamt|zwischen|end)-?)?summe|(ins)?gesamt|sum|summa|somm[ae]|suma|(eind)?totaal|razem"
    r"|average|durchschnitt|mittelwert|moyenne|promedio|gemiddelde|średnia",
    re.IGNORECASE,
)
_HEAD_ROWS = 200


@dataclass(frozen=True, slots=True)
class Layout:
    """``header`` is its row number, from 1 on; 0 without a header. ``first`` is the index of the
    first data row. ``above`` and ``below`` are shown, and never kept."""

    width: int
    header: int
    names: tuple[str, ...]
    first: int
    above: tuple[str, ...]
    below: tuple[str, ...]


def has_no_values(cells: Sequence[str]) -> bool:
    """Whether all cells are empty, or form only a drawn line."""
    first = cells[0] if cells else ""
    if first and first[0] not in _RULED and not first[0].isspace():
        return False
    return not any(cells) or (
        all(_RULE.fullmatch(cell) for cell in cells if cell)
        and any(len(cell) >= 3 for cell in cells)
    )


def is_no_row(row: ParsedRow) -> bool:
    return has_no_values(row.cells)


def is_left_out(row: ParsedRow) -> bool:
    """Whether a nonblank row of CSV is not a record: it has only empty cells, or is only a drawn
    line."""
    return is_no_row(row) and (row.cells != [""] or bool(row.quoted))


def columns_of(
    text: str, delimiter: str, quote: str, width: int, held: int
) -> tuple[list[tuple[str, ...]], int] | None:
    """The cells by column of the complete lines of a text except the last ``held``, and the end of
    these lines. None if rows must be read singly: some are quoted, have another width, are not
    rows, or end differently."""
    text = text[: text.rfind("\n") + 1]
    ends = text.count("\n")
    mark = "\r\n" if "\r" in text else "\n"
    if ends <= held or (quote and quote in text):
        return None
    if mark == "\r\n" and not text.count("\r") == text.count(mark) == ends:
        return None
    lines = text.split(mark)[:-1]
    rows = [line.split(delimiter) for line in lines]
    if set(map(len, rows)) != {width}:
        return None
    suspects = [row for row in rows if not row[0] or row[0][0] in _RULED or row[0][0].isspace()]
    if any(map(has_no_values, suspects)):
        return None
    kept = len(rows) - held
    end = len(text) - sum(len(line) + len(mark) for line in lines[kept:])
    return list(zip(*rows[:kept], strict=True)), end


def find_layout(rows: Sequence[ParsedRow], *, whole: bool) -> Layout:
    """
    Args:
        rows: all rows of the sample, including empty rows.
        whole: whether the sample is the whole file.

    Raises:
        InvalidRecords: ``reading``; the file is empty, has too many columns, or has two tables.
    """
    real = [(at, row) for at, row in enumerate(rows) if not is_no_row(row)]
    if not real:
        raise refused("the file has no rows")
    widths = Counter(len(row.cells) for _, row in real)
    width = max(widths, key=lambda candidate: (widths[candidate], candidate))
    if max(widths) > 4 * MAX_FIELDS or width > MAX_FIELDS:
        raise refused(f"the file has more than {MAX_FIELDS} columns")
    usual = _median([_filled(row) for _, row in real if len(row.cells) == width])
    start = next(
        (
            place
            for place, (_, row) in enumerate(real[:_HEAD_ROWS])
            if _filled(row) >= max(1, _FILLED * usual) and len(row.cells) <= width
        ),
        0,
    )
    # A header without a name for the row index, as written by R, still has the table's width.
    at, head = real[start]
    data = [row for _, row in real[start + 1 :]]
    has_header = _is_header(head, data, width)
    above = tuple(_shown(row) for _, row in real[:start])
    below = _below([row for _, row in real[start + has_header :]], width) if whole else ()
    names = head.cells if has_header else []
    first = at + has_header
    return Layout(width, at + 1 if has_header else 0, tuple(names), first, above, below)


def _median(numbers: list[int]) -> int:
    return sorted(numbers)[len(numbers) // 2]


def _filled(row: ParsedRow) -> int:
    return sum(1 for cell in row.cells if cell.strip())


def _shown(row: ParsedRow) -> str:
    return " ".join(cell for cell in row.cells if cell)[:200]


def _is_header(head: ParsedRow, data: Sequence[ParsedRow], width: int) -> bool:
    if not data:
        return not any(_VALUE.fullmatch(cell) for cell in head.cells)
    cells = [cell.strip() for cell in head.cells]
    years = sum(1 for cell in cells if _YEAR.fullmatch(cell))
    if years >= 3 and years >= (len(cells) - 2):
        return True
    if any(_VALUE.fullmatch(cell) and not _YEAR.fullmatch(cell) for cell in cells if cell):
        return False
    sampled = data[:_HEAD_ROWS]
    over_typed = differs = 0
    for at, name in enumerate(cells[:width]):
        below = [row.cells[at].strip() for row in sampled if at < len(row.cells)]
        filled = [cell for cell in below if cell]
        if not filled:
            continue
        typed = sum(1 for cell in filled if _VALUE.fullmatch(cell))
        over_typed += typed >= 0.7 * len(filled)
        differs += bool(name) and name not in filled
    named = sum(1 for cell in cells if cell)
    return over_typed > 0 or (named > 0 and differs >= 0.8 * named)


def _below(rows: Sequence[ParsedRow], width: int) -> tuple[str, ...]:
    """The rows after the last complete row that do not belong to the table, as text."""
    count = count_below(rows, width)
    return tuple(_shown(row) for row in rows[len(rows) - count :])


def count_below(rows: Sequence[ParsedRow], width: int) -> int:
    """The number of last rows that look like notes or totals; 0 if all rows do."""
    count = sum(1 for _ in takewhile(lambda row: _is_note(row, width), reversed(rows)))
    return 0 if count == len(rows) else count


def _is_note(row: ParsedRow, width: int) -> bool:
    if width == 1:
        return False
    short = len(row.cells) < width
    note = _filled(row) == 1 and bool(row.cells[0]) and (short or len(row.cells[0]) > _LONG)
    return note or (short and len(row.cells) == 2 and width > 3) or _is_total(row, width)


def _is_total(row: ParsedRow, width: int) -> bool:
    """Whether the row names itself a total, and has nothing else but numbers, with a gap."""
    label, *others = filter(None, map(str.strip, row.cells)) if _filled(row) else ("",)
    return (
        _TOTAL.fullmatch(label.rstrip(" :")) is not None
        and 1 <= len(others) < width - 1
        and all(map(_VALUE.fullmatch, others))
    )


def _is_in_names(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cs")


def names_of(sources: Sequence[str], width: int) -> tuple[list[str], dict[str, str]]:
    """Field names for the columns; and for each changed name, the name in the file."""
    names: list[str] = []
    changed: dict[str, str] = {}
    taken: set[str] = set()
    for at in range(width):
        source = sources[at] if at < len(sources) else ""
        shown = "".join(
            character for character in " ".join(source.split()) if _is_in_names(character)
        )
        name = shown[:MAX_FIELD_NAME].strip() or f"column_{at + 1}"
        if name.startswith((SCHEMA_ENTRY, LEFT_OUT)):
            name = f"_{name}"[:MAX_FIELD_NAME]
        number, wanted = 2, name
        # Definitions refuse names that differ only in their normalization.
        while normalized("NFKC", name) in taken:
            suffix = f"_{number}"
            name, number = wanted[: MAX_FIELD_NAME - len(suffix)] + suffix, number + 1
        taken.add(normalized("NFKC", name))
        names.append(name)
        if name != source:
            changed[name] = source
    return names, changed

"""The dialect of a text: how its records and cells are separated."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from math import sqrt
from typing import NamedTuple

from encrypted_records.errors import TooLarge

DELIMITERS = (",", ";", "\t", "|")
#: Characters from which the dialect is told.
_LOOKED_AT = 128 << 10
_ROWS = 500
_MAX_COLUMNS = 512
#: Within so many characters, and lines, an open quote has to close.
MAX_OPEN, MAX_OPEN_LINES = 1 << 20, 5000
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")
_NOTHING: frozenset[int] = frozenset()
_TYPED = re.compile(r"[-+(]?[\d.,'\s\u00a0\u202f]+[)%-]?|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}.{0,20}")


class ParsedRow(NamedTuple):
    """The cells of a record: its texts, which of them stood in quotes, and where it ends.

    ``flaw`` is what is wrong with its form.
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
    """The records of a text, blank lines among them; of one that goes on, those that have ended.

    A quote inside a cell that does not begin with one is text. Line ends are CR, LF or CRLF; in
    quotes they are kept as they are written.

    Raises:
        TooLarge: a quote does not close where it has to.
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
    """The row that begins at a place, where its line is enough to divide it: no cell is in quotes,
    or all are and none has a quote in it."""
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
    """The same of a text without quotes, line by line."""
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
            score = _score(head, delimiter, quote, whole=whole)
            if score > highest:
                best, highest = (delimiter, quote), score
    return best


def _quotes(head: str, delimiter: str) -> tuple[str, ...]:
    lines = head.splitlines()[:_ROWS]
    single = sum(1 for line in lines if line.startswith("'") or f"{delimiter}'" in line)
    return ('"', "'") if lines and single * 2 >= len(lines) and '"' not in head else ('"',)


def _score(head: str, delimiter: str, quote: str, *, whole: bool) -> float:
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
    typed = sum(1 for cell in filled if _TYPED.fullmatch(cell.strip())) / max(len(filled), 1)
    bare = [c for row in rows for at, c in enumerate(row.cells) if at not in row.quoted]
    clean = sum(1 for c in bare if not any(other in c for other in others)) / max(len(bare), 1)
    return widths[width] / len(rows) * sqrt(1 - 1 / width) * (0.5 + typed) * (0.3 + clean)

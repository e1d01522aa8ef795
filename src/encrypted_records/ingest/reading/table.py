"""The table in a text: its header, what stands above it, what stands below its rows, its names."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from encrypted_records.ingest.reading.charset import refused
from encrypted_records.ingest.reading.dialect import ParsedRow
from encrypted_records.model.definition import MAX_FIELD_NAME, MAX_FIELDS
from encrypted_records.model.record_formats import LEFT_OUT, SCHEMA_ENTRY
from encrypted_records.model.texts import normalized

_FILLED = 0.6
_LONG = 12
_RULED = "-=_+"
_RULE = re.compile(rf"[{_RULED}\s]{{3,}}")
_YEAR = re.compile(r"(?:19|20)[0-9]{2}")
_TYPED = re.compile(r"[-+(]?[$£€¥]?\s?\d[\d.,'\s\u00a0\u202f/:TZ+-]*[)%-]?\s?[€$%]?")
_HEAD_ROWS = 200


@dataclass(frozen=True, slots=True)
class Layout:
    """``header`` is the number of its row among all, from 1 on; 0 where there is none. ``first`` is
    the index of the first data row. ``above`` and ``below`` are shown, and never kept."""

    width: int
    header: int
    names: tuple[str, ...]
    first: int
    above: tuple[str, ...]
    below: tuple[str, ...]


def has_no_values(cells: Sequence[str]) -> bool:
    """Whether cells are all empty, or only a line that is drawn."""
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
    """Whether a row of CSV is no record although it is more than a blank line: it has empty cells
    alone, or is only a line that is drawn."""
    return is_no_row(row) and (row.cells != [""] or bool(row.quoted))


def columns_of(
    text: str, delimiter: str, quote: str, width: int, held: int
) -> tuple[list[tuple[str, ...]], int] | None:
    """The cells by column of the whole lines of a text but the last ``held``, and where these
    lines end. None where rows have to be read one by one: some are in quotes, of another width, no
    rows at all, or end in different ways."""
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
        rows: all rows of the sample, empty ones among them.
        whole: whether the sample is all of the file.

    Raises:
        InvalidRecords: ``reading``; there is nothing in it, too much, or two tables.
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
    # A header without a name for the index of the rows, as R writes it, has its width all the same.
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
        return not any(_TYPED.fullmatch(cell) for cell in head.cells)
    cells = [cell.strip() for cell in head.cells]
    years = sum(1 for cell in cells if _YEAR.fullmatch(cell))
    if years >= 3 and years >= (len(cells) - 2):
        return True
    if any(_TYPED.fullmatch(cell) and not _YEAR.fullmatch(cell) for cell in cells if cell):
        return False
    sampled = data[:_HEAD_ROWS]
    over_typed = differs = 0
    for at, name in enumerate(cells[:width]):
        below = [row.cells[at].strip() for row in sampled if at < len(row.cells)]
        filled = [cell for cell in below if cell]
        if not filled:
            continue
        typed = sum(1 for cell in filled if _TYPED.fullmatch(cell))
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
    return note or (short and len(row.cells) == 2 and width > 3)


def _is_in_names(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cs")


def names_of(sources: Sequence[str], width: int) -> tuple[list[str], dict[str, str]]:
    """Names of fields for the columns; and for each name that was changed, the name in the file."""
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
        # Definitions refuse names that differ in their normalization alone.
        while normalized("NFKC", name) in taken:
            suffix = f"_{number}"
            name, number = wanted[: MAX_FIELD_NAME - len(suffix)] + suffix, number + 1
        taken.add(normalized("NFKC", name))
        names.append(name)
        if name != source:
            changed[name] = source
    return names, changed

"""The mapping of a CSV file's columns to fields. Pure.

A file is sent as it is but for its header: another first line says which field each column is of,
and which are left out. So a file of any size needs no second copy.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from encrypted_records.model import record_formats

#: Columns of a header; no schema has as many fields.
MOST_COLUMNS = 1000


@dataclass(frozen=True, slots=True)
class Heading:
    """The first line of a file: the columns' names, and its length in characters."""

    names: tuple[str, ...]
    length: int

    @property
    def json(self) -> str:
        """For a form: which file its choices are of."""
        return msgspec.json.encode(self.names).decode()


def heading_of(start: str) -> Heading | None:
    """The heading of a file with this start; None if it cannot be read."""
    lines = _Lines(start)
    try:
        names = next(csv.reader(lines, strict=True), [])
    except csv.Error:
        return None
    if names and names[-1].startswith(record_formats.SCHEMA_ENTRY):
        names.pop()
    if not any(names) or len(names) > MOST_COLUMNS:
        return None
    return Heading(tuple(names), lines.length)


class _Lines(Iterator[str]):
    """Lines of a text, and how long those are that were taken."""

    def __init__(self, text: str) -> None:
        self._text = text.removeprefix("\ufeff")
        self._skipped = len(text) - len(self._text)
        self._at = 0

    @property
    def length(self) -> int:
        return self._skipped + self._at

    def __next__(self) -> str:
        end = self._text.find("\n", self._at) + 1 or len(self._text)
        if end == self._at:
            raise StopIteration
        line, self._at = self._text[self._at : end], end
        return line


def propose(names: Sequence[str], fields: Collection[str]) -> list[str]:
    """The field of each column, empty where none suggests itself: that of the same name, or else of
    the same letters and digits. A field is proposed once."""
    proposed = [name if name in fields else "" for name in names]
    proposed = [name if name not in proposed[:at] else "" for at, name in enumerate(proposed)]
    by_letters: dict[str, str] = {}
    for field in fields:
        if field not in proposed:
            by_letters.setdefault(_letters(field), field)
    for at, name in enumerate(names):
        if not proposed[at] and _letters(name):
            proposed[at] = by_letters.pop(_letters(name), "")
    return proposed


def _letters(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def chosen(form: Mapping[str, str], heading: Heading, fields: Collection[str]) -> list[str] | None:
    """The form's choice of fields for these columns, empty for columns that are left out; None if
    the form is for another file, or has no choice.
    """
    if form.get("heading") != heading.json:
        return None
    picked = [form.get(f"column-{at}", "") for at in range(len(heading.names))]
    return [name if name in fields else "" for name in picked]


def header_line(fields: Sequence[str]) -> str:
    """The header of a file whose columns are of these fields, empty for those that are left out;
    with its line end."""
    names = [name or f"{record_formats.LEFT_OUT}{number}" for number, name in enumerate(fields, 1)]
    return record_formats.csv_line(names).decode()


def with_header(text: str, heading: Heading, fields: Sequence[str]) -> str:
    """The text of a file under another header."""
    return header_line(fields) + text[heading.length :]

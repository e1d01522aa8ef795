"""Values as lines of CSV (RFC 4180), in the form that batch uploads read.

An absent value is an empty cell, an empty text is ``""``; the standard library's writer cannot tell
them apart. If spreadsheets will open the file, texts that one would run as a formula get an
apostrophe before them, by the rules of OWASP ("CSV Injection"); such a file differs from the
records.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from encrypted_records.model.definition import Value

#: How the last entry of a header names the schema.
SCHEMA_ENTRY = "schema_id:"
#: How the header names a column that is not read, whatever follows.
LEFT_OUT = "leave_out:"
#: What begins a formula, also in the full width of East Asian writing.
_SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20"
#: Some programs drop these first and see a formula after them.
_BLANKS = "\\t\\r\\n\\0"
#: The start of a text, or the text after a character that ends a cell for another program, or for
#: the same one in another country. There, quotes can begin a cell as well.
_FORMULA = re.compile(rf'\A(?=[{_SIGNS}{_BLANKS}])|(?<=[,;|\t\r\n])("*)(?=[{_SIGNS}])')


@dataclass(frozen=True, slots=True)
class CsvColumns:
    """The columns of a file of records: one per name, and as many cells in each line.

    Args:
        safe: whether texts are changed so that no spreadsheet runs one.
        spare: whether an empty column follows. Readers skip an empty line, which a record without
            the only field would be.
    """

    names: Sequence[str]
    safe: bool = False
    spare: bool = False

    @classmethod
    def of(cls, names: Sequence[str], required: Collection[str], *, safe: bool) -> CsvColumns:
        """The columns among ``names``; of these, records have the ``required`` ones."""
        return cls(names, safe, spare=len(names) == 1 and names[0] not in required)

    def header(self, schema: str | None = None) -> bytes:
        """The first line.

        Args:
            schema: an id, which becomes the last entry and has no column below it.
        """
        last = [LEFT_OUT] if self.spare else []
        if schema is not None:
            last = [f"{SCHEMA_ENTRY}{schema}"]
        return line([*self.names, *last], safe=self.safe)

    def record(self, data: Mapping[str, Value]) -> bytes:
        """A record's line; absent fields are left out of ``data``."""
        cells = [data.get(name) for name in self.names]
        return line([*cells, None] if self.spare else cells, safe=self.safe)


def line(cells: Iterable[Value], *, safe: bool = False) -> bytes:
    """One CSV line, with its line end.

    Args:
        safe: whether texts are changed so that spreadsheets do not execute them as formulas.
    """
    return (",".join(cell(value, safe=safe) for value in cells) + "\r\n").encode()


def cell(value: Value, *, safe: bool = False) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        # A number has no sign that could be anything else, and stays one.
        return format(value, "f") if isinstance(value, Decimal) else str(value)
    if safe:
        return _quoted(guard(value))
    if value and not any(mark in value for mark in '",\r\n'):
        return value
    return _quoted(value)


def guard(text: str) -> str:
    """A text that no spreadsheet runs as a formula."""
    return _FORMULA.sub(r"\1'", text)


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'

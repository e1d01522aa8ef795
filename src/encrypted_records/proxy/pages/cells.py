"""Rows of a table of records, as HTML. A page has some hundred cells: a template takes many times
as long."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from markupsafe import Markup

from encrypted_records.model import strict_json
from encrypted_records.model.field_types import BY_NAME
from encrypted_records.proxy.pages.column_heads import ColumnHead, quote_attribute
from encrypted_records.proxy.pages.formatting import reveal, write_digits
from encrypted_records.proxy.pages.sealed_values import SealedValue, SealedValues

_MISSING = "<span class=missing title=missing>\N{EN DASH}</span>"
#: Fields that a record's card has on a phone; each says its name there.
CARD_FIELDS = 4
#: Names of the ticks of rows, in the form of the ticked ones.
TICK = re.compile(r"t[0-9]{1,2}")
_PRINT_BYTES = 6


@dataclass(frozen=True, slots=True)
class Links:
    """Link targets of rows: below ``at``, with ``query`` after a record's URL."""

    at: str
    query: str


def fingerprint(data: Mapping[str, Any]) -> str:
    """A short text that is another one when a record's values are others than those shown. It is
    in the page that shows them, and nowhere else."""
    whole = strict_json.encode_sorted(data)
    return hashlib.blake2b(whole, digest_size=_PRINT_BYTES).hexdigest()


def write_rows(
    records: Sequence[Mapping[str, Any]],
    columns: Sequence[ColumnHead],
    sealed: SealedValues,
    links: Links,
    first: int,
) -> Markup:
    """A row for each record: its number, which leads to it, and its fields.

    Args:
        records: as a search answers them, with ``id`` and ``data``.
        columns: the fields that are shown, in order.
        sealed: values as the server has them, which are shown below; empty to show none.
        first: the number of the first record.
    """
    writers = [_Writer(column, place) for place, column in enumerate(columns)]
    cells = [(cell.name, cell.is_text, cell.start, cell.end, cell) for cell in writers]
    texts = [cell.name for cell in writers if cell.is_text]
    at, query = escape(links.at), escape(links.query)
    parts: list[str] = []
    for place, record in enumerate(records):
        number = first + place
        identifier = escape(record["id"])
        data, hidden = record["data"], sealed.get(record["id"])
        parts.append(
            f"<tr><td><input type=checkbox form=ticked name=t{place}"
            f' value={identifier}.{fingerprint(data)} aria-label="Tick {number}">'
            f' <a href="{at}{identifier}/{query}" id=open-{place + 1}'
            f' aria-label="Record {number}">{number}</a>'
        )
        # Asked once for each record: most have no value that needs more.
        is_plain = _is_plain("".join([data.get(name) or "" for name in texts]))
        for name, is_text, start, end, writer in cells:
            value = data.get(name)
            if value is None:
                parts.append(writer.missing)
            elif not is_text:
                parts.append(start + write_digits(value))
            elif is_plain:
                parts.append(start + value + end)
            else:
                parts.append(writer.write(value))
            if hidden and name in hidden:
                parts.append(_write_sealed(hidden[name]))
        parts.append("\n")  # HTML needs no ends of cells and rows, nor quotes around a word
    return Markup("".join(parts))  # noqa: S704 - each value was escaped


class _Writer:
    """Writes the cells of a column. A value of a list is a chip (``b``)."""

    def __init__(self, column: ColumnHead, place: int) -> None:
        kind = BY_NAME[column.type]
        named = quote_attribute(column.name)
        # Names of a letter: each stands in the page some hundred times.
        label = f" data-f={named}" if place < CARD_FIELDS else ""
        cell = f"<td class=n{label}>" if kind.is_number else f"<td{label}>"
        is_chip = column.is_listed and kind.is_text
        self.name = column.name
        self.is_text = kind.is_text
        self.missing = cell + _MISSING
        self.start, self.end = (f"{cell}<b>", "</b>") if is_chip else (cell, "")

    def write(self, value: str) -> str:
        """Write the cell of any text, which shows its own direction unless it is of ASCII."""
        # Between tags a quote is a letter like others.
        text = escape(value, quote=False) if value.isprintable() else reveal(value)
        if value.isascii():
            return f"{self.start}{text}{self.end}"
        return f"<td dir=auto{self.start.removeprefix('<td')}{text}{self.end}"


def _is_plain(text: str) -> bool:
    """Whether this is the same in HTML, and runs in the direction of the page."""
    return text.isascii() and text.isprintable() and not ("<" in text or "&" in text or ">" in text)


def _write_sealed(value: SealedValue) -> str:
    # The style sheet adds the unit.
    return f"<i>{escape(value.start)}… {value.size}</i>"

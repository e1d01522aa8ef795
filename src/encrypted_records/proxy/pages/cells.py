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

from encrypted_records.model import json_text
from encrypted_records.model.field_types import BY_NAME
from encrypted_records.proxy.pages.column_heads import ColumnHead
from encrypted_records.proxy.pages.formatting import reveal, write_digits
from encrypted_records.proxy.pages.sealed_values import SealedValue, SealedValues

_MISSING = "<span class=missing title=missing>\N{EN DASH}</span>"
#: Fields that a record's card has on a phone; each says its name there.
CARD_FIELDS = 4
#: Names of the ticks of rows, in the form of the ticked ones.
TICK = re.compile(r"t[0-9]{1,2}")
_PRINT_BYTES = 6
#: Names that HTML takes without quotes.
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Links:
    """Link targets of rows: below ``at``, with ``query`` after a record's URL."""

    at: str
    query: str


def fingerprint(data: Mapping[str, Any]) -> str:
    """A short text that is another one when a record's values are others than those shown. It is
    in the page that shows them, and nowhere else."""
    whole = json_text.encode(sorted(data.items()))
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
    starts = [
        (column.name, BY_NAME[column.type].is_text, *_starts(column, place))
        for place, column in enumerate(columns)
    ]
    at, query = escape(links.at), escape(links.query)
    parts: list[str] = []
    for place, record in enumerate(records):
        number = first + place
        identifier = escape(record["id"])
        shown = fingerprint(record["data"])
        parts.append(
            f"<tr><td><input type=checkbox form=ticked name=t{place} value={identifier}.{shown}"
            f' aria-label="Tick {number}">'
            f' <a href="{at}{identifier}/{query}" id=open-{place + 1}'
            f' aria-label="Record {number}">{number}</a>'
        )
        data, hidden = record["data"], sealed.get(record["id"], {})
        for name, is_text, start, other_start in starts:
            value = data.get(name)
            if value is None:
                parts += (start, _MISSING)
            elif is_text:
                # Letters of ASCII run in the direction of the page.
                parts.append(start if value.isascii() else other_start)
                # Between tags a quote is a letter like others.
                text = escape(value, quote=False) if value.isprintable() else reveal(value)
                parts.append(text)
            else:
                parts += (start, write_digits(value))
            if name in hidden:
                parts.append(_write_sealed(hidden[name]))
        parts.append("\n")  # HTML needs no ends of cells and rows, nor quotes around a word
    return Markup("".join(parts))  # noqa: S704 - each value was escaped


def _starts(column: ColumnHead, place: int) -> tuple[str, str]:
    """How a cell begins, and one whose text shows its own direction."""
    named = column.name if _PLAIN.fullmatch(column.name) else f'"{escape(column.name)}"'
    label = f" data-label={named}" if place < CARD_FIELDS else ""
    kind = BY_NAME[column.type]
    if kind.is_text:
        return f"<td{label}>", f"<td dir=auto{label}>"
    return f"<td class=number{label}>" if kind.is_number else f"<td{label}>", ""


def _write_sealed(value: SealedValue) -> str:
    return f"<i>{escape(value.start)}… {value.size} B</i>"

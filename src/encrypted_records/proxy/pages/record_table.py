"""The table of records as HTML: heads, rows, and the stored bytes next to the plaintext.

A page has some hundred cells, and a schema may have hundreds of fields: a template would take many
times as long. Heads have titles, menus and the frames of pictures.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from markupsafe import Markup

from encrypted_records.errors import NotFound
from encrypted_records.model import strict_json
from encrypted_records.model.field_types import BY_NAME
from encrypted_records.proxy.pages.formatting import reveal, write_digits
from encrypted_records.proxy.pages.page import Visit
from encrypted_records.proxy.pages.search_form import Question

# --- the server's view: stored bytes of records ---------------------------------------------------

#: Bytes of an encrypted value that are shown.
START_BYTES = 4


@dataclass(frozen=True, slots=True)
class SealedValue:
    """``start`` has its first bytes in hex, ``size`` is in bytes."""

    start: str
    size: int


#: By record and field.
SealedValues = dict[str, dict[str, SealedValue]]


async def fetch_sealed(visit: Visit, ids: Sequence[str]) -> SealedValues:
    """The real stored bytes, which this proxy has fetched and decrypted for the same answer.

    A missing field is encrypted as well: the server cannot tell the difference.
    """
    if not ids:
        return {}
    records = await visit.ask("POST", "/api/records/sealed/", {"ids": list(ids)})
    return {
        record["id"]: {
            name: _describe(base64.b64decode(text)) for name, text in record["fields"].items()
        }
        for record in records
    }


@dataclass(frozen=True, slots=True)
class OpenRecord:
    """The current state of a record."""

    version: int
    content: dict[str, Any] = field(repr=False)

    @property
    def data(self) -> dict[str, Any]:
        data: dict[str, Any] = self.content["data"]
        return data


async def open_records(visit: Visit, ids: Sequence[str]) -> dict[str, OpenRecord]:
    """The current state of these records by id, decrypted; without deleted records."""
    if not ids:
        return {}
    try:
        sealed = await visit.ask("POST", "/api/records/sealed/", {"ids": list(ids)})
    except NotFound:
        if len(ids) == 1:
            return {}
        each = [await open_records(visit, [record_id]) for record_id in ids]
        return {name: record for found in each for name, record in found.items()}
    opened = await visit.ask("POST", "/api/records/decrypt/", sealed)
    return {
        shown["id"]: OpenRecord(int(stored["version"]), shown)
        for stored, shown in zip(sealed, opened, strict=True)
    }


def _describe(sealed: bytes) -> SealedValue:
    return SealedValue(sealed[:START_BYTES].hex(), len(sealed))


# --- heads of columns -----------------------------------------------------------------------------

#: Texts that HTML allows without quotes.
_PLAIN = re.compile(r"[A-Za-z0-9_:-]+")


@dataclass(frozen=True, slots=True)
class ColumnHead:
    """A field of the schema; ``position`` is its place among all fields, ``is_listed`` whether the
    definition lists its values."""

    name: str
    type: str
    position: int
    is_listed: bool


def columns_of(
    definition: Mapping[str, Any], types: Mapping[str, str], hidden: Collection[str] = ()
) -> list[ColumnHead]:
    """The fields of a schema, by name and type, without the hidden fields."""
    specs = definition["properties"]
    return [
        ColumnHead(name, kind, at, "enum" in specs[name] or "const" in specs[name])
        for at, (name, kind) in enumerate(types.items())
        if name not in hidden
    ]


def quote_attribute(text: str) -> str:
    """An attribute's value, in quotes if it needs them."""
    return text if _PLAIN.fullmatch(text) else f'"{escape(text)}"'


def write_heads(columns: Sequence[ColumnHead], question: Question) -> Markup:
    """A ``th`` per field: a button that sorts, and a button that opens the menu."""
    parts: list[str] = []
    for column in columns:
        named, at = escape(column.name), column.position
        number = " class=number" if BY_NAME[column.type].is_number else ""
        sorts, arrow = "", ""
        if question.order == column.name:
            way, sign = ("descending", "▼") if question.descending else ("ascending", "▲")
            sorts = f' aria-sort="{way}"'
            arrow = f' <span aria-hidden="true">{sign}</span>'
        parts.append(
            f"<th scope=col{number}{sorts}><span class=head>"
            f"<button name=do value={quote_attribute(f'sort:{column.name}')} id=sort-{at}>"
            f"<bdi>{reveal(column.name)}</bdi>{arrow}</button>"
            f"<button type=button id=more-{at} popovertarget=menu-{at}"
            f' aria-label="Menu of {named}">⋮</button></span></th>\n'
        )
    return Markup("".join(parts))  # noqa: S704 - each name was escaped


def write_menus(columns: Sequence[ColumnHead], look: str) -> Markup:
    """The menus of the heads; ``look`` is the address of the page with all pictures."""
    last = " disabled" if len(columns) < 2 else ""
    parts: list[str] = []
    for column in columns:
        at = column.position
        up, down, filters, hides = (
            quote_attribute(f"{way}:{column.name}") for way in ("up", "down", "filter", "hide")
        )
        parts.append(
            f"<div popover id=menu-{at} class=menu role=group"
            f" aria-label={quote_attribute(column.name)}>"
            f"<button name=do value={up}>Sort ascending</button>"
            f"<button name=do value={down}>Sort descending</button>"
            f"<button name=do value={filters}>Filter by this</button>"
            f"<button name=do value={hides}{last}>Hide</button>"
            f'<a class=button href="{escape(look)}#field-{at}">Statistics</a></div>\n'
        )
    return Markup("".join(parts))  # noqa: S704 - as above


def write_facets(heads: Sequence[ColumnHead], schema: str) -> Markup:
    """The frames of the small pictures, which a script loads from addresses below ``schema``."""
    parts: list[str] = []
    for head in heads:
        at, shown = head.position, reveal(head.name)
        parts.append(
            f"<section id=facet-{at}><h2><bdi>{shown}</bdi></h2>"
            f"<div data-facet={escape(schema)}facet/{at}/></div></section>\n"
        )
    return Markup("".join(parts))  # noqa: S704 - as above


# --- rows -----------------------------------------------------------------------------------------

_MISSING = "<span class=missing title=missing>\N{EN DASH}</span>"
#: Maximum fields on a record's card on a phone; each has its name there.
CARD_FIELDS = 4
#: Names of the rows' checkboxes, in the form of ticked records.
TICK = re.compile(r"t[0-9]{1,2}")
_PRINT_BYTES = 6


@dataclass(frozen=True, slots=True)
class Links:
    """Link targets of rows: below ``at``, with ``query`` after a record's URL."""

    at: str
    query: str


def fingerprint(data: Mapping[str, Any]) -> str:
    """A short text that changes if a record's values change. It is only in the page that shows the
    values.
    """
    encoded = strict_json.encode_sorted(data)
    return hashlib.blake2b(encoded, digest_size=_PRINT_BYTES).hexdigest()


def write_rows(
    records: Sequence[Mapping[str, Any]],
    columns: Sequence[ColumnHead],
    sealed: SealedValues,
    links: Links,
    first: int,
) -> Markup:
    """A row for each record: its number, which is a link to it, and its fields.

    Args:
        records: as a search returns them, with ``id`` and ``data``.
        columns: the fields that are shown, in order.
        sealed: values as stored at the server, which are shown below; empty to show none.
        first: the number of the first record.
    """
    writers = [_CellWriter(column, place) for place, column in enumerate(columns)]
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
        # One check per record: most records have no value that needs escaping.
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


class _CellWriter:
    """Writes the cells of a column. A value of a list is a chip (``b``)."""

    def __init__(self, column: ColumnHead, place: int) -> None:
        kind = BY_NAME[column.type]
        named = quote_attribute(column.name)
        # Attribute names of one letter: each occurs some hundred times in a page.
        label = f" data-f={named}" if place < CARD_FIELDS else ""
        cell = f"<td class=n{label}>" if kind.is_number else f"<td{label}>"
        is_chip = column.is_listed and kind.is_text
        self.name = column.name
        self.is_text = kind.is_text
        self.missing = cell + _MISSING
        self.start, self.end = (f"{cell}<b>", "</b>") if is_chip else (cell, "")

    def write(self, value: str) -> str:
        """Write the cell of any text, with its own direction unless it is ASCII."""
        # Between tags, quotes need no escaping.
        text = escape(value, quote=False) if value.isprintable() else reveal(value)
        if value.isascii():
            return f"{self.start}{text}{self.end}"
        return f"<td dir=auto{self.start.removeprefix('<td')}{text}{self.end}"


def _is_plain(text: str) -> bool:
    """Whether the text is the same in HTML, and has the page's direction."""
    return text.isascii() and text.isprintable() and not ("<" in text or "&" in text or ">" in text)


def _write_sealed(value: SealedValue) -> str:
    # The style sheet adds the unit.
    return f"<i>{escape(value.start)}… {value.size}</i>"

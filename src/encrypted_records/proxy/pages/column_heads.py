"""Column heads of the records page as HTML: titles, menus, frames of pictures.

As for rows (:mod:`.cells`), a template would take many times as long, and a schema may have
hundreds of fields.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from markupsafe import Markup

from encrypted_records.model.field_types import BY_NAME
from encrypted_records.proxy.pages.formatting import reveal
from encrypted_records.proxy.pages.search_form import Question

#: Texts that HTML takes without quotes.
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
    """The fields of a schema, by name and type, but for those that are hidden."""
    specs = definition["properties"]
    return [
        ColumnHead(name, kind, at, "enum" in specs[name] or "const" in specs[name])
        for at, (name, kind) in enumerate(types.items())
        if name not in hidden
    ]


def quote_attribute(text: str) -> str:
    """An attribute's value, in quotes where it needs them."""
    return text if _PLAIN.fullmatch(text) else f'"{escape(text)}"'


def write_heads(columns: Sequence[ColumnHead], question: Question) -> Markup:
    """A ``th`` each: a button that sorts, and one that opens the menu."""
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
    """The menus that the heads open; ``look`` is the address of the page with all pictures."""
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


def write_facets(fields: Sequence[ColumnHead], schema: str) -> Markup:
    """The places of the small pictures, which a script fills from addresses below ``schema``."""
    parts: list[str] = []
    for field in fields:
        at, shown = field.position, reveal(field.name)
        parts.append(
            f"<section id=facet-{at}><h2><bdi>{shown}</bdi></h2>"
            f"<div data-facet={escape(schema)}facet/{at}/></div></section>\n"
        )
    return Markup("".join(parts))  # noqa: S704 - as above

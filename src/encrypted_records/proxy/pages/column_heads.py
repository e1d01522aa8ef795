"""Column heads of the records page as HTML: titles, menus, frames of pictures.

As for rows (:mod:`.cells`), a template would take many times as long, and a schema may have
hundreds of fields.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

from encrypted_records.model.field_types import BY_NAME
from encrypted_records.proxy.pages.formatting import reveal
from encrypted_records.proxy.pages.search_form import Question


@dataclass(frozen=True, slots=True)
class ColumnHead:
    """A field of the schema; ``position`` is its place among all fields."""

    name: str
    type: str
    position: int


def columns_of(types: Mapping[str, str], hidden: Collection[str] = ()) -> list[ColumnHead]:
    """The fields of a schema, by name and type, but for those that are hidden."""
    fields = [ColumnHead(name, kind, at) for at, (name, kind) in enumerate(types.items())]
    return [field for field in fields if field.name not in hidden]


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
            f'<button name=do value="sort:{named}" id=sort-{at}>'
            f"<bdi>{reveal(column.name)}</bdi>{arrow}</button>"
            f"<button type=button class=more id=more-{at} popovertarget=menu-{at}"
            f' aria-label="Menu of {named}">⋮</button></span></th>\n'
        )
    return Markup("".join(parts))  # noqa: S704 - each name was escaped


def write_menus(columns: Sequence[ColumnHead], look: str) -> Markup:
    """The menus that the heads open; ``look`` is the address of the page with all pictures."""
    last = " disabled" if len(columns) < 2 else ""
    parts: list[str] = []
    for column in columns:
        named, at = escape(column.name), column.position
        parts.append(
            f'<div popover id=menu-{at} class=menu role=group aria-label="{named}">'
            f'<button name=do value="up:{named}">Sort ascending</button>'
            f'<button name=do value="down:{named}">Sort descending</button>'
            f'<button name=do value="filter:{named}">Filter by this</button>'
            f'<button name=do value="hide:{named}"{last}>Hide</button>'
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

"""A search: which records, in which order, and how much of them.

The grammar of its conditions is in :mod:`.condition_parser`, their meaning in :mod:`.predicates`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from encrypted_records.model.condition_parser import Conditions, invalid_query
from encrypted_records.model.definition import MAX_FIELDS, SchemaDefinition
from encrypted_records.model.joins import Joins
from encrypted_records.model.predicates import Predicate
from encrypted_records.model.strict_json import escape_pointer

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_ORDER_FIELDS = 8
#: What is left out has to be found, too: further on, only the cursor leads.
MAX_OFFSET = 10_000


_MEMBERS = frozenset(
    {"schema", "where", "filters", "order_by", "fields", "limit", "offset", "cursor", "count"}
)


#: The members that a cursor belongs to; the others may differ from page to page.
_QUESTION = ("filters", "order_by", "where")
_encode_sorted = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


@dataclass(frozen=True, slots=True)
class SortKey:
    """Sort by a field's values; records without one come first, or last when descending."""

    field: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Rank:
    """Sort by a field's values, with the records without one first or last, as SQL can say."""

    key: SortKey
    absent_first: bool


@dataclass(frozen=True, slots=True)
class Query:
    """A valid search. ``fields`` None means all; ``offset`` is how many records are left out first.

    Records with equal sort keys are in the order in which they were stored.
    """

    where: Predicate
    order: tuple[SortKey, ...]
    fields: tuple[str, ...] | None
    limit: int
    cursor: str | None
    count: bool
    offset: int = 0
    #: SHA-256 of what decides which records there are, and in which order
    question: bytes = field(default=b"", compare=False)


def parse_query(
    body: Mapping[str, Any], definition: SchemaDefinition, joins: Joins | None = None
) -> Query:
    """Read a search request (its ``schema`` is the caller's business).

    Args:
        joins: as for :class:`Conditions`.

    Raises:
        InvalidQuery: with a pointer to the error.
    """
    refuse_unknown(body, _MEMBERS)
    conditions = Conditions(definition, joins)
    where = conditions.read(body)
    count = body.get("count", False)
    if not isinstance(count, bool):
        raise invalid_query("type", "expected true or false", "/count")
    cursor = body.get("cursor")
    if cursor is not None and not isinstance(cursor, str):
        raise invalid_query(
            "type", "expected the next_cursor of an earlier answer, or null", "/cursor"
        )
    offset = _offset(body.get("offset", 0))
    if offset and cursor is not None:
        raise invalid_query(
            "offset", "cannot be used with a cursor, which contains the position itself", "/offset"
        )
    return Query(
        offset=offset,
        where=where,
        order=parse_order(body.get("order_by"), conditions),
        fields=parse_fields(body.get("fields"), conditions),
        limit=whole_number(body.get("limit", DEFAULT_LIMIT), "/limit", 0, MAX_LIMIT),
        cursor=cursor,
        count=count,
        question=_digest_of({name: body[name] for name in _QUESTION if body.get(name)}),
    )


def _digest_of(question: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(_encode_sorted(question)).digest()


def _offset(number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_OFFSET:
        detail = f"expected an integer from 0 to {MAX_OFFSET}; next_cursor leads further"
        raise invalid_query("offset", detail, "/offset")
    return number


def refuse_unknown(body: Mapping[str, Any], known: Collection[str], pointer: str = "") -> None:
    """Refuse unknown members: ignoring one would answer another question than was asked."""
    for name in body:
        if name not in known:
            detail = f"there is no such member; there are {', '.join(sorted(known))}"
            raise invalid_query("unknown_member", detail, f"{pointer}/{escape_pointer(name)}")


def whole_number(number: Any, pointer: str, least: int, most: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise invalid_query("limit", f"expected an integer from {least} to {most}", pointer)
    return number


def parse_fields(names: Any, conditions: Conditions) -> tuple[str, ...] | None:
    if names is None:
        return None
    if not isinstance(names, list) or len(names) > MAX_FIELDS:
        raise invalid_query(
            "type", f"expected an array of up to {MAX_FIELDS} field names", "/fields"
        )
    for position, name in enumerate(names):
        conditions.spec(name, f"/fields/{position}")
    return tuple(names)


def parse_order(entries: Any, conditions: Conditions) -> tuple[SortKey, ...]:
    """``["-age", "name"]``; ``{"field", "descending"}`` also works for a field named "-age"."""
    if entries is None:
        return ()
    if not isinstance(entries, list) or len(entries) > MAX_ORDER_FIELDS:
        expected = f'expected an array of up to {MAX_ORDER_FIELDS} field names, "-" before each'
        raise invalid_query("type", f"{expected} to sort descending", "/order_by")
    order: list[SortKey] = []
    for position, entry in enumerate(entries):
        pointer = f"/order_by/{position}"
        asked = entry
        if isinstance(entry, str):
            asked = {"field": entry.removeprefix("-"), "descending": entry.startswith("-")}
        if not isinstance(asked, dict) or not isinstance(asked.get("descending", False), bool):
            raise invalid_query("type", "expected a field name, or field and descending", pointer)
        refuse_unknown(asked, {"field", "descending"}, pointer)
        spec = conditions.spec(asked.get("field"), pointer)
        if any(spec.name == other.field for other in order):
            raise invalid_query("order_by", "the field is named twice", pointer)
        order.append(SortKey(spec.name, asked.get("descending", False)))
    return tuple(order)


def parse_ranking(entries: Any, conditions: Conditions) -> tuple[Rank, ...]:
    """As :func:`parse_order`; an entry that is an object may have ``nulls``, ``first`` or
    ``last``."""
    plain: Any = entries
    said: list[Any] = []
    if isinstance(entries, list):
        plain = [
            {name: value for name, value in entry.items() if name != "nulls"}
            if isinstance(entry, dict)
            else entry
            for entry in entries
        ]
        said = [entry.get("nulls") if isinstance(entry, dict) else None for entry in entries]
    ranks: list[Rank] = []
    for position, key in enumerate(parse_order(plain, conditions)):
        nulls = said[position]
        if nulls not in (None, "first", "last"):
            raise invalid_query("type", 'expected "first" or "last"', f"/order_by/{position}/nulls")
        ranks.append(Rank(key, not key.descending if nulls is None else nulls == "first"))
    return tuple(ranks)

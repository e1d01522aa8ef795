"""A search: which records, in which order, and how much of them.

The grammar of its conditions is in :mod:`.conditions`, their meaning in :mod:`.predicates`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from encrypted_records.model.conditions import Conditions, flaw
from encrypted_records.model.definition import MAX_FIELDS, SchemaDefinition
from encrypted_records.model.definition_parser import escape_pointer
from encrypted_records.model.predicates import Predicate

DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_ORDER_FIELDS = 8


@dataclass(frozen=True, slots=True)
class Order:
    """Sort by a field's values; records without one come first, or last when descending."""

    field: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A search with everything checked. ``fields`` None means all.

    Records that ``order`` does not tell apart come in the order in which they were stored.
    """

    where: Predicate
    order: tuple[Order, ...]
    fields: tuple[str, ...] | None
    limit: int
    cursor: str | None
    count: bool


def parse_query(body: Mapping[str, Any], definition: SchemaDefinition) -> Query:
    """Read a search request (its ``schema`` is the caller's business).

    Raises:
        InvalidQuery: with a pointer to what cannot be asked.
    """
    refuse_unknown(
        body, {"schema", "where", "filters", "order_by", "fields", "limit", "cursor", "count"}
    )
    conditions = Conditions(definition)
    where = conditions.read(body)
    count = body.get("count", False)
    if not isinstance(count, bool):
        raise flaw("type", "expected true or false", "/count")
    cursor = body.get("cursor")
    if cursor is not None and not isinstance(cursor, str):
        raise flaw("type", "expected the next_cursor of an earlier answer, or null", "/cursor")
    return Query(
        where=where,
        order=parse_order(body.get("order_by"), conditions),
        fields=parse_fields(body.get("fields"), conditions),
        limit=whole_number(body.get("limit", DEFAULT_LIMIT), "/limit", 0, MAX_LIMIT),
        cursor=cursor,
        count=count,
    )


def refuse_unknown(body: Mapping[str, Any], known: Collection[str], pointer: str = "") -> None:
    """A member that nobody reads would be a question that is answered wrongly."""
    for name in body:
        if name not in known:
            detail = f"there is no such member; there are {', '.join(sorted(known))}"
            raise flaw("unknown_member", detail, f"{pointer}/{escape_pointer(name)}")


def whole_number(found: Any, pointer: str, least: int, most: int) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise flaw("limit", f"expected an integer from {least} to {most}", pointer)
    return found


def parse_fields(found: Any, conditions: Conditions) -> tuple[str, ...] | None:
    if found is None:
        return None
    if not isinstance(found, list) or len(found) > MAX_FIELDS:
        raise flaw("type", f"expected an array of up to {MAX_FIELDS} field names", "/fields")
    for position, name in enumerate(found):
        conditions.spec(name, f"/fields/{position}")
    return tuple(found)


def parse_order(found: Any, conditions: Conditions) -> tuple[Order, ...]:
    """``["-age", "name"]``; ``{"field", "descending"}`` also says it of a field named "-age"."""
    if found is None:
        return ()
    if not isinstance(found, list) or len(found) > MAX_ORDER_FIELDS:
        expected = f'expected an array of up to {MAX_ORDER_FIELDS} field names, "-" before each'
        raise flaw("type", f"{expected} that is to descend", "/order_by")
    order: list[Order] = []
    for position, entry in enumerate(found):
        pointer = f"/order_by/{position}"
        asked = entry
        if isinstance(entry, str):
            asked = {"field": entry.removeprefix("-"), "descending": entry.startswith("-")}
        if not isinstance(asked, dict) or not isinstance(asked.get("descending", False), bool):
            raise flaw("type", "expected a field name, or field and descending", pointer)
        refuse_unknown(asked, {"field", "descending"}, pointer)
        spec = conditions.spec(asked.get("field"), pointer)
        if any(spec.name == other.field for other in order):
            raise flaw("order_by", "the field is named twice", pointer)
        order.append(Order(spec.name, asked.get("descending", False)))
    return tuple(order)

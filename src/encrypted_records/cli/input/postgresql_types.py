"""Map column types of PostgreSQL to field types of definitions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, LiteralString

from encrypted_records.model import field_types
from encrypted_records.model.field_types import TYPES

_WHOLE = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63}
_FLOATING = ("real", "double precision")
TEXTS = ("text", "character varying")
#: What a key can be of: its order is then the same here and there.
KEYS: tuple[LiteralString, ...] = (
    *("smallint", "integer", "bigint", "numeric"),
    *("text", "character varying", "uuid"),
)
_ARGUMENTS = re.compile(r"\(([0-9]+)(?:,(-?[0-9]+))?\)")
#: Types whose columns become fields of one type, whatever their values are.
_DECLARED = {name: kind for kind in TYPES for name in kind.sql.names}
#: Decimals of numbers that are declared without any.
_DECIMALS = 9
_PADDED = 63
_JSON = ("json", "jsonb")
_EXTREMES: tuple[LiteralString, ...] = ("min({0})", "max({0})")
_FINITE: LiteralString = (
    "nullif(nullif(nullif({0}::text, 'NaN'), 'Infinity'), '-Infinity')::numeric"
)


@dataclass(frozen=True)
class TableColumn:
    """
    Attributes:
        kind: PostgreSQL's name of its type, without length or precision, which are ``size`` and
            ``scale``.
        longest: bytes of the longest label of an enum.
    """

    name: str
    kind: str
    required: bool
    size: int | None = None
    scale: int = 0
    longest: int | None = None

    @property
    def is_list(self) -> bool:
        return self.kind.endswith("[]")

    @property
    def shown(self) -> LiteralString:
        """The SQL expression for its values; ``{0}`` is the column."""
        if self.kind in (*_WHOLE, *_FLOATING, "numeric"):
            return "{0}"
        if self.kind == "money":
            return "{0}::numeric"
        if self.kind in _DECLARED:
            return _DECLARED[self.kind].sql.shown
        return "to_json({0})::text" if self.is_list else "{0}::text"


def column_of(name: str, declared: str, *, required: bool, longest: int | None) -> TableColumn:
    """
    Args:
        declared: its type as ``format_type`` has it: ``numeric(12,2)``, ``timestamp(3) with time
            zone``.
    """
    kind = _ARGUMENTS.sub("", declared, count=1)
    found = _ARGUMENTS.search(declared)
    if found is None:
        return TableColumn(name, kind, required, longest=longest)
    return TableColumn(name, kind, required, int(found[1]), int(found[2] or 0), longest)


def measures_of(column: TableColumn) -> tuple[LiteralString, ...]:
    """SQL expressions for properties of a column's values beyond its type; ``{0}`` is the
    column.
    """
    if column.kind in _FLOATING or (column.kind == "numeric" and column.size is None):
        return (
            f"min({_FINITE})",
            f"max({_FINITE})",
            f"max(min_scale({_FINITE}))",
        )
    if column.kind == "bigint":
        return _EXTREMES
    known = (*_WHOLE, "numeric", "money", *_DECLARED)
    if column.kind in known or column.longest is not None or _has_length(column):
        return ()
    return ("max(octet_length({0}::text))",)


def field_of(column: TableColumn, seen: list[Any]) -> tuple[dict[str, Any], str | None]:
    """The field that a column becomes, and what to look at.

    Args:
        seen: what :func:`measures_of` asks for; None where there are no values.
    """
    kind = column.kind
    if kind in _WHOLE:
        return _whole(column, seen)
    if kind in (*_FLOATING, "numeric"):
        return _decimal(column, seen)
    if kind == "money":
        return field_types.propose_number(2, 16), None
    if kind in _DECLARED:
        return _DECLARED[kind].propose(), _DECLARED[kind].sql.note
    if column.longest is not None:
        return {"type": "string", "padTo": max(column.longest, 1)}, None
    if _has_length(column):
        assert column.size is not None
        return {
            "type": "string",
            "maxLength": column.size,
            "padTo": min(4 * column.size, _PADDED),
        }, None
    note = None
    if column.is_list:
        note = "a list: kept as JSON text"
    elif kind in _JSON:
        note = "JSON: kept as text"
    elif kind not in TEXTS:
        note = f"{kind}: kept as text, as PostgreSQL writes it"
    return field_types.propose_text((seen[0] if seen else None) or 0), note


def _has_length(column: TableColumn) -> bool:
    return column.kind in ("character varying", "character") and column.size is not None


def _whole(column: TableColumn, seen: list[Any]) -> tuple[dict[str, Any], str | None]:
    most = _WHOLE[column.kind]
    if seen and seen[0] is not None and max(-seen[0], seen[1]) > field_types.WHOLE:
        return field_types.propose_text(20), "more than 18 digits: kept as text"
    return field_types.propose_whole_number(-most, most - 1), None


def _decimal(column: TableColumn, seen: list[Any]) -> tuple[dict[str, Any], str | None]:
    if column.size is not None:
        if column.size > field_types.MAX_DIGITS or not 0 <= column.scale <= column.size:
            return field_types.propose_text(column.size + 2), "more than 18 digits: kept as text"
        return field_types.propose_number(column.scale, column.size - column.scale), None
    low, high, scale = (*seen, None, None, None)[:3]
    digits = 1 if low is None else max(max(-low, high).adjusted() + 1, 1)
    field: dict[str, Any] | None
    if column.kind == "numeric" and digits <= _DECIMALS and (scale or 0) <= _DECIMALS:
        field = field_types.propose_number(_DECIMALS, _DECIMALS)
    else:
        field = field_types.propose_decimal(digits, scale or 0)
    if field is None:
        return field_types.propose_text(31), "more than 18 digits: kept as text"
    kept = field.get("precision", 0)
    return field, f"a value with more than {kept} decimals is refused"

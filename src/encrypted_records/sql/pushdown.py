"""Comparisons of a statement that the proxy can evaluate, so that it sends fewer rows.

DuckDB's own parser reads the text of a filter; an allow-list selects the supported parts. DuckDB
evaluates every comparison again over the received rows. Omitting a comparison therefore costs only
time, but the request must never exclude matching rows. So text literals are normalized to NFC,
numbers are compared as ranges, whose ends may be beyond the field's bounds, and ``<>`` is left to
DuckDB.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from encrypted_records.sql.catalogue import SqlTable

#: A condition of the proxy's interface (docs/http-api.md).
Where = dict[str, Any]
Parse = Callable[[str], Any]

_COLUMN = re.compile(r"c(\d+)")
_COMPARED = {
    "COMPARE_EQUAL": "eq",
    "COMPARE_LESSTHAN": "lt",
    "COMPARE_LESSTHANOREQUALTO": "le",
    "COMPARE_GREATERTHAN": "gt",
    "COMPARE_GREATERTHANOREQUALTO": "ge",
}
_TESTS = {
    "prefix": "prefix",
    "starts_with": "prefix",
    "suffix": "ends_with",
    "ends_with": "ends_with",
    "contains": "contains",
}
#: A day in the years 1 to 9999.
_DAY = r"(?!0000)([0-9]{4}-[0-9]{2}-[0-9]{2})"
_CLOCK = r"([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?)"
#: By Arrow type: the form of a literal, and its conversion for the proxy.
_ON_CLOCK = {
    "date32[day]": (re.compile(_DAY), "{0}"),
    "time64[us]": (re.compile(_CLOCK), "{0}"),
    "timestamp[us]": (re.compile(f"{_DAY} {_CLOCK}"), "{0}T{1}"),
    "timestamp[us, tz=UTC]": (re.compile(rf"{_DAY} {_CLOCK}\+00"), "{0}T{1}Z"),
}
#: DuckDB's mark before a filter that another node of the plan repeats, and its name for a filter
#: whose values are known only at run time; or a literal, which may contain the same words.
_NOTED = re.compile(r"('(?:[^']|'')*')|optional: |Dynamic Filter \(\w+\)")
#: A filter of the statement itself that another node repeats.
_AGAIN = re.compile(r"optional: (?!(\(\(c\d+ IS NULL\) OR )?Dynamic Filter \()")
_DECIMAL = re.compile(r"decimal128\((\d+), (\d+)\)")
#: Up to this many numbers of an IN are sent individually; otherwise, only their range.
_FEW = 16
#: Maximum values of the proxy's `in`.
_MOST = 1000
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class PushedCondition:
    """
    Attributes:
        where: all rows that pass the filters of a scan satisfy it; None is satisfied by all rows.
        exact: whether no other rows satisfy it.
    """

    where: Where | None
    exact: bool


def condition_of(table: SqlTable, filters: Sequence[str], parse: Parse) -> PushedCondition:
    """The condition of a scan.

    Args:
        filters: in DuckDB's notation; a row has to pass all of them.
        parse: DuckDB's parser; returns the tree of a filter, None if it cannot parse it.
    """
    if any(text.count("'") % 2 for text in filters):
        # DuckDB lists the lines of a multi-line literal as separate filters.
        return PushedCondition(None, exact=False)
    reader = _FilterReader(table)
    reader.exact = not any(map(_AGAIN.search, filters))
    try:
        found = [part for text in filters for part in _all_of(reader, parse(_plain_text(text)))]
    except RecursionError:
        return PushedCondition(None, exact=False)
    return PushedCondition(_joined("and", found) if found else None, reader.exact)


def _plain_text(text: str) -> str:
    """A filter without DuckDB's internal annotations."""
    stands_for = {"o": "", "D": "true"}
    return _NOTED.sub(lambda found: found[1] or stands_for[found[0][0]], text)


def _all_of(reader: _FilterReader, tree: Any) -> list[Where]:
    """The supported parts of a conjunction."""
    if isinstance(tree, dict) and tree.get("type") == "CONJUNCTION_AND":
        return [part for child in tree["children"] for part in _all_of(reader, child)]
    if _is_true(tree):
        return []
    understood = reader.read(tree)
    return [] if understood is None else [understood]


def _joined(word: str, parts: list[Where]) -> Where:
    return parts[0] if len(parts) == 1 else {word: parts}


class _FilterReader:
    """``exact`` is whether everything was supported, and is requested exactly."""

    def __init__(self, table: SqlTable) -> None:
        self.exact = True
        self._columns = table.columns

    def read(self, tree: Any) -> Where | None:
        """The condition of a tree; None if it is not supported."""
        found = self._read(tree)
        self.exact &= found is not None
        return found

    def _read(self, tree: Any) -> Where | None:
        if not isinstance(tree, dict):
            return None
        kind = tree.get("type")
        if kind in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
            parts = [self.read(child) for child in tree["children"]]
            known = [part for part in parts if part is not None]
            if kind == "CONJUNCTION_AND":
                return _joined("and", known) if known else None
            return _joined("or", known) if len(known) == len(parts) else None
        if kind in _COMPARED:
            return self._compare(_COMPARED[kind], tree["left"], tree["right"])
        if kind == "COMPARE_IN":
            return self._among(*tree["children"])
        if kind in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
            return self._absent(tree["children"][0], absent=kind == "OPERATOR_IS_NULL")
        if kind == "FUNCTION":
            return self._test(tree)
        if kind == "COLUMN_REF":
            column = self._column(tree)
            if column is not None and column.arrow == "bool":
                return {"field": column.field, "op": "eq", "value": True}
        return None

    def _column(self, tree: Any) -> Any:
        if tree.get("type") == "OPERATOR_CAST":
            column = self._column(tree["child"])
            return column if column is not None and _keeps(column.arrow, tree) else None
        names = tree.get("column_names") if tree.get("type") == "COLUMN_REF" else None
        found = _COLUMN.fullmatch(names[0]) if names and len(names) == 1 else None
        return (
            self._columns[int(found[1])] if found and int(found[1]) < len(self._columns) else None
        )

    def _among(self, tested: Any, *listed: Any) -> Where | None:
        column = self._column(tested)
        if column is None:
            return None
        values = [_value(column.arrow, value) for value in listed if not _is_null(value)]
        if not values or any(value is None for value in values):
            return None
        if not isinstance(values[0], int | Decimal):
            comparison = {"field": column.field, "op": "in", "value": values}
            return comparison if len(values) <= _MOST else None
        pairs = [[value, value] for value in values]
        if len(values) > _FEW:
            self.exact = False
            pairs = [[min(values), max(values)]]
        return _joined(
            "or", [{"field": column.field, "op": "between", "value": pair} for pair in pairs]
        )

    def _absent(self, tree: Any, *, absent: bool) -> Where | None:
        column = self._column(tree)
        if column is None:
            return None
        comparison = {"field": column.field, "op": "is_null"}
        return comparison if absent else {"not": comparison}

    def _compare(self, op: str, left: Any, right: Any) -> Where | None:
        column, value = self._column(left), None
        if column is not None:
            value = _value(column.arrow, right)
        if column is None or value is None:
            return None
        if op == "eq" and isinstance(value, int | Decimal):
            # Beyond the field's bounds, a range finds nothing, but equality would be refused.
            return {"field": column.field, "op": "between", "value": [value, value]}
        if column.arrow == "uuid" and op != "eq":
            return None
        return {"field": column.field, "op": op, "value": value}

    def _test(self, tree: Any) -> Where | None:
        op, children = _TESTS.get(tree.get("function_name", "")), tree.get("children", [])
        if op is None or len(children) != 2:
            return None
        column = self._column(children[0])
        if column is None or column.arrow != "string":
            return None
        value = _value(column.arrow, children[1])
        return {"field": column.field, "op": op, "value": value} if value else None


def _keeps(arrow: str, cast: Any) -> bool:
    """Whether a cast of a column keeps all values and decimals, as to a wider decimal."""
    decimal, wider = _DECIMAL.fullmatch(arrow), cast.get("type_expr", {})
    if decimal is None or cast.get("try_cast") or wider.get("type_name") != "DECIMAL":
        return False
    sizes = [size.get("literal", {}).get("text", "") for size in wider.get("children", [])]
    if len(sizes) != 2 or not all(map(str.isdecimal, sizes)):
        return False
    (digits, decimals), (more, behind) = map(int, decimal.groups()), map(int, sizes)
    return behind == decimals and more >= digits


def _is_true(tree: Any) -> bool:
    """Whether it is the placeholder for a filter whose values are known only at run time."""
    if not isinstance(tree, dict):
        return False
    if tree.get("type") == "CONJUNCTION_OR":
        return any(map(_is_true, tree["children"]))
    return bool(tree.get("literal") == {"kind": "BOOLEAN", "text": "true"})


def _is_null(tree: Any) -> bool:
    """Whether it is a NULL of any type, which equals no element of a list."""
    if tree.get("type") == "OPERATOR_CAST":
        tree = tree["child"]
    return bool(tree.get("literal", {}).get("kind") == "NULL_LITERAL")


def _value(arrow: str, tree: Any) -> Any:
    """The proxy's form of a literal of a column's type; None if it has none."""
    if tree.get("type") == "OPERATOR_CAST" and not tree.get("try_cast"):
        tree = tree["child"]
    if tree.get("type") == "FUNCTION" and tree.get("function_name") == "-":
        if len(tree["children"]) != 1:
            return None
        value = _value(arrow, tree["children"][0])
        if isinstance(value, Decimal):
            return value.copy_negate()  # unary minus would round to 28 digits
        return -value if isinstance(value, int) else None
    literal = tree.get("literal") if tree.get("type") == "VALUE_CONSTANT" else None
    if not isinstance(literal, dict):
        return None
    kind, text = literal.get("kind"), literal.get("text")
    if kind in ("INTEGER", "NUMERIC") and isinstance(text, str):
        return _number(arrow, text)
    if kind != "STRING" or not isinstance(text, str):
        return None
    if arrow == "string":
        return text if _is_plain(text) else None
    if arrow == "uuid":
        return text if _UUID.fullmatch(text) else None
    if arrow in _ON_CLOCK:
        form, shown = _ON_CLOCK[arrow]
        found = form.fullmatch(text)
        return shown.format(*found.groups()) if found else None
    return None


def _number(arrow: str, text: str) -> int | Decimal | None:
    if arrow == "int64" and re.fullmatch(r"-?[0-9]{1,19}", text):
        return int(text)
    if arrow.startswith("decimal128") and re.fullmatch(r"-?[0-9]{1,38}(\.[0-9]{1,38})?", text):
        return Decimal(text)
    return None


def _is_plain(text: str) -> bool:
    """Whether the text is compared literally."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        return False
    return unicodedata.is_normalized("NFC", text)

"""The search page's form <-> the question it asks. Pure.

A filter is what a person says of one field: a phrase by the field's type, and text as typed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from encrypted_records.errors import Flaw, InvalidQuery

#: Phrase of the filter builder -> what it says, and how many values it takes (9: a list).
_ANY = {"missing": ("is missing", 0), "present": ("is not missing", 0)}
_STRING = {
    "eq": ("is", 1),
    "prefix": ("starts with", 1),
    "in": ("is one of", 9),
    "ne": ("is not", 1),
    **_ANY,
}
_NUMBER = {
    "between": ("is between", 2),
    "ge": ("is at least", 1),
    "le": ("is at most", 1),
    "gt": ("is above", 1),
    "lt": ("is below", 1),
    "eq": ("is", 1),
    "in": ("is one of", 9),
    "ne": ("is not", 1),
    **_ANY,
}
PHRASES: Mapping[str, Mapping[str, tuple[str, int]]] = {
    "string": _STRING,
    "integer": _NUMBER,
    "number": _NUMBER,
}
PAGE_RECORDS = 50
MAX_FILTERS = 100
_TYPED_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?")


@dataclass(slots=True)
class Filter:
    """``values`` are text, as typed."""

    name: str
    op: str
    values: list[str] = field(default_factory=list)

    def phrases(self, types: Mapping[str, str]) -> Mapping[str, tuple[str, int]]:
        return PHRASES.get(types.get(self.name, ""), _STRING)

    def takes(self, types: Mapping[str, str]) -> int:
        return self.phrases(types).get(self.op, ("", 1))[1]

    @property
    def first(self) -> str:
        return self.values[0] if self.values else ""

    @property
    def second(self) -> str:
        return self.values[1] if len(self.values) > 1 else ""

    @property
    def lines(self) -> str:
        return "\n".join(self.values)


@dataclass(slots=True)
class Question:
    """What a visitor is asking of one schema. ``pages`` are the cursors of the pages passed."""

    filters: list[Filter] = field(default_factory=list)
    any_of: bool = False
    order: str = ""
    descending: bool = False
    pages: list[str] = field(default_factory=list)

    def take(self, form: Mapping[str, str], types: Mapping[str, str]) -> None:
        """Let the filters say what the form says, and begin at the first page."""
        found: list[Filter] = []
        for number in range(MAX_FILTERS):
            name = form.get(f"field-{number}")
            if name is None:
                continue
            one = Filter(name, form.get(f"op-{number}", ""))
            if one.op not in one.phrases(types):
                one.op = next(iter(one.phrases(types)))
            typed = [form.get(f"{part}-{number}", "") for part in ("value", "second")]
            if one.takes(types) == 9:
                one.values = [line for line in typed[0].splitlines() if line.strip()]
            else:
                one.values = typed[: one.takes(types)]
            found.append(one)
        self.filters = found
        self.any_of = form.get("any") == "yes"
        self.pages = []

    def sort(self, name: str) -> None:
        """By this field; the other way round when it is so already; the third time, as stored."""
        if self.order != name:
            self.order, self.descending = name, False
        elif not self.descending:
            self.descending = True
        else:
            self.order, self.descending = "", False
        self.pages = []

    def body(self, schema: str, types: Mapping[str, str]) -> dict[str, Any]:
        """What /api/records/search/ is asked, without page and count.

        Raises:
            InvalidQuery: something typed is no number.
        """
        found: dict[str, Any] = {"schema": schema}
        flaws: list[Flaw] = []
        parts = [_condition(one, types, flaws) for one in self.filters if _is_filled(one, types)]
        if flaws:
            raise InvalidQuery("a filter cannot be read", flaws=tuple(flaws), hint="")
        if parts:
            found["where"] = {"or" if self.any_of else "and": parts}
        if self.order:
            found["order_by"] = [{"field": self.order, "descending": self.descending}]
        return found


def _is_filled(one: Filter, types: Mapping[str, str]) -> bool:
    """A filter that nothing was typed into is not a filter yet."""
    return one.takes(types) == 0 or any(value.strip() for value in one.values)


def _condition(one: Filter, types: Mapping[str, str], flaws: list[Flaw]) -> dict[str, Any]:
    if one.op in ("missing", "present"):
        return {"field": one.name, "op": "is_null", "value": one.op == "missing"}
    values = [_value(one.name, text, types, flaws) for text in one.values]
    takes = one.takes(types)
    return {"field": one.name, "op": one.op, "value": values if takes > 1 else values[0]}


def _value(name: str, text: str, types: Mapping[str, str], flaws: list[Flaw]) -> Any:
    if types.get(name) == "string":
        return text
    return number(text, name, flaws)


def number(text: str, name: str, flaws: list[Flaw]) -> int | Decimal | None:
    """What a person types for a number: digits, a point, a sign; blanks do not count."""
    typed = re.sub(r"\s", "", text).replace("\N{MINUS SIGN}", "-")
    if not _TYPED_NUMBER.fullmatch(typed):
        flaws.append(Flaw("type", "expected a number, such as 42 or -3.5", field=name))
        return None
    return Decimal(typed) if "." in typed else int(typed)

"""The search page's form <-> the question it asks. Pure.

- A filter is a condition on one field: a phrase that depends on the field's type, and typed text.
- Every form of the page carries its whole question, so that two windows have two questions.
- What was picked in a picture narrows what is shown, also where the other filters are alternatives.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec

from encrypted_records.client.sdk.condition_language import parse
from encrypted_records.errors import Flaw, InvalidQuery
from encrypted_records.model.field_types import BY_NAME, type_in
from encrypted_records.model.queries import MAX_OFFSET
from encrypted_records.proxy.pages.comparisons import (
    AMONG,
    FORMER,
    OTHER_OPS,
    has_spellings,
    phrases_of,
)

PAGE_RECORDS = 50
MAX_FILTERS = 100
_TYPED_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?")


@dataclass(slots=True)
class Filter:
    """``values`` are text, as typed. ``narrows``: it must fit whatever the others are.
    ``any_spelling``: capital letters, accents and widths do not count, where the phrase can do
    without."""

    name: str
    op: str
    values: list[str] = field(default_factory=list)
    narrows: bool = False
    any_spelling: bool = False

    def phrases(self, types: Mapping[str, str]) -> Mapping[str, tuple[str, int]]:
        return phrases_of(types.get(self.name, ""))

    def takes(self, types: Mapping[str, str]) -> int:
        return self.phrases(types).get(self.op, ("", 1))[1]

    def has_spellings(self, types: Mapping[str, str]) -> bool:
        return has_spellings(types.get(self.name, ""), self.op)

    def folds(self, types: Mapping[str, str]) -> bool:
        return self.any_spelling and self.has_spellings(types)

    def is_filled(self, types: Mapping[str, str]) -> bool:
        """A filter that nothing was typed into is not a filter yet."""
        return self.takes(types) == 0 or any(value.strip() for value in self.values)

    def says(self, types: Mapping[str, str]) -> tuple[str, str, str]:
        """Field, phrase and values, as a person would say them."""
        phrase = self.phrases(types).get(self.op, ("is", 1))[0]
        if self.op == "between":
            low, high = self.first.strip(), self.second.strip()
            if low and high:
                return self.name, phrase, f"{low} and {high}"
            if not low and not high:
                return self.name, phrase, ""
            phrase = self.phrases(types)["ge" if low else "le"][0]
            return self.name, phrase, low or high
        if self.folds(types):
            phrase = f"{phrase.rstrip(',')}, in any spelling,"
        return self.name, phrase, ", ".join(self.values)

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
    """What one window asks of a schema, and how it shows the answer.

    ``pages`` are the cursors of the pages passed, since that of the row after ``start`` others;
    ``hidden`` are the columns that are not shown; ``sealed`` shows each value as the server has it,
    too. ``wanted`` is the number of the row that was just asked for.
    """

    filters: list[Filter] = field(default_factory=list)
    any_of: bool = False
    order: str = ""
    descending: bool = False
    start: int = 0
    pages: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    dense: bool = False
    sealed: bool = False
    wanted: int = 0

    @classmethod
    def read(cls, form: Mapping[str, str], types: Mapping[str, str]) -> Question:
        """The question that a form carries; filters that were changed begin at the first page."""
        question = cls()
        question.take(form, types)
        question.order = form.get("order", "")
        question.descending = form.get("descending") == "yes"
        question.hidden = [name for name in _names(form.get("hidden", "")) if name in types]
        question.dense = form.get("dense") == "yes"
        question.sealed = form.get("sealed") == "yes"
        if form.get("asked") == question.mark(types):
            question.pages = form.get("pages", "").split()
            question.go_to(form.get("start", ""))
        return question

    @property
    def first(self) -> int:
        """The number of the first record of the page, from 1."""
        return self.start + len(self.pages) * PAGE_RECORDS + 1

    def begin(self) -> None:
        """Go to the first page."""
        self.start, self.pages = 0, []

    def go_back(self) -> None:
        """Go to the page before."""
        if self.pages:
            del self.pages[-1:]
        else:
            self.start = max(0, self.start - PAGE_RECORDS)

    def go_to(self, start: str) -> None:
        """Leave out so many records, as far as one can go; nothing where it is no number."""
        if start.isascii() and start.isdecimal():
            self.start = min(int(start[:9]), MAX_OFFSET)

    def take(self, form: Mapping[str, str], types: Mapping[str, str]) -> None:
        """Take the filters of the form, and begin at the first page."""
        filters: list[Filter] = []
        for number in range(MAX_FILTERS):
            name = form.get(f"field-{number}")
            if name is None:
                continue
            op = form.get(f"op-{number}", "")
            condition = Filter(name, FORMER.get(op, op))
            condition.narrows = form.get(f"narrows-{number}") == "yes"
            condition.any_spelling = op in FORMER or form.get(f"spelling-{number}") == "any"
            if condition.op not in condition.phrases(types):
                condition.op = next(iter(condition.phrases(types)))
            typed = [form.get(f"{part}-{number}", "") for part in ("value", "second")]
            if condition.takes(types) == 9:
                condition.values = [line for line in typed[0].splitlines() if line.strip()]
            else:
                condition.values = typed[: condition.takes(types)]
            filters.append(condition)
        self.filters = filters
        self.any_of = form.get("any") == "yes"
        self.begin()

    def carried(self, types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Names and values of the form's fields that carry all of this question."""
        for number, one in enumerate(self.filters):
            yield f"field-{number}", one.name
            yield f"op-{number}", one.op
            yield f"value-{number}", one.lines if one.takes(types) == 9 else one.first
            if one.takes(types) == 2:
                yield f"second-{number}", one.second
            if one.narrows:
                yield f"narrows-{number}", "yes"
            if one.any_spelling:
                yield f"spelling-{number}", "any"
        if self.any_of:
            yield "any", "yes"
        yield from self.shown(types)

    def shown(self, types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """The part of :meth:`carried` that belongs to the answer: how it is ordered and shown."""
        texts = {"order": self.order, "pages": " ".join(self.pages), "asked": self.mark(types)}
        texts["start"] = str(self.start or "")
        texts["hidden"] = msgspec.json.encode(self.hidden).decode() if self.hidden else ""
        for name, on in (("dense", self.dense), ("sealed", self.sealed)):
            texts[name] = "yes" if on else ""
        texts["descending"] = "yes" if self.descending else ""
        yield from ((name, text) for name, text in texts.items() if text)

    def mark(self, types: Mapping[str, str]) -> str:
        """Differs where the filters do, so that a cursor is used for its own filters only."""
        filters = [
            (one.name, one.op, one.values, one.narrows, one.folds(types))
            for one in self.filters
            if one.is_filled(types)
        ]
        return f"{zlib.crc32(msgspec.json.encode((filters, self.any_of))):08x}"

    def applied(self, types: Mapping[str, str]) -> tuple[object, ...]:
        """Differs where the answer does, or how it is shown. A filter that nothing was typed into
        does not count yet."""
        ordered = (self.order, self.descending, self.start, *self.pages)
        return self.mark(types), ordered, tuple(self.hidden), self.dense, self.sealed

    def sort(self, name: str) -> None:
        """By this field; the other way round when it is so already; the third time, as stored."""
        if self.order != name:
            self.order_by(name, descending=False)
        elif not self.descending:
            self.order_by(name, descending=True)
        else:
            self.order_by("", descending=False)

    def order_by(self, name: str, *, descending: bool) -> None:
        self.order, self.descending = name, descending
        self.begin()

    def narrow(self, by: Filter) -> None:
        """Add a filter that must fit, and begin at the first page."""
        by.narrows = self.any_of and bool(self.filters)
        self.filters.append(by)
        self.begin()

    def own_pick(self, name: str, types: Mapping[str, str]) -> Filter | None:
        """The filter that lists values of a field, which a picture of the field changes."""
        for one in self.filters:
            alone = one.narrows or not self.any_of or len(self.filters) == 1
            if one.name == name and one.op in ("eq", "in") and alone and not one.folds(types):
                return one if one.is_filled(types) else None
        return None

    def toggle(self, by: Filter, types: Mapping[str, str]) -> None:
        """Add a value to those that a field must have, or take it away; begin at the first page.

        A text of several lines cannot be listed with others, and takes their place.
        """
        own = self.own_pick(by.name, types) if by.op == "eq" else None
        if own is None:
            self.narrow(by)
            return
        (value,) = by.values
        values = [one for one in own.values if one != value]
        if len(values) == len(own.values):
            values.append(value)
        if any(len(one.splitlines()) > 1 for one in values):
            values = values[-1:]
        if values:
            own.op, own.values = "eq" if len(values) == 1 else "in", values
        else:
            self.filters.remove(own)
        self.begin()

    def says(self, types: Mapping[str, str]) -> list[tuple[str, tuple[str, str, str]]]:
        """The filters that count, each with the word that goes before it."""
        together, alone = self._parts(types)
        link = "or" if self.any_of else "and"
        said = [(link if at else "where", one.says(types)) for at, one in enumerate(together)]
        return said + [("and" if said else "where", one.says(types)) for one in alone]

    def _parts(
        self, types: Mapping[str, str], without: Filter | None = None
    ) -> tuple[list[Filter], list[Filter]]:
        """The filters that count: those that go together, and those that fit in any case."""
        filled = [one for one in self.filters if one.is_filled(types) and one is not without]
        narrows = [one for one in filled if one.narrows and self.any_of]
        return [one for one in filled if one not in narrows], narrows

    def body(self, schema: str, types: Mapping[str, str]) -> dict[str, Any]:
        """What /api/records/search/ is asked, without page and count.

        Raises:
            InvalidQuery: something typed is no number.
        """
        query: dict[str, Any] = {"schema": schema}
        where = self.where(types)
        if where is not None:
            query["where"] = where
        if self.order:
            query["order_by"] = [{"field": self.order, "descending": self.descending}]
        return query

    def where(
        self, types: Mapping[str, str], without: Filter | None = None
    ) -> dict[str, Any] | None:
        """The condition of all filters but ``without``; None of no filter.

        Raises:
            InvalidQuery: something typed is no number.
        """
        flaws: list[Flaw] = []
        together, alone = (
            [condition_of(one, types, flaws) for one in some]
            for some in self._parts(types, without)
        )
        if flaws:
            raise InvalidQuery("a filter cannot be read", flaws=tuple(flaws), hint="")
        if not alone:
            return {"or" if self.any_of else "and": together} if together else None
        return {"and": [*([{"or": together}] if together else []), *alone]}


def _names(text: str) -> list[str]:
    try:
        return msgspec.json.decode(text, type=list[str]) if text else []
    except msgspec.DecodeError:
        return []


def condition_of(
    search_filter: Filter, types: Mapping[str, str], flaws: list[Flaw]
) -> dict[str, Any]:
    """A filter as a condition of a search. What cannot be read is added to ``flaws``."""
    name, op = search_filter.name, search_filter.op
    if op in ("missing", "present"):
        return {"field": name, "op": "is_null", "value": op == "missing"}
    typed = search_filter.values
    if op in AMONG:
        among = _among(name, typed[0], flaws)
        return {"not": among} if op == "not_among" else among
    if op == "between" and not all(value.strip() for value in typed):
        # One end alone is typed: the other is open.
        op, typed = ("ge", typed[:1]) if typed[0].strip() else ("le", typed[1:])
    values = [_value(name, text, types, flaws) for text in typed]
    op, more = OTHER_OPS.get(op, (op, {}))
    if search_filter.folds(types):
        more = {**more, "fold": True}
    value = values if op in ("between", "in") else values[0]
    return {"field": name, "op": op, "value": value, **more}


def _among(name: str, typed: str, flaws: list[Flaw]) -> dict[str, Any]:
    """``field from schema where ...``: the values of another schema, in the words of the command
    line."""
    words = typed if typed.lstrip().lower().startswith("select ") else f"select {typed}"
    quoted = name.replace("`", "``")
    try:
        condition = parse(f"`{quoted}` in ({words})")
    except InvalidQuery:
        condition = {}
    # A parenthesis that was typed may have ended the selection.
    if "of" not in condition:
        expected = "expected a field and a schema, such as: patient from visits where ward = 'a'"
        flaws.append(Flaw("where", expected, field=name))
    return condition


def _value(name: str, text: str, types: Mapping[str, str], flaws: list[Flaw]) -> Any:
    kind = types.get(name, "")
    listed = kind not in BY_NAME or is_listed(kind)
    return read_typed(kind, text, name, flaws) if listed else number(text, name, flaws)


def types_of(definition: Mapping[str, Any]) -> dict[str, str]:
    """The type of each field of a definition, or its format where formats are enforced."""
    return {name: type_in(definition, name).name for name in definition["properties"]}


def is_listed(kind: str) -> bool:
    """Whether pictures list the values of such a field; numbers are counted by stretches."""
    return not BY_NAME[kind].is_number


def is_dated(kind: str) -> bool:
    """Whether pictures count the values of such a field by years, months or days."""
    return BY_NAME[kind].reads_as_dates


def read_typed(kind: str, text: str, name: str, flaws: list[Flaw]) -> str | bool | None:
    """What a person types for a value that is no number."""
    if kind not in BY_NAME or not BY_NAME[kind].is_boolean:
        return text
    typed = {"true": True, "false": False, "yes": True, "no": False}.get(text.strip().lower())
    if typed is None:
        flaws.append(Flaw("type", "expected true or false", field=name))
    return typed


def number(text: str, name: str, flaws: list[Flaw]) -> int | Decimal | None:
    """What a person types for a number: digits, a point, a sign; blanks do not count."""
    typed = re.sub(r"\s", "", text).replace("\N{MINUS SIGN}", "-")
    if not _TYPED_NUMBER.fullmatch(typed):
        flaws.append(Flaw("type", "expected a number, such as 42 or -3.5", field=name))
        return None
    return Decimal(typed) if "." in typed else int(typed)

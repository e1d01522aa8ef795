"""The records page's form <-> the question that it sends. Pure.

- A question has parts, all of which must match. A part is an expression of the condition language
  (:mod:`encrypted_records.client.sdk.condition_language`), or words, which are searched in all
  texts.
- Every form of the page carries its whole question, so that two windows have two questions.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import msgspec

from encrypted_records.client.sdk.condition_language import (
    TOKENS,
    NotUnderstood,
    parse,
    parse_with_places,
    write,
    write_field,
)
from encrypted_records.errors import Flaw, InvalidQuery
from encrypted_records.model import strict_json
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.field_types import BY_NAME, type_in
from encrypted_records.model.predicates import Joins
from encrypted_records.model.queries import FOLDING, MAX_OFFSET, parse_query
from encrypted_records.proxy.pages.formatting import shortened

PAGE_RECORDS = 50
#: Maximum number of filters in a question that was saved before expressions existed.
MAX_FORMER = 100
#: Characters of a part that a page shows.
SHOWN_OF_PART = 300
#: As many as a form may have fields.
_PART = re.compile(r"part-(?:0|[1-9][0-9]{0,4})")
_TYPED_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?")
#: Comparisons of questions that were saved before expressions existed -> ``op`` and more members.
_FORMER: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "near_two": ("near", {"within": 2}),
    "alike": ("eq", {"fold": True}),
    "contains_alike": ("contains", {"fold": True}),
}


@dataclass(slots=True)
class Question:
    """The question of one window to a schema, and how its answer is shown.

    ``parts`` are joined by "and"; ``typed`` is the content of the input line, not yet searched.
    ``pages`` are the cursors of the previous pages, beginning with the row after the first
    ``start`` rows; ``hidden`` are the columns that are not shown; ``sealed`` also shows each value
    as stored at the server. ``wanted`` is the row number that was just requested.
    """

    parts: list[str] = field(default_factory=list)
    typed: str = ""
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
        """The question in a form; a changed question begins at the first page."""
        question = cls()
        numbers = sorted(int(name[5:]) for name in form if _PART.fullmatch(name))
        question.parts = [part for at in numbers if (part := form[f"part-{at}"]).strip()]
        question.parts += _read_former(form, types)
        question.order = form.get("order", "")
        question.descending = form.get("descending") == "yes"
        question.hidden = [name for name in _names(form.get("hidden", "")) if name in types]
        question.dense = form.get("dense") == "yes"
        question.sealed = form.get("sealed") == "yes"
        if form.get("asked") == question.mark():
            question.pages = form.get("pages", "").split()
            question.go_to(form.get("start", ""))
        return question

    def copy(self) -> Question:
        parts, pages, hidden = [*self.parts], [*self.pages], [*self.hidden]
        return replace(self, parts=parts, pages=pages, hidden=hidden)

    @property
    def first(self) -> int:
        """The number of the page's first record, counted from 1."""
        return self.start + len(self.pages) * PAGE_RECORDS + 1

    def begin(self) -> None:
        """Go to the first page."""
        self.start, self.pages = 0, []

    def go_back(self) -> None:
        """Go to the previous page."""
        if self.pages:
            del self.pages[-1:]
        else:
            self.start = max(0, self.start - PAGE_RECORDS)

    def go_to(self, start: str) -> None:
        """Skip ``start`` records, up to the maximum offset; ignored if it is not a number."""
        if start.isascii() and start.isdecimal():
            self.start = min(int(start[:9]), MAX_OFFSET)

    def carried(self) -> Iterator[tuple[str, str]]:
        """Names and values of the form's fields that carry all of this question."""
        yield from ((f"part-{number}", part) for number, part in enumerate(self.parts))
        yield from self.shown()

    def shown(self) -> Iterator[tuple[str, str]]:
        """The subset of :meth:`carried` about the answer's order and display."""
        texts = {"order": self.order, "pages": " ".join(self.pages), "asked": self.mark()}
        texts["start"] = str(self.start or "")
        texts["hidden"] = msgspec.json.encode(self.hidden).decode() if self.hidden else ""
        for name, on in (("dense", self.dense), ("sealed", self.sealed)):
            texts[name] = "yes" if on else ""
        texts["descending"] = "yes" if self.descending else ""
        yield from ((name, text) for name, text in texts.items() if text)

    def mark(self) -> str:
        """A key that changes with the parts, so that a cursor is used only for its own question."""
        return f"{zlib.crc32(msgspec.json.encode(self.parts)):08x}"

    def applied(self) -> tuple[object, ...]:
        """A key that changes with the answer or its display."""
        ordered = (self.order, self.descending, self.start, *self.pages)
        return self.mark(), ordered, tuple(self.hidden), self.dense, self.sealed

    def sort(self, name: str) -> None:
        """Sort by this field; the second time in reverse order; the third time in the order of
        storing.
        """
        if self.order != name:
            self.order_by(name, descending=False)
        elif not self.descending:
            self.order_by(name, descending=True)
        else:
            self.order_by("", descending=False)

    def order_by(self, name: str, *, descending: bool) -> None:
        self.order, self.descending = name, descending
        self.begin()

    def add(self, part: str) -> None:
        """Add a part, and begin at the first page."""
        if part not in self.parts:
            self.parts.append(part)
        self.begin()

    def replace(self, number: int, parts: Sequence[str]) -> None:
        """Replace a part by others, and begin at the first page."""
        self.parts[number : number + 1] = parts
        self.begin()

    def own_pick(self, name: str, types: Mapping[str, str]) -> tuple[int, list[Any]] | None:
        """The number of the part that lists values of a field, and the values; a picture of the
        field changes it.
        """
        for number, where in self._about(name, types):
            if where["op"] in ("eq", "in") and not where.get("fold"):
                values = where["value"] if where["op"] == "in" else [where["value"]]
                return number, list(values)
        return None

    def own_stretch(
        self, name: str, types: Mapping[str, str]
    ) -> tuple[int, tuple[Any, Any]] | None:
        """The number of the part with a field's range, and its bounds, None for an open bound; the
        handles of the field's picture change it.
        """
        for number, where in self._about(name, types):
            value = where["value"]
            match where["op"]:
                case "between":
                    return number, (value[0], value[1])
                case "ge":
                    return number, (value, None)
                case "le":
                    return number, (None, value)
        return None

    def _about(self, name: str, types: Mapping[str, str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The parts that compare a field with a value, by their numbers."""
        for number, part in enumerate(self.parts):
            try:
                where = condition_of(part, types)
            except InvalidQuery:
                continue
            if where.get("field") == name and "value" in where:
                yield number, where

    def toggle(self, name: str, value: Any, types: Mapping[str, str]) -> None:
        """Add a value to the accepted values of a field, or remove it; begin at the first page."""
        pick = self.own_pick(name, types)
        number, before = pick or (len(self.parts), [])
        values = [value_ for value_ in before if value_ != value]
        if len(values) == len(before):
            values.append(value)
        self.replace(number, [write(equals_any(name, values))] if values else [])

    def says(self, types: Mapping[str, str]) -> list[str]:
        """The parts as shown to people, shortened if long."""
        texts = [
            f"any text contains {write_words(part)}" if is_words(part, types) else part
            for part in self.parts
        ]
        return [shortened(text, SHOWN_OF_PART) for text in texts]

    def body(self, schema: str, types: Mapping[str, str]) -> dict[str, Any]:
        """The body for /api/records/search/, without page and count.

        Raises:
            InvalidQuery: a part is not valid.
        """
        query: dict[str, Any] = {"schema": schema}
        where = self.where(types)
        if where is not None:
            query["where"] = where
        if self.order:
            query["order_by"] = [{"field": self.order, "descending": self.descending}]
        return query

    def where(self, types: Mapping[str, str], without: int | None = None) -> dict[str, Any] | None:
        """The condition of all parts except part number ``without``; None if there are no parts.

        Raises:
            InvalidQuery: a part is not valid.
        """
        conditions = [
            condition_of(part, types) for at, part in enumerate(self.parts) if at != without
        ]
        return {"and": conditions} if conditions else None


def equals_any(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """The condition that a field has any of some values."""
    if len(values) == 1:
        return {"field": name, "op": "eq", "value": values[0]}
    return {"field": name, "op": "in", "value": list(values)}


def read_line(text: str, definition: Mapping[str, Any]) -> list[str]:
    """Split a question that was typed as one line into its parts.

    Args:
        definition: the definition of the schema.

    Raises:
        NotUnderstood: the line is not a valid question for this schema; with the position in the
            line.
    """
    text = text.strip()
    types = types_of(definition)
    if not text:
        return []
    if is_words(text, types):
        if not any(map(is_text, types.values())):
            hint = "name a field and a comparison"
            raise NotUnderstood("this schema has no text field that can be searched", text, 0, hint)
        words_of(text)
        return [text]
    where, places = parse_with_places(text)
    try:
        known = parse_definition(strict_json.encode(definition))
        parse_query({"where": _fit(where, types)}, known, Joins())
    except InvalidQuery as error:
        if not error.flaws:
            raise
        flaw = error.flaws[0]
        at = places[_comparison_at(where, flaw.pointer or "")]
        raise NotUnderstood(flaw.detail, text, at, "") from None
    return [write(part) for part in where["and"]] if "and" in where else [write(where)]


def example_of(types: Mapping[str, str]) -> str:
    """An example comparison for these fields."""
    numbers = [name for name, kind in types.items() if not is_listed(kind)]
    if numbers:
        return f"{write_field(numbers[0])} > 10"
    return " or ".join(f'{write_field(name)} = "a"' for name in list(types)[:1])


def _comparison_at(where: Mapping[str, Any], pointer: str) -> int:
    """The number of the comparison in an error's JSON pointer."""
    known = list(_pointers(where, "/where"))
    within = [place for place in known if f"{pointer}/".startswith(f"{place}/")]
    return known.index(max(within, key=len)) if within else 0


def _pointers(where: Mapping[str, Any], at: str) -> Iterator[str]:
    """The pointers to the comparisons of a condition, in order."""
    if "field" in where:
        yield at
        if where.get("of", {}).get("where"):
            yield from _pointers(where["of"]["where"], f"{at}/of/where")
        return
    for word, inner in where.items():
        if isinstance(inner, list):
            for number, part in enumerate(inner):
                yield from _pointers(part, f"{at}/{word}/{number}")
        else:
            yield from _pointers(inner, f"{at}/{word}")


def is_words(text: str, types: Mapping[str, str]) -> bool:
    """Whether a part is words to search in all texts: it neither begins with the name of a field
    nor has a comparison sign, and is not an expression about a deleted field.
    """
    text = text.strip()
    first = TOKENS.match(text)
    if first is None:
        return not re.search("[=<>~]", text)
    if first.lastgroup == "text" and first.end() == len(text):
        return True
    beginning = first[0].casefold()
    if beginning in ("(", "not") or first.lastgroup == "quoted":
        return False
    if beginning in map(str.casefold, types) or re.search("[=<>~]", text):
        return False
    return not _is_expression(text)


def _is_expression(text: str) -> bool:
    try:
        parse(text)
    except NotUnderstood:
        return False
    return True


def words_of(text: str) -> str:
    """The words to search in all texts, without quotes around them.

    Raises:
        NotUnderstood: a backslash in the quotes is not a JSON escape.
    """
    text = text.strip()
    token = TOKENS.fullmatch(text)
    if token is None or token.lastgroup != "text":
        return text
    try:
        return str(parse(f"a = {text}")["value"])
    except NotUnderstood as error:
        raise NotUnderstood(error.what, text, 0, error.hint) from None


def write_words(text: str) -> str:
    try:
        value = words_of(text)
    except NotUnderstood:
        return text  # the search reports the error
    return write({"field": "a", "op": "eq", "value": value}).partition("= ")[2]


def condition_of(part: str, types: Mapping[str, str]) -> dict[str, Any]:
    """A part as a condition of a search.

    Raises:
        InvalidQuery: it is not valid.
    """
    if not is_words(part, types):
        return _fit(parse(part), types)
    value = words_of(part)
    texts = [name for name, kind in types.items() if is_text(kind)]
    found = [{"field": name, "op": "contains", "value": value, "fold": True} for name in texts]
    return found[0] if len(found) == 1 else {"or": found}


def _fit(where: dict[str, Any], types: Mapping[str, str]) -> dict[str, Any]:
    """A year is written without quotes; for a date field it becomes a string."""
    if "field" not in where:
        return {
            word: [_fit(condition, types) for condition in inner]
            if isinstance(inner, list)
            else _fit(inner, types)
            for word, inner in where.items()
        }
    name = where["field"]
    if name not in types or not is_dated(types[name]) or "value" not in where:
        return where
    value = where["value"]
    if isinstance(value, list):
        return {**where, "value": [_year(bound) for bound in value]}
    return {**where, "value": _year(value)}


def _year(value: Any) -> Any:
    is_year = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 9999
    return f"{value:04}" if is_year else value


def _read_former(form: Mapping[str, str], types: Mapping[str, str]) -> list[str]:
    """The parts of a question that was saved when field, comparison and values were separate
    members.
    """
    together: list[str] = []
    alone: list[str] = []
    any_of = form.get("any") == "yes"
    for number in range(MAX_FORMER):
        name = form.get(f"field-{number}")
        part = "" if name is None else _read_former_filter(form, number, types)
        if part:
            narrows = any_of and form.get(f"narrows-{number}") == "yes"
            (alone if narrows else together).append(part)
    return [" or ".join(together), *alone] if any_of and together else together


def _read_former_filter(form: Mapping[str, str], number: int, types: Mapping[str, str]) -> str:
    """A former filter as an expression; empty for an empty filter."""
    name, op = form[f"field-{number}"], form.get(f"op-{number}", "eq") or "eq"
    typed = [form.get(f"{part}-{number}", "") for part in ("value", "second")]
    if op in ("missing", "present"):
        return write({"field": name, "op": "is_null", "value": op == "missing"})
    if not any(part.strip() for part in typed):
        return ""
    if op in ("among", "not_among"):
        selection = re.sub(r"(?i)^\s*select\s", "", typed[0])
        negation = "not " if op == "not_among" else ""
        return f"{write_field(name)} {negation}in (select {selection})"
    more: dict[str, Any] = {}
    op, added = _FORMER.get(op, (op, more))
    if (name not in types or is_text(types[name])) and op in FOLDING:
        more = {"fold": True} if form.get(f"spelling-{number}") == "any" else {}
    if op == "between" and not all(part.strip() for part in typed):
        op, typed = ("ge", typed[:1]) if typed[0].strip() else ("le", typed[1:])
    lines = [line for line in typed[0].splitlines() if line.strip()] if op == "in" else typed
    values = [read_value(types.get(name, ""), text, name, []) for text in lines]
    value = values if op in ("between", "in") else values[0]
    return write({"field": name, "op": op, "value": value, **more, **added})


def _names(text: str) -> list[str]:
    try:
        return msgspec.json.decode(text, type=list[str]) if text else []
    except msgspec.DecodeError:
        return []


def read_value(kind: str, text: str, name: str, flaws: list[Flaw]) -> Any:
    """The value that a person typed for a field; if it has the wrong type, the typed text, with a
    flaw.
    """
    listed = kind not in BY_NAME or is_listed(kind)
    typed = read_typed(kind, text, name, flaws) if listed else number(text, name, flaws)
    return text if typed is None else typed


def types_of(definition: Mapping[str, Any]) -> dict[str, str]:
    """The type of each field of a definition, or its format if formats are enforced."""
    return {name: type_in(definition, name).name for name in definition["properties"]}


def is_listed(kind: str) -> bool:
    """Whether pictures list the values of such a field; numbers are counted by ranges."""
    return not BY_NAME[kind].is_number


def is_text(kind: str) -> bool:
    """Whether words are searched in such a field."""
    return BY_NAME[kind].is_text


def is_dated(kind: str) -> bool:
    """Whether pictures count the values of such a field by years, months or days."""
    return BY_NAME[kind].reads_as_dates


def read_typed(kind: str, text: str, name: str, flaws: list[Flaw]) -> str | bool | None:
    """Parse typed input for a value that is not a number."""
    if kind not in BY_NAME or not BY_NAME[kind].is_boolean:
        return text
    typed = {"true": True, "false": False, "yes": True, "no": False}.get(text.strip().lower())
    if typed is None:
        flaws.append(Flaw("type", "expected true or false", field=name))
    return typed


def number(text: str, name: str, flaws: list[Flaw]) -> int | Decimal | None:
    """Parse typed input for a number: digits, a point, a sign; blanks are ignored."""
    typed = re.sub(r"\s", "", text).replace("\N{MINUS SIGN}", "-")
    if not _TYPED_NUMBER.fullmatch(typed):
        flaws.append(Flaw("type", "expected a number, such as 42 or -3.5", field=name))
        return None
    return Decimal(typed) if "." in typed else int(typed)

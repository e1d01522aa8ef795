"""A search request, parsed from JSON: which records, in which order, and how many.

Searches and aggregates share the form of conditions that :class:`Conditions` reads; the
meaning of a condition is in :mod:`.predicates`.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from encrypted_records.errors import Flaw, InvalidQuery
from encrypted_records.model.definition import MAX_FIELDS, FieldSpec, SchemaDefinition
from encrypted_records.model.field_types.base import KeyKind, Span, ValueRefused
from encrypted_records.model.field_types.plain import TEXT
from encrypted_records.model.predicates import (
    Absent,
    And,
    Everything,
    Joins,
    Not,
    NumberIn,
    NumberRange,
    Or,
    Predicate,
    TextIn,
    TextPrefix,
    TextRange,
    join_ranges,
)
from encrypted_records.model.strict_json import escape_pointer
from encrypted_records.model.texts import (
    MAX_PATTERN,
    How,
    TextTest,
    fold_pattern,
    folded,
    like_source,
    parse_like,
    words_of,
)

#: Operators that apply only to texts.
TEXT_OPERATORS = ("contains", "ends_with", "like", "matches", "near", "has_words", "has_phrase")
#: Operators that accept ``fold``.
FOLDING = ("eq", "ne", "in", "prefix", "contains", "ends_with", "like", "matches", "near")
#: Maximum words of a ``has_words`` or ``has_phrase``.
MAX_WORDS = 64
#: Maximum edits that ``near`` allows.
MOST_EDITS = 2

#: Reads a text operand at a pointer, normalized for comparison.
ReadText = Callable[[Any, str], str]


def invalid_query(code: str, detail: str, pointer: str) -> InvalidQuery:
    return InvalidQuery("the search is not valid", flaws=(Flaw(code, detail, pointer=pointer),))


def is_text_test(comparison: Mapping[str, Any]) -> bool:
    """Whether :func:`read_text_test` reads this comparison."""
    return comparison.get("op") in TEXT_OPERATORS or "fold" in comparison or "within" in comparison


def read_text_test(
    comparison: Mapping[str, Any], spec: FieldSpec, pointer: str, *, most: int, read: ReadText
) -> Predicate | None:
    """
    Args:
        most: maximum number of values of ``in``.

    Returns:
        None if ``fold`` is false and the operator is not among ``TEXT_OPERATORS``.

    Raises:
        InvalidQuery: with a pointer to the error.
    """
    op, value = comparison.get("op"), comparison.get("value")
    fold = _fold(comparison, pointer)
    within = _read_within(comparison, pointer)
    if spec.kind is not KeyKind.TEXT and (fold or op in TEXT_OPERATORS):
        name = op if op in TEXT_OPERATORS else "fold"
        where = "op" if op in TEXT_OPERATORS else "fold"
        detail = (
            f"{name} is for strings without an enforced format, and this is {spec.field_type.name}"
        )
        raise invalid_query("op", detail, f"{pointer}/{where}")
    if op not in TEXT_OPERATORS and not fold:
        return None

    def text(operand: Any, at: str) -> str:
        plain = read(operand, at)
        return folded(plain) if fold else plain

    def test(how: How, *texts: str) -> TextTest:
        return TextTest(spec.name, how, texts, fold)

    at = f"{pointer}/value"
    match op:
        case "eq":
            return test("any_of", text(value, at))
        case "ne":
            return Not(test("any_of", text(value, at)))
        case "in":
            if not isinstance(value, list) or not 1 <= len(value) <= most:
                raise invalid_query("type", f"expected an array of 1 to {most} values", at)
            texts = (text(item, f"{at}/{place}") for place, item in enumerate(value))
            return test("any_of", *dict.fromkeys(texts))
        case "prefix" | "contains" | "ends_with":
            return test(op, text(value, at))
        case "near":
            return TextTest(spec.name, "near", (text(value, at),), fold, within)
        case "has_words" | "has_phrase":
            return _words(spec.name, op, read(value, at), at)
        case "like":
            return _like(spec.name, read(value, at), at, fold=fold)
        case _:
            return test("matches", _pattern(read(value, at), at, fold=fold))


def _fold(comparison: Mapping[str, Any], pointer: str) -> bool:
    fold = comparison.get("fold", False)
    if not isinstance(fold, bool):
        raise invalid_query("type", "expected true or false", f"{pointer}/fold")
    if fold and comparison.get("op") not in FOLDING:
        raise invalid_query("op", f"fold is for {', '.join(FOLDING)}", f"{pointer}/fold")
    return fold


def _read_within(comparison: Mapping[str, Any], pointer: str) -> int:
    within = comparison.get("within", 1)
    if "within" in comparison and comparison.get("op") != "near":
        raise invalid_query("op", "within is for near", f"{pointer}/within")
    if isinstance(within, bool) or within not in range(1, MOST_EDITS + 1):
        raise invalid_query("within", f"expected 1 to {MOST_EDITS} edits", f"{pointer}/within")
    return int(within)


def _words(field: str, op: How, text: str, pointer: str) -> TextTest:
    words = words_of(folded(text))
    if op == "has_words" or len(words) == 1:
        op, words = "has_words", list(dict.fromkeys(words))
    if not 1 <= len(words) <= MAX_WORDS:
        detail = f"expected a text of 1 to {MAX_WORDS} words, and this one has {len(words)}"
        raise invalid_query("words", detail, pointer)
    return TextTest(field, op, tuple(words), fold=True)


def _pattern(source: str, pointer: str, *, fold: bool) -> str:
    if len(source.encode()) > MAX_PATTERN:
        raise invalid_query("pattern", f"a pattern has at most {MAX_PATTERN} bytes", pointer)
    if fold:
        source = fold_pattern(source)
    _compile(TextTest("", "matches", (source,), fold), pointer)
    return source


def _compile(test: TextTest, pointer: str) -> None:
    import re2  # noqa: PLC0415 - a bare client does not install it

    try:
        test.fits("")
        test.by_line()
    except re2.error as error:
        # RE2 reports the fault, and the part of the pattern.
        reason = error.args[0] if error.args else "not in the syntax of RE2"
        detail = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise invalid_query(
            "pattern", f"not a pattern in the syntax of RE2: {detail}", pointer
        ) from None


def _like(field: str, pattern: str, pointer: str, *, fold: bool) -> Predicate:
    if len(pattern.encode()) > MAX_PATTERN:
        raise invalid_query("pattern", f"a pattern has at most {MAX_PATTERN} bytes", pointer)
    try:
        parts = parse_like(pattern)
    except ValueError:
        detail = "a backslash must be followed by %, _ or another backslash: \\%, \\_, \\\\"
        raise invalid_query("pattern", detail, pointer) from None
    if fold:
        parts = [f"={folded(part[1:])}" if part.startswith("=") else part for part in parts]
    match [part.startswith("=") or part for part in parts], parts:
        case [], _:
            return _plain("any_of", field, "", fold=fold)
        case [True], [text]:
            return _plain("any_of", field, text[1:], fold=fold)
        case [True, "%"], [text, _]:
            return _plain("prefix", field, text[1:], fold=fold)
        case ["%", True], [_, text]:
            return TextTest(field, "ends_with", (text[1:],), fold)
        case ["%", True, "%"], [_, text, _]:
            return TextTest(field, "contains", (text[1:],), fold)
    test = TextTest(field, "like", (like_source(parts),), fold)
    _compile(test, pointer)
    return test


def _plain(how: How, field: str, text: str, *, fold: bool) -> Predicate:
    """The predicate of an unfolded comparison, which the order of keys decides."""
    if fold:
        return TextTest(field, how, (text,), fold)
    return TextPrefix(field, text) if how == "prefix" else TextIn(field, frozenset({text}))


MAX_DEPTH = 16
MAX_COMPARISONS = 256
MAX_IN_VALUES = 1000
#: Maximum values of all comparisons of a query together.
MAX_VALUES = 4096
T = TypeVar("T")
#: Members of a comparison.
_COMPARISON_MEMBERS = frozenset({"field", "op", "value", "fold", "within", "of"})
#: Maximum fields that an error lists.
_LISTED = 20


class Conditions:
    """Reads the conditions of a request, and counts their comparisons and values.

    Every method raises :class:`InvalidQuery` with a pointer to the error.
    """

    def __init__(self, definition: SchemaDefinition, joins: Joins | None = None) -> None:
        """
        Args:
            joins: for a query that may compare with other schemas.
        """
        self.definition = definition
        self.joins = joins
        self.comparisons = 0
        self.values = 0

    def read(self, body: Mapping[str, Any]) -> Predicate:
        """The predicate of the members ``where`` and ``filters`` combined."""
        parts: list[Predicate] = []
        if body.get("where") is not None:
            parts.append(self.predicate(body["where"], "/where", 1))
        parts += self.filters(body.get("filters"))
        return join_ranges(And(tuple(parts))) if parts else Everything()

    def filters(self, entries: Any) -> list[Predicate]:
        if entries is None:
            return []
        if not isinstance(entries, list):
            raise invalid_query(
                "type", "expected an array of objects with label and value", "/filters"
            )
        parts = []
        for position, entry in enumerate(entries):
            pointer = f"/filters/{position}"
            if not isinstance(entry, dict) or set(entry) != {"label", "value"}:
                raise invalid_query("type", "expected an object with label and value", pointer)
            comparison = {"field": entry["label"], **self._filter(entry["label"], entry["value"])}
            parts.append(self.comparison(comparison, pointer, field_member="label"))
        return parts

    def _filter(self, label: Any, value: Any) -> dict[str, Any]:
        """The operator and value of a filter. Texts of string fields are taken literally."""
        spec = self.definition.fields.get(label) if isinstance(label, str) else None
        if spec is not None and isinstance(value, str):
            op, meant = spec.field_type.read_filter(value)
            return {"op": op, "value": meant}
        return {"op": "eq", "value": value}

    def predicate(self, condition: Any, pointer: str, depth: int) -> Predicate:
        if depth > MAX_DEPTH:
            raise invalid_query("too_deep", f"nested more than {MAX_DEPTH} levels", pointer)
        if not isinstance(condition, dict):
            raise invalid_query("type", "expected an object", pointer)
        if "field" in condition or "op" in condition:
            return self.comparison(condition, pointer)
        if len(condition) != 1 or (keyword := next(iter(condition))) not in ("and", "or", "not"):
            raise invalid_query("where", "expected field and op, or one of and, or, not", pointer)
        inner = condition[keyword]
        if keyword == "not":
            return Not(self.predicate(inner, f"{pointer}/not", depth + 1))
        if not isinstance(inner, list) or not inner:
            raise invalid_query(
                "type", "expected an array with at least one condition", f"{pointer}/{keyword}"
            )
        parts = tuple(
            self.predicate(part, f"{pointer}/{keyword}/{position}", depth + 1)
            for position, part in enumerate(inner)
        )
        return And(parts) if keyword == "and" else Or(parts)

    def spec(self, name: Any, pointer: str) -> FieldSpec:
        spec = self.definition.fields.get(name) if isinstance(name, str) else None
        if spec is None:
            raise invalid_query("unknown_field", self._no_such_field(name), pointer)
        return spec

    def _no_such_field(self, name: Any) -> str:
        """The error's text for an unknown field: it lists the existing fields, and says that the
        name may be a value in the wrong place.
        """
        known = list(self.definition.fields)
        near = difflib.get_close_matches(name, known, 1) if isinstance(name, str) else []
        meant = f"did you mean {near[0]}? " if near else ""
        listed = ", ".join(known[:_LISTED]) + (", ..." if len(known) > _LISTED else "")
        return f"the schema has no such field; {meant}its fields are {listed}"

    def comparison(
        self, comparison: dict[str, Any], pointer: str, *, field_member: str = "field"
    ) -> Predicate:
        self.comparisons += 1
        if self.comparisons > MAX_COMPARISONS:
            raise invalid_query("too_many", f"more than {MAX_COMPARISONS} comparisons", pointer)
        for name in comparison:
            if name not in _COMPARISON_MEMBERS:
                raise invalid_query(
                    "unknown_member",
                    "a comparison has field, op, and value or of; comparisons of text"
                    " can also have fold and within",
                    f"{pointer}/{escape_pointer(name)}",
                )
        spec = self.spec(comparison.get("field"), f"{pointer}/{field_member}")
        try:
            return self._comparison_of(spec, comparison, pointer)
        except InvalidQuery as refused:
            # A pointer means nothing to a user who wrote no JSON; the field's name does.
            flaws = tuple(replace(flaw, field=spec.name) for flaw in refused.flaws)
            raise InvalidQuery(refused.message, flaws=flaws) from None

    def _comparison_of(
        self, spec: FieldSpec, comparison: dict[str, Any], pointer: str
    ) -> Predicate:
        if "of" in comparison:
            if self.joins is None:
                raise invalid_query(
                    "op", "no other schema can be used in this condition", f"{pointer}/of"
                )
            return self.joins.read(comparison, spec, pointer)
        value = comparison.get("value")
        self.count(value, f"{pointer}/value")
        op = comparison.get("op")
        build = _OPERATORS.get(op) if isinstance(op, str) else None
        if build is None and op not in TEXT_OPERATORS:
            detail = f"expected one of {', '.join(OPERATORS)}"
            raise invalid_query("op", detail, f"{pointer}/op")
        if not spec.field_type.is_ordered and op in _ORDERED:
            named = spec.field_type.name
            detail = f"{op} does not fit a {named}: true and false have eq, ne, in and is_null"
            raise invalid_query("op", detail, f"{pointer}/op")
        if is_text_test(comparison):
            test = read_text_test(comparison, spec, pointer, most=MAX_IN_VALUES, read=_text)
            if test is not None:
                return test
        assert build is not None
        return build(self, spec, value, pointer)

    def count(self, value: Any, pointer: str) -> None:
        self.values += len(value) if isinstance(value, list) else 1
        if self.values > MAX_VALUES:
            detail = f"more than {MAX_VALUES} values in all comparisons together"
            raise invalid_query("too_many_values", detail, pointer)

    def equals_any(self, spec: FieldSpec, values: list[tuple[Any, str]]) -> Predicate:
        if spec.is_of_texts:
            read = spec.field_type.read_text
            return TextIn(
                spec.name, frozenset(_or_invalid_query(read, value, at) for value, at in values)
            )
        spans = [
            _or_invalid_query(lambda sent: spec.field_type.read_span(spec, sent), value, at)
            for value, at in values
        ]
        return _within(spec, spans)

    def range(
        self,
        spec: FieldSpec,
        low: tuple[Any, str, bool] | None,
        high: tuple[Any, str, bool] | None,
    ) -> Predicate:
        kind = spec.field_type
        if spec.is_of_texts:
            return TextRange(
                spec.name,
                _or_invalid_query(kind.read_text, *low[:2]) if low else None,
                _or_invalid_query(kind.read_text, *high[:2]) if high else None,
                low_included=bool(low and low[2]),
                high_included=bool(high and high[2]),
            )
        lowest, highest = spec.numbers.lowest, spec.numbers.highest
        if low:
            value, at, included = low
            lowest = _or_invalid_query(
                lambda sent: kind.read_lowest(spec, sent, included=included), value, at
            )
        if high:
            value, at, up_to = high
            highest = _or_invalid_query(
                lambda sent: kind.read_highest(spec, sent, included=up_to), value, at
            )
        return NumberRange(spec.name, lowest, highest)


def _or_invalid_query(read: Callable[[Any], T], value: Any, pointer: str) -> T:
    """
    Raises:
        InvalidQuery: the value is refused.
    """
    try:
        return read(value)
    except ValueRefused as refused:
        raise invalid_query(refused.code, refused.detail, pointer) from None


def _text(value: Any, pointer: str) -> str:
    return _or_invalid_query(TEXT.read_text, value, pointer)


def _within(spec: FieldSpec, spans: list[Span]) -> Predicate:
    """The predicate: the field's point is in one of the spans."""
    points = frozenset(span.first for span in spans if span.first == span.last)
    parts: list[Predicate] = [NumberIn(spec.name, points)] if points else []
    parts += [
        NumberRange(spec.name, span.first, span.last) for span in spans if span.first != span.last
    ]
    return parts[0] if len(parts) == 1 else Or(tuple(parts))


# Each operator's meaning, as ``(conditions, spec, value, pointer of the comparison)``.
_Build = Callable[[Conditions, FieldSpec, Any, str], Predicate]


def _equal(conditions: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
    if (bounds := spec.field_type.read_range(value)) is not None:
        return _between(conditions, spec, list(bounds), pointer)
    return conditions.equals_any(spec, [(value, f"{pointer}/value")])


def _not_equal(conditions: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
    return Not(_equal(conditions, spec, value, pointer))


def _in(conditions: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_IN_VALUES:
        expected = f"expected an array of 1 to {MAX_IN_VALUES} values"
        raise invalid_query("type", expected, f"{pointer}/value")
    return conditions.equals_any(
        spec, [(item, f"{pointer}/value/{position}") for position, item in enumerate(value)]
    )


def _between(conditions: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
    if not isinstance(value, list) or len(value) != 2:
        expected = "expected an array of the lower and the upper bound"
        raise invalid_query("type", expected, f"{pointer}/value")
    low, high = value
    return conditions.range(
        spec, (low, f"{pointer}/value/0", True), (high, f"{pointer}/value/1", True)
    )


def _below(*, included: bool) -> _Build:
    def build(conditions: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
        return conditions.range(spec, None, (value, f"{pointer}/value", included))

    return build


def _above(*, included: bool) -> _Build:
    def build(conditions: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
        return conditions.range(spec, (value, f"{pointer}/value", included), None)

    return build


def _prefix(conditions: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
    if spec.kind is not KeyKind.TEXT:
        named = f", and this one is a {spec.format}" if spec.format else ""
        raise invalid_query("op", f"prefix is for string fields{named}", f"{pointer}/op")
    return TextPrefix(spec.name, _text(value, f"{pointer}/value"))


def _is_null(_: Conditions, spec: FieldSpec, value: Any, pointer: str) -> Predicate:
    if value is not None and not isinstance(value, bool):
        raise invalid_query("type", "expected true, false or nothing", f"{pointer}/value")
    return Not(Absent(spec.name)) if value is False else Absent(spec.name)


_ORDERED = ("lt", "le", "gt", "ge", "between")
_OPERATORS: dict[str, _Build] = {
    "eq": _equal,
    "ne": _not_equal,
    "lt": _below(included=False),
    "le": _below(included=True),
    "gt": _above(included=False),
    "ge": _above(included=True),
    "between": _between,
    "in": _in,
    "prefix": _prefix,
    "is_null": _is_null,
}
#: Every ``op`` of a comparison.
OPERATORS = (*_OPERATORS, *TEXT_OPERATORS)


DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
MAX_ORDER_FIELDS = 8
#: Skipped records have to be found, too; larger offsets need a cursor.
MAX_OFFSET = 10_000


_MEMBERS = frozenset(
    {"schema", "where", "filters", "order_by", "fields", "limit", "offset", "cursor", "count"}
)


#: The members that identify a cursor's query; the others may differ from page to page.
_QUESTION = ("filters", "order_by", "where")
_encode_sorted = msgspec.json.Encoder(decimal_format="number", order="sorted").encode


@dataclass(frozen=True, slots=True)
class SortKey:
    """Sort by a field's values; records without a value come first, or last when descending."""

    field: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Rank:
    """Sort by a field's values, with explicit placement of records without one, as in SQL."""

    key: SortKey
    absent_first: bool


@dataclass(frozen=True, slots=True)
class Query:
    """A valid search. ``fields`` None means all; ``offset`` records are skipped first.

    Records with equal sort keys are in the order in which they were stored.
    """

    where: Predicate
    order: tuple[SortKey, ...]
    fields: tuple[str, ...] | None
    limit: int
    cursor: str | None
    count: bool
    offset: int = 0
    #: SHA-256 of the members that decide which records match, and in which order
    question: bytes = field(default=b"", compare=False)


def parse_query(
    body: Mapping[str, Any], definition: SchemaDefinition, joins: Joins | None = None
) -> Query:
    """Read a search request, except its ``schema``, which the caller reads.

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
    """Refuse unknown members: ignoring a member would answer another query than the caller sent."""
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
        key = entry
        if isinstance(entry, str):
            key = {"field": entry.removeprefix("-"), "descending": entry.startswith("-")}
        if not isinstance(key, dict) or not isinstance(key.get("descending", False), bool):
            raise invalid_query("type", "expected a field name, or field and descending", pointer)
        refuse_unknown(key, {"field", "descending"}, pointer)
        spec = conditions.spec(key.get("field"), pointer)
        if any(spec.name == other.field for other in order):
            raise invalid_query("order_by", "the field is named twice", pointer)
        order.append(SortKey(spec.name, key.get("descending", False)))
    return tuple(order)


def parse_ranking(entries: Any, conditions: Conditions) -> tuple[Rank, ...]:
    """Like :func:`parse_order`; an object among the entries may also have ``nulls``: ``first`` or
    ``last``.
    """
    plain: Any = entries
    placements: list[Any] = []
    if isinstance(entries, list):
        plain = [
            {name: value for name, value in entry.items() if name != "nulls"}
            if isinstance(entry, dict)
            else entry
            for entry in entries
        ]
        placements = [entry.get("nulls") if isinstance(entry, dict) else None for entry in entries]
    ranks: list[Rank] = []
    for position, key in enumerate(parse_order(plain, conditions)):
        nulls = placements[position]
        if nulls not in (None, "first", "last"):
            raise invalid_query("type", 'expected "first" or "last"', f"/order_by/{position}/nulls")
        ranks.append(Rank(key, not key.descending if nulls is None else nulls == "first"))
    return tuple(ranks)

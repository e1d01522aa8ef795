"""Semi-joins: compare a field with the values of a field of another schema.

A query with semi-joins is read twice. The first pass collects the subqueries on other schemas; the
second pass, after they were answered, replaces each comparison with the result of its subquery.

Ranges of the same field that are joined by "and" become one range.

``seen >= 2026-01-01 and seen < 2026-02-01`` has two comparisons, but is one lookup in the index:
its rows are counted between the two ends of the range, and no set of all rows above the first bound
is built. The result is the same for every record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from encrypted_records.errors import Flaw, InvalidQuery
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.predicates import (
    And,
    Everything,
    Not,
    NumberRange,
    Or,
    Predicate,
    TextRange,
)
from encrypted_records.model.strict_json import escape_pointer

#: Semi-joins within semi-joins.
MAX_JOIN_DEPTH = 3
#: Semi-joins of one question, nested ones among them.
MAX_JOINS = 8
#: Characters of what names a schema: of an absolute URL, or of its name.
_LONGEST_NAME = 2000

_MEMBERS = ("schema", "field", "where")


@dataclass(frozen=True, slots=True)
class Join:
    """``own`` is compared with what ``name`` has in the records of ``schema`` that fit ``where``,
    which is not read yet. ``pointer`` leads to the comparison."""

    pointer: str
    own: FieldSpec
    schema: str
    name: str
    where: Any


@dataclass(slots=True)
class Joins:
    """The semi-joins of one condition, without those nested in them, in its order.

    ``answers`` are by pointer; empty while the question is read for the first time.
    """

    asked: list[Join] = field(default_factory=list)
    answers: dict[str, Predicate] = field(default_factory=dict)

    def read(self, asked: Mapping[str, Any], spec: FieldSpec, pointer: str) -> Predicate:
        """The predicate of a comparison with ``of``; one that anything fits while it has no answer.

        Raises:
            InvalidQuery: with a pointer to the error.
        """
        answer = self.answers.get(pointer)
        if answer is None:
            self.asked.append(_read(asked, spec, pointer))
            return Everything()
        return answer


def refuse_join(code: str, detail: str, pointer: str) -> InvalidQuery:
    return InvalidQuery("the search is not valid", flaws=(Flaw(code, detail, pointer=pointer),))


def _read(asked: Mapping[str, Any], spec: FieldSpec, pointer: str) -> Join:
    if asked.get("op") != "in":
        raise refuse_join(
            "op", "of can only be used with in; put it in not for the others", f"{pointer}/op"
        )
    for name in ("value", "fold", "within"):
        if name in asked:
            detail = f"a comparison with of cannot have {name}"
            raise refuse_join("unknown_member", detail, f"{pointer}/{name}")
    of, at = asked["of"], f"{pointer}/of"
    if not isinstance(of, dict):
        raise refuse_join("type", "expected an object with schema and field", at)
    for name in of:
        if name not in _MEMBERS:
            detail = "of can only have schema, field and where"
            raise refuse_join("unknown_member", detail, f"{at}/{escape_pointer(name)}")
    schema, wanted = of.get("schema"), of.get("field")
    if not isinstance(schema, str) or not 1 <= len(schema) <= _LONGEST_NAME:
        detail = "expected the schema's path, its id, or its name in this dataset"
        raise refuse_join("type", detail, f"{at}/schema")
    if not isinstance(wanted, str):
        raise refuse_join("type", "expected the name of a field", f"{at}/field")
    return Join(pointer, spec, schema, wanted, of.get("where"))


Range = NumberRange | TextRange


def join_ranges(predicate: Predicate) -> Predicate:
    """The same condition with at most one range of each field in every conjunction."""
    match predicate:
        case And(parts):
            joined = tuple(_join(_flatten(parts)))
            return joined[0] if len(joined) == 1 else And(joined)
        case Or(parts):
            return Or(tuple(map(join_ranges, parts)))
        case Not(part):
            return Not(join_ranges(part))
        case _:
            return predicate


def _flatten(parts: Iterable[Predicate]) -> Iterator[Predicate]:
    for part in parts:
        if isinstance(part, And):
            yield from _flatten(part.parts)
        else:
            yield join_ranges(part)


def _join(parts: Iterable[Predicate]) -> Iterable[Predicate]:
    """Each range at the place of the first of its field."""
    joined: dict[object, Predicate] = {}
    for place, part in enumerate(parts):
        if not isinstance(part, Range):
            joined[place] = part
            continue
        before = joined.get(part.field)
        if isinstance(before, NumberRange) and isinstance(part, NumberRange):
            low, high = max(before.low, part.low), min(before.high, part.high)
            joined[part.field] = NumberRange(part.field, low, high)
        elif isinstance(before, TextRange) and isinstance(part, TextRange):
            joined[part.field] = _intersect(before, part)
        else:
            joined[part.field if before is None else place] = part
    return joined.values()


def _intersect(one: TextRange, other: TextRange) -> TextRange:
    lows = [each for each in (one, other) if each.low is not None]
    highs = [each for each in (one, other) if each.high is not None]
    # Of two equal bounds, the one that leaves the value out is narrower.
    low = max(lows, key=lambda each: (each.low or "", not each.low_included), default=one)
    high = min(highs, key=lambda each: (each.high or "", each.high_included), default=one)
    return TextRange(one.field, low.low, high.high, low.low_included, high.high_included)

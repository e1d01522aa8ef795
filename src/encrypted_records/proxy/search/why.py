"""Explain why a query finds nothing: each of its comparisons alone, and alternatives that would
find records.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from encrypted_records.errors import InvalidQuery
from encrypted_records.index.query.counting import count_all
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.predicates import Joins, Not, NumberRange, Predicate, TextRange
from encrypted_records.model.queries import FOLDING, Conditions
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.joins import parse_body

#: Comparisons that are looked at.
MOST = 32


@dataclass(frozen=True, slots=True)
class Reason:
    """A single comparison of the condition.

    ``folded`` and ``trimmed`` are the numbers of records that it would find in any spelling, and
    without blanks around its texts; None if that was not or cannot be determined. ``never``
    explains why no record can match.
    """

    pointer: str
    field: str
    op: str
    count: int
    folded: int | None = None
    trimmed: int | None = None
    never: str | None = None


@dataclass(frozen=True, slots=True)
class Reasons:
    """``records`` is how many there are, ``count`` how many the whole condition finds."""

    records: int
    count: int
    comparisons: tuple[Reason, ...]


async def explain_nothing(
    runner: QueryRunner, caller: Holder, schema: bytes, body: Mapping[str, Any]
) -> Reasons:
    """
    Raises:
        InvalidQuery: the condition cannot be asked, or takes too many long strings.
        ErsError: as :meth:`QueryRunner.ask`.
    """

    async def question(context: QueryContext) -> Reasons:
        where = await parse_body(_read, body, context)
        asked = _comparisons(body)
        reasons = [await _look_at(context, comparison, pointer) for pointer, comparison in asked]
        count = await _count(context, where)
        return Reasons(context.snapshot.count, count, tuple(reasons))

    return await runner.ask(caller, schema, question)


def _read(body: Mapping[str, Any], definition: SchemaDefinition, joins: Joins) -> Predicate:
    return Conditions(definition, joins).read(body)


def _comparisons(body: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The first comparisons of a condition that was read, each with its place."""
    found: list[tuple[str, dict[str, Any]]] = []
    if body.get("where") is not None:
        found += _leaves(body["where"], "/where")
    for place, entry in enumerate(body.get("filters") or []):
        asked = {"field": entry["label"], "op": "eq", "value": entry["value"]}
        found.append((f"/filters/{place}", asked))
    return found[:MOST]


def _leaves(where: Any, pointer: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if "field" in where:
        yield pointer, where
        return
    ((word, inner),) = where.items()
    if isinstance(inner, list):
        for place, part in enumerate(inner):
            yield from _leaves(part, f"{pointer}/{word}/{place}")
    else:
        yield from _leaves(inner, f"{pointer}/{word}")


async def _look_at(context: QueryContext, asked: dict[str, Any], pointer: str) -> Reason:
    where = await parse_body(_read, {"where": asked}, context)
    reasoning = reason_about(asked, pointer, where, context.definition)
    try:
        wanted = next(reasoning)
        while True:
            wanted = reasoning.send(await _count(context, wanted))
    except StopIteration as end:
        reason: Reason = end.value
        return reason


def reason_about(
    asked: dict[str, Any], pointer: str, where: Predicate, definition: SchemaDefinition
) -> Generator[Predicate, int, Reason]:
    """The reason for the result of a comparison. The generator yields predicates and receives their
    numbers of matches.

    Args:
        where: the comparison, with what it asks of other schemas answered.
    """
    never = _never(where, definition)
    count = 0 if never else (yield where)
    folds = asked["op"] in FOLDING and asked["op"] != "ne" and "of" not in asked
    if count or definition.fields[asked["field"]].kind is not KeyKind.TEXT or not folds:
        return Reason(pointer, asked["field"], asked["op"], count, never=never)
    in_any_spelling = bare = None
    if not asked.get("fold"):
        in_any_spelling = _changed(asked, definition, fold=True)
    if (value := _trimmed(asked["value"])) != asked["value"]:
        bare = _changed(asked, definition, value=value)
    folded = None if in_any_spelling is None else (yield in_any_spelling)
    trimmed = None if bare is None else (yield bare)
    return Reason(pointer, asked["field"], asked["op"], count, folded, trimmed)


def _changed(
    asked: dict[str, Any], definition: SchemaDefinition, **members: Any
) -> Predicate | None:
    """The comparison with some other members; None where it cannot be asked so, such as a pattern
    that ended in an escaped blank."""
    try:
        return Conditions(definition).comparison({**asked, **members}, "/where")
    except InvalidQuery:
        return None


def _trimmed(value: Any) -> Any:
    if isinstance(value, list):
        return [_trimmed(item) for item in value]
    return value.strip() if isinstance(value, str) else value


def _never(where: Predicate, definition: SchemaDefinition) -> str | None:
    """Why no value at all can fit a range; None where some can."""
    match where:
        case Not():
            return None
        case NumberRange(field, low, high):
            rules = definition.fields[field].numbers
            if low > rules.highest or high < rules.lowest:
                return "the field has no values there: its minimum and maximum are elsewhere"
            if low > high:
                return "the lower bound is above the upper one, or no value lies between them"
        case TextRange(_, low, high) if low is not None and high is not None and low > high:
            return "the lower bound is above the upper one"
    return None


async def _count(context: QueryContext, where: Predicate) -> int:
    return await context.run(count_all(context.space, await context.condition(where)))

"""Answers to queries: a page of records, an aggregate, a plan, and reasons for an empty result.

Each answer plans a query, runs it (:mod:`encrypted_records.index.query`), and uses one snapshot of
the log. A dataset is searched schema by schema with one condition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, Literal

from encrypted_records import runtime
from encrypted_records.client.proxy.records import (
    Explanation,
    JoinCost,
    OpenedRows,
    Reason,
    Reasons,
    Segments,
    StageTime,
)
from encrypted_records.errors import Closed, ErsError, InvalidQuery, NotFound
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.aggregate import Aggregated, count_all, measure
from encrypted_records.index.query.pages import (
    FIRST_ROWS,
    Cursor,
    PageRequest,
    decode_cursor,
    encode_cursor,
    find_page,
)
from encrypted_records.model import predicates
from encrypted_records.model.aggregations import Aggregation, parse_aggregation
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.ids import from_reference, reference, to_text
from encrypted_records.model.queries import (
    FOLDING,
    Conditions,
    Query,
    parse_query,
    refuse_unknown,
    whole_number,
)
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process import aside, is_long
from encrypted_records.proxy.search.context import DatasetSchema, QueryContext, QueryRunner
from encrypted_records.proxy.search.joins import parse_body


@dataclass(frozen=True, slots=True)
class OpenedPage:
    """A page of results. ``definition`` and ``fields`` determine the fields to show, and their
    order.
    """

    count: int | None
    next_cursor: str | None
    records: list[PlainRecord]
    definition: SchemaDefinition
    fields: tuple[str, ...] | None


class SearchService:
    def __init__(self, runner: QueryRunner, first_rows: int = FIRST_ROWS) -> None:
        """
        Args:
            first_rows: as for :func:`answer`.
        """
        self._runner = runner
        self._first_rows = first_rows

    async def ask(self, caller: Holder, schema: bytes, body: Mapping[str, Any]) -> OpenedPage:
        """Records that match, at a version that was current during the call.

        Raises:
            InvalidQuery: the search is not valid, or the cursor is not from an earlier answer to
                it.
            Closed: the API's data is not consistent.
            ErsError: as :meth:`QueryRunner.ask`.
        """

        async def question(context: QueryContext) -> OpenedPage:
            query = await parse_body(parse_query, body, context)
            return await answer(context, query, first_rows=self._first_rows)

        return await self._runner.ask(caller, schema, question)

    async def page(
        self, caller: Holder, schema: bytes, *, offset: int, limit: int
    ) -> tuple[int, OpenedPage]:
        """The number of records, and the records from ``offset`` on."""

        async def question(context: QueryContext) -> tuple[int, OpenedPage]:
            snapshot = context.snapshot
            wanted = await runtime.in_thread(snapshot.find_live, offset, offset + limit)
            records = await context.rows(wanted)
            return snapshot.count, OpenedPage(None, None, records, context.definition, None)

        return await self._runner.ask(caller, schema, question)


async def answer(
    context: QueryContext, query: Query, *, first_rows: int = FIRST_ROWS
) -> OpenedPage:
    """Run a search and return one page.

    Args:
        first_rows: number of rows in the segments that are searched first, if the oldest matches
            are sufficient.

    Raises:
        InvalidQuery: the cursor is not from an earlier answer to this query.
        Moved: as for :class:`QueryContext`.
    """
    # The key of the whole schema: it stays when keys are rotated.
    question = context.tails.uids.of_question(query.question)
    start = None
    if query.cursor is not None:
        start = decode_cursor(query.cursor, context.snapshot, question, len(context.joined))
    # Later rows were added since the first page.
    stored = start.stored if start else context.snapshot.stored
    condition = await context.condition(query.where)
    request = PageRequest(context.space, query, condition, start, stored)
    count, rows = await context.run(find_page(request, first_rows))
    cursor = None
    if len(rows) > query.limit:  # the extra row says that there is another page
        rows = rows[: query.limit]
        joined = tuple(other.stored for other in context.joined)
        cursor = encode_cursor(Cursor(rows[-1][0].position, stored, joined, question))
    records = [record for _, record in rows]
    return OpenedPage(count, cursor, records, context.definition, query.fields)


@dataclass(frozen=True, slots=True)
class AggregateResult:
    aggregation: Aggregation
    groups: Aggregated


class Aggregates:
    def __init__(self, runner: QueryRunner) -> None:
        self._runner = runner

    async def ask(self, caller: Holder, schema: bytes, body: Mapping[str, Any]) -> AggregateResult:
        """The measures, at a version that was current during the call.

        Raises:
            InvalidQuery: it is not valid, or would take too many records or groups.
            Closed: the API's data is not consistent.
            ErsError: as :meth:`QueryRunner.ask`.
        """

        async def question(context: QueryContext) -> AggregateResult:
            aggregation = await parse_body(parse_aggregation, body, context)
            return await measured(context, aggregation)

        return await self._runner.ask(caller, schema, question)


async def measured(context: QueryContext, aggregation: Aggregation) -> AggregateResult:
    """The answer to an aggregate.

    Raises:
        InvalidQuery: it would take too many records or groups.
        Moved: as :class:`QueryContext`.
    """
    condition = await context.condition(aggregation.where)
    groups = await context.run(measure(context.space, condition, aggregation))
    return AggregateResult(aggregation, groups)


_OF_AGGREGATES = frozenset({"measures", "group_by"})


@dataclass(frozen=True, slots=True)
class _Explained:
    """A question that was answered; ``columns`` are the fields that it asks for beyond its
    condition."""

    kind: Literal["search", "aggregate"]
    columns: Set[str]
    where: predicates.Predicate
    context: QueryContext


async def explain(
    runner: QueryRunner,
    caller: Holder,
    schema: bytes,
    body: Mapping[str, Any],
    *,
    first_rows: int = FIRST_ROWS,
) -> Explanation:
    """Run a search, or an aggregate if the body has measures or groups. The answer has no value.

    Args:
        first_rows: as for :func:`.search.answer`.

    Raises:
        ErsError: as :meth:`SearchService.ask` or :meth:`Aggregates.ask`.
    """

    async def question(context: QueryContext) -> _Explained:
        if _OF_AGGREGATES & set(body):
            with context.stats.stage("plan"):
                aggregation = await parse_body(parse_aggregation, body, context)
            await measured(context, aggregation)
            return _Explained("aggregate", aggregation.fields, aggregation.where, context)
        with context.stats.stage("plan"):
            query = await parse_body(parse_query, body, context)
        await answer(context, query, first_rows=first_rows)
        sorted_by = {term.field for term in query.order}
        return _Explained("search", sorted_by, query.where, context)

    # Users may share this proxy: statistics must not show a user what another user searched.
    explained = await runner.ask(caller, schema, question, cold=True)
    where, context = explained.where, explained.context
    snapshot, stats = context.snapshot, context.stats
    # Fields are scanned, too, whose word index left too many records undecided.
    scanned = sorted({*predicates.tested_fields(where, context.definition), *stats.scanned})
    return Explanation(
        kind=explained.kind,
        version=snapshot.version,
        records=snapshot.count,
        columns=sorted(predicates.fields_of(where) | explained.columns),
        scan="column" if scanned else "ranges",
        scanned=scanned,
        segments=count_segments(snapshot),
        pages=stats.pages,
        rows=OpenedRows(stats.certain, stats.unsure, stats.rows),
        requests=stats.requests,
        joins=[
            JoinCost(
                join.pointer,
                reference("schemas", join.schema),
                join.field,
                join.version,
                join.rows,
                join.values,
            )
            for join in context.joined
        ],
        stages=[
            StageTime(name, round(seconds * 1000, 3)) for name, seconds in stats.seconds.items()
        ],
    )


def count_segments(snapshot: Snapshot) -> Segments:
    forms = Counter(segment.form for segment in snapshot.segments)
    return Segments(forms.total(), forms["mini"], forms["paged"])


#: Maximum number of comparisons that are explained.
MOST = 32


async def explain_nothing(
    runner: QueryRunner, caller: Holder, schema: bytes, body: Mapping[str, Any]
) -> Reasons:
    """
    Raises:
        InvalidQuery: the condition is not valid, or takes too many long strings.
        ErsError: as :meth:`QueryRunner.ask`.
    """

    async def question(context: QueryContext) -> Reasons:
        where = await parse_body(_read, body, context)
        comparisons = _comparisons(body)
        reasons = [
            await _look_at(context, comparison, pointer) for pointer, comparison in comparisons
        ]
        count = await _count(context, where)
        return Reasons(context.snapshot.count, count, reasons)

    return await runner.ask(caller, schema, question)


def _read(
    body: Mapping[str, Any], definition: SchemaDefinition, joins: predicates.Joins
) -> predicates.Predicate:
    return Conditions(definition, joins).read(body)


def _comparisons(body: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The first comparisons of a parsed condition, each with its JSON pointer."""
    found: list[tuple[str, dict[str, Any]]] = []
    if body.get("where") is not None:
        found += _leaves(body["where"], "/where")
    for place, entry in enumerate(body.get("filters") or []):
        comparison = {"field": entry["label"], "op": "eq", "value": entry["value"]}
        found.append((f"/filters/{place}", comparison))
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


async def _look_at(context: QueryContext, comparison: dict[str, Any], pointer: str) -> Reason:
    where = await parse_body(_read, {"where": comparison}, context)
    reasoning = reason_about(comparison, pointer, where, context.definition)
    try:
        wanted = next(reasoning)
        while True:
            wanted = reasoning.send(await _count(context, wanted))
    except StopIteration as end:
        reason: Reason = end.value
        return reason


def reason_about(
    comparison: dict[str, Any],
    pointer: str,
    where: predicates.Predicate,
    definition: SchemaDefinition,
) -> Generator[predicates.Predicate, int, Reason]:
    """The reason for the result of a comparison. The generator yields predicates and receives their
    numbers of matches.

    Args:
        where: the comparison, with its semi-joins answered.
    """
    never = _never(where, definition)
    count = 0 if never else (yield where)
    folds = comparison["op"] in FOLDING and comparison["op"] != "ne" and "of" not in comparison
    if count or definition.fields[comparison["field"]].kind is not KeyKind.TEXT or not folds:
        return Reason(pointer, comparison["field"], comparison["op"], count, never=never)
    in_any_spelling = bare = None
    if not comparison.get("fold"):
        in_any_spelling = _changed(comparison, definition, fold=True)
    if (value := _trimmed(comparison["value"])) != comparison["value"]:
        bare = _changed(comparison, definition, value=value)
    folded = None if in_any_spelling is None else (yield in_any_spelling)
    trimmed = None if bare is None else (yield bare)
    return Reason(pointer, comparison["field"], comparison["op"], count, folded, trimmed)


def _changed(
    comparison: dict[str, Any], definition: SchemaDefinition, **members: Any
) -> predicates.Predicate | None:
    """The comparison with some members replaced; None if the result is not valid, such as a pattern
    that ended in an escaped blank."""
    try:
        return Conditions(definition).comparison({**comparison, **members}, "/where")
    except InvalidQuery:
        return None


def _trimmed(value: Any) -> Any:
    if isinstance(value, list):
        return [_trimmed(item) for item in value]
    return value.strip() if isinstance(value, str) else value


def _never(where: predicates.Predicate, definition: SchemaDefinition) -> str | None:
    """Why no value at all can be in a range; None if some value can."""
    match where:
        case predicates.Not():
            return None
        case predicates.NumberRange(field, low, high):
            rules = definition.fields[field].numbers
            if low > rules.highest or high < rules.lowest:
                return "the field has no values there: its minimum and maximum are elsewhere"
            if low > high:
                return "the lower bound is above the upper one, or no value lies between them"
        case predicates.TextRange(_, low, high) if (
            low is not None and high is not None and low > high
        ):
            return "the lower bound is above the upper one"
    return None


async def _count(context: QueryContext, where: predicates.Predicate) -> int:
    return await context.run(count_all(context.space, await context.condition(where)))


#: Maximum number of schemas in one request.
MOST_SCHEMAS = 50
#: Maximum and default number of records shown of each schema.
MOST_SHOWN, SHOWN = 100, 10


@dataclass(frozen=True, slots=True)
class SchemaAnswer:
    """The answer of one schema: either its ``page`` with the count and first records, or the fields
    of the condition that it lacks, or the error of its search.
    """

    id: bytes
    name: str
    slug: str
    page: OpenedPage | None = None
    missing: tuple[str, ...] = ()
    error: ErsError | None = None


@dataclass(frozen=True, slots=True)
class DatasetAnswer:
    """``next_cursor`` is the id of the last schema that was searched, if there are more."""

    schemas: tuple[SchemaAnswer, ...]
    next_cursor: str | None


async def search_dataset(
    runner: QueryRunner, caller: Holder, dataset: bytes, body: Mapping[str, Any]
) -> DatasetAnswer:
    """
    Args:
        body: ``where`` and ``filters`` as in a search; ``limit``, of each schema; and ``cursor``,
            the ``next_cursor`` of the previous page.

    Raises:
        NotFound: the dataset does not exist, or the caller may not read it.
        InvalidQuery: the condition is not valid in any schema that has its fields.
        ErsError: as :meth:`QueryRunner.ask`, if the error does not concern a single schema.
    """
    refuse_unknown(body, {"where", "filters", "limit", "cursor"})
    limit = whole_number(body.get("limit", SHOWN), "/limit", 0, MOST_SHOWN)
    behind = b""
    if body.get("cursor") is not None:
        behind = from_reference(body["cursor"], "schemas", pointer="/cursor")
    schemas = await runner.datasets.of_dataset(caller, dataset)
    left = sorted(schema for schema in schemas if schema > behind)
    queried = left[:MOST_SCHEMAS]
    query = {name: body[name] for name in ("where", "filters") if name in body}
    query |= {"limit": limit, "count": True}
    answers = [await _ask(runner, caller, schema, schemas[schema], query) for schema in queried]
    found = tuple(answer for answer in answers if answer is not None)
    refused = [outcome.error for outcome in found if isinstance(outcome.error, InvalidQuery)]
    if refused and not any(outcome.page for outcome in found):
        raise refused[0]
    return DatasetAnswer(found, to_text(queried[-1]) if len(left) > len(queried) else None)


async def _ask(
    runner: QueryRunner,
    caller: Holder,
    schema: bytes,
    shown: DatasetSchema,
    query: Mapping[str, Any],
) -> SchemaAnswer | None:
    """The answer of a schema; None if the API no longer has it, and it is unsigned or its name was
    freed. A schema that the API hides is an error.
    """

    async def question(context: QueryContext) -> SchemaAnswer:
        names = dict.fromkeys(_names(query))
        missing = tuple(name for name in names if name not in context.definition.fields)
        if missing:
            return SchemaAnswer(schema, shown.name, shown.slug, missing=missing)
        if is_long(query):
            parsed = await aside(parse_query, query, context.definition)
        else:
            parsed = parse_query(query, context.definition)
        page = await answer(context, parsed)
        return SchemaAnswer(schema, shown.name, shown.slug, page)

    try:
        try:
            return await runner.ask(caller, schema, question)
        except NotFound:
            # Omitted from the answer only if the schema is unsigned, or its name was freed.
            await runner.datasets.require_removed(caller, shown)
            return None
    except (InvalidQuery, Closed) as error:
        if error.reason == "keyring_locked":
            raise
        return SchemaAnswer(schema, shown.name, shown.slug, error=error)


def _names(query: Mapping[str, Any]) -> Iterator[str]:
    """The fields that a condition names, even if the condition is not valid."""
    parts = [query.get("where")]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            if isinstance(name := part.get("field"), str):
                yield name
            parts += [part[word] for word in ("and", "or", "not") if word in part]
    filters = query.get("filters")
    for condition in filters if isinstance(filters, list) else ():
        if isinstance(condition, dict) and isinstance(name := condition.get("label"), str):
            yield name

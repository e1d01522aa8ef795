"""EXPLAIN: run the query, return its statistics instead of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from encrypted_records.index.query.pages import FIRST_ROWS
from encrypted_records.model.aggregations import parse_aggregation
from encrypted_records.model.predicates import Predicate, fields_of, tested_fields
from encrypted_records.model.queries import parse_query
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.search.aggregate import measured
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.joins import parse_body
from encrypted_records.proxy.search.search import answer

_OF_AGGREGATES = frozenset({"measures", "group_by"})


@dataclass(frozen=True, slots=True)
class Explanation:
    """``columns`` are the fields whose columns were used, and ``scanned`` those of them whose texts
    were tested one by one. It holds no value."""

    kind: Literal["search", "aggregate"]
    columns: tuple[str, ...]
    scanned: tuple[str, ...]
    context: QueryContext


async def explain(
    runner: QueryRunner,
    caller: Holder,
    schema: bytes,
    body: Mapping[str, Any],
    *,
    first_rows: int = FIRST_ROWS,
) -> Explanation:
    """Run a search, or an aggregate where the body has measures or groups.

    Args:
        first_rows: as for :func:`.search.answer`.

    Raises:
        ErsError: as :meth:`Search.ask` or :meth:`Aggregates.ask`.
    """

    async def question(context: QueryContext) -> Explanation:
        if _OF_AGGREGATES & set(body):
            with context.stats.stage("plan"):
                aggregation = await parse_body(parse_aggregation, body, context)
            await measured(context, aggregation)
            return Explanation(
                "aggregate",
                tuple(sorted(fields_of(aggregation.where) | aggregation.fields)),
                _scanned(context, aggregation.where),
                context,
            )
        with context.stats.stage("plan"):
            query = await parse_body(parse_query, body, context)
        await answer(context, query, first_rows=first_rows)
        sorted_by = {term.field for term in query.order}
        columns = tuple(sorted(fields_of(query.where) | sorted_by))
        return Explanation("search", columns, _scanned(context, query.where), context)

    # Users may share this proxy: what one asked before must not show in the statistics of another.
    return await runner.ask(caller, schema, question, cold=True)


def _scanned(context: QueryContext, where: Predicate) -> tuple[str, ...]:
    """With the fields whose index of words left too many records open."""
    return tuple(sorted({*tested_fields(where, context.definition), *context.stats.scanned}))

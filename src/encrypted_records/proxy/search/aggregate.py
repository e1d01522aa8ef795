"""Answer an aggregate: plan -> fetch pages -> match -> measure, mostly from the index alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from encrypted_records.index.query.aggregate import Aggregated, Bucket, aggregate
from encrypted_records.index.segments.paged import PagedSegment, scope
from encrypted_records.model.aggregations import (
    Aggregation,
    Count,
    Extreme,
    Histogram,
    Percentile,
    parse_aggregation,
)
from encrypted_records.model.predicates import Everything
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.counts import count_matches
from encrypted_records.proxy.search.joins import parse_body
from encrypted_records.proxy.search.match import fill_columns, learn_texts, match_rows


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
            InvalidQuery: it cannot be asked, or would take too many records or groups.
            Closed: the API's data is not consistent.
            ErsError: as :meth:`QueryRunner.ask`.
        """

        async def question(context: QueryContext) -> AggregateResult:
            aggregation = await parse_body(parse_aggregation, body, context)
            return await measure(context, aggregation)

        return await self._runner.ask(caller, schema, question)


async def measure(context: QueryContext, aggregation: Aggregation) -> AggregateResult:
    """The answer to an aggregate.

    Raises:
        InvalidQuery: it would take too many records or groups.
        Moved: as :class:`QueryContext`.
    """
    if not aggregation.group_by and all(one == Count() for one in aggregation.measures):
        plan = await context.plan(aggregation.where)
        count = None if plan.tests else await count_matches(context, plan)
        if count is not None:
            bucket = Bucket((), (count,) * len(aggregation.measures))
            return AggregateResult(aggregation, Aggregated([bucket], 1))
    # Of a large schema, one column of one segment at a time is brought.
    few = context.snapshot.count * len(aggregation.fields) <= context.sizes.few_values
    at_once = aggregation.fields if few and _needs_columns(context, aggregation) else ()
    parts = await match_rows(context, aggregation.where)
    segments = [one.segment for one in parts if isinstance(one.segment, PagedSegment)]
    with scope(*segments):
        await fill_columns(context, segments, at_once)
        with context.stats.stage("fetch_pages"):
            await context.fill(segments, lambda one: one.missing_directories(aggregation.fields))
        texts = context.texts()
        by_row = context.fetcher.keeps_columns(context.snapshot.count, len(aggregation.fields))
        reading = context.sizes.reading
        while True:
            asking = aggregate(
                aggregation, context.definition, parts, texts, reading=reading, by_row=by_row
            )
            groups = await context.run(asking)
            if groups is not None:
                return AggregateResult(aggregation, groups)
            await learn_texts(context, texts)


def _needs_columns(context: QueryContext, aggregation: Aggregation) -> bool:
    """Whether more than directories and a few pages is needed of the fields that are measured."""
    ranked = (Count, Extreme, Percentile, Histogram)
    if aggregation.group_by or not isinstance(aggregation.where, Everything):
        return True
    if not all(isinstance(one, ranked) for one in aggregation.measures):
        return True
    return any(context.definition.fields[name].is_of_texts for name in aggregation.fields)

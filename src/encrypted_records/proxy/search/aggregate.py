"""Answer an aggregate: plan -> ask for its measures, mostly from the index alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from encrypted_records.index.query.aggregate import Aggregated
from encrypted_records.index.query.measuring import measure
from encrypted_records.model.aggregations import Aggregation, parse_aggregation
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.joins import parse_body


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

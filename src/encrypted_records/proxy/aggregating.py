"""Answer an aggregate: plan -> fetch pages -> resolve -> measure, mostly from the index alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from encrypted_records.index.aggregate import Aggregated, aggregate
from encrypted_records.index.long_texts import Texts
from encrypted_records.model.aggregations import Aggregation, parse_aggregation
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.asking import Asker, Asking
from encrypted_records.proxy.resolving import learn_texts, matching


@dataclass(frozen=True, slots=True)
class Measured:
    asked: Aggregation
    found: Aggregated


class Aggregates:
    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    async def ask(self, caller: Caller, schema: bytes, body: Mapping[str, Any]) -> Measured:
        """The measures, at a version that was current meanwhile.

        Raises:
            InvalidQuery: it cannot be asked, or would take too many records or groups.
            Closed: the API's data does not hold together.
            ErsError: as :meth:`Asker.ask`.
        """

        async def question(asking: Asking) -> Measured:
            return await measured(asking, parse_aggregation(body, asking.definition))

        return await self._asker.ask(caller, schema, question)


async def measured(asking: Asking, asked: Aggregation) -> Measured:
    """The answer to an aggregate.

    Raises:
        InvalidQuery: it would take too many records or groups.
        Moved: as :class:`Asking`.
    """
    parts = await matching(asking, asked.where, asked.fields)
    texts = Texts()
    while True:
        with asking.cost.stage("measure"):
            found = await asyncio.to_thread(aggregate, asked, asking.definition, parts, texts)
        if found is not None:
            return Measured(asked, found)
        await learn_texts(asking, texts)

"""What answering a question takes: the question is answered, and its costs are told instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from encrypted_records.model.aggregations import parse_aggregation
from encrypted_records.model.predicates import fields_of
from encrypted_records.model.questions import parse_query
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.aggregating import measured
from encrypted_records.proxy.asking import Asker, Asking
from encrypted_records.proxy.search import answer

_OF_AGGREGATES = frozenset({"measures", "group_by"})


@dataclass(frozen=True, slots=True)
class Plan:
    """``columns`` are the fields whose columns were looked at. No value is in any of it."""

    kind: Literal["search", "aggregate"]
    columns: tuple[str, ...]
    asking: Asking


async def explain(asker: Asker, caller: Caller, schema: bytes, body: Mapping[str, Any]) -> Plan:
    """Answer a search, or an aggregate where the body has measures or groups, and say how.

    Raises:
        ErsError: as asking it does.
    """

    async def question(asking: Asking) -> Plan:
        if _OF_AGGREGATES & set(body):
            with asking.cost.stage("plan"):
                asked = parse_aggregation(body, asking.definition)
            await measured(asking, asked)
            return Plan("aggregate", tuple(sorted(fields_of(asked.where) | asked.fields)), asking)
        with asking.cost.stage("plan"):
            query = parse_query(body, asking.definition)
        await answer(asking, query)
        sorted_by = {one.field for one in query.order}
        return Plan("search", tuple(sorted(fields_of(query.where) | sorted_by)), asking)

    return await asker.ask(caller, schema, question)

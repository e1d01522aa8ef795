"""All records of a search, a batch at a time: no more than one batch is in memory opened.

The whole export is of one version of the log. Rows are immutable and stay readable when they are
replaced or deleted, so what happens meanwhile does not change what is exported.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from encrypted_records.index.long_texts import Texts
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.questions import Query, parse_query
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.access import Caller
from encrypted_records.proxy.asking import Asker, Asking
from encrypted_records.proxy.resolving import BATCH, opened, resolved
from encrypted_records.proxy.search import Found, checked, found_in, sort, stored


@dataclass(frozen=True, slots=True)
class Export:
    """``batches`` may be read once; whatever goes wrong while it is, it raises."""

    definition: SchemaDefinition
    fields: tuple[str, ...] | None
    batches: AsyncIterator[Sequence[PlainRecord]]


async def export(asker: Asker, caller: Caller, schema: bytes, body: Mapping[str, Any]) -> Export:
    """Every record that a search selects, in its order.

    The first batch is opened before this returns, so that most of what can go wrong does so while
    it can still be said with a status.

    Raises:
        InvalidQuery: the search cannot be asked.
        ErsError: as :meth:`Asker.ask`.
    """

    async def question(asking: Asking) -> Export:
        query = parse_query(body, asking.definition)
        rows = await _rows(asking, query)
        first = await _batch(asking, query, rows)
        batches = _batches(asking, query, first, rows)
        return Export(asking.definition, query.fields, batches)

    return await asker.ask(caller, schema, question)


async def _rows(asking: Asking, query: Query) -> Iterator[Found]:
    found = await resolved(asking, query.where)
    if not query.order:
        return stored(found, asking.view, None)
    every = sum(len(one.answer.possible) for one in found)
    return found_in(asking, await sort(asking, query, found, Texts(), want=every))


async def _batch(asking: Asking, query: Query, rows: Iterator[Found]) -> list[PlainRecord] | None:
    """The matching records among the next rows; None when there are no more rows."""
    some = list(islice(rows, BATCH))
    if not some:
        return None
    records = await opened(asking, [one.ref for one in some])
    return [record for _, record in checked(query.where, asking.definition, some, records)]


async def _batches(
    asking: Asking, query: Query, first: list[PlainRecord] | None, rows: Iterator[Found]
) -> AsyncIterator[Sequence[PlainRecord]]:
    batch = first
    while batch is not None:
        yield batch
        batch = await _batch(asking, query, rows)

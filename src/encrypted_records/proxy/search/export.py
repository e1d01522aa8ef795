"""All records of a search, one window at a time: only one window is opened in memory.

The rows of a window are requested together, in random order: the larger it is, the less an API that
watches learns about the order of rows. The whole export is of one version of the log, which is held
while it lasts (:mod:`.holding`): rows stay readable when they are replaced or deleted, so later
changes do not affect it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from encrypted_records.errors import Conflict
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.queries import Query, parse_query
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.holding import VersionHold, holding
from encrypted_records.proxy.search.joins import parse_body
from encrypted_records.proxy.search.match import BATCH, open_rows, resolve
from encrypted_records.proxy.search.row_fetcher import MOST_OPENED
from encrypted_records.proxy.search.search import (
    Candidate,
    check_candidates,
    list_candidates,
    scan_stored,
    sort,
)
from encrypted_records.proxy.search.upstream import RowsGone


@dataclass(frozen=True, slots=True)
class Export:
    """``batches`` may be read once; it raises the errors of fetching and opening."""

    definition: SchemaDefinition
    fields: tuple[str, ...] | None
    batches: AsyncIterator[Sequence[PlainRecord]]


async def export(
    runner: QueryRunner, caller: Holder, schema: bytes, body: Mapping[str, Any]
) -> Export:
    """Every record that a search selects, in its order.

    The first window is opened before this returns, so that most errors occur while an HTTP status
    can still report them.

    Raises:
        InvalidQuery: the search cannot be asked.
        ErsError: as :meth:`QueryRunner.ask`.
    """

    async def question(context: QueryContext) -> Export:
        query = await parse_body(parse_query, body, context)
        candidates = await _candidates(context, query)
        first = await _window(context, query, candidates)
        batches = _named(runner, context, _batches(context, query, first, candidates))
        if not candidates.few:
            hold = VersionHold.of_export(context.upstream)
            await hold.begin()
            batches = holding(hold, batches)
        return Export(context.definition, query.fields, batches)

    return await runner.ask(caller, schema, question)


async def _named(
    runner: QueryRunner, context: QueryContext, batches: AsyncIterator[Sequence[PlainRecord]]
) -> AsyncIterator[Sequence[PlainRecord]]:
    """The batches; a row that is gone is not the log's fault where the log has moved on.

    Raises:
        Conflict: ``export_gone``.
        LogBroken: the API lacks a row that must be there.
    """
    try:
        async for batch in batches:
            yield batch
    except RowsGone:
        await runner.require_moved(context)
        raise Conflict(
            "a record of the export was deleted and erased while it ran",
            code="export_gone",
            hint="export again",
        ) from None


@dataclass(frozen=True)
class _Candidates:
    """Rows in the order of the export; ``few``: they fit into one window."""

    rows: Iterator[Candidate]
    few: bool


async def _candidates(context: QueryContext, query: Query) -> _Candidates:
    plan = await context.plan(query.where)
    answers = await resolve(context, plan)
    every = sum(len(one.matches.possible) for one in answers)
    few = every <= MOST_OPENED
    if not query.order:
        return _Candidates(scan_stored(answers, context.snapshot, None), few)
    texts = context.texts()
    rows = await sort(context, query, plan, answers, texts, want=every)
    return _Candidates(list_candidates(context, rows), few)


async def _window(
    context: QueryContext, query: Query, candidates: _Candidates
) -> list[PlainRecord] | None:
    """The matching records among the next rows; None when there are no more rows."""
    some = list(islice(candidates.rows, context.fetcher.window(context.state)))
    if not some:
        return None
    # All rows of a large export would evict the rows that searches use.
    records = await open_rows(context, [one.ref for one in some], alone=not candidates.few)
    return [record for _, record in await check_candidates(context, query.where, some, records)]


async def _batches(
    context: QueryContext, query: Query, first: list[PlainRecord] | None, candidates: _Candidates
) -> AsyncIterator[Sequence[PlainRecord]]:
    window = first
    while window is not None:
        for start in range(0, len(window), BATCH):
            yield window[start : start + BATCH]
        window = await _window(context, query, candidates)

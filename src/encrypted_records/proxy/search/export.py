"""All records of a search, one window at a time: only one window is opened in memory.

The API sees which rows match, in the order of storing, whatever the order of the export: windows of
a sorted export would reveal the order, and so the sorted values. A sorted export fetches all of its
rows first and keeps them sealed: in memory, or above some megabytes in an anonymous file. It then
reads them in its order (docs/decisions/watching.md). The rows of a window are requested together,
in random order.

The whole export is of one version of the log, which is held while it lasts (:mod:`.upstream`): rows
stay readable when they are replaced or deleted, so later changes do not affect it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from encrypted_records import runtime
from encrypted_records.errors import Conflict
from encrypted_records.index.log.snapshot import Positions
from encrypted_records.index.query.asking import Asking, Workspace
from encrypted_records.index.query.candidates import BATCH
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.matching import Matching
from encrypted_records.index.query.pages import (
    Candidate,
    Found,
    check_candidates,
    scan_stored,
    take_candidates,
)
from encrypted_records.index.query.top_k import take_first
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.queries import Query, parse_query
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.disk import NamelessFile
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.search import row_checks
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.joins import parse_body
from encrypted_records.proxy.search.row_fetcher import MOST_OPENED
from encrypted_records.proxy.search.upstream import RowsGone, VersionHold, holding
from encrypted_records.proxy.spool import Spool

#: Sealed rows of a sorted export are kept in memory up to this size; larger exports go to disk.
IN_MEMORY_BYTES = 8 << 20

Batches = AsyncGenerator[Sequence[PlainRecord], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Export:
    """``first`` is the first batch, if there is one. ``rest`` may be read once; it raises the
    errors of fetching and opening. The caller closes it. The batches of a sorted export are empty
    until all of its rows are fetched."""

    definition: SchemaDefinition
    fields: tuple[str, ...] | None
    first: Sequence[PlainRecord] | None
    rest: Batches


async def export(
    runner: QueryRunner, spool: Spool, caller: Holder, schema: bytes, body: Mapping[str, Any]
) -> Export:
    """All records that a search selects, in its order.

    The first window is fetched before this returns, so that most errors occur while an HTTP status
    can still report them.

    Args:
        spool: stores the rows of a sorted export that are too many for memory.

    Raises:
        InvalidQuery: the search is not valid.
        OutOfSpace, Unavailable: the disk cannot store the rows of a sorted export.
        ErsError: as :meth:`QueryRunner.ask`.
    """

    async def question(context: QueryContext) -> Export:
        query = await parse_body(parse_query, body, context)
        condition = await context.condition(query.where)
        selected = await context.run(_select(context.space, query, condition))
        # All rows of a large export would evict the rows that searches use.
        alone = selected.count > MOST_OPENED
        if isinstance(selected, _Ranking):
            batches = _in_order(context, query, selected, spool, alone=alone)
        else:
            batches = _as_stored(context, query, selected.candidates, alone=alone)
        if alone:
            hold = VersionHold.of_export(context.upstream)
            await hold.begin()
            batches = holding(hold, batches)
        first = await anext(batches, None)
        remaining = conflict_if_gone(runner, context, batches)
        return Export(context.definition, query.fields, first, remaining)

    return await runner.ask(caller, schema, question)


def _select(
    space: Workspace, query: Query, condition: Condition
) -> Asking[_Ranking | _StoredOrder]:
    """The rows that may match, ranked if the query has an order."""
    answers = yield from Matching(space, condition).find()
    count = sum(len(answer.matches.possible) for answer in answers)
    if not query.order:
        return _StoredOrder(count, scan_stored(answers, space.snapshot, None))
    rows = yield from take_first(space, query, condition, answers, space.texts(), want=count)
    return _Ranking(count, rows.positions, rows.certain)


async def conflict_if_gone(
    runner: QueryRunner, context: QueryContext, batches: AsyncGenerator[T, None]
) -> AsyncGenerator[T, None]:
    """The batches. A row that is gone because the log has moved on is a conflict.

    Raises:
        Conflict: ``export_gone``.
        LogBroken: the API lacks a row that must be there.
    """
    try:
        async with aclosing(batches):
            async for batch in batches:
                yield batch
    except RowsGone:
        await runner.require_moved(context)
        raise Conflict(
            "a record of the export was deleted and erased while it ran",
            code="export_gone",
            hint="export again",
        ) from None


# --- in the order of storing ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _StoredOrder:
    """The ``count`` rows that may match, in the order in which they were stored."""

    count: int
    candidates: Iterator[Candidate]


async def _as_stored(
    context: QueryContext, query: Query, candidates: Iterator[Candidate], *, alone: bool
) -> Batches:
    """The records of ``candidates`` that match."""
    while window := list(islice(candidates, context.fetcher.window(context.state))):
        rows = take_candidates(context.space, query.where, window, alone=alone)
        for batch in _in_batches(await context.run(rows)):
            yield batch


def _in_batches(rows: Found) -> Iterator[list[PlainRecord]]:
    found = [record for _, record in rows]
    for start in range(0, len(found), BATCH):
        yield found[start : start + BATCH]


# --- in the order of fields -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ranking:
    """The ``count`` rows that may match, by rank: their positions, and whether each surely does."""

    count: int
    positions: Positions
    certain: NDArray[np.bool_]

    def candidates(self, context: QueryContext, ranks: slice | NDArray[np.intp]) -> list[Candidate]:
        pairs = zip(self.positions[ranks].tolist(), self.certain[ranks].tolist(), strict=True)
        return [Candidate(at, context.snapshot.ref(at), certain) for at, certain in pairs]


async def _in_order(
    context: QueryContext, query: Query, ranking: _Ranking, spool: Spool, *, alone: bool
) -> Batches:
    """The records of ``ranking`` that match, once all of its rows are fetched."""
    total = len(ranking.positions)
    with closing(_SealedByRank(total, spool)) as kept:
        stored, start = np.argsort(ranking.positions), 0
        while start < total:
            ranks = stored[start : start + context.fetcher.window(context.state)]
            refs = [candidate.ref for candidate in ranking.candidates(context, ranks)]
            with context.stats.stage("fetch_rows"):
                sealed = await context.prove_rows(refs, alone=alone)
            await runtime.in_thread(kept.add, ranks, [sealed[ref] for ref in refs])
            start += len(ranks)
            yield ()  # of a turn (:class:`.Turns`), this is all
        del stored
        start = 0
        while start < total:
            end = min(total, start + context.fetcher.window(context.state))
            window = ranking.candidates(context, slice(start, end))
            stored_rows = await runtime.in_thread(kept.read, start, end)
            sealed = {stored.ref: row for stored, row in zip(window, stored_rows, strict=True)}
            records = await row_checks.open_rows(context.state, context.snapshot, sealed)
            in_order = [records[candidate.ref] for candidate in window]
            rows = check_candidates(context.space, query.where, window, in_order)
            for batch in _in_batches(await context.run(rows)):
                yield batch
            start = end


class _SealedByRank:
    """Sealed rows, added in any order: in memory, or in a file of ``spool`` if they are many."""

    def __init__(self, count: int, spool: Spool) -> None:
        self._spool = spool
        self._memory = bytearray()
        self._file: NamelessFile | None = None
        #: by rank, where each row begins, and its bytes
        self._starts = np.zeros(count, np.int64)
        self._sizes = np.zeros(count, np.int64)

    def add(self, ranks: NDArray[np.intp], rows: Sequence[bytes]) -> None:
        """
        Raises:
            OutOfSpace, Unavailable: the disk cannot store them.
        """
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        if self._file is None and len(self._memory) + int(sizes.sum()) > IN_MEMORY_BYTES:
            self._file = self._spool.scratch("a sorted export")
            self._file.append(self._memory)
            self._memory = bytearray()
        data = b"".join(rows)
        if self._file is None:
            start = len(self._memory)
            self._memory += data
        else:
            start = self._file.append(data)
        self._starts[ranks] = start + np.cumsum(sizes) - sizes
        self._sizes[ranks] = sizes

    def read(self, first: int, end: int) -> list[bytes]:
        """The rows with these ranks.

        Raises:
            Unavailable: the disk fails.
        """
        places = zip(self._starts[first:end].tolist(), self._sizes[first:end].tolist(), strict=True)
        if self._file is None:
            return [bytes(self._memory[start : start + size]) for start, size in places]
        return [self._file.read(start, size) for start, size in places]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

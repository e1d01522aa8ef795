"""Answer a search: plan -> fetch pages -> match -> sort -> fetch rows -> open -> check.

One query uses one snapshot of the log. Rows come in the order that the query names, or else in the
order in which they were stored. A cursor names the last row returned and the newest group of the
first page's snapshot, so that later pages neither repeat nor skip rows while other writers store
more. It holds no value: where its row stands in a sorted order is read from the row itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from encrypted_records import runtime
from encrypted_records.errors import DoesNotOpen, Flaw, InvalidQuery, NotFound
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.query.long_strings import Texts
from encrypted_records.index.query.plan import Plan
from encrypted_records.index.query.sort import SortedRows, SortPosition, first, locate_record
from encrypted_records.index.segments.paged import scope
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.predicates import Predicate
from encrypted_records.model.queries import Query, parse_query
from encrypted_records.model.records import PlainRecord, RowRef, Segment
from encrypted_records.proxy.keyrings.holder import Holder
from encrypted_records.proxy.process.offload import run_for
from encrypted_records.proxy.search.context import QueryContext, QueryRunner
from encrypted_records.proxy.search.counts import count_matches, count_rows
from encrypted_records.proxy.search.cursor import Cursor, decode_cursor, encode_cursor
from encrypted_records.proxy.search.joins import parse_body
from encrypted_records.proxy.search.match import (
    SegmentMatches,
    check_records,
    learn_texts,
    open_rows,
    resolve,
)
from encrypted_records.proxy.search.row_cover import MOST_HIDDEN
from encrypted_records.proxy.search.segment_filters import UnreadSegment, resolve_sorted
from encrypted_records.proxy.search.top_k import scan_sorted

#: Rows of the segments that are searched first, where the oldest rows that match are enough.
FIRST_ROWS = 1 << 18


@dataclass(frozen=True, slots=True)
class SearchPage:
    """One page. ``definition`` and ``fields`` say which fields to show, and in which order."""

    count: int | None
    next_cursor: str | None
    records: list[PlainRecord]
    definition: SchemaDefinition
    fields: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One row that may match; ``certain`` if it surely does."""

    position: int
    ref: RowRef
    certain: bool


#: Candidates that match, each with its record.
_Rows = list[tuple[Candidate, PlainRecord]]


class Search:
    def __init__(self, runner: QueryRunner, first_rows: int = FIRST_ROWS) -> None:
        """
        Args:
            first_rows: as for :func:`answer`.
        """
        self._runner = runner
        self._first_rows = first_rows

    async def ask(self, caller: Holder, schema: bytes, body: Mapping[str, Any]) -> SearchPage:
        """Records that match, at a version that was current during the call.

        Raises:
            InvalidQuery: the search cannot be asked, or the cursor is not one of ours.
            Closed: the API's data is not consistent.
            ErsError: as :meth:`QueryRunner.ask`.
        """

        async def question(context: QueryContext) -> SearchPage:
            query = await parse_body(parse_query, body, context)
            return await answer(context, query, first_rows=self._first_rows)

        return await self._runner.ask(caller, schema, question)

    async def page(
        self, caller: Holder, schema: bytes, *, offset: int, limit: int
    ) -> tuple[int, SearchPage]:
        """How many records there are, and those from ``offset`` on."""

        async def question(context: QueryContext) -> tuple[int, SearchPage]:
            snapshot = context.snapshot
            wanted = await runtime.in_thread(snapshot.find_live, offset, offset + limit)
            records = await open_rows(context, wanted)
            return snapshot.count, SearchPage(None, None, records, context.definition, None)

        return await self._runner.ask(caller, schema, question)


@dataclass(frozen=True, slots=True)
class _PageRequest:
    """One page of a query: after ``start``, of the first ``stored`` rows of the schema."""

    context: QueryContext
    query: Query
    plan: Plan
    start: Cursor | None
    stored: int

    @property
    def wanted(self) -> int:
        """One row more than the page has: it shows whether there is a next page."""
        return self.query.limit + 1 if self.query.limit else 0

    async def resolve(
        self,
        among: Sequence[Segment] | None = None,
        *,
        decide: bool = True,
        first: int | None = None,
    ) -> list[SegmentMatches]:
        answers = await resolve(self.context, self.plan, among, decide=decide, first=first)
        return [one.within(self.context.snapshot, self.stored) for one in answers]


async def answer(
    context: QueryContext, query: Query, *, first_rows: int = FIRST_ROWS
) -> SearchPage:
    """One page of a search.

    Args:
        first_rows: rows of the segments that are searched first, where the oldest rows that match
            are enough.

    Raises:
        InvalidQuery: the cursor is not one of ours.
        Moved: as :class:`QueryContext`.
    """
    joins = len(context.joined)
    # Of the schema as a whole: it stays when keys are rotated.
    question = context.tails.uids.of_question(query.question)
    start = None
    if query.cursor is not None:
        start = decode_cursor(query.cursor, context.snapshot, question, joins)
    stored = start.stored if start else context.snapshot.stored
    request = _PageRequest(context, query, await context.plan(query.where), start, stored)
    count = await _count_from_directories(request)
    rows: _Rows = []
    if query.order:
        count, rows = await _answer_sorted(request, count)
    elif query.count and count is None:
        count, rows = await _answer_counted(request)
    elif query.limit or not query.count:
        rows = await _answer_oldest(request, first_rows)
    cursor = None
    if len(rows) > query.limit:
        rows = rows[: query.limit]
        joined = tuple(one.stored for one in context.joined)
        cursor = encode_cursor(Cursor(rows[-1][0].position, stored, joined, question))
    records = [record for _, record in rows]
    return SearchPage(count, cursor, records, context.definition, query.fields)


# --- one function for each way to answer --------------------------------------------------------


async def _count_from_directories(request: _PageRequest) -> int | None:
    """The count that is asked for, where directories give it sooner than all rows that match do;
    else None."""
    query, context = request.query, request.context
    if not query.count or request.stored < context.snapshot.stored:
        return None
    if query.limit:
        # The rows of a small schema are there with the first request. Tests are not made twice.
        every = sum(segment.count for segment in context.snapshot.segments)
        if every <= context.sizes.few_rows or request.plan.tests:
            return None
    return await count_matches(context, request.plan)


async def _answer_sorted(request: _PageRequest, count: int | None) -> tuple[int | None, _Rows]:
    """In the order of fields; all segments are needed."""
    query, context = request.query, request.context
    if query.count and count is None:
        answers = await request.resolve()
        count = await count_rows(context, query.where, answers)
        return count, await _take_sorted(request, answers)
    if query.count and not query.limit:
        return count, []
    found = await resolve_sorted(context, request.plan, query.order, request.stored)
    return count, await _take_sorted(request, found)


async def _answer_counted(request: _PageRequest) -> tuple[int | None, _Rows]:
    """In the order of storing, with a count, which needs all segments."""
    answers = await request.resolve()
    count = await count_rows(request.context, request.query.where, answers)
    candidates = scan_stored(answers, request.context.snapshot, request.start)
    await _leave_out(request, candidates, request.query.offset, None)
    rows = await _take(request, candidates, request.wanted, None)
    assert rows is not None
    return count, rows


async def _answer_oldest(request: _PageRequest, first_rows: int) -> _Rows:
    """In the order of storing, without the segments that are not needed: where the segments
    before them have enough rows."""
    if request.plan.tests or request.plan.words:
        # Where a test of long strings passes often, the first ones are enough.
        rows = await _take_oldest(request, first_rows, decide=False)
        if rows is not None:
            return rows
        request = replace(request, plan=request.plan.with_texts())
    rows = await _take_oldest(request, first_rows, decide=True)
    assert rows is not None
    return rows


async def _take_oldest(request: _PageRequest, first_rows: int, *, decide: bool) -> _Rows | None:
    """The rows; None where ``decide`` is false, and too many records would have to be opened that
    then do not match."""
    snapshot, start = request.context.snapshot, request.start
    rows: _Rows = []
    left = request.query.offset
    limit = None if decide else request.context.stats.rows + request.context.most_opened
    for segments in snapshot.by_age(after=start.position if start else 0, rows=first_rows):
        if len(rows) == request.wanted:
            break
        # After a cursor the first rows are others; and what is explained counts all.
        enough = left + request.wanted - len(rows)
        is_first = start is None and not request.context.fetcher.is_cold
        answers = await request.resolve(segments, decide=decide, first=enough if is_first else None)
        candidates = scan_stored(answers, snapshot, start)
        gone = await _leave_out(request, candidates, left, limit)
        if gone is None:
            return None
        left -= gone
        taken = await _take(request, candidates, request.wanted - len(rows), limit)
        if taken is None:
            return None
        rows += taken
    return rows


# --- in the order in which rows were stored -----------------------------------------------------


def scan_stored(
    answers: Sequence[SegmentMatches], snapshot: Snapshot, after: Cursor | None
) -> Iterator[Candidate]:
    """Candidates in the order in which they were stored, after the cursor's row."""
    last = after.position if after else -1
    every = (_scan_segment(one, snapshot, last) for one in answers)
    return heapq.merge(*every, key=lambda one: one.position)


def _scan_segment(answer: SegmentMatches, snapshot: Snapshot, last: int) -> Iterator[Candidate]:
    places = snapshot.places(answer.segment.segment)
    for position, row in places.in_order(answer.matches.possible, after=last):
        yield Candidate(position, snapshot.ref(position), row in answer.matches.certain)


async def _take(
    request: _PageRequest, candidates: Iterator[Candidate], wanted: int, limit: int | None
) -> _Rows | None:
    """The first ``wanted`` candidates that match, opened and checked; None once the query has
    opened ``limit`` records and that was not enough."""
    rows: _Rows = []
    while batch := list(islice(candidates, wanted - len(rows))):
        if limit is not None and request.context.stats.rows >= limit:
            return None
        records = await open_rows(request.context, [one.ref for one in batch])
        rows += await check_candidates(request.context, request.plan.predicate, batch, records)
    return rows


async def _leave_out(
    request: _PageRequest,
    candidates: Iterator[Candidate],
    count: int,
    limit: int | None,
    *,
    ranked: bool = False,
) -> int | None:
    """Take so many candidates that match from the beginning, or as many as there are; how many that
    were. Those that surely match are not opened. None and ``limit`` as for :func:`_take`."""
    left = count
    while left and request.wanted and (batch := list(islice(candidates, left))):
        if limit is not None and request.context.stats.rows >= limit:
            return None
        unsure = [one for one in batch if not one.certain]
        records = await open_rows(request.context, [one.ref for one in unsure], ranked=ranked)
        fits = await check_records(request.context, request.plan.predicate, records)
        left -= len(batch) - len(unsure) + sum(fits)
    return count - left


async def check_candidates(
    context: QueryContext,
    where: Predicate,
    candidates: Sequence[Candidate],
    records: Sequence[PlainRecord],
) -> _Rows:
    """The candidates that match, with their records.

    Raises:
        DoesNotOpen: a candidate that surely matches does not.
    """
    rows: _Rows = []
    fits = await check_records(context, where, records)
    for candidate, record, fit in zip(candidates, records, fits, strict=True):
        if fit:
            rows.append((candidate, record))
        elif candidate.certain:
            raise DoesNotOpen("the index and a record contradict each other")
    return rows


# --- in the order of fields ---------------------------------------------------------------------


async def _take_sorted(
    request: _PageRequest, answers: Sequence[SegmentMatches | UnreadSegment]
) -> _Rows:
    context, query, start = request.context, request.query, request.start
    texts = context.texts()
    after = await _locate_start(request, start, texts) if start and request.wanted else None
    rows: _Rows = []
    left = query.offset
    # The first rows alone are fetched as those of any search. Those of one page after the other
    # would tell the order.
    ranked = start is not None or left > 0
    while len(rows) < request.wanted:
        want = left + request.wanted - len(rows)
        page = await sort(
            context, query, request.plan, answers, texts, want=want, after=after, ranked=ranked
        )
        candidates = list_candidates(context, page)
        left -= await _leave_out(request, candidates, left, None, ranked=ranked) or 0
        batch = list(candidates)
        refs = [one.ref for one in batch]
        many = ranked or len(refs) > MOST_HIDDEN
        records = await open_rows(context, refs, ranked=many)
        rows += await check_candidates(context, query.where, batch, records)
        if len(page) < want:
            break
        after, ranked = page.sort_position(-1), True
    return rows


async def sort(
    context: QueryContext,
    query: Query,
    plan: Plan,
    answers: Sequence[SegmentMatches | UnreadSegment],
    texts: Texts,
    *,
    want: int,
    after: SortPosition | None = None,
    ranked: bool = False,
) -> SortedRows:
    """The first ``want`` candidates after ``after``, in the order of the query.

    Args:
        ranked: as for :meth:`RowFetcher.open_rows`, of long strings that are opened.
    """
    with scope(*(one.segment for one in answers)):
        parts = await scan_sorted(context, query, plan, answers, want=want, after=after)
        run = run_for(sum(map(len, parts)))
        while True:
            with context.stats.stage("order"):
                page = await run(first, parts, query.order, texts, want=want, after=after)
            if page is not None:
                return page
            await learn_texts(context, texts, ranked=ranked)


def list_candidates(context: QueryContext, rows: SortedRows) -> Iterator[Candidate]:
    for position, certain in zip(rows.positions.tolist(), rows.certain.tolist(), strict=True):
        yield Candidate(position, context.snapshot.ref(position), certain)


async def _locate_start(request: _PageRequest, start: Cursor, texts: Texts) -> SortPosition:
    context = request.context
    try:
        (record,) = await open_rows(context, [context.snapshot.ref(start.position)], ranked=True)
    except NotFound as error:
        if error.reason != "row_gone":
            raise
        detail = "the last row of the page before was deleted since, and is gone"
        raise InvalidQuery(
            detail,
            code="cursor_gone",
            hint="begin with the first page again",
            flaws=(Flaw("cursor_gone", detail, "/cursor"),),
        ) from None
    tails = context.tails
    return locate_record(
        record, start.position, request.query.order, tails, context.definition, texts
    )

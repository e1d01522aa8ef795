"""The rows that match a condition, and the records that must be opened to decide it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records import runtime
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.ordinals import bitmap, ordinals
from encrypted_records.index.query.candidates import Candidates, within
from encrypted_records.index.query.first_rows import match_first
from encrypted_records.index.query.long_strings import Texts
from encrypted_records.index.query.matches import Matches
from encrypted_records.index.query.matching import Matching
from encrypted_records.index.query.plan import Plan
from encrypted_records.index.query.reading_tests import count_entries
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment, scope
from encrypted_records.model.predicates import (
    Predicate,
    fields_of,
    matches,
    values_of,
)
from encrypted_records.model.records import PlainRecord, RowRef, Segment
from encrypted_records.proxy.process.offload import Run, aside
from encrypted_records.proxy.search.context import QueryContext
from encrypted_records.proxy.search.driver import FEW_ENTRIES, while_awaited
from encrypted_records.proxy.search.row_fetcher import MOST_OPENED

#: Rows opened at once; one request fetches them.
BATCH = 256
#: So many are looked through for the first rows in a third of a millisecond.
FEW_TO_LOOK_THROUGH = 1 << 19
#: Each takes some ten milliseconds: to look up values in so many segments, to check so many records
#: against values, to normalize so many characters.
LOOKUPS, CHECKS, LONG_TEXT = 500, 5000, 10_000


@dataclass(frozen=True, slots=True)
class SegmentMatches:
    """The live rows of one segment that match, as local ordinals."""

    segment: OpenedSegment
    matches: Matches

    @property
    def uid(self) -> bytes:
        return self.segment.segment.uid

    def within(self, snapshot: Snapshot, stored: int) -> SegmentMatches:
        """The part of it in the first ``stored`` rows of the schema."""
        return SegmentMatches(
            self.segment, within(self.matches, self.segment.segment, snapshot, stored=stored)
        )

    def without(self, rows: BitMap) -> SegmentMatches:
        left = Matches(self.matches.certain - rows, self.matches.possible - rows)
        return SegmentMatches(self.segment, left)


async def resolve(
    context: QueryContext,
    plan: Plan,
    among: Sequence[Segment] | None = None,
    *,
    decide: bool = True,
    first: int | None = None,
) -> list[SegmentMatches]:
    """The matches of live segments, from the index alone, and from long strings that are tested.

    Args:
        among: some of the live ones; all if None.
        first: how many rows are enough: of each segment those that were stored first. All if None.
        decide: open records of long strings that the plan tests, one for each. Where an index of
            words leaves more rows open than may be opened, their texts are tested, too.

    Raises:
        InvalidQuery: ``too_many_long``.
        Moved, DoesNotOpen, NotFound: as :meth:`QueryContext.fill`.
    """
    searched = context.snapshot.segments if among is None else among
    many = plan.values * len(searched) > LOOKUPS
    large = sum(segment.count for segment in searched) > context.sizes.few_rows
    with context.stats.stage("fetch_pages"):
        # What tests of texts need is brought in segment by segment, and so is what takes much.
        missing = plan.missing
        if plan.tests:
            missing = plan.missing_to_scan
        elif large:
            missing = plan.missing_to_find
        segments = await context.open(among)
    with scope(*segments):
        with context.stats.stage("fetch_pages"):
            await context.fill(segments, missing, many=many)
        answers = await _match_all(context, plan, segments, many=many, first=first)
        certain = sum(len(one.matches.certain) for one in answers)
        unsure = sum(len(one.matches.possible) for one in answers) - certain
        by_words = decide and plan.words and not plan.by_text
        if not by_words or unsure <= context.most_opened:
            context.stats.certain += certain
            context.stats.unsure += unsure
            if plan.tests and decide:
                return await _decide_tests(context, plan, answers)
            return answers
    return await resolve(context, plan.with_texts(), among)


async def _match_all(
    context: QueryContext,
    plan: Plan,
    segments: Sequence[OpenedSegment],
    *,
    many: bool,
    first: int | None = None,
) -> list[SegmentMatches]:
    if plan.tests:
        context.stats.scanned |= {test.field for test in plan.tests}
        with matching(context, plan) as work:
            await context.run(work.test(segments))
    if sum(segment.count for segment in segments) > context.sizes.few_rows:
        with context.stats.stage("fetch_pages"):
            await context.fill(segments, plan.missing_to_find)
        if await aside(_takes_much, context, plan, segments):
            return await _match_in_turn(context, plan, segments)
    with context.stats.stage("fetch_pages"):
        await context.fill(segments, plan.missing)
    with context.stats.stage("resolve"):
        # A column of words may be long in a small segment, too, and takes long to open.
        if many or plan.tests or plan.words:
            run: Run = aside if many else runtime.in_thread
            return await run(_resolve_all, context, plan, segments)
        entries = sum(map(plan.count_entries, segments))
        if entries <= FEW_ENTRIES:
            return _resolve_all(context, plan, segments)
        if first is not None and entries <= FEW_TO_LOOK_THROUGH:
            return _resolve_all(context, plan, segments, first)
        return await runtime.in_thread(_resolve_all, context, plan, segments, first)


def _takes_much(context: QueryContext, plan: Plan, segments: Sequence[OpenedSegment]) -> bool:
    """Whether the pages that a plan needs would take much memory together."""
    pages = entries = 0
    for segment in segments:
        pages += len(plan.missing(segment))
        entries += count_entries(plan, segment)
        if pages > context.sizes.many_pages or entries > context.sizes.many_entries:
            return True
    return False


async def _match_in_turn(
    context: QueryContext, plan: Plan, segments: Sequence[OpenedSegment]
) -> list[SegmentMatches]:
    """The same, with the pages of one segment in memory at a time, and of a comparison that takes
    many, a window of them."""
    with matching(context, plan) as work:
        found = await context.run(work.find(segments))
    pairs = zip(segments, found, strict=True)
    live = (
        SegmentMatches(one, matches.without(context.snapshot.dead_rows(one.segment)))
        for one, matches in pairs
    )
    return [one for one in live if one.matches.possible]


@contextmanager
def matching(context: QueryContext, plan: Plan) -> Iterator[Matching]:
    """A plan's matching of segments, one after the other, as long as the caller waits for it."""
    by_row = context.fetcher.keeps_columns(context.snapshot.count, len(plan.columns))
    with while_awaited() as go_on:
        yield Matching(plan, context.sizes.reading, by_row, go_on)


async def _decide_tests(
    context: QueryContext, plan: Plan, answers: list[SegmentMatches]
) -> list[SegmentMatches]:
    """The answers once the long strings that the tests could not decide are known."""
    unsure = {
        one.segment: one.matches.possible - one.matches.certain
        for one in answers
        if len(one.matches.possible) > len(one.matches.certain)
    }
    with matching(context, plan) as work:
        await context.run(work.want_texts(unsure, context.snapshot))
    if not plan.known.wanted:
        return answers
    await learn_texts(context, plan.known)
    for segment in unsure:
        # Of its texts, more are known.
        plan.forget(segment, plan.text_tests)
    decided = await _match_all(context, plan, list(unsure), many=True)
    return [one for one in answers if one.segment not in unsure] + decided


def _resolve_all(
    context: QueryContext,
    plan: Plan,
    segments: Sequence[OpenedSegment],
    first: int | None = None,
) -> list[SegmentMatches]:
    answers: list[SegmentMatches] = []
    for segment in segments:
        dead: BitMap = context.snapshot.dead_rows(segment.segment)
        live = None if first is None else _resolve_first(context, plan, segment, dead, first)
        if live is None:
            live = plan.match(segment).without(dead)
        if live.possible:
            answers.append(SegmentMatches(segment, live))
    return answers


def _resolve_first(
    context: QueryContext, plan: Plan, segment: OpenedSegment, dead: BitMap, enough: int
) -> Matches | None:
    """The matches of a segment that were stored first, at least ``enough`` unless they are all;
    None where they cannot be told alone."""
    if not context.snapshot.places(segment.segment).is_in_order:
        return None
    found = match_first(plan, segment)
    if found is None:
        return None
    live = found.rows - dead
    return Matches.exactly(live) if found.is_all or len(live) >= enough else None


async def fill_columns(
    context: QueryContext, segments: Sequence[object], fields: Collection[str]
) -> None:
    """Fetch whole columns, to sort or measure the segments' rows by them.

    Args:
        segments: of either form; minis have all of their columns.
    """
    large = [one for one in segments if isinstance(one, PagedSegment)]
    with context.stats.stage("fetch_pages"):
        await context.columns(large, fields)


async def open_rows(
    context: QueryContext,
    wanted: Sequence[RowRef],
    *,
    alone: bool = False,
    ranked: bool = False,
) -> list[PlainRecord]:
    """The rows in the order asked for; the rest as for :meth:`RowFetcher.open_rows`."""
    with context.stats.stage("fetch_rows"):
        return await context.rows(wanted, alone=alone, ranked=ranked)


async def check_records(
    context: QueryContext, where: Predicate, records: Sequence[PlainRecord]
) -> list[bool]:
    """Which of these records match."""

    def each() -> list[bool]:
        return [matches(where, record.data, context.definition) for record in records]

    if values_of(where) * len(records) > CHECKS:
        return await aside(each)
    names = fields_of(where)
    texts = (record.data.get(name) for record in records for name in names)
    long = any(isinstance(text, str) and len(text) > LONG_TEXT for text in texts)
    return await aside(each) if long else each()


async def learn_texts(context: QueryContext, texts: Texts, *, ranked: bool = False) -> None:
    """Open one record for each long string that is wanted, in the order of storing: they may be
    wanted in an order by their values.

    Args:
        ranked: as for :meth:`RowFetcher.open_rows`.
    """
    wanted = sorted(texts.wanted.items(), key=lambda one: one[1])
    alone = len(wanted) > MOST_OPENED
    for at in range(0, len(wanted), BATCH):
        some = wanted[at : at + BATCH]
        refs = [context.snapshot.ref(position) for _, position in some]
        records = await open_rows(context, refs, alone=alone, ranked=ranked)
        for ((field, key), _), record in zip(some, records, strict=True):
            spec = context.definition.fields[field]
            tail = context.tails.field(spec).tail
            texts.answer(field, key, record.data.get(field), tail)


async def match_rows(context: QueryContext, where: Predicate) -> list[Candidates]:
    """The rows that match. Records are opened where the index does not decide."""
    answers = await resolve(context, await context.plan(where))
    parts = [Candidates.of(one.segment, one.matches, context.snapshot) for one in answers]
    return [await keep_matching(context, where, part) for part in parts]


async def keep_matching(context: QueryContext, where: Predicate, part: Candidates) -> Candidates:
    """Those of some candidates that match, opened where the index does not decide."""
    if part.matches.exact:
        return part
    # Few rows of millions are unsure: of these alone positions are made.
    matches = part.matches
    unsure = ordinals(matches.possible - matches.certain)
    kept = np.zeros(len(unsure), np.bool_)
    for at in range(0, len(unsure), BATCH):
        positions = part.places.positions(unsure[at : at + BATCH])
        refs = [context.snapshot.ref(position) for position in positions.tolist()]
        alone = len(unsure) > MOST_OPENED
        kept[at : at + BATCH] = await _decide(context, where, refs, alone=alone)
    return part.decided(bitmap(unsure[kept]))


async def _decide(
    context: QueryContext, where: Predicate, refs: Sequence[RowRef], *, alone: bool
) -> NDArray[np.bool_]:
    records = await open_rows(context, refs, alone=alone)
    return np.array(await check_records(context, where, records))

"""Columns that are tested: brought in segment by segment, tested in a thread of long work.

A column of few different keys is brought by row, and kept; of any other, a window of pages at a
time is in memory, and only the rows that pass are kept. Where the records of long strings must be
opened to decide a test, one is for each string.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from pyroaring import BitMap

from encrypted_records.index.ordinals import ordinals
from encrypted_records.index.query import reading_tests
from encrypted_records.index.query.column_scan import needs_whole, want_undecided
from encrypted_records.index.query.plan import Plan
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment, scope
from encrypted_records.index.segments.reading import fits_by_row
from encrypted_records.model.predicates import ColumnTest
from encrypted_records.model.text_tests import TextTest
from encrypted_records.proxy.process.offload import aside
from encrypted_records.proxy.search.context import QueryContext


class _Stopped(Exception):
    """Nobody waits for the scan any more."""


async def scan_columns(
    context: QueryContext, plan: Plan, segments: Sequence[OpenedSegment]
) -> None:
    """Find the rows that pass the plan's tests, which :meth:`Plan.match` then knows.

    Raises:
        Moved, DoesNotOpen, NotFound: as :meth:`QueryContext.fill`.
    """
    with _while_awaited() as go_on:
        for segment in segments:
            async with context.fetcher.turn(context.upstream, segment):
                with scope(segment):
                    whole = await _test_segment(context, plan, segment, go_on)
                    with context.stats.stage("fetch_pages"):
                        await context.fill([segment], plan.missing_to_test)
                    with context.stats.stage("scan"):
                        await aside(plan.settle, segment)
                    _count_larger(context, segment, whole)


async def count_tested(
    context: QueryContext, plan: Plan, segments: Sequence[OpenedSegment]
) -> list[int | None]:
    """:meth:`Plan.count` of each segment, for a plan that tests texts.

    Raises:
        Moved, DoesNotOpen, NotFound: as :meth:`QueryContext.fill`.
    """
    counts: list[int | None] = []
    with _while_awaited() as go_on:
        for segment in segments:
            async with context.fetcher.turn(context.upstream, segment):
                with scope(segment):
                    whole = await _test_segment(context, plan, segment, go_on)
                    with context.stats.stage("scan"):
                        counts.append(await aside(plan.count, segment))
                    _count_larger(context, segment, whole)
    return counts


async def want_texts(
    context: QueryContext, plan: Plan, unsure: Mapping[OpenedSegment, BitMap]
) -> None:
    """Want the long strings that decide whether these rows pass the plan's tests.

    Raises:
        InvalidQuery: ``too_many_long``.
        Moved, DoesNotOpen, NotFound: as :meth:`QueryContext.fill`.
    """
    for segment, rows in unsure.items():
        async with context.fetcher.turn(context.upstream, segment):
            with scope(segment):
                await _want_of_segment(context, plan, segment, rows)


async def _want_of_segment(
    context: QueryContext, plan: Plan, segment: OpenedSegment, rows: BitMap
) -> None:
    limits = context.sizes.reading
    places = context.snapshot.places(segment.segment)
    whole = await _bring_columns(context, plan, segment)

    def position(row: int) -> int:
        return int(places.positions(ordinals(BitMap([row])))[0])

    for name in sorted(plan.to_scan(segment)):
        tests = [one for one in plan.text_tests if one.field == name]
        if isinstance(segment, PagedSegment) and needs_whole(segment, name):
            with context.stats.stage("scan"):
                reading = reading_tests.want_undecided(plan, segment, tests, rows, position, limits)
                await context.read(segment, reading)
            continue
        with context.stats.stage("fetch_pages"):
            await context.fill([segment], partial(plan.missing_to_want, tests))
        with context.stats.stage("scan"):
            await aside(_want, plan, segment, tests, rows, position)
    _count_larger(context, segment, whole)


def _want(
    plan: Plan,
    segment: OpenedSegment,
    tests: Sequence[TextTest],
    rows: BitMap,
    position: Callable[[int], int],
) -> None:
    for test in tests:
        scan = plan.scan(test, segment)
        want_undecided(segment, test.field, scan, rows, plan.known, position)


async def _test_segment(
    context: QueryContext, plan: Plan, segment: OpenedSegment, go_on: Callable[[], None]
) -> list[str]:
    """Test a segment's columns; the fields of those that were brought as a whole."""
    whole = await _bring_columns(context, plan, segment)
    with context.stats.stage("scan"):
        by_field: dict[str, list[ColumnTest]] = {}
        for test in reading_tests.list_unread(plan, segment):
            by_field.setdefault(test.field, []).append(test)
        for tests in by_field.values():
            assert isinstance(segment, PagedSegment)
            reading = reading_tests.test_column(plan, segment, tests, go_on, context.sizes.reading)
            await context.read(segment, reading)
        await aside(_test, plan, segment, go_on)
    return whole


async def _bring_columns(context: QueryContext, plan: Plan, segment: OpenedSegment) -> list[str]:
    """The fields whose whole columns were brought into the segment, with their keys."""
    brought: list[str] = []
    if not isinstance(segment, PagedSegment):
        return brought
    with context.stats.stage("fetch_pages"):
        for name in sorted(plan.to_scan(segment)):
            if not needs_whole(segment, name):
                continue
            await _bring_keys(context, segment, name)
            if segment.has_keys(name):
                brought.append(name)
    return brought


async def _bring_keys(context: QueryContext, segment: PagedSegment, field: str) -> None:
    """Bring a column by row, if it can be expected to be kept with its keys."""
    if context.fetcher.use_cached(segment, field):
        return
    if len(segment.directories[field].ends) <= context.sizes.reading.few:
        await context.columns([segment], [field])
    elif await context.read(segment, fits_by_row(segment, field, context.sizes.reading)):
        await context.fetcher.by_row(context.upstream, segment, field)


def _count_larger(context: QueryContext, segment: OpenedSegment, fields: Sequence[str]) -> None:
    """Columns that are kept grow as their texts are tested."""
    if isinstance(segment, PagedSegment):
        for name in fields:
            context.fetcher.keep(segment, name)


def _test(plan: Plan, segment: OpenedSegment, go_on: Callable[[], None]) -> None:
    for test in plan.tests:
        if test.field in plan.to_scan(segment) and not plan.is_kept(segment, test):
            plan.scan(test, segment, go_on)


@contextmanager
def _while_awaited() -> Iterator[Callable[[], None]]:
    """What a thread calls from time to time: it ends the work once nobody waits for it."""
    stop = threading.Event()

    def go_on() -> None:
        if stop.is_set():
            raise _Stopped

    try:
        yield go_on
    finally:
        stop.set()

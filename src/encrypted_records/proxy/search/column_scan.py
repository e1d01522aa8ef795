"""Columns whose texts are tested: brought in segment by segment, tested in a thread of long work.

One segment's columns are in memory at a time beyond the cache; of each only the rows that pass are
kept. Where the records of long strings must be opened to decide a test, one is for each string.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyroaring import BitMap

from encrypted_records.index.log.snapshot import Places
from encrypted_records.index.ordinals import ordinals
from encrypted_records.index.query.column_scan import needs_whole, want_undecided
from encrypted_records.index.query.plan import Plan
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment
from encrypted_records.proxy.process.offload import aside
from encrypted_records.proxy.search.context import QueryContext


class _Stopped(Exception):
    """Nobody waits for the scan any more."""


async def scan_columns(
    context: QueryContext, plan: Plan, segments: Sequence[OpenedSegment]
) -> None:
    """Find the rows that pass the plan's tests, which :meth:`Plan.match` then knows.

    Raises:
        Moved, DoesNotOpen, NotFound: as :meth:`QueryContext.segments`.
    """
    with _while_awaited() as go_on:
        for segment in segments:
            whole = await _bring_columns(context, plan, segment)
            with context.stats.stage("scan"):
                await aside(_test, plan, segment, go_on)
            with context.stats.stage("fetch_pages"):
                await context.fill([segment], plan.missing)
            with context.stats.stage("scan"):
                await aside(plan.settle, segment)
            _drop_columns(context, segment, whole)


async def count_tested(
    context: QueryContext, plan: Plan, segments: Sequence[OpenedSegment]
) -> list[int | None]:
    """:meth:`Plan.count` of each segment, for a plan that tests texts.

    Raises:
        Moved, DoesNotOpen, NotFound: as :meth:`QueryContext.segments`.
    """
    counts: list[int | None] = []
    with _while_awaited() as go_on:
        for segment in segments:
            whole = await _bring_columns(context, plan, segment)
            with context.stats.stage("scan"):
                await aside(_test, plan, segment, go_on)
                counts.append(await aside(plan.count, segment))
            _drop_columns(context, segment, whole)
    return counts


async def want_texts(
    context: QueryContext, plan: Plan, unsure: Mapping[OpenedSegment, BitMap]
) -> None:
    """Want the long strings that decide whether these rows pass the plan's tests.

    Raises:
        InvalidQuery: ``too_many_long``.
        Moved, DoesNotOpen, NotFound: as :meth:`QueryContext.segments`.
    """
    for segment, rows in unsure.items():
        places = context.snapshot.places(segment.segment)
        whole = await _bring_columns(context, plan, segment)

        def want(segment: OpenedSegment = segment, rows: BitMap = rows) -> None:
            for test in plan.text_tests:
                if test.field in plan.to_scan(segment):
                    scan = plan.scan(test, segment)
                    want_undecided(segment, test.field, scan, rows, plan.known, position)

        def position(row: int, places: Places = places) -> int:
            return int(places.positions(ordinals(BitMap([row])))[0])

        with context.stats.stage("scan"):
            await aside(want)
        _drop_columns(context, segment, whole)


async def _bring_columns(context: QueryContext, plan: Plan, segment: OpenedSegment) -> list[str]:
    """The fields whose whole columns were brought into the segment."""
    whole = [name for name in plan.to_scan(segment) if needs_whole(segment, name)]
    with context.stats.stage("fetch_pages"):
        await context.columns([segment], whole)
    return whole


def _drop_columns(context: QueryContext, segment: OpenedSegment, fields: Sequence[str]) -> None:
    if isinstance(segment, PagedSegment):
        for name in fields:
            context.fetcher.keep(segment, name)
            del segment.columns[name]


def _test(plan: Plan, segment: OpenedSegment, go_on: Callable[[], None]) -> None:
    for test in plan.tests:
        if test.field in plan.to_scan(segment):
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

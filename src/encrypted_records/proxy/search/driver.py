"""Drive the generators that decide (``index.query.asking``): fetch what they name, and resume them.

A generator does no I/O, and knows no clock and no thread. The driver fetches, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from encrypted_records import runtime
from encrypted_records.index.query.asking import (
    Asking,
    Columns,
    Grown,
    Need,
    Open,
    Rows,
    Step,
    Together,
    Work,
)
from encrypted_records.index.query.sizes import WorkSizes
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment
from encrypted_records.proxy.process.offload import Run, aside, here
from encrypted_records.proxy.search.fetcher import Fetcher
from encrypted_records.proxy.search.upstream import Upstream

T = TypeVar("T")


async def drive(
    fetcher: Fetcher,
    upstream: Upstream,
    asking: Asking[T],
    stop: Callable[[], None] = lambda: None,
) -> T:
    """The answer of ``asking``. It has a turn at memory for the segment of its last need that is
    not light, and for no two at once, until it needs several segments together or others, or rows.

    Errors of fetches are raised in it, where it yielded. It is closed when this ends, or, if a
    thread is in it then, once that lets go of it.

    Args:
        stop: called where a thread is in it at the end: nobody waits for that any more.

    Raises:
        Moved, DoesNotOpen, NotFound: as :meth:`Fetcher.fill`.
    """
    run: Run = here
    work: Work | None = None
    worked_on: PagedSegment | None = None
    error: Exception | None = None
    found: object = None
    try:
        async with AsyncExitStack() as turn:
            while True:
                stage = work.stage if work else None
                with upstream.stats.stage(stage) if stage else nullcontext():
                    step = await run(_resume, asking, found, error)
                found = error = None
                if isinstance(step, _Answer):
                    return step.value
                if isinstance(step, Work):
                    work, run = step, _place_for(step, upstream.sizes.work)
                    continue
                if isinstance(step, Grown):
                    await fetcher.keep(upstream, step.segment, step.field)
                    continue
                try:
                    if not isinstance(step, Need):
                        await turn.aclose()
                        worked_on = None
                    if not isinstance(step, Need | Together):
                        found = await _fetch(fetcher, upstream, step)
                        continue
                    needs = _without_kept_sums(fetcher, step)
                    heavy = next((need.segment for need in needs if not need.light), None)
                    if heavy is not None and heavy is not worked_on:
                        await turn.aclose()
                        worked_on = heavy
                        await turn.enter_async_context(fetcher.turn(upstream, heavy))
                    if needs:
                        await _bring(fetcher, upstream, needs)
                except Exception as failed:  # the work says what it means
                    error = failed
    finally:
        try:
            asking.close()
        except ValueError:  # a thread is in it; to ask first could be answered too soon
            stop()


@dataclass(frozen=True, slots=True)
class _Answer(Generic[T]):
    """The value that a generator returned."""

    value: T


def _resume(asking: Asking[T], found: object, error: Exception | None) -> Step | _Answer[T]:
    try:
        return asking.send(found) if error is None else asking.throw(error)
    except StopIteration as end:
        return _Answer(end.value)


def _place_for(work: Work, sizes: WorkSizes) -> Run:
    if work.long or work.entries > sizes.in_thread:
        return aside
    return here if work.entries <= sizes.on_loop else runtime.in_thread


async def _fetch(fetcher: Fetcher, upstream: Upstream, step: Open | Rows | Columns) -> object:
    """The segments or records to send back; None for columns, which are put into segments."""
    if isinstance(step, Rows):
        return await fetcher.rows(upstream, step.refs, alone=step.alone, ranked=step.ranked)
    with upstream.stats.stage("fetch_pages"):
        if isinstance(step, Open):
            return await fetcher.open(upstream, step.segments)
        await fetcher.columns(upstream, step.segments, step.fields)
    return None


def _without_kept_sums(fetcher: Fetcher, step: Need | Together) -> list[Need]:
    """The needs to fetch for. Sums that are kept take no memory, and are put in here."""
    return [
        need
        for need in (step.needs if isinstance(step, Together) else (step,))
        if need.sums is None or not fetcher.use_sums(need.segment, need.sums, need.rows)
    ]


async def _bring(fetcher: Fetcher, upstream: Upstream, needs: Sequence[Need]) -> None:
    with upstream.stats.stage("fetch_pages"):
        segments = [need.segment for need in needs]
        passing = all(need.passing for need in needs)
        by_uid = {need.segment.segment.uid: need for need in needs}
        await fetcher.fill(upstream, segments, partial(_lacking, by_uid), passing=passing)
        for need in needs:
            for name in need.kept:
                fetcher.use_cached(need.segment, name)
            for name in need.by_row:
                await fetcher.by_row(upstream, need.segment, name)
            if need.sums is not None:
                await fetcher.sums(upstream, need.segment, need.sums, need.rows)


def _lacking(needs: Mapping[bytes, Need], segment: OpenedSegment) -> set[int]:
    assert isinstance(segment, PagedSegment)
    need = needs[segment.segment.uid]
    pages = need.pages - segment.blocks.keys()
    if pages:
        pages = frozenset(segment.directories.without_own(pages))
    return {*segment.missing_directories([*need.directories, *need.by_row]), *pages}

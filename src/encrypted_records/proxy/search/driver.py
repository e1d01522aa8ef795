"""Drive the generators that decide (``index.query.asking``): fetch what they name, and resume them.

A generator does no I/O, and knows no clock and no thread. The driver fetches, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

from encrypted_records import runtime
from encrypted_records.index.query.asking import (
    Asking,
    Keep,
    KeptColumn,
    KeptSums,
    Need,
    Open,
    Rows,
    Step,
    Together,
    Work,
)
from encrypted_records.index.query.sizes import WorkSizes
from encrypted_records.index.segments.loaded import LoadedSegment
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
    """Run ``asking`` and return its answer. It reserves memory for the segment of its last heavy
    need, and for one segment at a time, until it needs several segments together or others, or
    rows.

    Errors of fetches are raised inside ``asking``, where it yielded. It is closed when this
    function ends or, if a thread still runs it then, when that thread leaves it.

    Args:
        stop: called if a thread still runs ``asking`` at the end, because its result is no longer
            needed.

    Raises:
        Moved, DoesNotOpen, NotFound: as for :meth:`Fetcher.fill`.
    """
    run: Run = here
    work = Work(None)
    worked_on: LoadedSegment | None = None
    error: Exception | None = None
    found: object = None
    try:
        async with AsyncExitStack() as turn:
            while True:
                with upstream.stats.stage(work.stage) if work.stage else nullcontext():
                    step = await run(_resume, asking, found, error)
                found = error = None
                if isinstance(step, _Answer):
                    return step.value
                if isinstance(step, Work):
                    found, work = work, step
                    run = _place_for(step, upstream.sizes.work)
                    continue
                if isinstance(step, KeptColumn | KeptSums):
                    found = fetcher.kept(step)
                    continue
                if isinstance(step, Keep):
                    await fetcher.keep(upstream, step.segment, step.field, step.made)
                    continue
                try:
                    if not isinstance(step, Need):
                        await turn.aclose()
                        worked_on = None
                    elif not step.light and step.segment is not worked_on:
                        await turn.aclose()
                        worked_on = step.segment
                        await turn.enter_async_context(fetcher.turn(upstream, step.segment))
                    found = await _fetch(fetcher, upstream, step)
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


async def _fetch(
    fetcher: Fetcher, upstream: Upstream, step: Open | Rows | Need | Together
) -> object:
    """The segments or records to send back; None for pages, which are put into segments."""
    if isinstance(step, Rows):
        return await fetcher.rows(upstream, step.refs, alone=step.alone, ranked=step.ranked)
    with upstream.stats.stage("fetch_pages"):
        if isinstance(step, Open):
            return await fetcher.open(upstream, step.segments)
        needs = step.needs if isinstance(step, Together) else (step,)
        wanted = [(need.segment, _lacking(need)) for need in needs]
        passing = all(need.passing for need in needs)
        await fetcher.fill(upstream, wanted, passing=passing)
    return None


def _lacking(need: Need) -> set[int]:
    """The numbers of the pages that are not here yet."""
    segment = need.segment
    pages = segment.directories.without_own(need.pages - segment.blocks.keys())
    return pages | segment.missing_directories(need.directories)

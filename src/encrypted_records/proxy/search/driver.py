"""Drive the generators that decide (``index.query.asking``): fetch what they name, and resume them.

A generator does no I/O, and knows no clock and no thread. The driver fetches, and decides nothing.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from encrypted_records import runtime
from encrypted_records.index.query.asking import Asking, Grown, Need, Step, Together, Work
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment
from encrypted_records.proxy.process.offload import Run, aside, here
from encrypted_records.proxy.search.fetcher import Fetcher
from encrypted_records.proxy.search.upstream import Upstream

T = TypeVar("T")
#: So many entries of columns are worked on sooner than a thread has begun, and more than so many
#: for so long that they wait in line (:func:`.aside`).
FEW_ENTRIES, MANY_ENTRIES = 1 << 14, 1 << 20


class Stopped(Exception):
    """Nobody waits for the answer any more."""


@contextmanager
def while_awaited() -> Iterator[Callable[[], None]]:
    """A function for a thread to call from time to time: it raises :class:`Stopped`, which ends the
    work, once nobody waits for that."""
    stop = threading.Event()

    def go_on() -> None:
        if stop.is_set():
            raise Stopped

    try:
        yield go_on
    finally:
        stop.set()


async def drive(fetcher: Fetcher, upstream: Upstream, asking: Asking[T]) -> T:
    """The answer of ``asking``. It has a turn at memory for the segment of its last need that is
    not light, and for no two at once.

    Errors of fetches are raised in it, where it yielded. It is closed when this ends, or, if a
    thread is in it then, once that lets go of it.

    Raises:
        Moved, DoesNotOpen, NotFound: as :meth:`Fetcher.fill`.
    """
    run: Run = here
    work: Work | None = None
    worked_on: PagedSegment | None = None
    error: Exception | None = None
    try:
        async with AsyncExitStack() as turn:
            while True:
                with upstream.stats.stage(work.stage) if work else nullcontext():
                    step = await run(_resume, asking, error)
                error = None
                if isinstance(step, _Answer):
                    return step.value
                if isinstance(step, Work):
                    work, run = step, _place_for(step.entries)
                    continue
                if isinstance(step, Grown):
                    await fetcher.keep(upstream, step.segment, step.field)
                    continue
                try:
                    needs = _without_kept_sums(fetcher, step)
                    heavy = next((one.segment for one in needs if not one.light), None)
                    if heavy is not None and heavy is not worked_on:
                        await turn.aclose()
                        worked_on = heavy
                        await turn.enter_async_context(fetcher.turn(upstream, heavy))
                    if needs:
                        await _bring(fetcher, upstream, needs)
                except Exception as failed:  # the work says what it means
                    error = failed
    finally:
        if inspect.getgeneratorstate(asking) != inspect.GEN_RUNNING:
            asking.close()


@dataclass(frozen=True, slots=True)
class _Answer(Generic[T]):
    """The value that a generator returned."""

    value: T


def _resume(asking: Asking[T], error: Exception | None) -> Step | _Answer[T]:
    try:
        return next(asking) if error is None else asking.throw(error)
    except StopIteration as end:
        return _Answer(end.value)


def _place_for(entries: int) -> Run:
    if entries <= FEW_ENTRIES:
        return here
    return runtime.in_thread if entries <= MANY_ENTRIES else aside


def _without_kept_sums(fetcher: Fetcher, step: Need | Together) -> list[Need]:
    """The needs to fetch for. Sums that are kept take no memory, and are put in here."""
    return [
        need
        for need in (step.needs if isinstance(step, Together) else (step,))
        if need.sums is None or not fetcher.use_sums(need.segment, need.sums, need.rows)
    ]


async def _bring(fetcher: Fetcher, upstream: Upstream, needs: Sequence[Need]) -> None:
    with upstream.stats.stage("fetch_pages"):
        segments = [one.segment for one in needs]
        passing = all(one.passing for one in needs)
        await fetcher.fill(upstream, segments, partial(_lacking, needs), passing=passing)
        for need in needs:
            for name in need.kept:
                fetcher.use_cached(need.segment, name)
            for name in need.by_row:
                await fetcher.by_row(upstream, need.segment, name)
            if need.sums is not None:
                await fetcher.sums(upstream, need.segment, need.sums, need.rows)


def _lacking(needs: Sequence[Need], segment: OpenedSegment) -> set[int]:
    assert isinstance(segment, PagedSegment)
    need = next(one for one in needs if one.segment is segment)
    pages = need.pages - segment.blocks.keys()
    return {*segment.missing_directories([*need.directories, *need.by_row]), *pages}

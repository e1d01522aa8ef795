"""What decides is resumed where its work belongs, learns of errors where it asked, and closed."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from encrypted_records.errors import NotFound, TooLarge
from encrypted_records.index.query.asking import STANDARD, WORK, Asking, Need, Rows, Together, Work
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.loaded import LoadedSegment, scope
from encrypted_records.model.records import PlainRecord
from encrypted_records.proxy.search.context import drive
from encrypted_records.proxy.search.upstream import PASSING, QueryStats, Upstream
from tests.index.world import World

TEXT = '{"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}}'


class Pages:
    """Has the pages of a world, notes what is asked for at a time, and fails if it is told to."""

    def __init__(self, segments: int = 2) -> None:
        self.sizes = STANDARD
        self.world = World(TEXT, limits=SegmentLimits(mini=0, entries=4))
        for _ in range(segments):
            self.world.ingest([{"n": number} for number in range(20)])
        opened = map(self.world.open_segment, self.world.ledger.snapshot().segments)
        self.segments = [one for one in opened if isinstance(one, LoadedSegment)]
        self.asked: list[list[tuple[LoadedSegment, set[int]]]] = []
        self.error: Exception | None = None
        self.waiting = asyncio.Event()
        self.turns: list[LoadedSegment] = []
        #: how many turns there were when rows were asked for
        self.turns_at_rows: list[int] = []
        self.stopped = False
        self.stats = QueryStats()

    async def fill(self, _upstream: Any, wanted: Any, *, passing: bool) -> None:
        if self.error is not None:
            raise self.error
        self.asked.append(list(wanted))
        for segment, numbers in self.asked[-1]:
            for number in numbers:
                segment.put(number, self.world.sealed(segment, number))

    async def rows(self, _upstream: Any, refs: Any, *, alone: bool, ranked: bool) -> list[Any]:
        self.turns_at_rows.append(len(self.turns))
        return [self.world.read(ref) for ref in refs]

    def stop(self) -> None:
        self.stopped = True

    def turn(self, _upstream: Any, segment: LoadedSegment) -> Any:
        held = self

        class Turn:
            async def __aenter__(self) -> None:
                held.turns.append(segment)

            async def __aexit__(self, *_: object) -> None:
                held.turns.remove(segment)

        return Turn()

    async def drive(self, asking: Asking[Any]) -> Any:
        return await drive(cast("Any", self), cast("Any", self), asking, self.stop)

    def numbers(self, segment: LoadedSegment) -> frozenset[int]:
        """The data pages of the field, whose directory comes first."""
        return frozenset(segment.directories["n"].numbers.tolist())


def bring(pages: Pages) -> Asking[list[int]]:
    """All pages of all segments in one step; how many are here then, and behind the scope."""
    for segment in pages.segments:
        yield Need(segment, directories=("n",))
    with scope(*pages.segments):
        yield Together(
            tuple(
                Need(segment, pages=pages.numbers(segment), light=True)
                for segment in pages.segments
            )
        )
        held = [len(segment.blocks) for segment in pages.segments]
    return [*held, *(len(segment.blocks) for segment in pages.segments)]


def test_what_is_needed_together_is_asked_for_at_once() -> None:
    pages = Pages()
    assert asyncio.run(pages.drive(bring(pages))) == [5, 5, 0, 0]
    assert [len(step) for step in pages.asked] == [1, 1, 2]
    assert [len(numbers) for _, numbers in pages.asked[-1]] == [5, 5]


def test_there_is_a_turn_for_the_last_segment_alone_and_none_for_what_is_light() -> None:
    pages = Pages()
    seen: list[list[LoadedSegment]] = []

    def asking() -> Asking[None]:
        for segment in pages.segments:
            yield Need(segment, directories=("n",), light=True)
            seen.append([*pages.turns])
        for segment in pages.segments:
            yield Need(segment, pages=pages.numbers(segment))
            seen.append([*pages.turns])

    asyncio.run(pages.drive(asking()))
    first, second = pages.segments
    assert seen == [[], [], [first], [second]]
    assert not pages.turns


def test_a_turn_is_given_back_before_rows_are_asked_for_which_are_sent_back() -> None:
    pages = Pages()
    segment = pages.segments[0]

    def asking() -> Asking[list[PlainRecord]]:
        yield Need(segment, directories=("n",))
        assert pages.turns == [segment]
        refs = pages.world.ledger.snapshot().find_live(3, 5)
        records: list[PlainRecord] = yield Rows(tuple(refs))
        assert not pages.turns
        yield Need(segment, pages=pages.numbers(segment))
        assert pages.turns == [segment]
        return records

    found = asyncio.run(pages.drive(asking()))
    assert [one.data for one in found] == [{"n": 3}, {"n": 4}]
    assert pages.turns_at_rows == [0]


def test_an_error_is_raised_where_the_page_was_asked_for_and_may_be_answered_there() -> None:
    pages = Pages()
    pages.error = NotFound("gone")

    def asking() -> Asking[str]:
        try:
            yield Need(pages.segments[0], directories=("n",))
        except NotFound as error:
            return str(error)
        return "nothing"

    assert asyncio.run(pages.drive(asking())) == "gone"


def test_an_error_that_nobody_answers_ends_the_question_and_its_scopes() -> None:
    pages = Pages()

    def asking() -> Asking[None]:
        segment = pages.segments[0]
        yield Need(segment, directories=("n",))
        with scope(segment):
            yield Need(segment, pages=pages.numbers(segment))
            assert segment.blocks
            pages.error = NotFound("gone")
            yield Need(pages.segments[1], directories=("n",))

    with pytest.raises(NotFound, match="gone"):
        asyncio.run(pages.drive(asking()))
    assert not pages.segments[0].blocks
    assert not pages.turns


def test_work_is_done_where_its_size_says() -> None:
    pages = Pages()
    places: list[str] = []

    def asking() -> Asking[None]:
        places.append(threading.current_thread().name)
        for entries in (WORK.on_loop, WORK.in_thread, WORK.in_thread + 1, 0):
            yield Work("scan", entries)
            places.append(threading.current_thread().name)
            # It stays there behind what is fetched.
            yield Need(pages.segments[0], directories=("n",), light=True)
            places.append(threading.current_thread().name)

    asyncio.run(pages.drive(asking()))
    main = threading.current_thread().name
    assert places[:3] == [main] * 3
    assert main not in places[3:7]
    assert not any(name.startswith("aside") for name in places[3:5])
    assert all(name.startswith("aside") for name in places[5:7])
    assert places[7:] == [main] * 2


def test_a_question_that_nobody_waits_for_is_closed_while_it_waits_for_pages() -> None:
    pages = Pages()
    closed: list[bool] = []

    async def never(*_: Any, **__: Any) -> None:
        pages.waiting.set()
        await asyncio.Event().wait()

    def asking() -> Asking[None]:
        try:
            yield Need(pages.segments[0], directories=("n",))
        finally:
            closed.append(True)

    async def story() -> None:
        pages.fill = never  # type: ignore[method-assign]
        task = asyncio.create_task(pages.drive(asking()))
        await pages.waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert closed
        assert not pages.turns
        assert not pages.stopped

    asyncio.run(story())


def test_a_question_that_nobody_waits_for_is_closed_once_a_thread_lets_go_of_it() -> None:
    pages = Pages()
    entered, leave, closed = threading.Event(), threading.Event(), threading.Event()

    def asking() -> Asking[None]:
        try:
            yield Work("scan", WORK.on_loop + 1)
            entered.set()
            leave.wait()
            yield Need(pages.segments[0], directories=("n",))
        finally:
            closed.set()

    async def story() -> None:
        task = asyncio.create_task(pages.drive(asking()))
        await asyncio.to_thread(entered.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        was_closed = closed.is_set()
        leave.set()
        await asyncio.to_thread(closed.wait)
        assert not was_closed
        assert pages.stopped

    asyncio.run(story())
    assert not pages.asked


@pytest.mark.parametrize("passing", [True, False])
def test_pages_that_pass_may_be_more_than_those_that_stay(passing: bool) -> None:
    world = Pages().world
    state = SimpleNamespace(ledger=world.ledger, definition=world.definition)
    upstream = Upstream(cast("Any", None), cast("Any", None), cast("Any", state), confirmed=True)
    upstream.most_pages = 3
    upstream.need_pages(3)
    upstream.need_pages(PASSING * 3, passing=True)
    with pytest.raises(TooLarge) as refused:
        upstream.need_pages(1, passing=passing)
    assert refused.value.reason == "question_too_large"

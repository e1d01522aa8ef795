"""Rows that came beside others are checked in the order in which they came, and all of them are.

What is checked is not looked at here: :mod:`tests.proxy.test_kept_rows` alters rows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any

import pytest

from encrypted_records.model.records import RowRef
from encrypted_records.proxy.process import Background
from encrypted_records.proxy.search import row_checks
from encrypted_records.proxy.search.cover import RetrySets
from encrypted_records.proxy.search.row_checks import RowChecks

FIELDS = 10
ROWS, ROW = 64, b"x" * 100


@dataclass
class _Ledger:
    """All rows are live but the dead. Two are equal by their version, as far as that goes."""

    version: int = 1
    dead: set[RowRef] = field(default_factory=set, compare=False)

    def snapshot(self) -> _Ledger:
        return self

    def is_live(self, group: bytes, ordinal: int) -> bool:
        return RowRef(group, ordinal) not in self.dead

    def kill(self, *rows: RowRef) -> None:
        """As a commit does."""
        self.version += 1
        self.dead |= set(rows)


@dataclass
class _Definition:
    fields: range = range(FIELDS)


@dataclass
class _State:
    id: bytes = b"schema"
    definition: _Definition = field(default_factory=_Definition)
    ledger: _Ledger = field(default_factory=_Ledger)


@dataclass
class Steps:
    """What was checked in each step, by answer, and what was stored after it."""

    checked: list[tuple[bytes, int]] = field(default_factory=list)
    stored: list[bytes] = field(default_factory=list)
    #: how many answers were stored at once
    together: list[int] = field(default_factory=list)
    #: what is there at last, and what ever was
    kept: set[RowRef] = field(default_factory=set)
    had: set[RowRef] = field(default_factory=set)
    #: done before the rows are checked, and while they are stored
    before: Callable[[], None] = lambda: None
    meanwhile: Callable[[], None] = lambda: None

    def store(self, _schema: bytes, answers: list[tuple[Any, dict[RowRef, bytes]]]) -> None:
        self.meanwhile()
        self.together.append(len(answers))
        for _, rows in answers:
            self.stored.append(next(iter(rows)).group)
            self.kept |= rows.keys()
            self.had |= rows.keys()

    def forget(self, _schema: bytes, _snapshot: Any, rows: Collection[RowRef]) -> None:
        self.kept -= set(rows)

    async def authenticate(self, _state: Any, _snapshot: Any, rows: dict[RowRef, bytes]) -> None:
        self.before()
        if rows:
            self.checked.append((next(iter(rows)).group, len(rows)))


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps()
    monkeypatch.setattr(row_checks, "authenticate", made.authenticate)
    return made


def answer(number: int) -> dict[RowRef, bytes]:
    return {RowRef(bytes([number]) * 16, n): ROW for n in range(ROWS)}


def run(scene: Callable[[RowChecks], Awaitable[None]], kept: Steps, most_bytes: int) -> None:
    async def whole() -> None:
        checks = RowChecks(kept, RetrySets(0), Background(), most_bytes)  # type: ignore[arg-type]  # it only stores
        await scene(checks)
        await checks.close()
        assert len(checks) == 0

    asyncio.run(whole())


def add(checks: RowChecks, number: int, of: _State | None = None) -> Awaitable[None]:
    state: Any = of or _State()
    return checks.add(state, state, answer(number), ())


def test_answers_are_checked_one_after_the_other_as_they_came(steps: Steps) -> None:
    async def scene(checks: RowChecks) -> None:
        for number in range(40):
            await add(checks, number)
        assert steps.stored == []  # and no query waited for any of it

    run(scene, steps, most_bytes=1 << 20)
    order = [group[0] for group, _ in steps.checked]
    assert order == sorted(order)
    assert sorted(group[0] for group in steps.stored) == list(range(40))
    assert sum(count for _, count in steps.checked) == 40 * ROWS


def test_where_more_answers_wait_a_step_is_longer_within_bounds(steps: Steps) -> None:
    async def scene(checks: RowChecks) -> None:
        for number in range(40):
            await add(checks, number)

    run(scene, steps, most_bytes=1 << 20)
    assert steps.checked[0][1] == ROWS  # many wait: all of an answer
    few = Steps()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_checks, "authenticate", few.authenticate)
        run(lambda checks: add(checks, 1), few, most_bytes=1 << 20)
    assert max(count for _, count in few.checked) * FIELDS <= 160


def test_queries_that_come_while_much_waits_go_on_in_their_order(steps: Steps) -> None:
    went_on: list[int] = []
    waiting: list[int] = []

    async def query(checks: RowChecks, number: int) -> None:
        await add(checks, number)
        went_on.append(number)
        waiting.append(len({*range(40)} - {group[0] for group, _ in steps.checked}))

    async def scene(checks: RowChecks) -> None:
        await asyncio.gather(*(query(checks, number) for number in range(40)))

    run(scene, steps, most_bytes=10 * ROWS * len(ROW))
    assert went_on == list(range(40))
    # The first ten waited for nothing; the last one for all but the nine before it and itself.
    assert waiting[9] == 40
    assert waiting[39] <= 10


def test_what_is_checked_while_the_disk_is_busy_is_stored_together_and_nothing_beside_it(
    steps: Steps,
) -> None:
    busy = Lock()

    def look() -> None:
        assert busy.acquire(blocking=False), "two answers are stored at once"
        time.sleep(0.01)  # for as long as others are checked
        busy.release()

    steps.meanwhile = look

    async def scene(checks: RowChecks) -> None:
        first, second = _State(id=b"first"), _State(id=b"second")
        for number in range(60):
            await add(checks, number, (first, second)[number % 2])

    run(scene, steps, most_bytes=1 << 20)
    assert sum(steps.together) == 60
    assert sorted(group[0] for group in steps.stored) == list(range(60))
    assert max(steps.together) > 1
    size = ROWS * len(ROW)
    assert all(count * size <= row_checks.STORED_AT_ONCE for count in steps.together)


def test_an_answer_that_is_larger_than_what_is_stored_at_once_is_stored_alone(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_checks, "STORED_AT_ONCE", ROWS * len(ROW) - 1)

    async def scene(checks: RowChecks) -> None:
        for number in range(9):
            await add(checks, number)

    run(scene, steps, most_bytes=1 << 20)
    assert steps.together == [1] * 9


def test_queries_wait_for_what_is_checked_and_not_on_disk_yet(steps: Steps) -> None:
    """Else what waits for a slow disk would take any memory."""
    may_store = Event()
    steps.meanwhile = lambda: assert_true(may_store.wait(60))
    went_on: list[int] = []

    async def query(checks: RowChecks, number: int) -> None:
        await add(checks, number)
        went_on.append(number)

    async def scene(checks: RowChecks) -> None:
        queries = [asyncio.ensure_future(query(checks, number)) for number in range(20)]
        while sum(count for _, count in steps.checked) < 20 * ROWS:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.001)
        assert went_on == list(range(10))
        may_store.set()
        await asyncio.gather(*queries)

    run(scene, steps, most_bytes=10 * ROWS * len(ROW))
    assert went_on == list(range(20))


def assert_true(value: bool) -> None:
    assert value


def test_a_query_that_goes_away_while_it_waits_keeps_nobody(steps: Steps) -> None:
    async def scene(checks: RowChecks) -> None:
        tasks = [asyncio.ensure_future(add(checks, number)) for number in range(20)]
        await asyncio.sleep(0)
        tasks[5].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes].count(asyncio.CancelledError) == 1

    run(scene, steps, most_bytes=ROWS * len(ROW))
    assert len(steps.stored) == 20


def test_rows_that_died_before_they_were_stored_are_not_stored(steps: Steps) -> None:
    state = _State()
    dead = RowRef(bytes([1]) * 16, 5)
    steps.before = lambda: state.ledger.kill(dead)
    run(lambda checks: add(checks, 1, state), steps, most_bytes=1 << 20)
    assert steps.had == answer(1).keys() - {dead}


def test_rows_that_died_while_they_were_stored_do_not_stay(steps: Steps) -> None:
    state = _State()
    dead = RowRef(bytes([1]) * 16, 5)
    steps.meanwhile = lambda: state.ledger.kill(dead)
    run(lambda checks: add(checks, 1, state), steps, most_bytes=1 << 20)
    assert steps.kept == answer(1).keys() - {dead}


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_another_log_is_asked_which_rows_live_also_where_it_equals_the_one_before(
    steps: Steps, when: str
) -> None:
    state = _State()
    dead = RowRef(bytes([1]) * 16, 5)

    def read_again() -> None:
        state.ledger = _Ledger(state.ledger.version, {dead})

    setattr(steps, when, read_again)
    run(lambda checks: add(checks, 1, state), steps, most_bytes=1 << 20)
    assert steps.kept == answer(1).keys() - {dead}


def test_where_the_log_stands_nobody_looks_into_it(steps: Steps) -> None:
    class Sealed(_Ledger):
        def __eq__(self, _other: object) -> bool:
            raise AssertionError("what is in a log was compared")

        __hash__ = None  # type: ignore[assignment]

    run(lambda checks: add(checks, 1, _State(ledger=Sealed())), steps, most_bytes=1 << 20)
    assert steps.kept == answer(1).keys()

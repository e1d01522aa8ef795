"""Rows that came beside others are checked in the order in which they came, and all of them are.

What is checked is not looked at here: :mod:`tests.proxy.test_kept_rows` alters rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from encrypted_records.model.records import RowRef
from encrypted_records.proxy.search import row_checks
from encrypted_records.proxy.search.row_checks import RowChecks

FIELDS = 10
ROWS, ROW = 64, b"x" * 100


class _Ledger:
    """All rows are live."""

    version = 1

    def snapshot(self) -> _Ledger:
        return self

    def is_live(self, _group: bytes, _ordinal: int) -> bool:
        return True


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

    def store(self, _schema: bytes, _snapshot: Any, rows: dict[RowRef, bytes]) -> None:
        self.stored.append(next(iter(rows)).group)

    async def authenticate(self, _state: Any, _snapshot: Any, rows: dict[RowRef, bytes]) -> None:
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
        checks = RowChecks(kept, most_bytes)  # type: ignore[arg-type]  # it only stores
        await scene(checks)
        await checks.close()
        assert len(checks) == 0

    asyncio.run(whole())


def add(checks: RowChecks, number: int) -> Awaitable[None]:
    state: Any = _State()
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


def test_a_query_that_goes_away_while_it_waits_keeps_nobody(steps: Steps) -> None:
    async def scene(checks: RowChecks) -> None:
        tasks = [asyncio.ensure_future(add(checks, number)) for number in range(20)]
        await asyncio.sleep(0)
        tasks[5].cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in outcomes].count(asyncio.CancelledError) == 1

    run(scene, steps, most_bytes=ROWS * len(ROW))
    assert len(steps.stored) == 20

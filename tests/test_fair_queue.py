"""Tasks take turns by user, in a queue before a number of places or a number of bytes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.fair_queue import FairQueue

BUDGET = 100


@dataclass
class Crowd:
    """Tasks that wait in a queue, and the order in which they were admitted."""

    turns: FairQueue
    got: list[tuple[str, int]] = field(default_factory=list)
    tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    leave: dict[int, asyncio.Event] = field(default_factory=dict)
    #: who asked, by number
    names: list[str] = field(default_factory=list)

    async def ask(self, name: str, size: int, *, since: float | None = None) -> int:
        number = len(self.tasks)
        self.names.append(name)
        self.leave[number] = asyncio.Event()

        async def wait() -> None:
            async with self.turns.take(name.encode(), size, since=since):
                self.got.append((name, number))
                await self.leave[number].wait()

        self.tasks[number] = asyncio.create_task(wait())
        await settled()
        return number

    async def go(self, number: int) -> None:
        self.leave[number].set()
        await settled()

    async def give_up(self, number: int) -> None:
        self.tasks[number].cancel()
        await settled()

    async def everybody_goes(self) -> None:
        for event in self.leave.values():
            event.set()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(story: Callable[[Crowd], Any], queue: FairQueue | None = None) -> Crowd:
    async def tell() -> Crowd:
        crowd = Crowd(queue or FairQueue(BUDGET))
        await story(crowd)
        await crowd.everybody_goes()
        assert crowd.turns.held == crowd.turns.waiting == 0
        return crowd

    return asyncio.run(tell())


def test_users_take_turns_and_each_ones_questions_stay_in_order() -> None:
    async def story(crowd: Crowd) -> None:
        first = await crowd.ask("holder", BUDGET)
        for name in ("much", "much", "much", "little", "much", "little"):
            await crowd.ask(name, BUDGET)
        await crowd.go(first)
        for number in (1, 4, 2, 6, 3, 5):
            assert crowd.got[-1][1] == number
            await crowd.go(number)

    names = [name for name, _ in run(story).got]
    assert names == ["holder", "much", "little", "much", "little", "much", "much"]


def test_what_takes_more_than_there_is_has_all_of_it_and_is_not_passed() -> None:
    async def story(crowd: Crowd) -> None:
        small = await crowd.ask("a", 10)
        await crowd.ask("b", 50 * BUDGET)
        await crowd.ask("c", 10)
        assert [name for name, _ in crowd.got] == ["a"]
        await crowd.go(small)
        assert [name for name, _ in crowd.got] == ["a", "b"]
        assert crowd.turns.held == BUDGET

    assert [name for name, _ in run(story).got] == ["a", "b", "c"]


def test_who_gives_up_lets_those_behind_in() -> None:
    async def story(crowd: Crowd) -> None:
        await crowd.ask("a", 60)
        large = await crowd.ask("b", 90)
        await crowd.ask("c", 30)
        assert [name for name, _ in crowd.got] == ["a"]
        await crowd.give_up(large)
        assert [name for name, _ in crowd.got] == ["a", "c"]

    run(story)


def test_a_turn_that_came_too_late_is_given_back() -> None:
    async def story(crowd: Crowd) -> None:
        first = await crowd.ask("a", BUDGET)
        second = await crowd.ask("b", BUDGET)
        # In one step of the loop: the turn is given, and nobody is there any more.
        crowd.leave[first].set()
        await asyncio.sleep(0)
        crowd.tasks[second].cancel()
        await settled()
        await crowd.ask("c", BUDGET)

    assert [name for name, _ in run(story).got][-1] == "c"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ask", "go", "give_up"]), st.sampled_from("abc"), st.integers(0, 150)
        ),
        max_size=40,
    )
)
def test_no_more_is_held_than_there_is_whatever_happens(steps: list[tuple[str, str, int]]) -> None:
    async def story(crowd: Crowd) -> None:
        for step, name, number in steps:
            if step == "ask":
                await crowd.ask(name, number)
            elif crowd.tasks:
                own = number % len(crowd.tasks)
                await (crowd.go(own) if step == "go" else crowd.give_up(own))
            assert 0 <= crowd.turns.held <= BUDGET

    crowd = run(story)
    answered = {number for _, number in crowd.got}
    assert all(number in answered or task.cancelled() for number, task in crowd.tasks.items())


def test_tasks_of_a_user_are_admitted_by_the_time_since_which_they_are_needed() -> None:
    async def story(crowd: Crowd) -> None:
        first = await crowd.ask("a", BUDGET, since=0.0)
        for since in (5.0, 6.0, 2.0, 5.0):
            await crowd.ask("a", BUDGET, since=since)
        await crowd.go(first)
        for number in (3, 1, 4, 2):
            assert crowd.got[-1][1] == number
            await crowd.go(number)

    run(story)


def test_a_user_who_has_as_many_places_as_one_may_have_is_passed_over() -> None:
    async def story(crowd: Crowd) -> None:
        first = await crowd.ask("a", 1)
        await crowd.ask("a", 1)
        await crowd.ask("a", 1)
        other = await crowd.ask("b", 1)
        await crowd.ask("c", 1)
        assert crowd.got == [("a", first), ("b", other)]
        await crowd.go(other)
        assert crowd.got[2:] == [("c", 4)]
        await crowd.go(first)
        assert crowd.got[3:] == [("a", 1)]

    run(story, FairQueue(2, most_per_user=1))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ask", "ask", "go", "give_up"]),
            st.sampled_from("abc"),
            st.integers(0, 40),
        ),
        max_size=40,
    )
)
def test_no_place_stays_free_that_somebody_waits_for(steps: list[tuple[str, str, int]]) -> None:
    async def story(crowd: Crowd) -> None:
        for step, name, number in steps:
            if step == "ask":
                await crowd.ask(name, 1, since=number)
            elif crowd.tasks:
                own = number % len(crowd.tasks)
                await (crowd.go(own) if step == "go" else crowd.give_up(own))
            inside = {n for _, n in crowd.got if not crowd.tasks[n].done()}
            waiting = {n for n, task in crowd.tasks.items() if not task.done()} - inside
            held = Counter(crowd.names[n] for n in inside)
            assert len(inside) <= 3
            assert max(held.values(), default=0) <= 2
            if len(inside) < 3:
                assert all(held[crowd.names[n]] == 2 for n in waiting)

    run(story, FairQueue(3, most_per_user=2))

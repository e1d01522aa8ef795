"""Segments one after the other ask for few pages, and keep none. That the rows are the oracle's is
held by ``test_questions_equal_the_oracle.py``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import strategies as st

from encrypted_records.errors import NotFound
from encrypted_records.index.query.asking import Asking, Keep, Need, Sizes, Step, Stopped
from encrypted_records.index.query.candidates import Matches
from encrypted_records.index.query.condition import Condition, Every
from encrypted_records.index.query.matching import Matching
from encrypted_records.index.segments.builder import STANDARD as MINIS
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.reading import STANDARD, ReadingLimits
from encrypted_records.model.predicates import Everything
from encrypted_records.model.queries import parse_query
from tests.index.executor import Executor
from tests.index.reading import IN_WINDOWS, NARROW, Kept, answer
from tests.index.strategies import EVERY_FORM, Case, cases
from tests.index.world import Row, World

TEXT = """{"type": "object", "properties": {
    "n": {"type": "integer", "minimum": 0, "maximum": 999}, "s": {"type": "string"}}}"""


@dataclass
class Asked:
    """One condition, on all segments of a world."""

    world: World
    condition: Condition
    limits: ReadingLimits
    by_row: bool
    kept: Kept
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.snapshot = self.world.ledger.snapshot()
        self.segments = [self.world.open_segment(segment) for segment in self.snapshot.segments]

    @property
    def work(self) -> Matching:
        space = Executor(self.world, Sizes(reading=self.limits), self.kept, self.by_row).space
        return Matching(space, self.condition)

    def run(self, asking: Asking[Any]) -> Any:
        found = answer(asking, self.world.sealed, self.kept, self.steps)
        self.hold_nothing()
        return found

    def hold_nothing(self) -> None:
        for segment in self.segments:
            if isinstance(segment, LoadedSegment):
                assert not segment.blocks and not segment.columns and not segment.sums

    def find(self) -> list[Matches]:
        if self.condition.tests:
            self.run(self.work.test(self.segments))
        found: list[Matches] = self.run(self.work.match_each(self.segments))
        pairs = zip(self.segments, found, strict=True)
        return [own.without(self.snapshot.dead_rows(one.segment)) for one, own in pairs]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Case, World, set[Row]]:
    """A case whose records come twice, in segments of every form; and the rows that live."""
    case = draw(cases())
    groups = [*case.groups, *case.groups, *case.groups, *case.groups][:6]
    world = World(case.text)
    for group in groups:
        world.limits = draw(st.sampled_from(EVERY_FORM))
        world.ingest(group)
    rows = {(at, row) for at, group in enumerate(groups) for row in range(len(group))}
    dead = draw(st.sets(st.sampled_from(sorted(rows)), max_size=3))
    if dead:
        world.kill(dead)
    if draw(st.booleans()):
        world.merge()
        if draw(st.booleans()):
            world.ingest(groups[0])
            rows |= {(len(groups), row) for row in range(len(groups[0]))}
    return case, world, rows - dead


def large_world() -> World:
    """A mini between two segments of many pages."""
    world = World(TEXT, limits=SegmentLimits(mini=0, entries=5))
    for at in range(3):
        world.limits = MINIS if at == 1 else SegmentLimits(mini=0, entries=5)
        world.ingest([{"n": 7 * row % 200 + at, "s": f"text {row}"} for row in range(60)])
    return world


def ask(world: World, where: Any, limits: ReadingLimits = IN_WINDOWS) -> Asked:
    predicate = parse_query({"where": where}, world.definition).where
    condition = Condition.of(predicate, world.ledger.tails, world.definition)
    return Asked(world, condition, limits, True, Kept())


RANGE = {"field": "n", "op": "between", "value": [20, 170]}
PART = {"field": "s", "op": "contains", "value": "7"}


def test_a_wide_comparison_turns_its_column_round_once_and_reads_no_page_again() -> None:
    asked = ask(large_world(), RANGE)
    first = [len(one.certain) for one in asked.find()]
    assert sum(isinstance(step, Keep) for step in asked.steps) == 2
    assert any(step.pages for step in asked.steps if isinstance(step, Need))
    again = replace(asked, steps=[])
    assert [len(one.certain) for one in again.find()] == first
    assert not any(isinstance(step, Keep) for step in again.steps)
    assert not any(step.pages for step in again.steps if isinstance(step, Need))


def test_a_comparison_reads_windows_where_columns_do_not_stay() -> None:
    asked = replace(ask(large_world(), RANGE), by_row=False, kept=Kept(stay=False))
    asked.find()
    assert not any(isinstance(step, Keep) for step in asked.steps)
    needs = [step for step in asked.steps if isinstance(step, Need)]
    windows = [need for need in needs if need.pages]
    assert len(windows) > 5
    assert all(window.passing and len(window.pages) <= IN_WINDOWS.window for window in windows)


def test_a_tested_column_of_few_pages_comes_in_one_request_and_stays_with_its_texts() -> None:
    asked = ask(large_world(), PART, STANDARD)
    found = [len(one.certain) for one in asked.find()]
    pages = [len(step.pages) for step in asked.steps if isinstance(step, Need) and step.pages]
    assert pages == [12, 12]
    assert sum(isinstance(step, Keep) for step in asked.steps) == 2
    again = replace(asked, steps=[])
    for segment in again.segments:
        for test in again.condition.tests:
            again.condition.memo(segment).found.pop(test.number, None)
    assert [len(one.certain) for one in again.find()] == found
    assert not any(step.pages for step in again.steps if isinstance(step, Need))


def test_an_excluded_segment_is_not_asked_for_anything() -> None:
    asked = ask(large_world(), {"field": "n", "op": "gt", "value": 500})
    assert not any(one.possible for one in asked.find())
    assert not any(isinstance(step, Need) for step in asked.steps)


@pytest.mark.parametrize("where", [RANGE, PART, {"and": [RANGE, PART]}])
def test_wherever_a_fetch_fails_nothing_stays(where: Any) -> None:
    world = large_world()
    whole = ask(world, where)
    whole.find()
    assert len(whole.steps) > 5
    for at in range(len(whole.steps)):
        asked = ask(world, where)

        def failing(asking: Asking[Any], at: int = at, asked: Asked = asked) -> Asking[Any]:
            """Raises where the step ``at`` was asked for."""
            try:
                step = next(asking)
                while True:
                    if len(asked.steps) == at:
                        asked.steps.append(step)
                        step = asking.throw(NotFound("gone"))
                    step = asking.send((yield step))
            except StopIteration as end:
                return end.value

        def find(asked: Asked = asked) -> None:
            if asked.condition.tests:
                answer(
                    failing(asked.work.test(asked.segments)),
                    world.sealed,
                    asked.kept,
                    asked.steps,
                )
            answer(
                failing(asked.work.match_each(asked.segments)),
                world.sealed,
                asked.kept,
                asked.steps,
            )

        with pytest.raises(NotFound):
            find()
        asked.hold_nothing()


def test_everything_matches_without_a_page() -> None:
    world = large_world()
    condition = Condition(Everything(), Every())
    asked = Asked(world, condition, STANDARD, True, Kept())
    assert [len(one.certain) for one in asked.find()] == [60, 60, 60]
    assert not any(step.pages for step in asked.steps if isinstance(step, Need))


def test_who_is_not_awaited_any_more_stops_between_windows() -> None:
    asked = ask(large_world(), PART, NARROW)
    work = asked.work
    work.space.stop()
    with pytest.raises(Stopped):
        answer(work.test(asked.segments), asked.world.sealed, asked.kept)
    asked.hold_nothing()

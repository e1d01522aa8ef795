"""A count by comparisons that keys decide, however they are joined, takes nothing of segments whose
directories decide it, and the ends of a range where they leave one open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from encrypted_records.index.query.aggregate import count_all, count_matches
from encrypted_records.index.query.asking import Keep, Need, Sizes, Together, Work
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.model.predicates import matches
from encrypted_records.model.queries import parse_query
from tests.index.executor import Executor
from tests.index.reading import Kept
from tests.index.test_questions_equal_the_oracle import LARGE, NARROWEST, large_world
from tests.index.world import World

TEXT = """{"type": "object", "properties": {
    "n": {"type": "integer", "minimum": 0, "maximum": 999},
    "k": {"type": "integer", "minimum": 0, "maximum": 9}}}"""
#: Rows of ``world`` in each segment.
ROWS = 60


def compare(field: str, op: str, value: Any) -> dict[str, Any]:
    return {"field": field, "op": op, "value": value}


#: Most segments of the worlds have all of their rows in such a range, or none.
COMPARISONS = st.one_of(
    st.builds(
        compare,
        st.just("n"),
        st.sampled_from(["ge", "lt", "eq", "gt", "le"]),
        st.sampled_from([0, 7, 100, 119, 120, 205, 212, 300, 410, 419, 999]),
    ),
    st.tuples(st.integers(0, 420), st.integers(0, 420)).map(
        lambda ends: compare("n", "between", sorted(ends))
    ),
    st.sampled_from(["n", "t"]).map(lambda name: {"field": name, "op": "is_null"}),
    st.integers(0, 9).map(lambda number: compare("s", "eq", f"text {number}")),
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: {"and": parts}),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: {"or": parts}),
        inner.map(lambda part: {"not": part}),
    ),
    max_leaves=6,
)


@settings(max_examples=50, deadline=None)
@given(CONDITIONS, st.sampled_from([LARGE, NARROWEST, Sizes(few_rows=0)]), st.booleans())
@example({"not": compare("n", "lt", 210)}, LARGE, True)
@example({"or": [compare("n", "lt", 100), compare("n", "ge", 410)]}, LARGE, False)
def test_folded_counts_are_those_of_the_records(where: Any, sizes: Sizes, stay: bool) -> None:
    executor = Executor(large_world(), sizes, Kept(stay=stay), by_row=stay)
    definition = executor.space.definition
    predicate = parse_query({"where": where}, definition).where
    expected = sum(matches(predicate, one, definition) for one in executor.live().values())
    found = executor.run(count_matches(executor.space, executor.condition(predicate)))
    assert found == expected


def world() -> World:
    """Four large segments, with ``n`` from 100 times their number on."""
    made = World(TEXT, limits=SegmentLimits(mini=0, entries=5))
    for at in range(4):
        made.ingest([{"n": 100 * at + row, "k": row % 10} for row in range(ROWS)])
    return made


def take(made: World, where: Any, sizes: Sizes) -> tuple[int, dict[int, int]]:
    """The count, and how many data pages came of each segment."""
    executor = Executor(made, sizes)
    predicate = parse_query({"where": where}, made.definition).where
    count = executor.run(count_all(executor.space, executor.condition(predicate)))
    numbers = [segment.uid for segment in executor.space.snapshot.segments]
    pages: dict[int, int] = {}
    for step in executor.steps:
        assert not isinstance(step, Keep)
        if not isinstance(step, Need | Together):
            continue
        for need in step.needs if isinstance(step, Together) else (step,):
            data = [at for at in need.pages if need.segment.directories.field_of(at) is None]
            if data:
                own = numbers.index(need.segment.segment.uid)
                pages[own] = pages.get(own, 0) + len(data)
    return count, pages


FIRST, LAST = compare("n", "lt", 133), compare("n", "ge", 300)


@pytest.mark.parametrize(
    ("where", "count", "pages"),
    [
        ({"or": [FIRST, LAST]}, ROWS + 33 + ROWS, {1: 1}),
        ({"not": {"or": [FIRST, LAST]}}, ROWS - 33 + ROWS, {1: 1}),
        ({"not": FIRST}, ROWS - 33 + 2 * ROWS, {1: 1}),
        ({"or": [compare("n", "lt", 100), LAST]}, 2 * ROWS, {}),
        ({"and": [{"not": FIRST}, {"not": LAST}]}, ROWS - 33 + ROWS, {1: 1}),
        ({"or": [{"field": "n", "op": "is_null"}, LAST]}, ROWS, {}),
        ({"not": {"field": "k", "op": "is_null"}}, 4 * ROWS, {}),
    ],
)
def test_only_segments_that_are_left_open_are_read_and_only_at_the_ends(
    where: Any, count: int, pages: dict[int, int]
) -> None:
    assert take(world(), where, LARGE) == (count, pages)


def test_a_range_that_holds_all_rows_is_not_read_for_the_dead_ones() -> None:
    made = world()
    made.kill([(0, 3), (1, 7)])
    assert take(made, {"or": [compare("n", "lt", 100), LAST]}, LARGE) == (2 * ROWS - 1, {})


HIGH, SMALL = compare("n", "ge", 200), compare("k", "lt", 5)


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ({"or": [HIGH, SMALL]}, 2 * ROWS + ROWS),  # all of the last two
        ({"not": {"or": [HIGH, SMALL]}}, ROWS),  # none of them, which no zone tells
        ({"and": [{"not": HIGH}, {"not": SMALL}]}, ROWS),
    ],
)
def test_a_field_that_another_decides_is_not_read(where: Any, count: int) -> None:
    found, pages = take(world(), where, LARGE)
    assert found == count
    assert not pages.keys() & {2, 3}


def test_nothing_is_resolved_where_directories_decide_every_segment() -> None:
    """No set of rows is made, not even of segments that bring no page."""
    executor = Executor(world(), LARGE)
    where = {"or": [compare("n", "lt", 100), {"not": compare("n", "lt", 300)}]}
    predicate = parse_query({"where": where}, executor.space.definition).where
    count = executor.run(count_all(executor.space, executor.condition(predicate)))
    assert count == 2 * ROWS
    assert "resolve" not in {step.stage for step in executor.steps if isinstance(step, Work)}


@pytest.mark.parametrize(
    ("where", "count"),
    [
        ({"field": "late", "op": "is_null"}, 4 * ROWS),
        ({"not": compare("late", "ge", 0)}, 4 * ROWS),
        ({"or": [compare("late", "ge", 0), compare("n", "lt", 100)]}, 2 * ROWS),
    ],
)
def test_a_segment_that_is_older_than_a_field_makes_no_column_of_it(where: Any, count: int) -> None:
    """A column would take four bytes for each row, of all segments at once."""
    made = world()
    made.change(
        TEXT.replace("}}}", '}, "late": {"type": "integer", "minimum": 0, "maximum": 99}}}')
    )
    made.ingest([{"n": 500 + row, "k": 1, "late": row} for row in range(ROWS)])
    executor = Executor(made, LARGE)
    predicate = parse_query({"where": where}, executor.space.definition).where
    assert executor.run(count_all(executor.space, executor.condition(predicate))) == count
    assert len(executor.space.opened) == 5
    assert not any("rows" in vars(segment) for segment in executor.space.opened.values())


def test_two_comparisons_that_stay_open_take_a_set_of_rows() -> None:
    """As of any search; of the other segments nothing comes."""
    where = {"and": [{"or": [FIRST, LAST]}, compare("k", "lt", 5)]}
    large = replace(LARGE, many_pages=1024, many_entries=1 << 22)
    count, pages = take(world(), where, large)
    assert count == 30 + 18 + 30
    assert 2 not in pages
    assert pages[1] > pages.get(0, 0)

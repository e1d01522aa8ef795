"""Whole questions give the oracle's answers, page by page, in worlds of every form and size.

Small segments and large ones stand mixed, at least four of them, with rows that are equal; columns
stay in a cache or do not. No service runs: what a question lacks comes out of a world's memory.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from encrypted_records.errors import NotFound
from encrypted_records.index.query.aggregate import count_all, measure
from encrypted_records.index.query.asking import (
    Asking,
    Keep,
    Need,
    Open,
    Rows,
    Sizes,
    Step,
    Together,
    WorkSizes,
)
from encrypted_records.index.query.distinct_values import collect_values
from encrypted_records.index.query.key_sets import KeyMembers
from encrypted_records.index.query.pages import FIRST_ROWS
from encrypted_records.index.query.sorted_scan import ScanLimits
from encrypted_records.index.segments.builder import STANDARD as MINIS
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.model.aggregations import parse_aggregation
from encrypted_records.model.predicates import And, InColumn, Not, Or, Predicate, matches
from encrypted_records.model.queries import parse_query
from tests import oracle
from tests.index.executor import Executor
from tests.index.reading import IN_WINDOWS, MANY_ROWS, NARROW, Kept
from tests.index.strategies import Case
from tests.index.test_matching import worlds
from tests.index.world import Row, World

#: Looks into a column for the rows that come next, however few rows there are.
EAGER = ScanLimits(step=2, spare=-(2**60), share=1.0)
LARGE = replace(MANY_ROWS, reading=IN_WINDOWS, scan=EAGER)
#: As they are; as of very many rows, a page or two at a time, with keys or none; and in between.
SIZES = [
    Sizes(),
    Sizes(scan=EAGER),
    LARGE,
    replace(LARGE, reading=NARROW),
    replace(LARGE, batch_bytes=1 << 20, scan=ScanLimits()),
    Sizes(few_rows=0, few_to_sort=0, few_entries=2),
    # First rows in the order of storing by a window of three, as where half a million match.
    Sizes(prefix_rows=3, work=WorkSizes(on_loop=0)),
]


NARROWEST = replace(LARGE, reading=NARROW)


@dataclass
class Asked:
    """Conditions on a world, whose rows live or do not."""

    case: Case
    world: World
    live: set[Row]
    executor: Executor
    records: dict[int, dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        groups = [self.case.groups[at % len(self.case.groups)] for at in range(6)]
        groups.append(groups[0])
        places = {self.world.place(row): row for row in self.live}
        self.records = {place: groups[at][row] for place, (at, row) in sorted(places.items())}

    def expected(self, where: Any, order_by: list[str]) -> list[int]:
        fields = self.case.fields
        found = [at for at, one in self.records.items() if oracle.holds(where, one, fields)]
        order = oracle.in_order(order_by, [self.records[at] for at in found], fields)
        return [found[number] for number in order]


@st.composite
def asked(draw: st.DrawFn) -> Asked:
    case, world, live = draw(worlds())
    kept = Kept(stay=draw(st.booleans()))
    sizes, by_row = draw(st.sampled_from(SIZES)), draw(st.booleans())
    return Asked(case, world, live, Executor(world, sizes, kept, by_row))


@given(asked(), st.data())
def test_pages_and_counts_are_the_oracles(asked: Asked, data: st.DataObject) -> None:
    names = sorted(asked.case.fields)
    for where in asked.case.asked:
        fields = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=2))
        order_by = [data.draw(st.sampled_from(["", "-"])) + name for name in fields]
        body = {
            "where": where,
            "order_by": order_by,
            "count": data.draw(st.booleans()),
            "limit": data.draw(st.sampled_from([0, 1, 2, 3, 100])),
            "offset": data.draw(st.sampled_from([0, 0, 1, 4])),
        }
        # Rows that were stored since the first page are on none.
        every = asked.executor.space.snapshot.stored
        stored = data.draw(st.sampled_from([every, every, every - 1, every // 2]))
        expected = [at for at in asked.expected(where, order_by) if at < stored]
        first_rows = data.draw(st.sampled_from([FIRST_ROWS, 1, 6]))
        count, pages = asked.executor.pages(body, stored=stored, first_rows=first_rows)
        if body["count"]:
            assert count == len(expected)
        limit = body["limit"]
        found = list(itertools.chain.from_iterable(pages))
        assert found == (expected[body["offset"] :] if limit else [])
        assert all(len(page) == limit for page in pages[:-1])


@given(asked(), st.data())
def test_counts_measures_and_values_are_the_oracles(asked: Asked, data: st.DataObject) -> None:
    executor, definition = asked.executor, asked.world.definition
    for where in asked.case.asked:
        expected = asked.expected(where, [])
        predicate = parse_query({"where": where}, definition).where
        count = count_all(executor.space, executor.condition(predicate))
        assert executor.run(count) == len(expected)

        name = data.draw(st.sampled_from(sorted(asked.case.fields)))
        having = [at for at in expected if asked.records[at].get(name) is not None]
        body = {"where": where, "measures": [{"op": "count"}], "group_by": [name], "limit": 100}
        aggregation = parse_aggregation(body, definition)
        found = executor.run(measure(executor.space, executor.condition(predicate), aggregation))
        counts = {bucket.values: bucket.results[0] for bucket in found.groups}
        assert sum(counts.values()) == len(expected)
        assert counts.get((None,), 0) == len(expected) - len(having)

        values = executor.run(
            collect_values(
                executor.space,
                executor.condition(predicate),
                definition.fields[name],
                "/where",
                stored=executor.space.snapshot.stored,
            )
        )
        assert values.rows == len(expected)
        assert len(values.keys) + len(values.long) == len(
            [count for count in counts if count != (None,)]
        )


TEXT = """{"type": "object", "properties": {
    "n": {"type": "integer", "minimum": 0, "maximum": 999}, "s": {"type": "string"},
    "t": {"type": "string"}}}"""


@cache
def large_world() -> World:
    """Five segments, the second of which is small; many rows are equal, some lack a field."""
    world = World(TEXT, limits=SegmentLimits(mini=0, entries=5))
    for at in range(5):
        world.limits = MINIS if at == 1 else SegmentLimits(mini=0, entries=5)
        world.ingest(
            [
                {"n": 7 * row % 20 + 100 * at, "s": f"text {row % 9}"}
                | ({} if row % 4 else {"t": "x" * 60 + str(row % 3)})
                for row in range(60)
            ]
        )
    world.kill([(0, 3), (2, 5), (4, 59)])
    return world


RANGE = {"field": "n", "op": "between", "value": [5, 412]}
PART = {"field": "s", "op": "contains", "value": "7"}
LONG = {"field": "t", "op": "contains", "value": "x2"}
BODIES: list[dict[str, Any]] = [
    {"where": RANGE, "limit": 3, "count": True},
    {"where": {"and": [RANGE, PART]}, "limit": 3},
    {"where": LONG, "limit": 3, "count": True},
    {"where": {"and": [RANGE, {"field": "s", "op": "ge", "value": "text 3"}]}, "order_by": ["-n"]},
    {"where": RANGE, "order_by": ["s", "-t"], "limit": 4, "offset": 2},
    {"where": {"or": [RANGE, LONG]}, "order_by": ["t"], "limit": 4},
]


@dataclass
class Failing(Executor):
    """Fails where its step ``at`` was asked for, or closes the question there."""

    at: int = 0
    closes: bool = False

    def run(self, asking: Asking[Any]) -> Any:
        return super().run(self._failing(asking))

    def _failing(self, asking: Asking[Any]) -> Asking[Any]:
        found: Any = None
        try:
            while True:
                step = asking.send(found)
                if len(self.steps) >= self.at:
                    if self.closes:
                        asking.close()
                        raise NotFound("closed")
                    step = asking.throw(NotFound("gone"))
                found = yield step
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("sizes", [LARGE, Sizes(scan=EAGER)], ids=["large", "small"])
def test_wherever_a_question_ends_nothing_stays(sizes: Sizes, body: dict[str, Any]) -> None:
    world = large_world()
    whole = Executor(world, sizes)
    whole.pages(body, most=2)
    assert len(whole.steps) > 5
    for at in range(0, len(whole.steps), 3):
        executor = Failing(world, sizes, at=at, closes=at % 2 == 0)
        with pytest.raises(NotFound):
            executor.pages(body, most=2)


def in_numbers(*, every: int) -> InColumn:
    """The number is one of those of another schema: the multiples of ``every``."""
    spec = large_world().definition.fields["n"]
    return InColumn("n", KeyMembers(spec, np.arange(0, 500, every, dtype=np.uint64)))


def asked_of_large(where: Any) -> Predicate:
    return parse_query({"where": where}, large_world().definition).where


#: Ranges, texts that records decide, values of a semi-join, what is absent, and what joins them.
LEAVES: st.SearchStrategy[Predicate] = st.one_of(
    st.sampled_from([RANGE, PART, LONG]).map(asked_of_large),
    st.sampled_from(["contains", "ends_with", "prefix", "gt"]).map(
        lambda op: asked_of_large({"field": "t", "op": op, "value": "x" * 55 + "1"})
    ),
    st.sampled_from(["n", "t"]).map(lambda name: asked_of_large({"field": name, "op": "is_null"})),
    st.integers(1, 7).map(lambda every: in_numbers(every=every)),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
        inner.map(Not),
    ),
    max_leaves=5,
)


@given(CONDITIONS, st.sampled_from([*SIZES, NARROWEST]), st.booleans(), st.booleans())
@example(And((in_numbers(every=2), asked_of_large(LONG))), NARROWEST, False, False)
def test_tests_of_long_texts_beside_semi_joins_are_decided(
    where: Predicate, sizes: Sizes, stay: bool, by_row: bool
) -> None:
    """Whatever else a condition tests, and whatever pages came for it before."""
    executor = Executor(large_world(), sizes, Kept(stay=stay), by_row)
    definition = executor.space.definition
    expected = sum(matches(where, one, definition) for one in executor.live().values())
    for _ in range(2):  # the second time with what was kept
        counted = count_all(executor.space, executor.condition(where))
        assert executor.run(counted) == expected


def requests_of(steps: list[Step]) -> list[Step]:
    """The steps for which something may be fetched."""
    return [step for step in steps if isinstance(step, Open | Rows | Need | Together)]


@pytest.mark.parametrize("sizes", [Sizes(), LARGE], ids=["small", "large"])
def test_a_count_takes_the_ends_of_all_segments_in_one_request(sizes: Sizes) -> None:
    world = World(TEXT, limits=SegmentLimits(mini=0, entries=5))
    for _ in range(4):
        world.ingest([{"n": row} for row in range(60)])
    executor = Executor(world, sizes)
    predicate = parse_query(
        {"where": {"field": "n", "op": "between", "value": [7, 42]}}, world.definition
    ).where
    assert executor.run(count_all(executor.space, executor.condition(predicate))) == 4 * 36
    opened, directories, ends = requests_of(executor.steps)
    assert isinstance(opened, Open)
    assert isinstance(directories, Together)
    assert isinstance(ends, Together)
    assert [len(need.pages) for need in ends.needs] == [2] * 4


@pytest.mark.parametrize(
    ("order_by", "limit", "taken"), [("-n", 3, {4}), ("n", 3, {0}), ("n", 50, {0, 2, 3})]
)
def test_a_sort_takes_segments_by_their_best_values_and_no_others(
    order_by: str, limit: int, taken: set[int]
) -> None:
    """First the best large one, then the next two; those that the rows so far rule out are not
    named."""
    world = large_world()
    executor = Executor(world, LARGE)
    where = {"field": "s", "op": "ge", "value": "text 3"}
    executor.pages({"where": where, "order_by": [order_by], "limit": limit}, most=1)
    named: set[bytes] = set()
    for step in executor.steps:
        needs = step.needs if isinstance(step, Together) else ()
        needs = (step,) if isinstance(step, Need) else needs
        if isinstance(step, Keep):
            named.add(step.segment.segment.uid)
        for need in needs:
            directories = need.segment.directories
            if any(directories.field_of(number) is None for number in need.pages):
                named.add(need.segment.segment.uid)
    numbers = [segment.uid for segment in executor.space.snapshot.segments]
    assert {numbers.index(uid) for uid in named} == taken

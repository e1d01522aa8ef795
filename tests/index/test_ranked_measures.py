"""Measures of numbers over nearly all rows are the oracle's, from directories and few pages."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from encrypted_records.crypto.format import PAGE_DIRECTORY
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import directory
from encrypted_records.index.columns.dictionary import Halves
from encrypted_records.index.columns.directory import Directory
from encrypted_records.index.ordinals import bitmap
from encrypted_records.index.query.aggregate import AggregateLimits, aggregate
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.key_sets import MAX_OPENED, Texts
from encrypted_records.index.query.ranked_measures import RankedRows, Ranks
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment
from encrypted_records.index.segments.reading import ReadingLimits, sum_column
from encrypted_records.model.aggregations import parse_aggregation
from tests import aggregate_oracle
from tests.index.reading import IN_WINDOWS, NARROW, answer, read
from tests.index.test_aggregate import Aggregation, shown
from tests.index.world import World
from tests.support.paged_segments import roles_of, sealed_page, stored_directory

TEXT = """{"type": "object", "properties": {
    "n": {"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807},
    "s": {"type": "string"}}}"""
FIELDS: dict[str, dict[str, Any]] = {
    "n": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    "s": {"type": "string"},
}
#: A page or two at a time, and no more of them for a value than must be.
FEW_ENTRIES = ReadingLimits(window=2, entries=1, few=0)
LONG = SegmentLimits(mini=8, plain=1 << 16, entries=5)
PACKED = SegmentLimits(mini=8, plain=0, entries=5)
MEASURES: list[dict[str, Any]] = [
    {"op": "percentile", "field": "n", "p": [0, 1, 5, 50, Decimal("99.9"), 100]},
    {"op": "percentile", "field": "n", "p": list(range(1, 101))},
    {"op": "histogram", "field": "n", "bins": 4},
    {"op": "histogram", "field": "n", "bounds": [-(2**63), -5, 0, 3, 10**6, 2**63 - 1]},
    {"op": "sum", "field": "n"},
    {"op": "avg", "field": "n"},
    {"op": "variance", "field": "n"},
    {"op": "stddev", "field": "n"},
    {"op": "min", "field": "n"},
    {"op": "max", "field": "n"},
    {"op": "count", "field": "n"},
    {"op": "count"},
]

NUMBERS = st.one_of(
    st.integers(-3, 3), st.integers(-1000, 1000), st.sampled_from([-(2**63), 2**63 - 1, 2**62])
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[World, list[list[dict[str, Any]]]]:
    """Some segments, of values that come once, often or in part, and minis."""
    world = World(TEXT, limits=draw(st.sampled_from([LONG, PACKED])))
    groups = []
    for size in draw(st.lists(st.sampled_from([3, 40, 70]), min_size=1, max_size=3)):
        kind = draw(st.sampled_from(["unique", "mixed", "equal", "absent"]))
        values: list[int | None] = []
        if kind == "unique":
            first = draw(st.integers(-100, 100))
            values = [first + 3 * at for at in draw(st.permutations(range(size)))]
        elif kind == "mixed":
            values = draw(st.lists(st.none() | NUMBERS, min_size=size, max_size=size))
        elif kind == "equal":
            values = [draw(NUMBERS)] * size
        else:
            values = [None] * (size - 1) + [draw(NUMBERS)]
        groups.append([{"n": value, "s": f"s{at % 9}"} for at, value in enumerate(values)])
        world.ingest(groups[-1])
    return world, groups


@given(worlds(), st.data())
def test_measures_of_nearly_all_rows_are_the_oracles(
    made: tuple[World, list[list[dict[str, Any]]]], data: st.DataObject
) -> None:
    world, groups = made
    rows = [(at, row) for at, group in enumerate(groups) for row in range(len(group))]
    doomed = data.draw(st.lists(st.sampled_from(rows), unique=True, max_size=4))
    world.kill(doomed)
    chosen = [groups[at][row] for at, row in rows if (at, row) not in doomed]
    where = data.draw(st.sampled_from([None, {"field": "s", "op": "eq", "value": "s3"}]))
    if where:
        chosen = [one for one in chosen if one["s"] == "s3"]
    asked = data.draw(st.lists(st.sampled_from(MEASURES), min_size=1, unique_by=str))
    expected = [aggregate_oracle.measured(one, chosen, FIELDS) for one in asked]
    body = {"where": where, "measures": asked}
    reading = data.draw(st.sampled_from([IN_WINDOWS, NARROW, FEW_ENTRIES]))
    for merged in (False, True):
        if merged:
            world.merge()
        for by_row in (True, False):
            question = Aggregation(world, body, reading=reading, by_row=by_row)
            for _ in range(2):  # the second time with what was kept
                (whole,) = question.answer().groups
                assert list(map(shown, asked, whole.results)) == expected


KEYS = st.lists(st.integers(0, 30) | st.sampled_from([2**64 - 1, 2**63]), max_size=12)


@given(st.lists(KEYS, min_size=1, max_size=4), st.data())
def test_every_rank_is_found_among_exact_stretches(
    parts: list[list[int]], data: st.DataObject
) -> None:
    rows, left = [], []
    for part in parts:
        keys, counts = np.unique(np.array(part, np.uint64), return_counts=True)
        out = data.draw(st.lists(st.integers(0, len(part) - 1), unique=True)) if part else []
        left += [key for at, key in enumerate(part) if at not in out]
        rows.append(
            RankedRows(keys, keys, counts, np.array([part[at] for at in out], np.uint64), None)
        )
    left.sort()
    ranks = Ranks("n", rows)
    assert ranks.count == len(left)
    found = answer(ranks.select(range(1, len(left) + 1)), World(TEXT).sealed)
    assert found == {key: sum(other <= key for other in left) for key in left}
    points = data.draw(st.sets(st.integers(0, 31)))
    told = answer(ranks.upto(points), World(TEXT).sealed)
    assert told == {point: sum(one <= point for one in left) for point in points}


def large_world(values: int, *, kill: bool = False) -> World:
    """Two segments of 400 rows, in pages of five."""
    world = World(TEXT, limits=LONG)
    for at in range(2):
        chance = np.random.default_rng(at)
        world.ingest([{"n": int(integer), "s": "s"} for integer in chance.integers(0, values, 400)])
    if kill:
        world.kill([(0, 5), (1, 9)])
    return world


class Counted(Aggregation):
    """Counts the pages that are opened."""

    def count(self) -> int:
        opened = 0
        sealed = self.world.sealed

        def counting(segment: OpenedSegment, number: int) -> bytes:
            nonlocal opened
            assert isinstance(segment, LoadedSegment)
            opened += segment.directories.field_of(number) is None
            return sealed(segment, number)

        self.world.sealed = counting  # type: ignore[method-assign]
        try:
            self.answer()
        finally:
            self.world.sealed = sealed  # type: ignore[method-assign]
        return opened


@pytest.mark.parametrize("values", [150, 10**9])
def test_a_percentile_opens_few_pages_of_a_column(values: int) -> None:
    """Of 160 pages; the first time, too."""
    world = large_world(values)
    for share in (0, 37, 50, 100):
        body = {"measures": [{"op": "percentile", "field": "n", "p": share}]}
        assert Counted(world, body).count() <= 8


def test_a_histogram_opens_a_page_for_each_edge() -> None:
    body = {"measures": [{"op": "histogram", "field": "n", "bins": 5}]}
    assert Counted(large_world(10**9), body).count() <= 2 * (4 + 2)


def test_a_mean_of_all_rows_reads_a_column_once() -> None:
    question = Counted(large_world(150), {"measures": [{"op": "avg", "field": "n"}]})
    assert question.count() == 160
    assert question.count() == 0


def test_dead_rows_are_looked_up_with_the_sum_and_once() -> None:
    measures = [{"op": "avg", "field": "n"}, {"op": "percentile", "field": "n", "p": 50}]
    question = Counted(large_world(10**9, kill=True), {"measures": measures}, by_row=False)
    first = question.count()
    assert 160 <= first <= 168
    assert question.count() == first - 160


def test_segments_that_are_older_than_a_field_have_nothing_of_it() -> None:
    world = large_world(10**9)
    world.change(
        TEXT.replace('"s":', '"m": {"type": "integer", "minimum": 0, "maximum": 9999}, "s":')
    )
    world.ingest([{"m": 7 * at, "n": 1} for at in range(400)])
    shares = {"op": "percentile", "field": "m", "p": [50, 100]}
    question = Counted(world, {"measures": [shares, {"op": "avg", "field": "m"}]})
    (whole,) = question.answer().groups
    assert whole.results == ([7 * 199, 7 * 399], 7 * Decimal(399) / 2)
    assert question.count() <= 2


def test_many_rows_that_are_left_out_are_not_looked_up() -> None:
    """A half of a column is measured by its own rows."""
    body = {
        "where": {"field": "n", "op": "lt", "value": 50},
        "measures": [{"op": "percentile", "field": "n", "p": 50}],
    }
    question = Aggregation(large_world(100), body, by_row=False)
    question.answer()
    assert not any(part.segment.sums for part in question.parts)  # type: ignore[attr-defined]


def test_no_row_may_be_left_out_where_none_is_looked_up() -> None:
    limits = AggregateLimits(left_out=0)
    body = {"measures": [{"op": "sum", "field": "n"}]}
    question = Aggregation(large_world(100, kill=True), body, limits, by_row=False)
    question.answer()
    assert not any(part.segment.sums for part in question.parts)  # type: ignore[attr-defined]


def one_segment() -> tuple[World, LoadedSegment]:
    world = large_world(10**9)
    segment = world.open_segment(world.ledger.snapshot().segments[0])
    assert isinstance(segment, LoadedSegment)
    for number in segment.missing_directories(["n"]):
        segment.put(number, world.sealed(segment, number))
    return world, segment


def test_sums_know_the_rows_that_were_looked_up_with_them() -> None:
    world, segment = one_segment()
    sums = read(segment, sum_column(segment, "n", BitMap([3, 5, 7]), NARROW), world.sealed)
    assert sums.has(BitMap([3, 7]))
    assert not sums.has(BitMap([3, 4]))
    chance = np.random.default_rng(0)
    values = chance.integers(0, 10**9, 400).tolist()
    lowest = 2**63
    own = [values[row] + lowest for row in (3, 7)]
    assert sorted(sums.keys_of(BitMap([3, 7])).tolist()) == sorted(own)
    upper, lower = sums.halves.upper, sums.halves.lower
    assert (upper << 32) + lower == sum(values) + 400 * lowest
    assert sums.halves - Halves.of(sums.keys) + Halves.of(sums.keys) == sums.halves


def test_sums_count_what_they_take() -> None:
    world, segment = one_segment()
    few = read(segment, sum_column(segment, "n", BitMap(), NARROW), world.sealed)
    rows = bitmap(np.arange(200, dtype=np.uint32))
    many = read(segment, sum_column(segment, "n", rows, NARROW), world.sealed)
    assert many.size - few.size >= 200 * 12


# --- what does not agree -------------------------------------------------------------------------


def cold_answer(world: World, body: dict[str, Any]) -> None:
    """Nothing is here before."""
    asked = parse_aggregation(body, world.definition)
    snapshot = world.ledger.snapshot()
    condition = Condition.of(asked.where, world.ledger.tails, world.definition)
    opened = map(world.open_segment, snapshot.segments)
    parts = [Candidates.of(one, condition.match(one), snapshot) for one in opened]
    asking = aggregate(asked, world.definition, parts, Texts(MAX_OPENED), reading=IN_WINDOWS)
    assert answer(asking, world.sealed) is not None


def forge(world: World, **changes: Any) -> None:
    """The directory of the first segment's numbers, sealed again with something else in it."""
    segment = world.open_segment(world.ledger.snapshot().segments[0])
    assert isinstance(segment, LoadedSegment)
    while missing := segment.missing_columns(["n"]):
        for number in missing:
            segment.put(number, world.sealed(segment, number))
    spec, uid = world.definition.fields["n"], segment.segment.uid
    found = stored_directory(world.key, spec, segment, lambda at: world.sealed(segment, at))
    fields = {slot: getattr(found, slot) for slot in Directory.__slots__}
    fields |= {name: change(found) for name, change in changes.items()}
    content = directory.encode(Directory(**fields), spec.kind, packed=segment.directories.packed)
    (first,) = (
        number
        for number, role in roles_of(segment).items()
        if (role.field, role.kind) == ("n", PAGE_DIRECTORY)
    )
    page = sealed_page(world.key, spec, uid, PAGE_DIRECTORY, first, content)
    old = world.pages[uid, first]
    world.pages[uid, first] = type(old)(uid, first, page)


def moved(at: int) -> Any:
    """A page's end, one entry further."""

    def ends(found: Directory) -> Any:
        changed = found.ends.copy()
        changed[at] += 1
        return changed

    return ends


def test_a_directory_of_other_counts_than_the_pages_that_a_percentile_opens_is_refused() -> None:
    world = large_world(10**9)
    question = {"measures": [{"op": "percentile", "field": "n", "p": [1, 50, 99]}]}
    cold_answer(world, question)
    forge(world, ends=lambda found: np.append(found.ends[:-1] + 1, found.ends[-1]))
    with pytest.raises(DoesNotOpen):
        cold_answer(world, question)


@pytest.mark.parametrize("at", [0, 40, 78])
def test_a_directory_of_other_counts_than_its_pages_is_refused_for_a_sum(at: int) -> None:
    world = large_world(10**9)
    forge(world, ends=moved(at))
    with pytest.raises(DoesNotOpen):
        cold_answer(world, {"measures": [{"op": "sum", "field": "n"}]})


def test_an_altered_page_is_refused_by_every_measure_that_opens_it() -> None:
    world = large_world(10**9)
    segment = world.ledger.snapshot().segments[0]
    for (uid, number), page in list(world.pages.items()):
        if uid == segment.uid:
            altered = bytes([*page.data[:200], page.data[200] ^ 1, *page.data[201:]])
            world.pages[uid, number] = type(page)(uid, number, altered)
    for op in ({"op": "sum"}, {"op": "percentile", "p": 50}, {"op": "histogram", "bins": 3}):
        with pytest.raises(DoesNotOpen):
            cold_answer(world, {"measures": [{"field": "n", **op}]})

"""Measures from columns alone, and from few opened records, equal the oracle's."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import InvalidQuery
from encrypted_records.index.query.aggregate import STANDARD, Aggregated, AggregateLimits, aggregate
from encrypted_records.index.query.measures import _root
from encrypted_records.index.query.row_groups import ungrouped_values
from encrypted_records.index.query.tallies import (
    ALL_RANKS,
    DIRECTORY,
    ENDS_AND_SUMS,
    RANKS_AND_SUMS,
    FieldTally,
)
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.loaded import LoadedSegment, scope
from encrypted_records.index.segments.reading import ReadingLimits
from encrypted_records.model.aggregations import Variance, parse_aggregation
from encrypted_records.model.predicates import matches
from tests import aggregate_oracle, oracle
from tests.index.questions import Question
from tests.index.reading import IN_WINDOWS, NARROW, Kept, answer
from tests.index.strategies import Case, accepted, cases
from tests.index.world import World
from tests.reference import definitions as plain


class Aggregation(Question):
    def __init__(
        self,
        world: World,
        asked: dict[str, Any],
        limits: AggregateLimits = STANDARD,
        reading: ReadingLimits = IN_WINDOWS,
        *,
        by_row: bool = True,
    ) -> None:
        self.limits = limits
        self.reading = reading
        self.by_row = by_row
        self.kept = Kept(stay=False)
        self.asked = parse_aggregation(asked, world.definition)
        super().__init__(world, self.asked.where)
        self.parts = [part.only(self._decided(part.positions.tolist())) for part in self.parts]

    def _decided(self, places: list[int]) -> Any:
        world = self.world
        records = [world.open(world.row_at(place)) for place in places]
        where = self.asked.where
        return np.array([matches(where, record.data, world.definition) for record in records], bool)

    def answer(self) -> Aggregated:
        large = [part.segment for part in self.parts if isinstance(part.segment, LoadedSegment)]
        for segment in large:
            segment.blocks.clear()
            segment.columns.clear()
        with scope(*large):
            while True:
                asking = aggregate(
                    self.asked,
                    self.world.definition,
                    self.parts,
                    self.texts,
                    self.limits,
                    self.reading,
                    by_row=self.by_row,
                )
                found = answer(asking, self.world.sealed, self.kept)
                assert not any(one.blocks or one.columns for one in large)
                if found is not None:
                    return found
                self.learn()


def list_orders() -> st.SearchStrategy[str]:
    return st.sampled_from(["value", "-value", "count", "-count"])


@st.composite
def measures(draw: st.DrawFn, fields: dict[str, plain.Field]) -> dict[str, Any]:
    name = draw(st.sampled_from(sorted(fields)))
    field = fields[name]
    ops = ["count", "min", "max", "distinct"]
    if field["type"] != "string":
        ops += ["sum", "avg", "variance", "stddev", "percentile", "histogram", "histogram"]
    op = draw(st.sampled_from(ops))
    asked: dict[str, Any] = {"op": op, "field": name}
    if op == "count" and draw(st.booleans()):
        return {"op": "count"}
    if op == "distinct":
        asked |= {"limit": draw(st.integers(0, 4)), "order": draw(list_orders())}
    elif op == "percentile":
        shares = st.one_of(st.integers(0, 100), st.decimals(0, 100, places=2))
        asked["p"] = draw(st.one_of(shares, st.lists(shares, min_size=1, max_size=3)))
    elif op == "histogram" and draw(st.booleans()):
        asked["bins"] = draw(st.integers(1, 5))
    elif op == "histogram":
        bound = st.one_of(accepted(field), st.sampled_from([Decimal("-1e50"), Decimal("1e50")]))
        asked["bounds"] = sorted(draw(st.lists(bound, min_size=2, max_size=4, unique=True)))
    return asked


def shown(asked: dict[str, Any], found: Any) -> dict[str, Any]:
    head: dict[str, Any] = {key: asked[key] for key in ("op", "field") if key in asked}
    if asked["op"] == "percentile":
        shares = asked["p"] if isinstance(asked["p"], list) else [asked["p"]]
        together = zip(shares, found, strict=True)
        return head | {"values": [{"p": p, "value": value} for p, value in together]}
    if isinstance(found, dict):
        return head | found
    return head | {"value": found}


def merged_and_not(world: World) -> Any:
    yield world
    world.merge()
    yield world


@given(cases(), st.data())
def test_measures_over_all_that_match_are_the_oracles(case: Case, data: st.DataObject) -> None:
    world = World(case.text, limits=case.limits)
    for group in case.groups:
        world.ingest(group)
    asked = data.draw(st.lists(measures(case.fields), min_size=1, max_size=3))
    where = data.draw(st.sampled_from([None, *case.asked]))
    rows = [(s, o) for s, group in enumerate(case.groups) for o in range(len(group))]
    doomed = data.draw(st.lists(st.sampled_from(rows), unique=True, max_size=2))
    world.kill(doomed)
    alive = [case.groups[s][o] for s, o in rows if (s, o) not in doomed]
    chosen = [record for record in alive if oracle.holds(where, record, case.fields)]
    expected = [aggregate_oracle.measured(one, chosen, case.fields) for one in asked]

    for one in merged_and_not(world):
        for reading in (IN_WINDOWS, NARROW):
            body = {"where": where, "measures": asked}
            (whole,) = Aggregation(one, body, reading=reading).answer().groups
            assert list(map(shown, asked, whole.results)) == expected


@given(cases(), st.data())
def test_groups_and_their_measures_are_the_oracles(case: Case, data: st.DataObject) -> None:
    world = World(case.text, limits=case.limits)
    for group in case.groups:
        world.ingest(group)
    body: dict[str, Any] = {
        "measures": data.draw(st.lists(measures(case.fields), min_size=1, max_size=2)),
        "group_by": data.draw(
            st.lists(st.sampled_from(sorted(case.fields)), min_size=1, max_size=3, unique=True)
        ),
        "limit": data.draw(st.integers(0, 5)),
        "order": data.draw(list_orders()),
    }
    expected = aggregate_oracle.grouped(body, case.records, case.fields)

    for one in merged_and_not(world):
        for reading in (IN_WINDOWS, NARROW):
            found = Aggregation(one, body, reading=reading).answer()
            assert found.total == expected["total"]
            assert [
                {
                    "group": dict(zip(body["group_by"], group.values, strict=True)),
                    "measures": list(map(shown, body["measures"], group.results)),
                }
                for group in found.groups
            ] == expected["groups"]


def test_sums_beyond_64_bits_are_exact() -> None:
    text = (
        '{"type": "object", "properties": {"n": {"type": "integer",'
        ' "minimum": 0, "maximum": 18446744073709551615}}}'
    )
    world = World(text)
    world.ingest([{"n": 2**64 - 1}] * 7 + [{"n": 2**53 + 1}])
    asked = [{"op": "sum", "field": "n"}, {"op": "avg", "field": "n"}]
    (whole,) = Aggregation(world, {"measures": asked}).answer().groups
    total = 7 * (2**64 - 1) + 2**53 + 1
    assert whole.results[0] == total
    assert whole.results[1] == Decimal(total) / 8


@pytest.mark.parametrize(
    "own", [SegmentLimits(), SegmentLimits(mini=8, plain=1 << 16), SegmentLimits(mini=8, plain=0)]
)
def test_a_variance_is_exact_over_small_paged_and_packed_segments(own: SegmentLimits) -> None:
    """Numbers of 64 bits, whose squares are no floats, with and without rows that are left
    out."""
    text = (
        '{"type": "object", "properties": {"n": {"type": "integer",'
        ' "minimum": -9223372036854775808, "maximum": 9223372036854775807}}}'
    )
    fields = {"n": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}}
    world = World(text, limits=replace(own, entries=5))
    records = [{"n": (-1) ** at * (2**63 - 1 - at * 7**9)} for at in range(40)]
    world.ingest(records)
    ops = ("variance", "stddev", "max", "sum")
    asked: list[dict[str, Any]] = [{"op": op, "field": "n"} for op in ops]
    asked.append({"op": "percentile", "field": "n", "p": 50})
    for left_out in ([], [(0, 3)]):
        world.kill(left_out)
        live = [one for at, one in enumerate(records) if (0, at) not in left_out]
        for measures in (asked, asked[:2], asked[:3]):
            (whole,) = Aggregation(world, {"measures": measures}, reading=NARROW).answer().groups
            expected = [aggregate_oracle.measured(measure, live, fields) for measure in measures]
            assert list(map(shown, measures, whole.results)) == expected


def test_half_of_a_last_decimal_is_rounded_to_even() -> None:
    # For two values x apart, the standard deviation squared is x² / 2; 2 m² + 2 m + 1/2 is a half.
    half = Fraction(1, 2) / 10**6
    assert [_root((at + half) ** 2, 0) for at in (0, 1, 3)] == [0, 1, 3]
    assert _root((Fraction(1, 10**6) + half) ** 2, 0) == Decimal("0.000002")


def test_values_that_tell_less_than_a_measure_needs_are_refused() -> None:
    """An aggregate that is added later cannot be answered by a source that does not tell enough."""
    spread = FieldTally(1, [Variance("n", is_root=False)])
    values = ungrouped_values(np.array([1, 9], np.uint64), np.array([1, 1]))
    for source in (DIRECTORY, ALL_RANKS, RANKS_AND_SUMS, ENDS_AND_SUMS):
        with pytest.raises(AssertionError):
            spread.add(values, source)
    spread.add(values)
    assert spread.squares_of(0) == 82


TEXT = '{"type": "object", "properties": {"f": {"type": "string"}, "g": {"type": "string"}}}'


def test_a_lowest_text_opens_only_those_that_may_be_it() -> None:
    world = World(TEXT)
    long = [f"{'p' * 48}{tail}" for tail in "cab"]
    world.ingest([{"f": value} for value in ["z", *long, "a"]])
    extremes = [{"op": "min", "field": "f"}, {"op": "max", "field": "f"}]
    easy = Aggregation(world, {"measures": extremes})
    assert easy.answer().groups[0].results == ("a", "z")
    assert easy.opened == 0
    where = {"field": "f", "op": "gt", "value": "b"}
    hard = Aggregation(world, {"where": where, "measures": extremes})
    assert hard.answer().groups[0].results == (f"{'p' * 48}a", "z")
    assert hard.opened == 3


def test_counting_distinct_texts_opens_none() -> None:
    world = World(TEXT)
    world.ingest([{"f": f"{'p' * 48}{n}"} for n in range(5)] * 2)
    asked = Aggregation(world, {"measures": [{"op": "distinct", "field": "f", "limit": 0}]})
    assert asked.answer().groups[0].results == ({"count": 5, "values": []},)
    assert asked.opened == 0


def test_too_many_groups_are_refused() -> None:
    limits = AggregateLimits(groups=2)
    world = World(TEXT)
    world.ingest([{"f": str(n)} for n in range(3)])
    with pytest.raises(InvalidQuery) as caught:
        Aggregation(world, {"group_by": ["f"]}, limits).answer()
    assert caught.value.reason == "too_many_groups"
    where = {"field": "f", "op": "lt", "value": "2"}
    assert Aggregation(world, {"where": where, "group_by": ["f"]}, limits).answer().total == 2


def test_too_many_values_to_show_are_refused() -> None:
    limits = AggregateLimits(shown=20)
    world = World(TEXT)
    world.ingest([{"f": str(n)} for n in range(3)])
    few = {"group_by": ["f"], "measures": [{"op": "distinct", "field": "f"}] * 6}
    assert Aggregation(world, few, limits).answer().total == 3
    many = few | {"measures": [{"op": "distinct", "field": "f"}] * 7}
    with pytest.raises(InvalidQuery) as caught:
        Aggregation(world, many, limits).answer()
    assert caught.value.reason == "too_many_values"


DEFINITION = World(
    """{"type": "object", "properties": {
        "s": {"type": "string"}, "n": {"type": "integer", "minimum": 0, "maximum": 9}}}"""
).definition


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({"measures": []}, "type", "/measures"),
        ({"measures": [1]}, "type", "/measures/0"),
        ({"measures": [{"op": "median", "field": "n"}]}, "op", "/measures/0/op"),
        ({"measures": [{"op": "sum", "field": "s"}]}, "op", "/measures/0/op"),
        ({"measures": [{"op": "sum"}]}, "unknown_field", "/measures/0/field"),
        ({"measures": [{"op": "min", "field": "n", "p": 5}]}, "unknown_member", "/measures/0/p"),
        ({"measures": [{"op": "percentile", "field": "n"}]}, "type", "/measures/0/p"),
        ({"measures": [{"op": "percentile", "field": "n", "p": 101}]}, "type", "/measures/0/p"),
        ({"measures": [{"op": "percentile", "field": "n", "p": []}]}, "type", "/measures/0/p"),
        ({"measures": [{"op": "histogram", "field": "n"}]}, "type", "/measures/0"),
        (
            {"measures": [{"op": "histogram", "field": "n", "bins": 0}]},
            "limit",
            "/measures/0/bins",
        ),
        (
            {"measures": [{"op": "histogram", "field": "n", "bounds": [2, 1]}]},
            "type",
            "/measures/0/bounds/1",
        ),
        (
            {"measures": [{"op": "distinct", "field": "n", "limit": 1001}]},
            "limit",
            "/measures/0/limit",
        ),
        (
            {"measures": [{"op": "distinct", "field": "n", "order": "n"}]},
            "order_by",
            "/measures/0/order",
        ),
        ({"group_by": "n"}, "type", "/group_by"),
        ({"group_by": ["n", "n"]}, "order_by", "/group_by"),
        ({"group_by": ["gone"]}, "unknown_field", "/group_by/0"),
        ({"order": []}, "order_by", "/order"),
        ({"order_by": ["n"]}, "unknown_member", "/order_by"),
        ({"where": {"field": "n", "op": "like"}}, "op", "/where/op"),
    ],
    ids=str,
)
def test_an_aggregate_that_cannot_be_asked_is_refused_with_its_place(
    body: dict[str, Any], code: str, pointer: str
) -> None:
    with pytest.raises(InvalidQuery) as caught:
        parse_aggregation(body, DEFINITION)
    (flaw,) = caught.value.flaws
    assert (flaw.code, flaw.pointer) == (code, pointer)

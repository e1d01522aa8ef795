"""Looked up for some rows at a time, a condition selects the rows that it selects of all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from encrypted_records.index.ordinals import bitmap
from encrypted_records.index.query.condition import Condition, combine, take_range
from encrypted_records.index.query.leaves import RangeLeaf
from encrypted_records.index.query.row_lookups import ColumnFilter
from encrypted_records.index.query.segment_filters import ConditionFilter
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment
from encrypted_records.index.segments.reading import ReadingLimits, turn_round
from encrypted_records.model.queries import parse_query
from tests.index.reading import IN_WINDOWS, NARROW, read
from tests.index.strategies import Case, cases
from tests.index.test_answers_equal_the_oracle import world_of
from tests.index.test_ordering import NUMBERS, rows_of
from tests.index.world import World


def asked_of(world: World, case: Case) -> Iterator[tuple[Condition, OpenedSegment, BitMap, BitMap]]:
    """What keys decide of the questions, with each segment, its dead rows, and those that match."""
    snapshot = world.ledger.snapshot()
    for where in case.asked:
        asked = parse_query({"where": where}, world.definition).where
        condition = Condition.of(asked, world.ledger.tails, world.definition)
        if not condition.is_exact:
            continue
        for segment in world.opened():
            dead = snapshot.dead_rows(segment.segment)
            yield condition, segment, dead, condition.match(segment).certain - dead


def killed(world: World, case: Case, data: st.DataObject) -> None:
    """Some rows die, of which a merge may leave some out."""
    rows = rows_of(case)
    first = data.draw(st.sets(st.sampled_from(rows)))
    world.kill(first)
    if data.draw(st.booleans()):
        world.merge()
    world.kill(data.draw(st.sets(st.sampled_from(rows))) - first)


def by_row(
    world: World, segment: LoadedSegment, leaf: RangeLeaf, limits: ReadingLimits
) -> ColumnFilter:
    blocks = dict(segment.blocks)
    segment.blocks.clear()
    segment.columns[leaf.field] = read(
        segment, turn_round(segment, leaf.field, limits), world.sealed
    )
    found = read(segment, leaf.filter(segment, limits), world.sealed)
    del segment.columns[leaf.field]
    segment.blocks.update(blocks)
    return found


@given(cases(), st.data())
def test_a_filter_selects_of_any_rows_those_that_match(case: Case, data: st.DataObject) -> None:
    world = world_of(case)
    killed(world, case, data)
    for condition, segment, dead, expected in asked_of(world, case):
        covered = segment.segment.count + segment.segment.purged
        rows = BitMap(data.draw(st.sets(st.integers(0, covered - 1))))
        for limits in (NARROW, IN_WINDOWS):
            filters: dict[int, ColumnFilter] = {}
            sets: dict[int, BitMap] = {}
            for leaf in condition.leaves:
                own = leaf.rows(segment, condition.memo(segment)).certain
                can = isinstance(segment, LoadedSegment) and segment.has_column(leaf.field)
                if not can or not isinstance(leaf, RangeLeaf) or data.draw(st.booleans()):
                    sets[leaf.number] = own
                    continue
                assert isinstance(segment, LoadedSegment)
                found = filters[leaf.number] = by_row(world, segment, leaf, limits)
                assert found.all_rows() == found.of(BitMap(range(covered)))
                assert found.count == len(found.all_rows())
                assert found.of(rows) - dead == (own & rows) - dead
            whole = ConditionFilter(condition.root, filters, sets, dead)
            assert whole.of(rows) == expected & rows
            assert 0 <= whole.estimate(covered) <= covered


@given(cases(), st.data())
def test_a_range_that_is_taken_out_and_the_rest_are_the_whole_condition(
    case: Case, data: st.DataObject
) -> None:
    world = world_of(case)
    killed(world, case, data)
    for condition, segment, dead, expected in asked_of(world, case):
        for name in case.fields:
            key_range, rest = take_range(condition.root, name)
            if key_range is None:
                assert rest is condition.root
                continue
            column = segment.lookup(name)
            within = BitMap()
            if column.present:
                within = bitmap(*column.pieces(*column.at_all(list(key_range))))
            memo = condition.memo(segment)
            found = {leaf.number: leaf.rows(segment, memo) for leaf in condition.leaves}
            fulfilled = combine(rest, segment.everything, found).certain
            assert (within & fulfilled) - dead == expected


def test_a_filter_without_keys_reads_the_pages_in_which_ranges_begin_and_end() -> None:
    world = World(NUMBERS, limits=SegmentLimits(mini=0, entries=10))
    world.ingest([{"n": n} for n in range(300)])
    (opened,) = world.ledger.snapshot().segments
    segment = world.open_segment(opened)
    assert isinstance(segment, LoadedSegment)
    where = {"field": "n", "op": "between", "value": [12, 288]}
    asked = parse_query({"where": where}, world.definition).where
    condition = Condition.of(asked, world.ledger.tails, world.definition)
    (leaf,) = condition.leaves
    assert isinstance(leaf, RangeLeaf)
    world.fetch(segment, lambda: segment.missing_directories(["n"]))
    limits = replace(NARROW, window=1000)
    segment.columns["n"] = read(segment, turn_round(segment, "n", limits), world.sealed)

    reading = leaf.filter(segment, limits)
    missing = next(reading)

    assert len(missing) == 2
    for number in missing:
        segment.put(number, world.sealed(segment, number))
    with pytest.raises(StopIteration) as end:
        next(reading)
    found = end.value.value
    assert found.of(BitMap(range(300))) == BitMap(range(12, 289))
    assert found.count == 277

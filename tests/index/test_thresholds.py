"""Once some segments tell how far the first rows reach, of the others these are left."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from encrypted_records.index.columns.dictionary import PartialDictionary, build_partial_dictionary
from encrypted_records.index.query.narrowing import NONE, Best, Threshold, Value
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.model.queries import SortKey
from tests.index.test_ordering import NUMBERS
from tests.index.world import World

numbers = st.one_of(st.none(), st.integers(0, 5))
Rows = list[tuple[int | None, int | None]]
#: Rows of some segments, each with two fields.
segments = st.lists(
    st.lists(st.tuples(numbers, numbers), min_size=1, max_size=8), min_size=1, max_size=6
)


def dictionary(values: list[int | None]) -> PartialDictionary:
    here = [at for at, value in enumerate(values) if value is not None]
    absent = [at for at, value in enumerate(values) if value is None]
    keys = [value for value in values if value is not None]
    return build_partial_dictionary(
        np.array(here, np.uint32), np.array(keys, np.uint64), np.array(absent, np.uint32)
    )


def as_value(value: int | None) -> Value:
    return NONE if value is None else (value,)


def in_order(rows: list[Any], order: list[SortKey]) -> list[Any]:
    """By one or two fields; absent ones are before all others, or behind where it descends."""
    for at in reversed(range(len(order))):
        rows = sorted(rows, key=lambda one: as_value(one[at]), reverse=order[at].descending)
    return rows


@given(segments, st.integers(1, 2), st.booleans(), st.booleans(), st.integers(1, 12))
def test_the_first_rows_of_all_are_among_what_is_left(
    every: list[Rows], fields: int, down: bool, also_down: bool, want: int
) -> None:
    order = [SortKey("a", down), SortKey("b", also_down)][:fields]
    threshold = Threshold(order, want)

    def best(rows: Rows) -> Best:
        found = []
        for at, one in enumerate(order):
            values = [as_value(row[at]) for row in rows]
            found.append(max(values) if one.descending else min(values))
        return tuple(found)

    left: Rows = []
    by_name = {bytes([at]): rows for at, rows in enumerate(every)}
    for name in threshold.in_order({name: best(rows) for name, rows in by_name.items()}):
        rows = by_name[name]
        dictionaries = [dictionary([row[at] for row in rows]) for at in range(fields)]
        kept = threshold.left(BitMap(range(len(rows))), dictionaries[0], best(rows))
        if threshold.excludes(best(rows)):
            assert not kept
        if kept:
            threshold.add(kept, dictionaries)
            left += [rows[at] for at in kept]

    expected = in_order([row for rows in every for row in rows], order)[:want]
    found = in_order(left, order)[:want]
    assert [row[:fields] for row in found] == [row[:fields] for row in expected]


def test_what_lies_behind_by_the_second_field_is_left_alone() -> None:
    order = [SortKey("a", False), SortKey("b", True)]
    threshold = Threshold(order, 2)
    same = dictionary([7, 7, 7])
    assert not threshold.is_known

    threshold.add(BitMap(range(3)), [same, dictionary([30, 31, 32])])

    assert threshold.is_known
    assert threshold.left(BitMap(range(3)), same, ((7,), (30,))) == BitMap()
    assert threshold.left(BitMap(range(3)), same, ((7,), (31,))) == BitMap(range(3))
    assert threshold.left(BitMap(range(3)), dictionary([6, 7, 8]), ((7,), (30,))) == BitMap([0])
    assert threshold.left(BitMap(range(3)), dictionary([None, 8, 9]), ((7,), (99,))) == BitMap([0])
    assert threshold.excludes(((7,), (30,)))
    assert threshold.excludes(((8,), (99,)))
    assert not threshold.excludes(((7,), (31,)))
    assert not threshold.excludes((NONE, (1,)))
    assert threshold.left(BitMap(range(2)), dictionary([None, None]), ((7,), (99,))) == BitMap(
        range(2)
    )


def test_the_best_value_of_a_segment_is_in_its_directory() -> None:
    world = World(NUMBERS, limits=SegmentLimits(mini=0, entries=3))
    world.ingest([{"n": n} for n in (5, 9, 7, 8)])
    world.ingest([{"n": 5}, {}, {"n": 7}])
    world.ingest([{}])
    found: dict[bool, list[Value]] = {}
    for descending in (False, True):
        threshold = Threshold([SortKey("n", descending)], 1)
        for segment in map(world.open_segment, world.ledger.snapshot().segments):
            assert isinstance(segment, LoadedSegment)
            own = [segment]
            world.fetch(segment, lambda: own[0].missing_directories(["n"]))  # noqa: B023
            (best,) = threshold.best([segment.directories["n"]])
            found.setdefault(descending, []).append(best)
        assert threshold.best([None]) == (NONE,)
    assert sorted(found[False]) == [NONE, NONE, (5,)]
    assert sorted(found[True]) == [NONE, (7,), (9,)]


def test_long_strings_tell_nothing() -> None:
    threshold = Threshold([SortKey("a", False), SortKey("b", False)], 1)
    long = np.array([b"p" * 48 + b"x" * 16], "S64")
    text = build_partial_dictionary(np.array([0], np.uint32), long, np.zeros(0, np.uint32))
    assert text.long

    threshold.add(BitMap([0]), [dictionary([1]), text])

    assert not threshold.is_known
    assert threshold.left(BitMap([0]), dictionary([5]), ((5,), (9,))) == BitMap([0])

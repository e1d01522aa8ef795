"""Read a window of pages at a time, a large segment answers what it answers as a whole."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from pyroaring import BitMap

from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import directory
from encrypted_records.index.columns.column import Column, EntryBlock
from encrypted_records.index.columns.dictionary import (
    ByRowBuilder,
    ColumnDictionary,
    PageMap,
    by_row_bytes,
)
from encrypted_records.index.columns.directory import Outline
from encrypted_records.index.log.snapshot import GroupPlaces
from encrypted_records.index.query.aggregate import aggregate
from encrypted_records.index.query.candidates import Candidates, Matches
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.key_sets import Texts, needs_whole
from encrypted_records.index.query.leaves import RangeLeaf, TestLeaf, read_tests
from encrypted_records.index.query.narrowing import NarrowRequest, narrow
from encrypted_records.index.segments.builder import Builder, SegmentLimits, Shell
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.index.segments.reading import (
    ReadingLimits,
    Window,
    fits_by_row,
    read_column,
    turn_round,
)
from encrypted_records.model.aggregations import parse_aggregation
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.ids import new_id
from encrypted_records.model.queries import parse_query
from tests.index.reading import IN_WINDOWS, NARROW, Kept, answer, read
from tests.index.strategies import Case, cases
from tests.index.test_answers_equal_the_oracle import world_of
from tests.index.world import World, new_keys


def brought(world: World, segment: OpenedSegment, names: Any) -> None:
    if isinstance(segment, LoadedSegment):
        for number in segment.missing_directories(names):
            segment.put(number, world.sealed(segment, number))


def settle(
    world: World, condition: Condition, segment: OpenedSegment, limits: ReadingLimits
) -> None:
    """Find all that can be read a window at a time, so that nothing else is missing."""
    brought(world, segment, condition.columns)
    if not isinstance(segment, LoadedSegment) or condition.excludes(segment):
        return
    memo = condition.memo(segment)
    unread: dict[str, list[TestLeaf]] = {}
    for test in condition.tests:
        if needs_whole(segment, test.field):
            unread.setdefault(test.field, []).append(test)
    for tests in unread.values():
        found = read(segment, read_tests(segment, tests, limits=limits), world.sealed)
        memo.found |= {test.number: rows for test, rows in zip(tests, found, strict=True)}
    for leaf in condition.leaves:
        if not leaf.in_windows or leaf.cost(segment).pages < 2:
            continue
        before = read(segment, leaf.read(segment, limits), world.sealed)
        whole = read(segment, turn_round(segment, leaf.field, limits), world.sealed)
        assert isinstance(whole, ColumnDictionary if limits.by_row else PageMap)
        segment.columns[leaf.field] = whole
        memo.found[leaf.number] = read(segment, leaf.read(segment, limits), world.sealed)
        assert memo.found[leaf.number] == before
        segment.columns.clear()


@given(cases())
def test_what_is_read_in_windows_is_what_is_read_at_once(case: Case) -> None:
    world = world_of(case)
    for where in case.asked:
        asked = parse_query({"where": where}, world.definition).where
        for segment in map(world.open_segment, world.ledger.snapshot().segments):
            condition = Condition.of(asked, world.ledger.tails, world.definition)
            world.fetch(segment, lambda: condition.missing(segment))  # noqa: B023
            expected = condition.match(segment)
            for limits in (NARROW, IN_WINDOWS):
                other = world.open_segment(segment.segment)
                again = Condition.of(asked, world.ledger.tails, world.definition)
                settle(world, again, other, limits)
                world.fetch(other, lambda: again.missing(other))  # noqa: B023
                assert again.match(other) == expected


TEXT = '{"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 999}}}'


def numbers_world(values: list[int | None], entries: int = 3) -> tuple[World, LoadedSegment]:
    world = World(TEXT, limits=SegmentLimits(mini=0, entries=entries))
    world.ingest([{"n": value} for value in values])
    (segment,) = map(world.open_segment, world.ledger.snapshot().segments)
    assert isinstance(segment, LoadedSegment)
    for number in segment.missing_directories(["n"]):
        segment.put(number, world.sealed(segment, number))
    return world, segment


@pytest.mark.parametrize("limits", [NARROW, IN_WINDOWS], ids=["pages", "keys"])
def test_an_altered_page_is_named_in_a_window_too(limits: ReadingLimits) -> None:
    world, segment = numbers_world(list(range(20)))
    number = int(segment.directories["n"].numbers[3])
    spoiled = bytearray(world.sealed(segment, number))
    spoiled[100] ^= 1

    def sealed(one: OpenedSegment, wanted: int) -> bytes:
        return bytes(spoiled) if wanted == number else world.sealed(one, wanted)

    with pytest.raises(DoesNotOpen):
        read(segment, turn_round(segment, "n", limits), sealed)


@pytest.mark.parametrize("values", [[5] * 20, [None] * 20], ids=["present", "absent"])
@pytest.mark.parametrize("page", [1, 2])
def test_a_column_that_lists_others_rows_or_them_out_of_order_is_refused(
    values: list[int | None], page: int
) -> None:
    world, segment = numbers_world(values)
    numbers = segment.directories["n"].numbers.tolist()
    reading = read_column(segment, "n", lambda _: None, NARROW)
    blocks = {}
    for number in numbers:
        segment.put(number, world.sealed(segment, number))
        blocks[number] = segment.blocks[number]
    if page == 1:  # a row twice, and another not at all
        other = replace(blocks[numbers[1]], ordinals=blocks[numbers[0]].ordinals)
        segment.blocks[numbers[1]] = other
    else:  # each row once, in pages that follow one another in another order
        segment.blocks[numbers[1]] = blocks[numbers[2]]
        segment.blocks[numbers[2]] = blocks[numbers[1]]
    with pytest.raises(DoesNotOpen, match="other rows" if page == 1 else "not in order"):
        list(reading)


def test_pages_do_not_come_in_the_order_of_their_keys() -> None:
    world, segment = numbers_world(list(range(99)))
    came: list[int] = []

    def take(window: Window) -> None:
        came.extend(page for page, _ in window)

    read(segment, read_column(segment, "n", take, NARROW), world.sealed)
    assert sorted(came) == list(range(33))
    assert came != sorted(came)


@pytest.mark.parametrize(
    ("where", "own", "asked"),
    [
        ({"op": "between", "value": [30, 43]}, 14, 16),
        ({"op": "in", "value": [0, 20, 40, 60, 80]}, 5, 8),
        ({"op": "is_null", "value": True}, 6, 8),
        ({"op": "lt", "value": 90}, 90, 106),
    ],
    ids=["range", "values", "absent", "most"],
)
def test_pages_of_a_large_range_are_filled_up_and_none_is_asked_for_alone(
    where: Any, own: int, asked: int
) -> None:
    """Else their number would be told exactly, and which of them a range begins and ends in."""
    world, segment = numbers_world([*range(100), *([None] * 6)], entries=1)
    condition = Condition.of(
        parse_query({"where": {"field": "n", **where}}, world.definition).where,
        world.ledger.tails,
        world.definition,
    )
    (leaf,) = condition.leaves
    needed = leaf.missing(segment, condition.memo(segment))
    assert len(needed) == own
    windows: list[set[int]] = []
    for missing in leaf.read(segment, NARROW):
        windows.append(set(missing))
        for number in missing:
            segment.put(number, world.sealed(segment, number))
    assert [len(some) for some in windows] == [2] * (asked // 2)
    assert len(set().union(*windows)) == asked
    assert needed <= set().union(*windows)


def test_a_filter_without_keys_reads_the_pages_in_which_ranges_begin_and_end() -> None:
    world, segment = numbers_world(list(range(300)), entries=10)
    where = {"field": "n", "op": "between", "value": [12, 288]}
    asked = parse_query({"where": where}, world.definition).where
    (leaf,) = Condition.of(asked, world.ledger.tails, world.definition).leaves
    assert isinstance(leaf, RangeLeaf)
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


def test_a_row_has_the_number_of_its_page_however_many_pages_there_are() -> None:
    """Numbers by row are of two bytes until keys or pages are more."""
    rows = np.arange(1 << 17, dtype=np.uint32)
    keys = rows.astype(np.uint64)
    built = directory.build(Column(rows, keys), (rows + 1).tolist(), 0)
    builder = ByRowBuilder(KeyKind.POINT, Outline.of(built), len(rows), most=0)
    for page in (3, 70_000, 131_071):
        own = slice(page, page + 1)
        builder.take(page, EntryBlock(rows[own], keys[own], np.zeros(1, np.uint32)))
    whole = builder.finish()
    assert isinstance(whole, PageMap)
    assert whole.pages[[0, 3, 70_000, 131_071]].tolist() == [0, 4, 70_001, 131_072]


def test_a_column_of_few_values_is_expected_to_fit_as_it_is_kept() -> None:
    """Two bytes a row are enough where there are fewer values than these tell apart."""
    world, segment = numbers_world([number % 50 for number in range(600)], entries=60)
    assert not segment.directories["n"].listed
    least = by_row_bytes(50, 8, segment.covered)
    limits = replace(NARROW, by_row=least)
    assert read(segment, fits_by_row(segment, "n", limits), world.sealed)
    whole = read(segment, turn_round(segment, "n", limits), world.sealed)
    assert isinstance(whole, ColumnDictionary)
    limits = replace(limits, by_row=least - 1)
    assert not read(segment, fits_by_row(segment, "n", limits), world.sealed)
    whole = read(segment, turn_round(segment, "n", limits), world.sealed)
    assert isinstance(whole, PageMap)


class Large:
    """A segment of so many different texts and numbers, with its sealed pages."""

    def __init__(self, rows: int) -> None:
        keys = new_keys().newest
        every = np.arange(rows, dtype=np.uint32)
        chance = np.random.default_rng(rows)
        builder = Builder(keys, LARGE, Shell([(new_id(), 0)], every))
        words = chance.permutation(rows).tolist()
        for name, own in (
            ("text", np.array([b"%012x and more" % word for word in words], "S64")),
            ("number", chance.permutation(rows).astype(np.uint64)),
        ):
            order = np.argsort(own)
            builder.add(name, Column(every[order], own[order]))
        made = builder.finish()
        self.key = keys
        self.stored = {page.number: page.data for page in made.pages}
        self.segment = LoadedSegment(OpenedHeader(keys, LARGE, made.segment, made.header))
        for number in self.segment.missing_directories(["text", "number"]):
            self.segment.put(number, self.stored[number])
        places = GroupPlaces(np.array([0]), np.array([rows]), np.array([0]))
        self.part = Candidates(self.segment, Matches.exactly(self.segment.everything), places)

    def sealed(self, _: OpenedSegment, number: int) -> bytes:
        return self.stored[number]

    def ask(self) -> None:
        """Test all texts, add all numbers up, and sort by texts and numbers."""
        where = {"field": "text", "op": "contains", "value": "abc"}
        condition = Condition.of(parse_query({"where": where}, LARGE).where, self.key, LARGE)
        testing = read_tests(self.segment, condition.tests, limits=SMALL)
        (passing,) = read(self.segment, testing, self.sealed, Kept(with_pages=False))
        assert passing.certain
        body = {"measures": [{"op": "avg", "field": "number"}, {"op": "max", "field": "text"}]}
        asking = aggregate(
            parse_aggregation(body, LARGE), LARGE, [self.part], Texts(), reading=SMALL
        )
        assert answer(asking, self.sealed, Kept(with_pages=False)) is not None
        order = parse_query({"order_by": ["text", "-number"]}, LARGE).order
        every = self.segment.everything
        request = NarrowRequest(order, every, 5, None, self.part.places, {})
        narrowing = narrow(self.segment, request, SMALL)
        found = answer(narrowing, self.sealed, Kept(with_pages=False))
        assert len(found.rows) == 5
        self.segment.columns.clear()


LARGE = parse_definition(
    """{"type": "object", "properties": {
    "text": {"type": "string"}, "number": {"type": "integer", "minimum": 0, "maximum": 9999999}}}"""
)
#: Windows of a few thousand rows, and no column with its keys.
SMALL = ReadingLimits(window=8, by_row=0, few=0)


def test_memory_does_not_grow_with_the_texts_and_numbers_of_a_segment() -> None:
    """Of each row, all of it takes some bytes; a text alone took 64 before."""
    rows = (1 << 17, 1 << 19)
    peaks = []
    for count in rows:
        large = Large(count)
        tracemalloc.start()
        large.ask()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / (rows[1] - rows[0]) < 16

"""Sorted from columns alone, and from few opened records, the rows are in the oracle's order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto.values import is_long, order_bytes
from encrypted_records.errors import DoesNotOpen, InvalidQuery
from encrypted_records.index.query.candidates import Candidates, Matches
from encrypted_records.index.query.key_sets import MAX_OPENED
from encrypted_records.index.query.sort import SortedRows, SortPosition, first, locate_record
from encrypted_records.index.query.sorted_scan import ScanLimits, ScanRequest, SortedScan, Start
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.model.queries import parse_query
from tests import oracle
from tests.index.questions import Question
from tests.index.strategies import Case, cases
from tests.index.test_answers_equal_the_oracle import world_of
from tests.index.world import Row, World


class Sorting(Question):
    """One question in one order."""

    def __init__(
        self, world: World, order_by: list[str], where: Any = None, most_texts: int = MAX_OPENED
    ) -> None:
        query = parse_query({"where": where, "order_by": order_by}, world.definition)
        super().__init__(world, query.where, most_texts)
        self.where = query.where
        self.order = query.order
        #: fetched by scans
        self.pages = 0

    def first(self, want: int, after: SortPosition | None = None) -> SortedRows:
        while True:
            found = first(self.parts, self.order, self.texts, want=want, after=after)
            if found is not None:
                return found
            self.learn()

    def rows(self, want: int, after: SortPosition | None = None) -> list[Row]:
        return [self.world.row_at(at) for at in self.first(want, after).positions.tolist()]

    def after(self, row: Row) -> SortPosition:
        record, place, world = self.world.open(row), self.world.place(row), self.world
        return locate_record(
            record, place, self.order, world.ledger.tails, world.definition, self.texts
        )


#: Scans go entry by entry, always pay, and leave no equal rows to others.
EAGER = ScanLimits(step=1, equal_rows=0, spare=-(2**60), share=1.0)


class Scanning(Sorting):
    """The same from the pages alone that a scan asks for, however small the data are."""

    def first(self, want: int, after: SortPosition | None = None) -> SortedRows:
        snapshot = self.world.ledger.snapshot()
        outermost, *others = self.order
        start = Start(after.keys[0], after.position) if after else None
        self.parts = []
        for segment in map(self.world.open_segment, snapshot.segments):
            self.world.fetch(segment, lambda: self.condition.missing(segment))  # noqa: B023
            answer = self.condition.match(segment)
            live = answer.possible - snapshot.dead_rows(segment.segment)
            request = ScanRequest(
                order=outermost,
                among=live.__and__,
                count=len(live),
                want=want,
                start=start,
                key_range=self.condition.sort_range(outermost.field),
                alone=not others,
                places=snapshot.places(segment.segment),
            )
            scan = SortedScan(segment, request, EAGER)
            while missing := scan.missing_pages():
                self.pages += len(missing)
                for number in missing:
                    assert isinstance(segment, LoadedSegment)
                    segment.put(number, self.world.pages[segment.segment.uid, number].data)
            end = scan.result()
            assert end is not None
            self.world.fetch(
                segment,
                lambda: segment.missing_columns([other.field for other in others]),  # noqa: B023
            )
            found = Matches(answer.certain & end.rows, end.rows)
            self.parts.append(
                Candidates.of(segment, found, snapshot, {outermost.field: end.dictionary})
            )
        return super().first(want, after)


def rows_of(case: Case) -> list[Row]:
    return [(s, o) for s, group in enumerate(case.groups) for o in range(len(group))]


def orders(case: Case) -> st.SearchStrategy[list[str]]:
    names = st.lists(st.sampled_from(sorted(case.fields)), min_size=1, unique=True)
    return names.flatmap(
        lambda some: st.tuples(*(st.sampled_from([one, f"-{one}"]) for one in some)).map(list)
    )


def expected_rows(case: Case, order_by: list[str]) -> list[Row]:
    rows = rows_of(case)
    return [rows[number] for number in oracle.in_order(order_by, case.records, case.fields)]


@given(cases(), st.data())
def test_a_page_begins_after_a_row_that_is_not_there_any_more(
    case: Case, data: st.DataObject
) -> None:
    world = world_of(case)
    order_by = data.draw(orders(case))
    expected = expected_rows(case, order_by)
    start = data.draw(st.integers(0, len(expected) - 1))
    world.kill([expected[start]])
    world.merge()

    page = Sorting(world, order_by)

    assert page.rows(len(expected), page.after(expected[start])) == expected[start + 1 :]


@given(cases(), st.data())
def test_pages_follow_on_without_opening_their_last_row(case: Case, data: st.DataObject) -> None:
    order_by = data.draw(orders(case))
    sorting = Sorting(world_of(case), order_by)
    found: list[Row] = []
    after = None
    while page := sorting.first(2, after):
        found += [sorting.world.row_at(at) for at in page.positions.tolist()]
        after = page.sort_position(-1)
    assert found == expected_rows(case, order_by)


NUMBERS = """{"type": "object", "properties": {
    "n": {"type": "integer", "minimum": 0, "maximum": 999}}}"""


@pytest.mark.parametrize("order", ["n", "-n"])
def test_the_first_of_many_rows_take_a_page_or_two(order: str) -> None:
    world = World(NUMBERS, limits=SegmentLimits(mini=0, entries=10))
    world.ingest([{"n": n} for n in range(300)])
    scan = Scanning(world, [order])
    expected = [(0, n if order == "n" else 299 - n) for n in range(5)]
    assert scan.rows(5) == expected
    # Beside the directory.
    assert scan.pages <= 3
    again = Scanning(world, [order])
    assert again.rows(1, again.after(expected[3])) == expected[4:]
    assert again.pages <= 3


@pytest.mark.parametrize("order", ["n", "-n"])
def test_equal_rows_are_scanned_to_the_last_and_come_as_they_were_stored(order: str) -> None:
    world = World(NUMBERS, limits=SegmentLimits(mini=0, entries=4))
    for _ in range(3):
        world.ingest([{"n": 7}] * 9 + [{}] * 9)
    # The group that was stored last comes first in the segment.
    world.merge(reverse=True)
    equal = [(s, o) for s in range(3) for o in range(9)]
    absent = [(s, o) for s in range(3) for o in range(9, 18)]
    expected = absent + equal if order == "n" else equal + absent
    for start, want in [(0, 5), (12, 10), (25, 4), (30, 40)]:
        scan = Scanning(world, [order])
        assert scan.rows(want) == expected[:want]
        assert scan.rows(want, scan.after(expected[start])) == expected[start + 1 :][:want]


def test_where_the_condition_bounds_the_field_the_scan_begins_there() -> None:
    world = World(NUMBERS, limits=SegmentLimits(mini=0, entries=10))
    world.ingest([{"n": n} for n in range(300)])
    scan = Scanning(world, ["n"], {"field": "n", "op": "gt", "value": 250})
    assert scan.rows(2) == [(0, 251), (0, 252)]
    assert scan.pages <= 4


TEXT = '{"type": "object", "properties": {"f": {"type": "string"}, "g": {"type": "string"}}}'


def test_only_what_the_index_cannot_decide_is_opened() -> None:
    world = World(TEXT)
    long = [f"{'p' * 48}{tail}" for tail in "dbca"]
    values = ["a", "z", *long, f"{'q' * 48}x", f"{'q' * 48}x", "r" * 48]
    world.ingest([{"f": value} for value in values])
    assert [value for value in values if is_long(order_bytes(value))] == [*long, *values[6:8]]

    few = Sorting(world, ["f"])
    assert few.rows(1) == [(0, 0)]
    last = Sorting(world, ["-f"])
    assert last.rows(4) == [(0, 1), (0, 8), (0, 6), (0, 7)]
    assert (few.opened, last.opened) == (0, 0)
    assert Sorting(world, ["f"]).rows(3) == [(0, 0), (0, 5), (0, 3)]
    everything = Sorting(world, ["f"])
    everything.rows(9)
    assert everything.opened == 4


def test_texts_that_an_earlier_field_tells_apart_are_not_opened() -> None:
    world = World(TEXT)
    world.ingest([{"f": str(n), "g": f"{'p' * 48}{n}"} for n in range(5)])
    sorting = Sorting(world, ["-f", "g"])
    assert sorting.rows(5) == [(0, n) for n in (4, 3, 2, 1, 0)]
    assert sorting.opened == 0


def test_too_many_long_strings_that_begin_alike_are_refused() -> None:
    world = World(TEXT)
    world.ingest([{"f": f"{'p' * 48}{n}"} for n in range(4)])
    with pytest.raises(InvalidQuery) as caught:
        Sorting(world, ["f"], most_texts=3).rows(1)
    assert caught.value.reason == "too_many_long"
    where = {"field": "f", "op": "eq", "value": f"{'p' * 48}1"}
    assert Sorting(world, ["f"], where, most_texts=3).rows(1) == [(0, 1)]


def test_a_record_that_holds_another_text_than_the_index_says_is_refused() -> None:
    world = World(TEXT)
    long = [f"{'p' * 48}{tail}" for tail in "ab"]
    world.ingest([{"f": text} for text in long])
    sorting = Sorting(world, ["f"])
    assert first(sorting.parts, sorting.order, sorting.texts, want=2) is None
    ((field, key), place), *_ = sorting.texts.wanted.items()
    held = world.open(world.row_at(place)).data[field]
    for other in (None, "short", next(text for text in long if text != held)):
        with pytest.raises(DoesNotOpen):
            sorting.texts.answer(field, key, other, sorting.tail(field))

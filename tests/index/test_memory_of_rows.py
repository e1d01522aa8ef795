"""What questions hold of a large segment is a few bytes a row, and of others only bits."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pyroaring import BitMap

from encrypted_records.index.columns.column import Column
from encrypted_records.index.columns.dictionary import ByRow, ColumnDictionary, PageMap
from encrypted_records.index.log.snapshot import GroupPlaces
from encrypted_records.index.ordinals import PIECE
from encrypted_records.index.query.aggregate import aggregate
from encrypted_records.index.query.candidates import Candidates, Matches
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.key_sets import Texts
from encrypted_records.index.segments.builder import Builder, Shell
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.index.segments.reading import (
    STANDARD,
    ReadingLimits,
    turn_round,
    working_bytes,
)
from encrypted_records.model.aggregations import parse_aggregation
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import new_id
from encrypted_records.model.queries import parse_query
from tests.index.reading import answer, read
from tests.index.world import new_keys

DEFINITION = parse_definition(
    """{"type": "object", "properties": {
    "number": {"type": "integer", "minimum": 0, "maximum": 9999999},
    "amount": {"type": "integer", "minimum": 0, "maximum": 9999999}}}"""
)
FEW, MANY = 1 << 18, 1 << 21
#: Windows that are smaller than either segment, and room for the keys of amounts.
WITH_KEYS = replace(STANDARD, window=16, by_row=5 << 20)
#: The same without room for keys.
WITHOUT_KEYS = replace(WITH_KEYS, by_row=0)


class Numbers:
    """A segment of numbers, all different, and of amounts, of which there are 500."""

    def __init__(self, rows: int) -> None:
        self.key = new_keys().newest
        every = np.arange(rows, dtype=np.uint32)
        chance = np.random.default_rng(rows)
        builder = Builder(self.key, DEFINITION, Shell([(new_id(), 0)], every))
        self.amounts = chance.integers(0, 500, rows).astype(np.uint64)
        for name, own in (
            ("number", chance.permutation(rows).astype(np.uint64)),
            ("amount", self.amounts),
        ):
            order = np.argsort(own, kind="stable")
            builder.add(name, Column(every[order], own[order]))
        made = builder.finish()
        self.stored = {page.number: page.data for page in made.pages}
        self.segment = LoadedSegment(OpenedHeader(self.key, DEFINITION, made.segment, made.header))
        for number in self.segment.missing_directories(["number", "amount"]):
            self.segment.put(number, self.stored[number])
        self.places = GroupPlaces(np.array([0]), np.array([rows]), np.array([0]))

    def sealed(self, _: OpenedSegment, number: int) -> bytes:
        return self.stored[number]

    def turned(self, field: str, limits: ReadingLimits) -> ByRow:
        return read(self.segment, turn_round(self.segment, field, limits), self.sealed)

    def compare(self, field: str) -> Matches:
        """Take half of a column."""
        half = self.segment.covered // 2 if field == "number" else 250
        where = {"field": field, "op": "lt", "value": half}
        condition = Condition.of(
            parse_query({"where": where}, DEFINITION).where, self.key, DEFINITION
        )
        (leaf,) = condition.leaves
        return read(self.segment, leaf.read(self.segment), self.sealed)

    def measure(self, *measures: dict[str, Any]) -> Any:
        body = {"measures": [{"field": "number", **one} for one in measures]}
        part = Candidates(self.segment, Matches.exactly(self.segment.everything), self.places)
        asked = parse_aggregation(body, DEFINITION)
        asking = aggregate(asked, DEFINITION, [part], Texts(), reading=WITHOUT_KEYS)
        found = answer(asking, self.sealed)
        self.segment.columns.clear()
        return found


@pytest.fixture(scope="module")
def sizes() -> tuple[Numbers, Numbers]:
    return Numbers(FEW), Numbers(MANY)


def peak(work: Callable[[], object]) -> int:
    """The most bytes that work holds beyond what there was, with what it gives."""
    tracemalloc.start()
    try:
        kept = work()
        _, most = tracemalloc.get_traced_memory()
        del kept
    finally:
        tracemalloc.stop()
    return most


def bytes_a_row(works: list[Callable[[], object]]) -> float:
    """By how much more is held of the larger one, for each of its rows beyond the other's."""
    few, many = map(peak, works)
    return (many - few) / (MANY - FEW)


def test_half_of_a_column_by_row_takes_no_byte_of_each_row(
    sizes: tuple[Numbers, Numbers],
) -> None:
    """A set of rows takes a bit of each; numpy's indices took eight bytes, and a mask one."""
    for field, limits, kind in (
        ("amount", WITH_KEYS, ColumnDictionary),
        ("number", WITHOUT_KEYS, PageMap),
    ):
        works: list[Callable[[], object]] = []
        for one in sizes:
            whole = one.turned(field, limits)
            assert isinstance(whole, kind)
            one.segment.columns[field] = whole

            def work(one: Numbers = one, field: str = field) -> Matches:
                return one.compare(field)

            works.append(work)
        assert bytes_a_row(works) < 1
        for size in sizes:
            half = size.segment.covered // 2
            expected = half if field == "number" else int((size.amounts < 250).sum())
            assert len(size.compare(field).certain) == expected
            size.segment.columns.clear()


@pytest.mark.parametrize("limits", [WITH_KEYS, WITHOUT_KEYS], ids=["keys", "pages"])
def test_to_turn_a_column_round_takes_four_bytes_a_row(
    sizes: tuple[Numbers, Numbers], limits: ReadingLimits
) -> None:
    """Two for the rows' numbers and one for the mask that checks them. The numbers are not made
    wider first where the keys are left in the end."""
    assert bytes_a_row([lambda one=one: one.turned("number", limits) for one in sizes]) < 4  # type: ignore[misc]


def test_measures_take_four_bytes_a_row_and_what_a_turn_allows_for(
    sizes: tuple[Numbers, Numbers],
) -> None:
    ends = [{"op": op} for op in ("avg", "max")]
    assert bytes_a_row([lambda one=one: one.measure(*ends) for one in sizes]) < 4  # type: ignore[misc]
    shares = {"op": "percentile", "p": [10, 50]}
    many = sizes[1]
    assert many.measure(shares).groups[0].results == ([MANY // 10, MANY // 2 - 1],)
    assert peak(lambda: many.measure(shares, *ends)) < working_bytes(many.segment)


def test_sets_of_many_segments_are_held_once() -> None:
    """Rows without dead ones among them are no others."""
    rows = BitMap(range(0, 10 * PIECE, 3))
    exact = Matches.exactly(rows)
    assert exact.without(BitMap()) is exact
    fewer = exact.without(BitMap([3, 4]))
    assert fewer.certain is fewer.possible
    assert len(fewer.possible) == len(rows) - 1
    unsure = Matches(BitMap([3, 6]), BitMap([3, 6, 9]))
    assert unsure.without(BitMap([3, 9])) == Matches(BitMap([6]), BitMap([6]))
    assert unsure.without(BitMap([6])) == Matches(BitMap([3]), BitMap([3, 9]))

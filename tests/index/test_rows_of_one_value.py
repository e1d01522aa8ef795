"""Rows that have one value in common take a few bytes each when they are sorted, and no key."""

from __future__ import annotations

import tracemalloc

import numpy as np

from encrypted_records.index.columns.column import Column
from encrypted_records.index.log.snapshot import GroupPlaces
from encrypted_records.index.query.narrowing import NarrowRequest, narrow
from encrypted_records.index.segments.builder import Builder, Shell
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.index.segments.reading import ReadingLimits
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import new_id
from encrypted_records.model.queries import parse_query
from tests.index.reading import answer
from tests.index.world import new_keys

DEFINITION = parse_definition('{"type": "object", "properties": {"text": {"type": "string"}}}')
#: Windows of some thousand rows, and no column with its keys.
SMALL = ReadingLimits(window=8, by_row=0, few=0)


def peak_of_sorting(rows: int) -> int:
    """Half of the rows have one value, and the others each its own."""
    chance = np.random.default_rng(rows)
    every = chance.permutation(rows).astype(np.uint32)
    every[rows // 4 : 3 * rows // 4].sort()
    texts = np.array([b"%012x" % at for at in range(rows)], "S64")
    texts[rows // 4 : 3 * rows // 4] = texts[rows // 4]
    key = new_keys().newest
    builder = Builder(key, DEFINITION, Shell([(new_id(), 0)], np.arange(rows, dtype=np.uint32)))
    builder.add("text", Column(every, texts))
    made = builder.finish()
    stored = {page.number: page.data for page in made.pages}
    segment = LoadedSegment(OpenedHeader(key, DEFINITION, made.segment, made.header))
    places = GroupPlaces(np.array([0]), np.array([rows]), np.array([0]))
    order = parse_query({"order_by": ["text"]}, DEFINITION).order
    want = rows // 4 + 5
    request = NarrowRequest(order, segment.everything, want, None, places, {})

    def sealed(_: OpenedSegment, number: int) -> bytes:
        return stored[number]

    tracemalloc.start()
    found = answer(narrow(segment, request, SMALL), sealed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert set(found.rows) == set(every[: 3 * rows // 4].tolist())
    return peak


def test_rows_of_one_value_take_few_bytes_when_they_are_sorted() -> None:
    rows = (1 << 16, 1 << 18)
    peaks = [peak_of_sorting(count) for count in rows]
    assert (peaks[1] - peaks[0]) / (rows[1] - rows[0]) < 150

"""Segments of the sizes that pages are for: built of whole columns, asked, and merged."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns.column import Column, key_type
from encrypted_records.index.log.snapshot import Snapshot
from encrypted_records.index.ordinals import ordinals
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.segments.builder import Builder, SegmentLimits, Shell
from encrypted_records.index.segments.loaded import LoadedSegment
from encrypted_records.index.segments.merge import SegmentMerger, merge
from encrypted_records.index.segments.mini import Built, MiniSegment
from encrypted_records.index.segments.opened_header import OpenedHeader
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import new_id
from encrypted_records.model.queries import parse_query
from tests.index.world import new_keys

TEXT = """{"type": "object", "properties": {
  "id": {"type": "string"}, "city": {"type": "string"},
  "age": {"type": "integer", "minimum": 0, "maximum": 99}}}"""
DEFINITION = parse_definition(TEXT)
KEY = new_keys().newest
COUNT = 70_000

Data = dict[str, NDArray[Any]]


def made(count: int, seed: int) -> Data:
    """Unique ids, 50 cities of which the first is absent, ages; one entry per row."""
    rng = np.random.default_rng(seed)
    ids = np.array(
        [b"%016x%04x" % (integer, seed) for integer in rng.integers(0, 2**63, count)], "S64"
    )
    city = np.array([b""] + [b"c%02d" % one for one in range(1, 50)], "S64")
    return {
        "id": ids,
        "city": city[rng.integers(0, 50, count)],
        "age": rng.integers(0, 100, count).astype(np.uint64),
    }


def column(name: str, keys: NDArray[Any]) -> Column:
    every = np.arange(len(keys), dtype=np.uint32)
    kind = DEFINITION.fields[name].kind
    present = keys != b"" if name == "city" else np.ones(len(keys), np.bool_)
    unsorted = Column(np.concatenate((every[~present], every[present])), keys[present])
    return columns.join([unsorted], kind)


def built(data: Data) -> Built:
    count = len(data["id"])
    builder = Builder(KEY, DEFINITION, Shell([(new_id(), 0)], np.arange(count, dtype=np.uint32)))
    for name, keys in data.items():
        builder.add(name, column(name, keys.astype(key_type(DEFINITION.fields[name].kind))))
    return builder.finish()


class Reader:
    def __init__(self, built: Built) -> None:
        self.segment = LoadedSegment(OpenedHeader(KEY, DEFINITION, built.segment, built.header))
        self.stored = {page.number: page.data for page in built.pages}

    def put(self, numbers: set[int]) -> int:
        for number in numbers:
            self.segment.put(number, self.stored[number])
        return len(numbers)

    def ask(self, where: Any) -> tuple[set[int], int]:
        """The rows, and how many data pages it took."""
        asked = parse_query({"where": where}, DEFINITION).where
        self.segment = LoadedSegment(self.segment.opened)
        condition = Condition.of(asked, KEY, DEFINITION)
        self.put(condition.missing(self.segment))
        fetched = self.put(condition.missing(self.segment))
        found = condition.match(self.segment)
        assert found.certain == found.possible
        return set(ordinals(found.certain).tolist()), fetched or len(self.segment.blocks)

    def load(self, name: str) -> None:
        for _ in range(2):
            self.put(self.segment.missing_columns([name]))


@pytest.fixture(scope="module")
def data() -> Data:
    return made(COUNT, 1)


@pytest.fixture(scope="module")
def reader(data: Data) -> Reader:
    return Reader(built(data))


def rows(chosen: NDArray[np.bool_]) -> set[int]:
    return set(np.flatnonzero(chosen).tolist())


def test_a_reader_never_takes_a_directory_for_here_while_another_decodes_it(data: Data) -> None:
    made = built(data)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns within microseconds
    try:
        with ThreadPoolExecutor(1) as other:
            for _ in range(20):
                reader = Reader(made)
                numbers = reader.segment.missing_directories(["id"])
                bringing = other.submit(reader.put, numbers)
                # Its pages need not be brought, so it can be looked at.
                while reader.segment.missing_directories(["id"]):
                    pass
                assert reader.segment.lookup("id") is not None
                bringing.result()
    finally:
        sys.setswitchinterval(before)


def test_a_large_segment_answers_as_its_columns_do(reader: Reader, data: Data) -> None:
    ages, city, one = data["age"], data["city"], data["id"][12_345].decode()
    for where, chosen in [
        ({"field": "id", "op": "eq", "value": one}, data["id"] == one.encode()),
        ({"field": "id", "op": "prefix", "value": "07"}, np.strings.startswith(data["id"], b"07")),
        ({"field": "id", "op": "lt", "value": "3"}, data["id"] < b"3"),
        ({"field": "city", "op": "eq", "value": "c07"}, city == b"c07"),
        (
            {"field": "city", "op": "in", "value": ["c01", "c49", "x"]},
            np.isin(city, [b"c01", b"c49"]),
        ),
        ({"field": "city", "op": "is_null"}, city == b""),
        ({"not": {"field": "city", "op": "ge", "value": "c30"}}, (city < b"c30")),
        ({"field": "age", "op": "between", "value": [0, 49]}, ages < 50),
        ({"field": "age", "op": "eq", "value": 99}, ages == 99),
        (
            {
                "and": [
                    {"field": "age", "op": "lt", "value": 20},
                    {"field": "city", "op": "ne", "value": "c01"},
                ]
            },
            (ages < 20) & (city != b"c01"),
        ),
    ]:
        found, _ = reader.ask(where)
        assert found == rows(chosen)


def test_a_question_about_one_value_takes_one_page_and_a_range_its_own(
    reader: Reader, data: Data
) -> None:
    one = data["id"][999].decode()
    assert reader.ask({"field": "id", "op": "eq", "value": one})[1] == 1
    reader.load("age")
    every = len(reader.segment.blocks)
    half = reader.ask({"field": "age", "op": "lt", "value": 50})[1]
    assert every // 2 <= half <= every // 2 + 2
    # Between two values that follow each other nothing lies, and the list of values says so.
    assert reader.ask({"field": "city", "op": "between", "value": ["c01a", "c01b"]})[1] == 0


def test_a_range_that_all_rows_are_in_takes_no_page(reader: Reader, data: Data) -> None:
    everything = set(range(COUNT))
    lowest, highest = int(data["age"].min()), int(data["age"].max())
    span = {"field": "age", "op": "between", "value": [lowest, highest]}
    assert reader.ask(span) == (everything, 0)
    assert reader.ask({"field": "id", "op": "ge", "value": "0"}) == (everything, 0)
    # One value less, and the page that has it must be read.
    found, fetched = reader.ask(span | {"value": [lowest + 1, highest]})
    assert found == rows(data["age"] > lowest)
    assert fetched > 0
    # Some rows have no city: they are in no range.
    found, _ = reader.ask({"field": "city", "op": "ge", "value": ""})
    assert found == rows(data["city"] != b"")
    assert found != everything


def test_merging_large_and_small_segments_keeps_every_living_row(data: Data) -> None:
    parts = [data, made(4500, 2), made(5500, 3)]
    readers = [Reader(built(part)) for part in parts]
    segments = tuple(reader.segment.segment for reader in readers)
    assert [segment.form for segment in segments] == ["paged", "paged", "paged"]
    (first, _), *_ = segments[0].groups
    snapshot = Snapshot(1, segments, {}, {first: BitMap(range(0, COUNT, 7))})
    dead = [snapshot.dead_rows(segment) for segment in segments]
    opened = [reader.segment for reader in readers]
    merging = SegmentMerger(KEY, DEFINITION, opened, [one.segment.groups for one in opened], dead)
    for name in merging.fields:
        for reader in readers:
            reader.load(name)
        merging.take(name)
    result = merging.finish()
    assert (result.segment.count, result.segment.purged) == (70_000, 10_000)

    reader = Reader(result)
    living = np.ones(COUNT + 10_000, np.bool_)
    living[:COUNT:7] = False
    for name in DEFINITION.fields:
        reader.load(name)
        whole = np.concatenate([part[name] for part in parts])
        found = reader.segment.column(name)
        assert np.array_equal(np.sort(found.ordinals), np.flatnonzero(living))
        assert np.array_equal(found.keys, whole[found.ordinals[found.absent :]])


def test_a_merge_of_few_living_rows_is_a_mini(data: Data) -> None:
    reader = Reader(built(made(5000, 4)))
    for name in DEFINITION.fields:
        reader.load(name)
    (group, _), *_ = reader.segment.segment.groups
    snapshot = Snapshot(1, (reader.segment.segment,), {}, {group: BitMap(range(3, 5000))})
    result = merge(KEY, DEFINITION, [reader.segment], snapshot)
    assert (result.segment.form, result.segment.count) == ("mini", 3)
    opened = MiniSegment(KEY, DEFINITION, result.segment, result.header, result.pages[0])
    assert opened.rows.tolist() == [0, 1, 2]


def test_a_packed_segment_has_as_many_pages_whenever_it_is_built_again() -> None:
    """An API that refuses it must not get another draw of its dummies."""

    def pages(origin: bytes, count: int) -> int:
        shell = Shell([(new_id(), 0)], np.arange(count, dtype=np.uint32), origin=origin)
        builder = Builder(KEY, DEFINITION, shell, SegmentLimits(mini=0, plain=0, entries=9))
        for name, spec in DEFINITION.fields.items():
            builder.add(name, columns.build(spec, KEY.field(spec), [None] * count))
        return builder.finish().segment.pages

    assert len({pages(b"one", 900) for _ in range(5)}) == 1
    drawn = [{pages(bytes((at,)), count) for at in range(12)} for count in (900, 918, 936, 954)]
    assert any(len(found) > 1 for found in drawn)

"""Dates, times, instants, uuids and booleans in the index, held to Python's own."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta, timezone
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encrypted_records.errors import InvalidQuery
from encrypted_records.index.query.sort import first
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.model.queries import parse_query
from tests.index.questions import Question
from tests.index.test_aggregate import Aggregation
from tests.index.world import World

TEXT = json.dumps(
    {
        "type": "object",
        "formats": "enforced",
        "properties": {
            "born": {"type": "string", "format": "date"},
            "at": {"type": "string", "format": "time"},
            "seen": {"type": "string", "format": "date-time"},
            "local": {"type": "string", "format": "local-date-time"},
            "took": {"type": "string", "format": "duration"},
            "id": {"type": "string", "format": "uuid"},
            "alive": {"type": "integer", "format": "boolean", "minimum": 0, "maximum": 1},
        },
    }
)
NAMES = ("born", "at", "seen", "local", "took", "id", "alive")
#: Forms of segments: one page, pages as they are, packed pages.
LIMITS = [
    SegmentLimits(),
    SegmentLimits(mini=2, plain=1000, entries=2),
    SegmentLimits(mini=2, plain=2, entries=3),
]

_days = st.one_of(
    st.sampled_from([date(2024, 2, 29), date(2023, 12, 31), date(2024, 1, 1), date.min, date.max]),
    st.dates(date(2023, 1, 1), date(2025, 12, 31)),
)
_zones = st.integers(-840, 840).map(lambda minutes: timezone(timedelta(minutes=minutes)))
_times = st.times(timezones=st.none())
_instants = st.builds(
    datetime.combine, st.dates(date(2023, 1, 1), date(2025, 1, 1)), _times, _zones
)
_locals = st.datetimes(datetime(2023, 1, 1), datetime(2025, 1, 1))  # noqa: DTZ001 - local
_most = timedelta(days=100_000_000)
_lengths = st.one_of(
    st.sampled_from([timedelta(), -timedelta(microseconds=1), timedelta(days=7), _most, -_most]),
    st.timedeltas(timedelta(days=-2), timedelta(days=2)),
)
_ids = st.sampled_from([UUID(int=0), UUID(int=1 << 120), UUID(int=255), UUID(int=(1 << 128) - 1)])
_records = st.fixed_dictionaries(
    {},
    optional={
        "born": _days,
        "at": _times,
        "seen": _instants,
        "local": _locals,
        "took": _lengths,
        "id": st.one_of(_ids, st.uuids()),
        "alive": st.booleans(),
    },
)


def sent(record: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if isinstance(value, bool) else _text(value) for name, value in record.items()
    }


def _text(value: date | time | datetime | timedelta | UUID) -> str:
    if isinstance(value, timedelta):
        seconds, rest = divmod(abs(value), timedelta(seconds=1))
        decimals = f".{rest // timedelta(microseconds=1):06d}"
        return f"{'-' if value < timedelta() else ''}PT{seconds}{decimals}S"
    return str(value) if isinstance(value, UUID) else value.isoformat()


def built(records: list[dict[str, Any]], limits: SegmentLimits) -> World:
    world = World(TEXT, limits=limits)
    half = len(records) // 2
    for part in (records[:half], records[half:]):
        if part:
            world.ingest(map(sent, part))
    return world


def comparable(value: Any) -> Any:
    has_zone = isinstance(value, datetime) and value.tzinfo is not None
    return value.astimezone(UTC) if has_zone else value


COMPARE = {
    "eq": lambda one, other: one == other,
    "lt": lambda one, other: one < other,
    "le": lambda one, other: one <= other,
    "gt": lambda one, other: one > other,
    "ge": lambda one, other: one >= other,
}


@pytest.mark.parametrize("limits", LIMITS, ids=["mini", "paged", "packed"])
@settings(max_examples=15)
@given(st.lists(_records, min_size=1, max_size=9), st.data())
def test_a_comparison_finds_what_python_finds(
    limits: SegmentLimits, records: list[dict[str, Any]], data: st.DataObject
) -> None:
    world = built(records, limits)
    for round_ in range(2):
        for name in NAMES:
            held = [record[name] for record in records if name in record]
            if not held:
                continue
            bound = data.draw(st.sampled_from(held))
            op = "eq" if name == "alive" else data.draw(st.sampled_from(sorted(COMPARE)))
            asked = {"field": name, "op": op, "value": sent({name: bound})[name]}
            where = parse_query({"where": asked}, world.definition).where
            found = {
                int(place) for part in Question(world, where).parts for place in part.positions
            }
            expected = {
                place
                for place, record in enumerate(records)
                if name in record and COMPARE[op](comparable(record[name]), comparable(bound))
            }
            assert found == expected
        if round_ == 0:
            world.merge()


@settings(max_examples=15)
@given(st.lists(_records, min_size=1, max_size=9), st.sampled_from(LIMITS), st.booleans())
def test_rows_are_sorted_as_python_sorts_them(
    records: list[dict[str, Any]], limits: SegmentLimits, descending: bool
) -> None:
    world = built(records, limits)
    for name in NAMES:
        order = [f"-{name}" if descending else name]
        query = parse_query({"order_by": order}, world.definition)
        question = Question(world, query.where)
        rows = first(question.parts, query.order, question.texts, want=len(records))
        assert rows is not None

        def key(place: int, name: str = name) -> tuple[bool, Any]:
            value = records[place].get(name)
            return (value is not None, comparable(value) if value is not None else 0)

        places = sorted(range(len(records)), key=key, reverse=False)
        if descending:
            places.sort(key=key, reverse=True)
        assert rows.positions.tolist() == places


@settings(max_examples=15)
@given(st.lists(_records, min_size=1, max_size=9), st.sampled_from(LIMITS))
def test_extremes_and_distinct_values_are_pythons(
    records: list[dict[str, Any]], limits: SegmentLimits
) -> None:
    world = built(records, limits)
    for name in NAMES:
        held = [comparable(record[name]) for record in records if name in record]
        measures = [{"op": op, "field": name} for op in ("min", "max", "distinct")]
        (whole,) = Aggregation(world, {"measures": measures}).answer().groups
        least, most, distinct = whole.results
        accept = world.definition.fields[name].accept
        assert least == (accept(sent({name: min(held)})[name]) if held else None)
        assert most == (accept(sent({name: max(held)})[name]) if held else None)
        assert [(value["value"], value["count"]) for value in distinct["values"]] == [
            (accept(sent({name: value})[name]), count)
            for value, count in sorted(Counter(held).items())
        ]


def _period(day: date, by: str) -> str:
    if by == "week":
        return (day - timedelta(days=day.weekday())).isoformat()
    return day.isoformat()[: {"year": 4, "month": 7, "day": 10}[by]]


@settings(max_examples=15)
@given(
    st.lists(
        st.fixed_dictionaries({}, optional={"born": _days, "seen": _instants, "local": _locals}),
        min_size=1,
    ),
    st.sampled_from(["year", "month", "week", "day"]),
    st.sampled_from(LIMITS),
)
def test_groups_by_period_are_those_of_the_calendar(
    records: list[dict[str, Any]], by: str, limits: SegmentLimits
) -> None:
    world = built(records, limits)
    for name in ("born", "seen", "local"):
        asked = {"group_by": [{"field": name, "by": by}], "limit": 1000}
        days = [comparable(record[name]) if name in record else None for record in records]
        plain = [day.date() if isinstance(day, datetime) else day for day in days]
        expected = Counter(None if day is None else _period(day, by) for day in plain)
        answer = Aggregation(world, asked).answer()
        found = {group.values[0]: group.results[0] for group in answer.groups}
        assert found == expected
        listed = [group.values[0] for group in answer.groups]
        assert listed == sorted(listed, key=lambda one: (one is not None, one or ""))


@settings(max_examples=15)
@given(
    st.lists(
        st.fixed_dictionaries({}, optional={"born": st.dates(date(2023, 1, 1), date(2024, 3, 9))})
    ),
    st.sampled_from(["year", "month", "week", "day"]),
)
def test_a_histogram_by_period_has_every_period_between(
    records: list[dict[str, Any]], by: str
) -> None:
    world = built([*records, {}], LIMITS[0])
    asked = {"measures": [{"op": "histogram", "field": "born", "by": by}]}
    (whole,) = Aggregation(world, asked).answer().groups
    bins = whole.results[0]["bins"]
    held = sorted(record["born"] for record in records if "born" in record)
    assert sum(one["count"] for one in bins) == len(held)
    for one in bins:
        begin, end = (date.fromisoformat(one[edge]) for edge in ("from", "to"))
        assert _period(begin, by) == _period(end, by)
        assert _period(begin - timedelta(days=1), by) != _period(begin, by)
        assert _period(end + timedelta(days=1), by) != _period(end, by)
        assert one["count"] == sum(begin <= day <= end for day in held)
    for one, after in pairwise(bins):
        following = date.fromisoformat(one["to"]) + timedelta(days=1)
        assert following.isoformat() == after["from"]


def test_a_histogram_of_too_many_periods_is_refused_by_name() -> None:
    world = built([{"born": date(1, 1, 1)}, {"born": date(9999, 12, 31)}], LIMITS[0])
    asked = {"measures": [{"op": "histogram", "field": "born", "by": "day"}]}
    with pytest.raises(InvalidQuery) as refused:
        Aggregation(world, asked).answer()
    assert refused.value.reason == "too_many_values"

"""Every way in the tables of choice gives the oracle's answers wherever it is possible at all, not
only where its rule finds it cheaper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from encrypted_records.index.query import aggregate, choices, matching, segment_filters
from encrypted_records.index.query.asking import Sizes
from encrypted_records.index.query.choices import Table, Way
from tests.index.executor import Executor
from tests.index.reading import IN_WINDOWS, Kept
from tests.index.test_counts_and_first_rows import EAGER, LARGE, Asked, conditions, made

Possible = Callable[[Any], bool]


def always(_: Any) -> bool:
    return True


#: Of each table its ways, and what must be true of the figures for the way to be possible.
WAYS: dict[str, dict[Way, Possible]] = {
    "COMPARISON": {
        Way.AT_ONCE: always,
        Way.KEPT: lambda figures: figures.is_kept,
        Way.BY_ROW: lambda figures: figures.keeps,
        Way.WINDOWS: always,
    },
    "TEST": {
        Way.KEPT: lambda figures: figures.is_kept,
        Way.AT_ONCE: always,
        Way.SAMPLE: lambda figures: figures.fits is None,
        Way.BY_ROW: always,
        Way.WINDOWS: always,
    },
    "OLDEST": {
        Way.PREFIX: lambda figures: figures.is_exact and figures.is_in_order,
        Way.SET: always,
    },
    "COUNT": {
        Way.NONE: lambda figures: figures.decided is False,
        Way.ALL: lambda figures: figures.decided is True,
        Way.ENDS: lambda figures: figures.is_alone and not figures.dead,
        Way.ENDS_LESS_DEAD: lambda figures: figures.is_alone and figures.by_row,
        Way.SET: always,
    },
    "LOOKUP": {
        Way.KEPT: lambda figures: figures.can and figures.is_kept,
        Way.BY_ROW: lambda figures: figures.can,
        Way.SET: always,
    },
    "SORT": {Way.FILTER: always, Way.SET: always},
}
USERS = (matching, aggregate, segment_filters)

#: As of very many rows, with keys of columns; and first rows in the order of storing from rows of
#: small schemas on, by windows of 32.
SIZES = {
    "COMPARISON": replace(LARGE, reading=IN_WINDOWS),
    "TEST": replace(LARGE, reading=replace(IN_WINDOWS, by_row=1 << 10)),
    "OLDEST": Sizes(prefix_rows=32, work=replace(Sizes().work, on_loop=0)),
    "COUNT": replace(LARGE, reading=IN_WINDOWS),
    "LOOKUP": replace(LARGE, reading=IN_WINDOWS),
    "SORT": replace(Sizes(few_rows=0, few_to_sort=0, few_entries=2), scan=EAGER),
}
TESTS: list[Any] = [
    {"field": "name", "op": "contains", "value": "07"},
    {"not": {"field": "name", "op": "ends_with", "value": "3"}},
    {
        "and": [
            {"field": "state", "op": "contains", "value": "2"},
            {"field": "number", "op": "lt", "value": 700},
        ]
    },
]


def force(monkeypatch: pytest.MonkeyPatch, name: str, way: Way) -> list[Any]:
    """Take a way of a table wherever it is possible; the figures for which it was taken."""
    taken: list[Any] = []
    possible = WAYS[name][way]

    def holds(figures: Any) -> bool:
        if not possible(figures):
            return False
        taken.append(figures)
        return True

    table: Table[Any] = ((way, holds), *getattr(choices, name))
    for module in USERS:
        if hasattr(module, name):
            monkeypatch.setattr(module, name, table)
    return taken


def test_every_way_of_every_table_is_forced() -> None:
    tables = {name: value for name, value in vars(choices).items() if isinstance(value, tuple)}
    assert {name: {way for way, _ in table} for name, table in tables.items()} == {
        name: set(ways) for name, ways in WAYS.items()
    }


@pytest.mark.parametrize(
    ("name", "way"),
    [(name, way) for name, ways in WAYS.items() for way in ways],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_forced_way_gives_the_answers_of_the_oracle(
    name: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = force(monkeypatch, name, way)
    world, records = made()
    asked = Asked(Executor(world, SIZES[name], Kept()), records)
    for where in [*islice(conditions(), 1, None, 10), *TESTS]:
        asked.check_count(where)
        for order_by in ([], ["-amount", "state"], ["number"]):
            asked.check_order(where, order_by)
    assert taken

"""Every operator with every nasty operand on every nasty value, against the oracle.

The generated questions of the neighbouring tests nest and mix; these leave no pair out.
"""

from __future__ import annotations

import itertools
from decimal import Decimal, localcontext
from typing import Any

import pytest

from encrypted_records.crypto.values import is_long, order_bytes
from tests import oracle
from tests.index.strategies import TEXTS
from tests.index.world import World
from tests.reference import definitions as plain

TEXT_OPS = ["eq", "ne", "lt", "le", "gt", "ge", "prefix"]
NUMBER_OPS = ["eq", "ne", "lt", "le", "gt", "ge"]
STRING = '{"type": "object", "properties": {"f": {"type": "string"}}}'


def filled(text: str, values: list[Any]) -> tuple[World, list[dict[str, Any]]]:
    """One mini; every value twice, and an absent one."""
    records: list[dict[str, Any]] = [{"f": value} for value in values * 2] + [{}]
    world = World(text)
    world.ingest(records)
    return world, records


def expected(where: Any, records: list[dict[str, Any]], text: str) -> set[tuple[int, int]]:
    fields = plain.load(text).fields
    return {(0, at) for at, record in enumerate(records) if oracle.holds(where, record, fields)}


@pytest.fixture(scope="module")
def texts() -> tuple[World, list[dict[str, Any]]]:
    return filled(STRING, TEXTS)


@pytest.mark.parametrize("op", TEXT_OPS)
def test_every_text_compares_with_every_other(
    texts: tuple[World, list[dict[str, Any]]], op: str
) -> None:
    world, records = texts
    for operand in TEXTS:
        where = {"field": "f", "op": op, "value": operand}
        truth = expected(where, records, STRING)
        certain, possible = world.ask(where)
        assert certain <= truth <= possible
        ordered = order_bytes(operand)
        # Left undecided: only long strings that agree with a long operand on 48 order bytes.
        for _, at in possible - certain:
            stored = order_bytes(records[at]["f"])
            assert op not in ("eq", "ne")
            assert is_long(ordered)
            assert is_long(stored)
            assert stored[:48] == ordered[:48]


def test_every_pair_of_texts_bounds_a_range(texts: tuple[World, list[dict[str, Any]]]) -> None:
    world, records = texts
    for pair in itertools.product(TEXTS[::2], TEXTS[1::2]):
        where = {"field": "f", "op": "between", "value": list(pair)}
        certain, possible = world.ask(where)
        assert certain <= expected(where, records, STRING) <= possible
        if not any(is_long(order_bytes(bound)) for bound in pair):
            assert certain == possible


NUMBERS = [
    ('{"type": "integer", "minimum": -3, "maximum": 3}', range(-3, 4)),
    ('{"type": "integer", "minimum": 7, "maximum": 7}', [7]),
    (
        '{"type": "integer", "minimum": 0, "maximum": 18446744073709551615}',
        [0, 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1],
    ),
    (
        '{"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807}',
        [-(2**63), -1, 0, 1, 2**63 - 1],
    ),
    (
        '{"type": "number", "minimum": -0.4, "maximum": 0.4, "precision": 1}',
        [Decimal(at).scaleb(-2) for at in range(-35, 36, 5)],
    ),
    (
        f'{{"type": "number", "minimum": {10**30}, "maximum": {10**30 + 2}, "precision": 2}}',
        [Decimal(f"{10**30 + whole}.{part}") for whole in (0, 1) for part in ("005", "01", "015")],
    ),
]
OUTSIDE = [Decimal(text) for text in ("-1e50", "1e50", "0.05", "-0.05", "0.1", "0.5", "1e-40")]


@pytest.mark.parametrize(("body", "values"), NUMBERS, ids=[number[0] for number in NUMBERS])
def test_every_number_compares_with_every_other_and_with_what_lies_outside(
    body: str, values: Any
) -> None:
    text = f'{{"type": "object", "properties": {{"f": {body}}}}}'
    sent = [Decimal(value) for value in values]
    world, records = filled(text, sent)
    field = plain.load(text).fields["f"]
    # Just outside the bounds lie points to which values within them are rounded.
    beside = [*_around(field["minimum"]), *_around(field["maximum"]), *OUTSIDE]
    asked: list[dict[str, Any]] = [
        {"field": "f", "op": op, "value": operand}
        for op in NUMBER_OPS
        for operand in (sent if op in ("eq", "ne") else [*sent, *beside])
    ]
    asked += [
        {"field": "f", "op": "between", "value": list(pair)}
        for pair in itertools.product([*sent, *beside], repeat=2)
    ]
    for where in asked:
        certain, possible = world.ask(where)
        assert certain == possible == expected(where, records, text), where


def _around(bound: Decimal) -> list[Decimal]:
    with localcontext(prec=60):
        return [bound + step for step in (-1, Decimal("-0.01"), Decimal("0.01"), 1)]

"""A field of one schema compared with a field of another: as comparing the values themselves would,
whatever bounds, decimals and lengths the two fields have."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.index.columns.column import Keys
from encrypted_records.index.query.candidates import Candidates, Matches
from encrypted_records.index.query.condition import Condition
from encrypted_records.index.query.distinct_values import list_values
from encrypted_records.index.query.key_sets import (
    FEW,
    Texts,
    are_alike,
    compare_with,
    join_keys,
    to_grid,
)
from encrypted_records.model.definition import FieldSpec
from encrypted_records.model.field_types.base import NumberRules
from encrypted_records.model.predicates import InColumn, Not, Predicate, matches
from tests import oracle
from tests.index.reading import answer
from tests.index.strategies import BOUNDS, DECIMALS, Case, cases
from tests.index.test_answers_equal_the_oracle import world_of
from tests.index.world import World


def plain_value(case: Case, name: str, record: dict[str, Any]) -> Any:
    """What of a record's field is equal to what; None of an absent one."""
    field, sent = case.fields[name], record.get(name)
    if sent is None:
        return None
    return oracle.nfc(sent) if field["type"] == "string" else oracle.rounded(field, sent)


def condition(own: FieldSpec, world: World, spec: FieldSpec, few: int) -> Predicate:
    """``own`` has a value that ``spec`` has in ``world``, as a proxy finds it."""
    snapshot, texts = world.ledger.snapshot(), Texts()
    parts: list[Keys] = []
    long: set[bytes] = set()
    for segment in world.opened():
        rows = Matches.exactly(segment.everything)
        part = Candidates.of(segment, rows, snapshot)
        keys, longer = answer(list_values(part, spec.name, texts), world.sealed)
        parts += keys
        long |= longer
    for (name, key), place in list(texts.wanted.items()):
        text = world.open(world.row_at(place)).data[name]
        texts.answer(name, key, text, world.ledger.tails.field(spec).tail)
    known = {texts.get(spec.name, key) for key in long}
    return compare_with(
        own, spec, join_keys(parts, spec), {text for text in known if text}, few=few
    )


@given(cases(), cases(), st.data())
def test_a_column_among_another_is_what_its_values_are(
    one: Case, two: Case, data: st.DataObject
) -> None:
    mine = world_of(one)
    theirs = world_of(two)
    pairs = [
        (own, spec)
        for own in mine.definition.fields.values()
        for spec in theirs.definition.fields.values()
    ]
    own, spec = data.draw(st.sampled_from(pairs))
    texts = [field["type"] == "string" for field in (one.fields[own.name], two.fields[spec.name])]
    assert are_alike(own, spec) == (texts[0] == texts[1])
    if texts[0] != texts[1]:
        return
    if texts[0]:
        # Few texts meet by chance.
        two.groups.append([{spec.name: record[own.name]} for record in one.records[::2]])
        theirs.ingest(two.groups[-1])
    if data.draw(st.booleans()):
        # Each from one large segment, that a merge made.
        mine.merge()
        theirs.merge()
    there = {plain_value(two, spec.name, record) for record in two.records} - {None}
    expected = {
        (sequence, ordinal)
        for sequence, group in enumerate(one.groups)
        for ordinal, record in enumerate(group)
        if plain_value(one, own.name, record) in there
    }
    every = {(s, o) for s, group in enumerate(one.groups) for o in range(len(group))}
    for few in (0, FEW):
        asked = condition(own, theirs, spec, few)
        assert few == 0 or not isinstance(asked, InColumn)
        assert mine.find(asked) == expected
        # Who lacks the value is not among them, and so is among the others.
        assert mine.find(Not(asked)) == every - expected
        opened = {row for row in every if matches(asked, mine.open(row).data, mine.definition)}
        assert opened == expected


NUMBERS = [
    *(NumberRules(Decimal(low), Decimal(high)) for low, high in BOUNDS),
    *(NumberRules(Decimal(low), Decimal(high), more) for low, high, more in DECIMALS),
]


@pytest.mark.parametrize("mine", NUMBERS, ids=str)
def test_numbers_are_brought_to_the_grid_of_the_other_field(mine: NumberRules) -> None:
    chance = random.Random(0)

    def points(rules: NumberRules) -> list[Decimal]:
        low, high = rules.lowest, rules.highest
        near = [*range(low, min(low + 120, high + 1)), *range(max(low, high - 120), high + 1)]
        somewhere = [chance.randint(low, high) for _ in range(20)]
        zero = [point for point in range(-200, 200) if low <= point <= high]
        return [rules.from_grid(point) for point in (*near, *somewhere, *zero)]

    def place(rules: NumberRules, value: Decimal) -> int | None:
        """Its key, if the field can have it."""
        point = Fraction(value) * 10**rules.precision
        fits = point.denominator == 1 and rules.lowest <= point <= rules.highest
        return int(point) - rules.lowest if fits else None

    found = 0
    for theirs in NUMBERS:
        own, other = FieldSpec("own", "number", mine), FieldSpec("other", "number", theirs)
        keys = {place(theirs, point): point for point in (*points(mine), *points(theirs))}
        values = sorted((key, one) for key, one in keys.items() if key is not None)
        expected = [key for key in (place(mine, one) for _, one in values) if key is not None]
        given = np.array([key for key, _ in values], np.uint64)
        assert to_grid(own, other, given).tolist() == expected
        found += len(expected)
    assert found


def test_conditions_count_without_rows() -> None:
    """Where one comparison is all, its keys are counted."""
    text = '{"type": "object", "properties": {"a": {"type": "string"}}}'
    mine, theirs = World(text), World(text)
    mine.ingest([{"a": "x"}, {"a": "y"}, {"a": "y"}, {}])
    theirs.ingest([{"a": "y"}, {"a": "z"}, {}])
    (spec,) = mine.definition.fields.values()
    asked = condition(spec, theirs, spec, 0)
    for predicate, count in ((asked, 2), (Not(asked), 2)):
        built = Condition.of(predicate, mine.ledger.tails, mine.compared)
        (segment,) = mine.opened()
        assert built.count(segment) == count

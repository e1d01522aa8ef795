"""Definitions change between ingests, deletes and merges: answers are those of plain records."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encrypted_records.errors import DoesNotOpen, StaleDefinition
from encrypted_records.index.log.ledger import Ledger
from encrypted_records.index.log.ledger_state import decode
from encrypted_records.index.query.aggregate import aggregate
from encrypted_records.index.query.candidates import Candidates, Matches
from encrypted_records.index.query.key_sets import Texts
from encrypted_records.index.query.sort import first
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.ingest.seal import seal
from encrypted_records.model.aggregations import parse_aggregation
from encrypted_records.model.queries import SortKey
from encrypted_records.model.wire import decode_commit_body
from tests import oracle
from tests.index.reading import answer
from tests.index.world import Row, World

#: Segments of more than two rows have pages, so that both forms come up.
SMALL = SegmentLimits(mini=2, plain=6, entries=3)


@dataclass
class Model:
    """A schema, what it should hold, and how its definition is written at present."""

    world: World
    name: str = "size"
    low: int = -20
    high: int = 20
    precision: int = 0
    renames: int = 0
    rows: dict[Row, dict[str, Any]] = field(default_factory=dict)
    groups: int = 0

    @property
    def body(self) -> dict[str, Any]:
        return {
            "type": "number",
            "minimum": self.low,
            "maximum": self.high,
            "precision": self.precision,
        }

    @property
    def text(self) -> str:
        return json.dumps(
            {
                "type": "object",
                "properties": {self.name: self.body, "tag": {"type": "string"}},
            }
        )

    def ingest(self, numbers: list[Decimal | None]) -> None:
        step = Decimal(1).scaleb(-self.precision)
        low, high = Decimal(self.low), Decimal(self.high)
        kept = [
            None if number is None else min(max(number, low), high).quantize(step)
            for number in numbers
        ]
        records = [{self.name: one, "tag": f"t{at % 2}"} for at, one in enumerate(kept)]
        self.world.ingest(records)
        for at, record in enumerate(records):
            self.rows[self.groups, at] = record
        self.groups += 1

    def kill(self, at: int) -> None:
        if self.rows:
            row = sorted(self.rows)[at % len(self.rows)]
            self.world.kill([row])
            del self.rows[row]

    def merge(self) -> None:
        if len(self.world.ledger.snapshot().segments) > 1:
            self.world.merge()

    def widen(self, by: int, decimals: int) -> None:
        self.low -= by
        self.high += by % 7
        self.precision += decimals
        self.world.change(self.text)

    def narrow(self, by: int) -> None:
        held = [row[self.name] for row in self.rows.values() if row[self.name] is not None]
        low = min([self.low + by, *map(int, held)])
        self.low, self.high = min(low, -1), max([1, *(int(one) + 1 for one in held)])
        self.world.change(self.text, exact=True)

    def rename(self) -> None:
        before, self.renames = self.name, self.renames + 1
        self.name = f"size{self.renames}"
        self.world.change(self.text, {self.name: before})
        for row in self.rows.values():
            row[self.name] = row.pop(before)

    def check(self) -> None:
        held = sorted({row[self.name] for row in self.rows.values() if row[self.name] is not None})
        near = held[:1] + held[len(held) // 2 :][:1] + held[-1:] + [Decimal(self.low)]
        fields = {self.name: self.body, "tag": {"type": "string"}}
        for value in near:
            for op in ("eq", "ne", "lt", "le", "gt", "ge"):
                where = {"field": self.name, "op": op, "value": value}
                certain, possible = self.world.ask(where)
                expected = {
                    row for row, one in self.rows.items() if oracle.holds(where, one, fields)
                }
                assert certain == possible == expected, where
        for row, one in self.rows.items():
            data = self.world.open(row).data
            assert data == {name: value for name, value in one.items() if value is not None}
            shown = data.get(self.name)
            if shown is not None:
                assert isinstance(shown, Decimal)
                assert shown.as_tuple().exponent == -self.precision
        self._check_order()
        self._check_measures(held)

    def parts(self) -> list[Candidates]:
        snapshot = self.world.ledger.snapshot()
        opened = self.world.opened()
        every = ((one, one.everything - snapshot.dead_rows(one.segment)) for one in opened)
        return [Candidates.of(one, Matches.exactly(rows), snapshot) for one, rows in every]

    def _check_order(self) -> None:
        order = [SortKey(self.name, descending=False)]
        found = first(self.parts(), order, Texts(), want=100)
        assert found is not None
        places = found.positions.tolist()
        values = [self.rows[self.world.row_at(place)][self.name] for place in places]
        present = [value for value in values if value is not None]
        assert values == [None] * (len(values) - len(present)) + sorted(present)
        assert len(values) == len(self.rows)

    def _check_measures(self, held: list[Decimal]) -> None:
        every = [row[self.name] for row in self.rows.values() if row[self.name] is not None]
        measures: list[dict[str, Any]] = [
            {"op": op, "field": self.name} for op in ("sum", "min", "max")
        ]
        measures.append({"op": "distinct", "field": self.name, "limit": 200})
        asked = parse_aggregation({"measures": measures}, self.world.compared)
        asking = aggregate(asked, self.world.compared, self.parts(), Texts())
        found = answer(asking, self.world.sealed)
        assert found is not None
        results = found.groups[0].results
        total, least, greatest, distinct = results
        assert total == (sum(every) if every else None)
        assert (least, greatest) == ((held[0], held[-1]) if held else (None, None))
        assert sorted(value["value"] for value in distinct["values"]) == held


numbers = st.lists(st.one_of(st.none(), st.decimals(-60, 60, places=2)), min_size=1, max_size=6)
steps = st.one_of(
    st.tuples(st.just("ingest"), numbers),
    st.tuples(st.just("kill"), st.integers(0, 20)),
    st.tuples(st.just("merge")),
    st.tuples(st.just("widen"), st.integers(0, 15), st.integers(0, 1)),
    st.tuples(st.just("narrow"), st.integers(0, 15)),
    st.tuples(st.just("rename")),
)


def new_model() -> Model:
    unborn = Model(None)  # type: ignore[arg-type] # only its text is asked for
    return Model(World(unborn.text, limits=SMALL))


@settings(max_examples=20)
@given(st.lists(steps, min_size=2, max_size=9))
def test_answers_are_those_of_plain_records_through_every_change(
    plan: list[tuple[Any, ...]],
) -> None:
    model = new_model()
    model.ingest([Decimal(1), Decimal(-20), None, Decimal(20), Decimal(3)])
    for name, *arguments in plan:
        getattr(model, name)(*arguments)
        model.check()
    kept = Ledger.restore(model.world.keys, bytes(16), decode(model.world.ledger.state().encode()))
    assert kept.history == model.world.ledger.history


def test_what_was_sealed_before_a_definition_that_demands_more_is_not_committed() -> None:
    model = new_model()
    model.ingest([Decimal(1)])
    world = model.world
    late = seal(world.ledger, world.definition, world.plain([{"size": Decimal(-20)}])).upload
    body = decode_commit_body(late.commit)
    model.widen(5, 1)
    assert world.ledger.draft(world.definition, groups=body.groups, segments=body.segments)
    model.narrow(10)
    with pytest.raises(StaleDefinition):
        world.ledger.draft(world.definition, groups=body.groups, segments=body.segments)


def test_a_merge_refuses_a_key_that_the_definition_does_not_allow() -> None:
    """What was proven does not hold: somebody with the key has lied, and no value is bent."""
    model = new_model()
    model.ingest([Decimal(-20), Decimal(1)])
    model.ingest([Decimal(2)])
    model.low, model.high = -5, 5
    model.world.change(model.text, exact=True)
    model.check()
    with pytest.raises(DoesNotOpen, match="outside of its field's bounds"):
        model.merge()

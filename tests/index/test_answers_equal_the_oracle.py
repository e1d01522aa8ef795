"""Whatever is asked, the index answers what the same question means on plain records."""

from __future__ import annotations

import itertools
import unicodedata
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto.values import is_long, order_bytes
from encrypted_records.index.query.condition import Condition
from encrypted_records.model.predicates import And, Or, matches
from encrypted_records.model.queries import parse_query
from tests import oracle
from tests.index.strategies import Case, cases
from tests.index.world import Row, World


def truth(case: Case, where: Any) -> set[Row]:
    return {
        (sequence, ordinal)
        for sequence, group in enumerate(case.groups)
        for ordinal, record in enumerate(group)
        if oracle.holds(where, record, case.fields)
    }


def may_be_unsure(where: Any, case: Case) -> bool:
    """Whether some comparison is of the kind that index keys of long strings cannot decide, or a
    phrase, or asks for words that rows have no room for."""
    if "op" not in where:
        parts = where.get("and") or where.get("or") or [where["not"]]
        return any(may_be_unsure(part, case) for part in parts)
    if case.fields[where["field"]]["type"] != "string":
        return False
    if where["op"] in ("has_words", "has_phrase") and "x-index" in case.fields[where["field"]]:
        texts = [record.get(where["field"]) or "" for record in case.records]
        return where["op"] == "has_phrase" or any(map(may_be_undecided, texts))
    if where["op"] in oracle.TEXT or where.get("fold"):
        held = (record.get(where["field"]) for record in case.records)
        return any(text is not None and is_long(order_bytes(text)) for text in held)
    if where["op"] not in ("lt", "le", "gt", "ge", "between", "prefix"):
        return False
    operands = where["value"] if isinstance(where["value"], list) else [where["value"]]
    return any(is_long(order_bytes(operand)) for operand in operands)


def may_be_undecided(text: str) -> bool:
    """Whether a text may have more words than room, or has a character that Unicode lacks."""
    return len(set(oracle.words(text))) > 10 or any(map(lacks, text))


def lacks(character: str) -> bool:
    return unicodedata.category(character) == "Cn"


def world_of(case: Case) -> World:
    world = World(case.text, limits=case.limits)
    for group in case.groups:
        world.ingest(group)
    return world


@given(cases())
def test_certain_rows_match_and_matching_rows_are_possible(case: Case) -> None:
    world = world_of(case)
    for where in case.asked:
        certain, possible = world.ask(where)
        expected = truth(case, where)
        assert certain <= expected <= possible
        if not may_be_unsure(where, case):
            assert certain == possible


@given(cases())
def test_checking_the_opened_records_decides_every_uncertain_row(case: Case) -> None:
    world = world_of(case)
    for where in case.asked:
        asked = parse_query({"where": where}, world.definition).where
        _, possible = world.ask(where)
        kept = {row for row in possible if matches(asked, world.open(row).data, world.definition)}
        assert kept == truth(case, where)


@given(cases(), st.data())
def test_dead_rows_are_in_no_answer_and_merging_changes_none(
    case: Case, data: st.DataObject
) -> None:
    world = world_of(case)
    everything = [(s, o) for s, group in enumerate(case.groups) for o in range(len(group))]
    doomed = st.lists(st.sampled_from(everything), unique=True)
    dead: set[Row] = set()

    def kill() -> None:
        rows = [row for row in data.draw(doomed) if row not in dead]
        world.kill(rows)
        dead.update(rows)

    def check() -> None:
        assert world.ledger.snapshot().count == len(everything) - len(dead)
        for where in case.asked:
            certain, possible = world.ask(where)
            assert certain <= truth(case, where) - dead <= possible
            if not may_be_unsure(where, case):
                assert certain == possible

    kill()
    check()
    world.merge()
    check()
    kill()
    check()
    # Merged rows are now both purged and dead, and groups lie behind a base.
    world.ingest(case.groups[0])
    case.groups.append(case.groups[0])
    everything += [(len(case.groups) - 1, o) for o in range(len(case.groups[0]))]
    world.merge()
    check()
    (segment,) = world.ledger.snapshot().segments
    assert segment.count == len(everything) - len(dead)
    assert segment.purged == len(dead)


@given(cases())
def test_what_directories_count_are_the_rows_that_match(case: Case) -> None:
    world = world_of(case)
    for where in case.asked:
        asked = parse_query({"where": where}, world.definition).where
        condition = Condition.of(asked, world.ledger.tails, world.definition)
        counts = []
        for segment in map(world.open_segment, world.ledger.snapshot().segments):
            world.fetch(segment, lambda: condition.missing_to_count(segment))  # noqa: B023
            counts.append(condition.count(segment))
        if isinstance(asked, And | Or) or may_be_unsure(where, case):
            continue
        if "not" not in where:
            assert None not in counts
        if None not in counts:
            assert sum(filter(None, counts)) == len(truth(case, where))


@given(cases())
def test_every_row_is_found_by_every_field_it_has(case: Case) -> None:
    world = world_of(case)
    rows = [(s, o, record) for s, group in enumerate(case.groups) for o, record in enumerate(group)]
    for (sequence, ordinal, record), name in itertools.product(rows, case.fields):
        value = record.get(name)
        where = {"field": name, "op": "is_null" if value is None else "eq", "value": value}
        certain, _ = world.ask(where)
        assert (sequence, ordinal) in certain


def test_a_field_younger_than_a_segment_is_absent_there() -> None:
    old = '{"type": "object", "properties": {"a": {"type": "string"}}}'
    new = old.replace('{"a"', '{"b": {"type": "string"}, "a"')
    world = World(old)
    world.ingest([{"a": "x"}, {"a": "y"}])
    world.change(new)
    world.ingest([{"a": "x", "b": "z"}])
    for _ in range(2):
        assert world.ask({"field": "b", "op": "is_null"})[0] == {(0, 0), (0, 1)}
        assert world.ask({"field": "b", "op": "eq", "value": "z"})[0] == {(1, 0)}
        assert world.ask({"field": "b", "op": "prefix", "value": ""})[1] == {(1, 0)}
        assert world.ask({"field": "a", "op": "eq", "value": "x"})[0] == {(0, 0), (1, 0)}
        world.merge()

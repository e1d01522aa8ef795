"""Whatever is asked, the index answers what the same question means on plain records."""

from __future__ import annotations

import unicodedata
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto.values import is_long, order_bytes
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

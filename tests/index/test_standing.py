"""Groups that stand for others: questions are answered alike, and nothing else passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import LogBroken
from encrypted_records.index.log.ledger import Ended, Ledger
from encrypted_records.ingest.seal import seal
from encrypted_records.model import wire
from encrypted_records.model.ciphertext_lengths import NUMBER_CLASS, LeastClass
from encrypted_records.model.definition import with_ids_for_types
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.ids import new_id
from encrypted_records.model.records import (
    Commit,
    CommitBody,
    KilledRows,
    LogEntry,
    ManifestDelta,
    PlainRecord,
)
from tests import oracle
from tests.index.strategies import Case, cases
from tests.index.test_ordering import Sorting
from tests.index.world import World
from tests.support.standing import stand

TEXT = (
    '{"type": "object", "properties":'
    ' {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "t": {"type": "string"}}}'
)
AS_TEXT = TEXT.replace('{"type": "integer", "minimum": 0, "maximum": 99}', '{"type": "string"}')
replace = msgspec.structs.replace


@given(cases(), st.data())
def test_questions_find_the_same_records_in_the_same_order_as_before(
    case: Case, data: st.DataObject
) -> None:
    world = World(case.text, limits=case.limits)
    for group in case.groups:
        world.ingest(group)
    total = len(case.records)
    rows = [(at, n) for at, group in enumerate(case.groups) for n in range(len(group))]
    dead = data.draw(st.lists(st.sampled_from(rows), unique=True))
    early = dead[: data.draw(st.integers(0, len(dead)))]
    if early:
        world.kill(early)
    before = answers(world, case)
    cuts = data.draw(st.lists(st.integers(1, total), max_size=2, unique=True))
    world.end(cuts=[at for at in cuts if at < total])
    assert answers(world, case) == before
    late = [
        world.row_at(sum(map(len, case.groups[:at])) + n) for at, n in dead if (at, n) not in early
    ]
    if late:
        world.end(late=late)
    living = [record for row, record in zip(rows, case.records, strict=True) if row not in dead]
    assert world.ledger.snapshot().count == len(living)
    for where in case.asked:
        certain, possible = world.ask(where)
        selected = sum(oracle.holds(where, record, case.fields) for record in living)
        assert len(certain) <= selected <= len(possible)


def answers(world: World, case: Case) -> list[Any]:
    """Records by id, in the order of a field."""
    first = next(iter(case.fields))
    found: list[Any] = []
    for where in case.asked:
        certain, possible = world.ask(where)
        found += [
            {world.open(row).record_id for row in certain},
            {world.open(row).record_id for row in possible},
        ]
    ordered = Sorting(world, [first]).rows(len(case.records))
    return [*found, [world.open(row).record_id for row in ordered]]


def test_a_page_goes_on_after_a_row_whose_group_has_ended_meanwhile() -> None:
    world = World(TEXT)
    for n in range(3):
        world.ingest([{"n": n, "t": "x"}, {"n": 50 + n, "t": "y"}])
    before = Sorting(world, ["-n"])
    page = before.first(2)
    ids = [world.open(world.row_at(at)).record_id for at in page.positions.tolist()]
    world.end(1, 3)
    assert [world.open(world.row_at(at)).record_id for at in page.positions.tolist()] == ids
    after = Sorting(world, ["-n"])
    rest = after.rows(9, page.sort_position(-1))
    assert [world.open(row).data["n"] for row in rest] == [50, 2, 1, 0]


def test_a_field_takes_another_type_where_all_groups_end() -> None:
    world = World(TEXT)
    world.ingest([{"t": "x"}, {"t": "y"}])
    world.ingest([{"t": "z"}])
    world.end(text=AS_TEXT)
    assert world.definition.fields["n"].type == "string"
    world.ingest([{"n": "twelve"}])
    certain, _ = world.ask({"field": "n", "op": "eq", "value": "twelve"})
    assert [world.open(row).data for row in certain] == [{"n": "twelve"}]
    assert len(world.ask({"field": "n", "op": "is_null"})[0]) == 3


def test_a_field_takes_no_other_type_while_a_group_stays() -> None:
    world = World(TEXT)
    world.ingest([{"t": "x"}])
    world.ingest([{"t": "z"}])
    with pytest.raises(LogBroken, match="something else"):
        world.end(0, 1, text=AS_TEXT)


def test_only_records_that_are_new_count_as_added() -> None:
    world = World(TEXT)
    world.ingest([{"n": 1}])
    exact = world.ledger.draft(world.definition, killed=[], exact=True, new_definition=True)
    body = wire.decode_commit_body(exact.commit)
    world.end()
    ledger = world.ledger
    behind = replace(
        body,
        counter=len(world.log) + 1,
        previous=wire.commit_digest(world.log[-1].commit),
        killed=[KilledRows(next(iter(ledger.snapshot().groups)), [(0, 1)])],
    )
    assert behind.seen == len(world.log) - 1
    extend(world, behind)


def test_a_restarted_reader_is_told_which_rows_moved_and_which_died_since() -> None:
    world = World(TEXT)
    for n in range(4):
        world.ingest([{"n": n}, {"n": n}])
    world.kill([(3, 0), (1, 1)])
    seen = len(world.log)
    world.kill([(3, 1), (2, 0)])
    world.end(1, 3)
    ledger = Ledger(world.keys, new_id())
    ledger.extend(world.delta(world.log, len(world.log)))
    ended = ledger.take_ended(seen)
    snapshot = ledger.snapshot()
    assert [snapshot.number(ref) for ref in ended.rows] == [7]
    assert ended.numbers == [range(2, 6)]
    assert ledger.take_ended(0) == Ended([], [], [])


def test_rows_that_moved_are_told_of_in_as_few_ranges_as_can_be() -> None:
    """Of each range pages and rows are dropped, and a crowd of groups is one."""
    world = World(TEXT)
    for n in range(9):
        world.ingest([{"n": n}])
    world.ledger.take_ended(0)
    # The later one comes first.
    world.end(6, 9)
    world.end(0, 4)
    assert world.ledger.take_ended(0).numbers == [range(0, 4), range(6, 9)]
    world.end(1, 3)
    assert world.ledger.take_ended(0).numbers == [range(4, 6)]


# --- what is refused ------------------------------------------------------------------------

Change = Callable[[World, CommitBody], dict[str, Any]]


@pytest.fixture(scope="module")
def world() -> World:
    """Four groups of two rows; the second row of the second is dead."""
    world = World(TEXT)
    for n in range(4):
        world.ingest([{"n": n}, {"n": n, "t": "x"}])
    world.kill([(1, 1)])
    return world


def honest(world: World) -> CommitBody:
    """Has one group stand for the second and the third."""
    standing = stand(world.ledger, world.definition, world.read, first=1, end=3)
    return wire.decode_commit_body(standing.draft(world.ledger).commit)


def extend(world: World, body: CommitBody) -> Ledger:
    ledger = Ledger(world.keys, new_id())
    ledger.extend(world.delta(world.log, len(world.log)))
    before = ledger.snapshot()
    encoded = wire.encode_commit_body(body)
    entry = LogEntry(len(world.log) + 1, Commit(encoded, world.key.log.compute(encoded), b""))
    delta = wire.encode([world.delta([entry], entry.version)])
    try:
        ledger.extend(wire.decode_single(delta, ManifestDelta))
    except LogBroken:
        assert ledger.snapshot() == before, "a refused commit must leave no trace"
        raise
    return ledger


def uid(world: World, sequence: int) -> bytes:
    return world.group_uids()[sequence]


def rows_of(body: CommitBody, *runs: tuple[int, int]) -> list[KilledRows]:
    return [KilledRows(body.groups[0].uid, list(runs))]


def longer(body: CommitBody) -> dict[str, Any]:
    group, segment = body.groups[0], body.segments[0]
    return {
        "groups": [replace(group, count=5)],
        "segments": [replace(segment, count=4)],
    }


def over_a_gap(world: World, body: CommitBody) -> dict[str, Any]:
    live = {segment.groups[0][0]: segment.uid for segment in world.ledger.snapshot().segments}
    return {
        "ended": [uid(world, 1), uid(world, 3)],
        "replaced": [live[uid(world, 1)], live[uid(world, 3)]],
    }


def classed(body: CommitBody, *classes: LeastClass) -> dict[str, Any]:
    return {"groups": [replace(body.groups[0], classes=list(classes))]}


def taken(world: World, body: CommitBody) -> dict[str, Any]:
    other = uid(world, 0)
    holes = [KilledRows(other, rows.runs) for rows in body.holes]
    return {"groups": [replace(body.groups[0], uid=other)], "holes": holes}


CASES: list[tuple[str, str, Change]] = [
    ("no groups that end", "and ends none", lambda w, b: {"ended": []}),
    ("a group that is not live", "not live", lambda w, b: {"ended": [*b.ended, bytes(16)]}),
    ("a group twice", "out of order", lambda w, b: {"ended": [b.ended[0], *b.ended]}),
    ("another order", "out of order", lambda w, b: {"ended": b.ended[::-1]}),
    ("a group left out", "other rows than", lambda w, b: {"ended": b.ended[1:]}),
    ("a row too many", "other rows than", lambda w, b: longer(b)),
    ("no group that stands", "other rows than", lambda w, b: {"groups": [], "holes": []}),
    ("groups with another between them", "not neighbours", over_a_gap),
    ("a segment that stays", "does not replace", lambda w, b: {"replaced": b.replaced[1:]}),
    ("a dead row that lives", "other rows are dead", lambda w, b: {"holes": []}),
    ("a live row left out", "other rows are", lambda w, b: {"holes": rows_of(b, (0, 2))}),
    ("another row left out", "other rows are", lambda w, b: {"holes": rows_of(b, (0, 1))}),
    ("a live row killed", "other rows are", lambda w, b: {"killed": rows_of(b, (0, 1))}),
    ("a hole that is killed", "other rows are", lambda w, b: {"killed": rows_of(b, (1, 1))}),
    ("holes beyond the group", "of others", lambda w, b: {"holes": rows_of(b, (1, 4))}),
    ("holes out of order", "out of order", lambda w, b: {"holes": rows_of(b, (1, 1), (0, 1))}),
    ("holes twice", "twice", lambda w, b: {"holes": rows_of(b, (1, 1)) * 2}),
    (
        "a row of another group killed",
        "of others",
        lambda w, b: {"killed": [KilledRows(uid(w, 0), [(0, 1)])]},
    ),
    (
        "a lower length class",
        "lower length class",
        lambda w, b: classed(b, NUMBER_CLASS, LeastClass(16, 0)),
    ),
    ("a request", "stores a request", lambda w, b: {"requests": [bytes(16)]}),
    ("a group that lives", "group that exists", taken),
]


@pytest.mark.parametrize(("message", "change"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_groups_that_do_not_stand_for_those_that_end_break_the_log(
    world: World, message: str, change: Change
) -> None:
    body = honest(world)
    with pytest.raises(LogBroken, match=message):
        extend(world, replace(body, **change(world, body)))


def test_the_same_commit_unchanged_is_taken_and_a_higher_class_as_well(world: World) -> None:
    body = honest(world)
    higher = replace(body, **classed(body, NUMBER_CLASS, LeastClass(48, 0)))
    for one in (body, higher):
        ledger = extend(world, one)
        assert ledger.snapshot().count == world.ledger.snapshot().count
        assert [group.count for group in ledger.snapshot().in_order] == [2, 4, 2]


def test_all_is_sealed_again_where_a_commit_ends_all_and_is_exact(world: World) -> None:
    every = stand(world.ledger, world.definition, world.read).draft(world.ledger)
    body = wire.decode_commit_body(every.commit)
    assert extend(world, body).resealed.version == 0
    ledger = extend(world, replace(body, exact=1))
    assert ledger.resealed.version == ledger.version == len(world.log) + 1
    assert extend(world, replace(honest(world), exact=1)).resealed.version == 0

    stored = seal(world.ledger, world.definition, world.plain([{"n": 1}])).upload
    late = wire.decode_commit_body(stored.commit)
    behind = replace(late, writer=new_id(), counter=1, previous=bytes(32))
    assert extend(world, behind).version == ledger.version, "it fits the log before"
    encoded = wire.encode_commit_body(behind)
    entry = LogEntry(ledger.version + 1, Commit(encoded, world.key.log.compute(encoded), b""))
    with pytest.raises(LogBroken, match="has not seen that all was sealed again"):
        ledger.extend(world.delta([entry], entry.version))


def test_a_definition_follows_the_one_that_its_writer_has_seen() -> None:
    """Where another came in between, an id of both would name two fields."""
    world = World(TEXT)
    world.ingest([{"n": 1}])
    fewer = parse_definition(b'{"type": "object", "properties": {"n": {"type": "string"}}}')
    new = with_ids_for_types(fewer.following(world.definition), world.definition)
    standing = stand(world.ledger, new, lambda ref: replace_n(world.read(ref)))
    before = standing.draft(world.ledger)
    world.change(TEXT.replace('"t"', '"more": {"type": "string"}, "t"'))
    now = wire.decode_commit_body(standing.draft(world.ledger).commit)
    then = wire.decode_commit_body(before.commit)
    with pytest.raises(LogBroken, match="does not follow from"):
        extend(world, replace(now, seen=then.seen, seen_digest=then.seen_digest))


def test_a_definition_that_seals_nothing_again_follows_the_one_that_its_writer_has_seen() -> None:
    """Else an API could store two in another order than they were made in, and have the values of
    one's new field shown under the name of the other's."""
    world = World(TEXT)
    world.ingest([{"n": 1}])
    before = wire.decode_commit_body(world.ledger.draft(world.definition).commit)
    world.change(TEXT.replace('"t"', '"more": {"type": "string"}, "t"'))
    both = TEXT.replace('"t"', '"extra": {"type": "string"}, "more": {"type": "string"}, "t"')
    first = parse_definition(TEXT.encode())
    new = parse_definition(both.encode()).following(first)
    assert new.follows(world.definition), "its ids do not tell"
    body = wire.decode_commit_body(world.ledger.draft(new, new_definition=True).commit)
    assert extend(world, body).version == world.ledger.version + 1
    with pytest.raises(LogBroken, match="does not follow from"):
        extend(world, replace(body, seen=before.seen, seen_digest=before.seen_digest))


def replace_n(record: PlainRecord) -> PlainRecord:
    return PlainRecord(record.record_id, record.version, {"n": str(record.data["n"])})

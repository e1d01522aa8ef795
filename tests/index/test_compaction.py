"""Groups that become one while their segment stays: every question is answered as before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import CheckpointBroken, DoesNotOpen
from encrypted_records.index.log import checkpoint
from encrypted_records.index.log.order import Begun
from encrypted_records.index.segments.merge import merge
from encrypted_records.index.segments.merge_policy import Crowd, Crowds, CrowdSizes
from tests import oracle
from tests.index.strategies import Case, cases
from tests.index.test_checkpoints import contents, go_on, made, taken
from tests.index.test_ordering import Sorting
from tests.index.test_standing import answers
from tests.index.world import World

TEXT = '{"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}}'
SMALL = CrowdSizes(few=3, small=(2, 5), rows=8, groups=4)


def crowded(*counts: int) -> World:
    """One segment over groups of so many rows, each row with a number of its own."""
    world = World(TEXT)
    at = 0
    for count in counts:
        world.ingest([{"n": number} for number in range(at, at + count)])
        at += count
    world.merge()
    return world


def numbers(world: World) -> list[Any]:
    """The values of all live rows in the order of storing."""
    snapshot = world.ledger.snapshot()
    live = snapshot.live_between(0, snapshot.stored)
    return [world.read(ref).data["n"] for ref in live]


@given(cases(), st.data())
def test_whatever_is_merged_and_made_one_questions_find_what_they_found_before(
    case: Case, data: st.DataObject
) -> None:
    world = World(case.text, limits=case.limits)
    for group in case.groups:
        world.ingest(group)
    world.merge(reverse=data.draw(st.booleans()))
    total = len(case.records)
    dead: list[int] = []
    for _ in range(data.draw(st.integers(1, 4))):
        living = [at for at in range(total) if at not in dead]
        gone = data.draw(st.lists(st.sampled_from(living), unique=True)) if living else []
        late = gone[: data.draw(st.integers(0, len(gone)))]
        if early := gone[len(late) :]:
            world.kill(map(world.row_at, early))
        dead += early
        runs = possible(world)
        before = answers(world, case)
        if runs:
            world.compact(*data.draw(st.sampled_from(runs)), late=map(world.row_at, late))
            dead += late
        if not (runs and late):
            assert answers(world, case) == before
        if data.draw(st.booleans()):
            before = answers(world, case)
            world.merge(reverse=data.draw(st.booleans()))
            assert answers(world, case) == before
    assert world.ledger.snapshot().count == total - len(dead)
    records = [record for at, record in enumerate(case.records) if at not in dead]
    for where in case.asked:
        certain, possible_rows = world.ask(where)
        selected = sum(oracle.holds(where, record, case.fields) for record in records)
        assert len(certain) <= selected <= len(possible_rows)


def possible(world: World) -> list[tuple[int, int]]:
    """All runs of groups that can become one: by their places in the order of the log."""
    snapshot = world.ledger.snapshot()
    found = []
    for segment in snapshot.segments:
        own = [snapshot.groups[uid].sequence for uid, _ in snapshot.groups_of(segment)]
        for at, first in enumerate(own):
            end = at
            while end < len(own) and own[end] == first + end - at:
                end += 1
                found.append((first, first + end - at))
    return found


def test_a_page_goes_on_after_a_row_whose_group_has_become_another() -> None:
    world = crowded(2, 2, 2)
    before = Sorting(world, ["-n"])
    page = before.first(2)
    world.compact(0, 2)
    after = Sorting(world, ["-n"])
    rest = after.rows(9, page.sort_position(-1))
    assert [world.open(row).data["n"] for row in rest] == [3, 2, 1, 0]


def test_a_merge_takes_the_groups_that_its_inputs_have_by_now_and_leaves_holes_out() -> None:
    world = crowded(2, 2, 2)
    opened = world.opened()  # as a cache has it, from before
    world.kill([(1, 0)])
    world.compact(0, 2)
    snapshot = world.ledger.snapshot()
    built = merge(world.key, world.definition, opened, snapshot)
    assert [base for _, base in built.segment.groups] == [0, 4]
    assert (built.segment.count, built.segment.purged) == (5, 1)
    world.merge()
    assert numbers(world) == [0, 1, 3, 4, 5]
    world.compact(0, 2)
    assert numbers(world) == [0, 1, 3, 4, 5]


def test_the_header_is_held_against_the_groups_that_its_commit_names() -> None:
    world = crowded(1, 1, 1)
    world.compact(0, 3)
    (segment,) = world.ledger.snapshot().segments
    assert len(segment.groups) == 3
    world.open_segment(segment)
    ((uid, _),) = world.ledger.snapshot().groups_of(segment)
    other = type(segment)(
        **{name: getattr(segment, name) for name in segment.__struct_fields__}
        | {"groups": [(uid, 0)]}
    )
    with pytest.raises(DoesNotOpen, match="other groups"):
        world.open_segment(other)


def test_a_checkpoint_says_which_groups_a_segment_has_by_now() -> None:
    world = crowded(2, 2, 2)
    world.kill([(1, 0)])
    world.compact(0, 2)
    began = taken(made(world.ledger), world.ledger)
    assert contents(began) == contents(world.ledger)
    world.compact(0, 2)
    world.merge()
    go_on(began, world)
    assert contents(began) == contents(world.ledger)


Laid = list[tuple[bytes, list[tuple[bytes, int]]]]
LIES: dict[str, Callable[[Laid], Laid]] = {
    "groups of before": lambda _: [],
    "of no segment": lambda laid: [*laid, (bytes(16), laid[0][1])],
    "of one twice": lambda laid: laid * 2,
    "a group left out": lambda laid: [(laid[0][0], laid[0][1][1:])],
    "another place": lambda laid: [(laid[0][0], [(uid, at + 1) for uid, at in laid[0][1]])],
    "another order": lambda laid: [(laid[0][0], laid[0][1][::-1])],
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_checkpoint_that_says_other_groups_is_refused(lie: Callable[[Laid], Laid]) -> None:
    world = crowded(2, 2, 1)
    world.compact(0, 2)
    state = msgspec.msgpack.decode(contents(world.ledger))
    state[-1] = lie([(uid, [(group, base) for group, base in own]) for uid, own in state[-1]])
    head, begun = world.ledger.head, Begun(world.ledger.version, bytes(16), bytes(32))
    with pytest.raises(CheckpointBroken):
        checkpoint.decode(msgspec.msgpack.encode(state), head.version, head.digest, begun)


# --- which groups become one --------------------------------------------------------------------


def found(world: World, crowds: Crowds | None = None) -> list[int] | None:
    """The numbers of the groups that are chosen next."""
    snapshot = world.ledger.snapshot()
    crowd = (crowds or Crowds(SMALL)).find(snapshot)
    if crowd is None:
        return None
    chosen = [snapshot.groups[uid] for uid in crowd.groups]
    assert crowd.first == snapshot.starts[chosen[0].sequence]
    assert crowd.end == crowd.first + sum(one.group.count for one in chosen)
    return [one.sequence for one in chosen]


def test_few_groups_and_large_ones_are_left_alone() -> None:
    assert found(crowded(1, 1)) is None
    assert found(crowded(1, 1, 1)) == [0, 1, 2]
    assert found(crowded(5, 5, 5)) is None
    assert found(crowded(1, 1, 5, 1)) is None
    assert found(crowded(1, 1, 5, 1, 1, 1)) == [3, 4, 5]


def test_no_more_become_one_than_fit_and_small_ones_come_before_larger_ones() -> None:
    assert found(crowded(*[1] * 6)) == [0, 1, 2, 3]
    assert found(crowded(4, 4, 4)) == [0, 1]
    assert found(crowded(4, 4, 1, 1, 1)) == [2, 3, 4]


def test_groups_that_others_lie_between_are_no_neighbours() -> None:
    world = World(TEXT)
    for number in range(4):
        world.ingest([{"n": number}])
    world.merge(reverse=True)
    assert found(world) is None
    world.merge()
    assert found(world) is None, "a merge of one segment keeps its order"


def test_a_segment_without_any_is_not_looked_at_again_until_it_has_other_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[bytes] = []
    original = Crowds._find

    def find(self: Crowds, snapshot: Any, segment: Any, own: Any) -> Crowd | None:
        looked.append(segment.uid)
        return original(self, snapshot, segment, own)

    monkeypatch.setattr(Crowds, "_find", find)
    world, crowds = crowded(5, 5, 5), Crowds(SMALL)
    assert [found(world, crowds) for _ in range(3)] == [None] * 3
    assert len(looked) == 1
    world.ingest([{"n": 1}])
    assert found(world, crowds) is None
    assert len(looked) == 1
    world.merge()
    assert found(world, crowds) is None
    assert len(looked) == 2


def test_as_many_groups_as_ingests_become_few_and_no_row_is_sealed_often() -> None:
    """Each of one record, as they come: a merge for four, and what may become one becomes one."""
    world, crowds = World(TEXT), Crowds(CrowdSizes(few=4, small=(4, 16), rows=64, groups=16))
    sealed, most = 0, 0
    for number in range(96):
        world.ingest([{"n": number}])
        if len(world.ledger.snapshot().segments) > 4:
            world.merge()
        while crowd := crowds.find(world.ledger.snapshot()):
            sealed += crowd.end - crowd.first
            first = world.ledger.snapshot().groups[crowd.groups[0]].sequence
            world.compact(first, first + len(crowd.groups))
        most = max(most, len(world.ledger.snapshot().groups))
    assert numbers(world) == list(range(96))
    assert most <= 16
    assert sealed <= 2 * 96

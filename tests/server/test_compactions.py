"""Groups that become one while their segment stays: the API holds a commit to what readers do."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from encrypted_records.model.records import RowBatch, RowRef
from tests.server.api import Account
from tests.server.staged import Job
from tests.server.standing_model import Model, New, digested
from tests.server.test_erasing import erase
from tests.server.test_standing import assert_is, rows
from tests.server.writer import Writer, group_of, pages_of, person, segment_over
from tests.support.eventually import eventually

replace = msgspec.structs.replace


def merge(model: Model, order: list[int] | None = None) -> None:
    """All groups into one segment, in some order."""
    groups = [model.groups[at] for at in order or range(len(model.groups))]
    purged = sum(group.dead for group in groups)
    segment = segment_over([(group.uid, len(group.slots)) for group in groups], purged=purged)
    names = [segment.uid for segment in model.segments]
    model.writer.send(
        model.writer.make(segments=[segment], pages=pages_of(segment), replaced=names)
    )
    model.segments = [segment]


def members(new: New) -> dict[str, Any]:
    return new.members() | {"segments": [], "pages": [], "replaced": []}


def take(model: Model, new: New) -> None:
    """What the compaction does."""
    ended = set(new.ended)
    at = next(i for i, one in enumerate(model.segments) if {uid for uid, _ in one.groups} & ended)
    before = model.segments[at]
    own = [(uid, base) for uid, base in before.groups if uid not in ended]
    base = min(base for uid, base in before.groups if uid in ended)
    laid = sorted([*own, (new.groups[0].uid, base)], key=lambda one: one[1])
    model.take(new)
    model.segments.pop()  # the one that the model made for a commit that replaces
    others = [segment for segment in model.segments if segment.uid != before.uid]
    model.segments = [*others, replace(before, groups=laid)]


def compact(model: Model, first: int, end: int, **more: Any) -> None:
    new = model.stand([(first, end)], **more)
    model.writer.send(model.writer.make(**members(new)))
    take(model, new)


@pytest.fixture
def model(ada: Account) -> Model:
    """Four groups of three rows in one segment, of which one is dead."""
    model = Model(Writer(ada, ada.new_schema()))
    for _ in range(4):
        model.add([person(), person(), person()])
    merge(model)
    model.kill([model.groups[1].rows[0][0]])
    return model


def test_rows_keep_their_places_ids_and_versions_while_the_index_stays(model: Model) -> None:
    before = [slot.row for _, slot in model.live()]
    segment = model.segments[0].uid
    compact(model, 0, 2)
    assert_is(model)
    compact(model, 1, 3)
    compact(model, 0, 2)
    assert_is(model)
    assert [slot.row for _, slot in model.live()] == before
    assert [segment.uid for segment in model.segments] == [segment]
    merge(model)
    assert_is(model)
    model.kill([model.live()[0][0]])
    model.add([person()])
    assert_is(model)


def test_a_group_that_came_so_may_become_another_in_its_own_place_alone(model: Model) -> None:
    """The API finds where it lies from the commits that brought it."""
    compact(model, 1, 3)
    compact(model, 1, 3)
    merge(model, [1, 0])
    new = model.stand([(0, 2)])
    assert model.writer.refused(model.writer.make(**members(new))) == (400, "invalid_commit")
    assert_is(model)


Wrong = Callable[[Model, New], dict[str, Any]]
WRONG: list[tuple[str, tuple[int, str], Wrong]] = [
    (
        "a segment",
        (400, "invalid_commit"),
        lambda m, n: {"segments": [n.segment], "pages": n.pages},
    ),
    ("exact", (400, "invalid_commit"), lambda m, n: {"exact": 1}),
    ("a definition", (400, "invalid_commit"), lambda m, n: {"definition_text": m.writer.canonical}),
    ("a request", (400, "invalid_commit"), lambda m, n: {"requests": [bytes(16)]}),
    ("no group", (400, "invalid_commit"), lambda m, n: {"groups": [], "rows": [], "holes": []}),
    ("another order", (400, "invalid_commit"), lambda m, n: {"ended": n.ended[::-1]}),
    ("a gap", (400, "invalid_commit"), lambda m, n: {"ended": [n.ended[0], m.groups[2].uid]}),
    (
        "a group that is none",
        (409, "group_not_live"),
        lambda m, n: {"ended": [*n.ended, bytes(16)]},
    ),
    ("a row that died left out", (409, "group_not_live"), lambda m, n: _without_hole(n)),
    ("a live row killed", (409, "group_not_live"), lambda m, n: _killing(n)),
]


def _without_hole(new: New) -> dict[str, Any]:
    batch = new.batches[0]
    filled = [person() if row is None else row for row in batch.rows]
    return {"rows": [replace(batch, rows=filled)], "holes": []}


def _killing(new: New) -> dict[str, Any]:
    return {"killed": [RowRef(new.groups[0].uid, 0)]}


@pytest.mark.parametrize(
    ("refused", "wrong"), [one[1:] for one in WRONG], ids=[one[0] for one in WRONG]
)
def test_a_compaction_that_does_more_or_something_else_is_refused(
    model: Model, refused: tuple[int, str], wrong: Wrong
) -> None:
    new = model.stand([(0, 2)])
    upload = model.writer.make(**digested(members(new) | wrong(model, new)))
    assert model.writer.refused(upload) == refused
    assert_is(model)
    model.writer.send(model.writer.make(**members(new)))
    take(model, new)
    assert_is(model)


def test_groups_of_two_segments_do_not_become_one(ada: Account) -> None:
    model = Model(Writer(ada, ada.new_schema()))
    for _ in range(2):
        model.add([person()])
    new = model.stand([(0, 2)])
    assert model.writer.refused(model.writer.make(**members(new))) == (400, "invalid_commit")
    assert_is(model)


def test_a_group_never_becomes_two_while_its_segment_stays(model: Model) -> None:
    new = model.stand([(0, 2)], cuts=[2])
    assert model.writer.refused(model.writer.make(**members(new))) == (400, "invalid_commit")
    assert_is(model)


def test_a_merge_that_did_not_see_it_is_told_so_and_goes_through_with_the_groups_of_now(
    model: Model,
) -> None:
    groups = [(group.uid, len(group.slots)) for group in model.groups]
    merged = segment_over(groups, purged=1)
    late: dict[str, Any] = {
        "segments": [merged],
        "pages": pages_of(merged),
        "replaced": [model.segments[0].uid],
    }
    compact(model, 0, 2)
    assert model.writer.refused(model.writer.make(**late)) == (409, "group_not_live")
    assert_is(model)
    merge(model)
    assert_is(model)


@pytest.mark.both_databases
def test_of_two_compactions_of_the_same_groups_the_second_is_told_so(model: Model) -> None:
    first, second = model.stand([(0, 2)]), model.stand([(1, 3)])
    model.writer.send(model.writer.make(**members(first)))
    take(model, first)
    refused = model.writer.refused(model.writer.make(**members(second)))
    assert refused == (409, "group_not_live")
    assert_is(model)


def test_a_row_that_dies_meanwhile_must_be_named(model: Model) -> None:
    new = model.stand([(0, 2)])
    doomed = model.groups[0].rows[1][0]
    model.kill([doomed])
    assert model.writer.refused(model.writer.make(**members(new))) == (409, "group_not_live")
    killed = [RowRef(new.groups[0].uid, 1)]
    model.writer.send(model.writer.make(**(members(new) | {"killed": killed})))
    take(model, new)
    model.die(killed)
    assert_is(model)


def test_its_rows_may_be_staged_and_what_its_group_ended_is_read_a_little_longer(
    model: Model,
) -> None:
    old = [ref for group in model.groups[:2] for ref, slot in group.rows]
    before = rows(model, old)
    new = model.stand([(0, 2)])
    stated = digested(members(new))
    job = Job(model.writer)
    (batch,) = new.batches
    assert job.post(job.part(0, stated["groups"], [], [batch])).code == "invalid_commit"
    job.stage(job.part(0, stated["groups"], [], [batch], stands=1))
    of_commit = {name: stated[name] for name in ("groups", "killed", "replaced", "ended", "holes")}
    commit = job.commit(**of_commit)
    assert job.publish(commit).status == 201
    model.writer.follow(commit)
    take(model, new)
    assert_is(model)
    assert rows(model, old) == before


def test_an_erasure_takes_with_it_what_a_compaction_has_copied(model: Model) -> None:
    new = model.stand([(0, 2)])
    stated = digested(members(new))
    copy, other = Job(model.writer), Job(model.writer)
    copy.stage(copy.part(0, stated["groups"], [], list(new.batches), stands=1))
    other.stage(other.adding(0, [person()]))
    model.kill([model.groups[0].rows[1][0]])
    erase(model.writer)
    of_commit = {name: stated[name] for name in ("groups", "killed", "replaced", "ended", "holes")}
    of_commit["killed"] = [RowRef(new.groups[0].uid, 1)]
    assert copy.publish(copy.commit(**of_commit)).code == "staging_gone"
    assert other.publish(other.commit()).status == 201


def test_a_row_that_was_erased_before_its_group_ended_goes_at_once(model: Model) -> None:
    new = model.stand([(0, 2)])
    model.kill([model.groups[0].rows[1][0]])
    erase(model.writer)
    killed = [RowRef(new.groups[0].uid, 1)]
    model.writer.send(model.writer.make(**(members(new) | {"killed": killed})))
    url = f"{model.writer.schema['url']}erasure/"
    eventually(lambda: model.writer.account.call("GET", url).json()["rows"] == 0)


def test_the_audit_log_tells_it_from_records_that_are_sealed_again(model: Model) -> None:
    compact(model, 0, 4)
    organization = model.writer.account.organization
    told = model.writer.account.call("GET", f"{organization}audit-log/").json()["results"]
    own = [one["action"] for one in told if one["subject"] == model.writer.schema["url"]]
    assert own[0] == "records.compacted"


@pytest.mark.both_databases
@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_added_killed_merged_and_made_one_the_api_shows_what_a_plain_model_holds(
    ada: Account, seed: int
) -> None:
    chance = random.Random(seed)
    model = Model(Writer(ada, ada.new_schema()), chance)
    model.add([person(), person()])
    for _ in range(16):
        step = chance.choice(["add", "add", "kill", "merge", "compact", "compact"])
        live = model.live()
        if step == "add" or not live:
            model.add([person() for _ in range(chance.randint(1, 3))])
        elif step == "kill":
            model.kill([ref for ref, _ in chance.sample(live, 1)])
        elif step == "merge":
            merge(model)
        elif runs := _runs(model):
            first, end = chance.choice(runs)
            compact(model, first, end)
        assert_is(model)


def _runs(model: Model) -> list[tuple[int, int]]:
    """Runs of groups that are neighbours in one segment and in the order of storing."""
    sequence = {one.uid: at for at, one in enumerate(model.groups)}
    found = []
    for segment in model.segments:
        own = [sequence[uid] for uid, _ in segment.groups]
        for at, first in enumerate(own):
            end = at + 1
            while end < len(own) and own[end] == first + end - at:
                end += 1
                found.append((first, first + end - at))
    return found


def test_a_group_of_another_account_is_not_live(model: Model, bob: Account) -> None:
    theirs = Model(Writer(bob, bob.new_schema()))
    theirs.add([person()])
    row = person()
    group = group_of([row])
    stated = {"groups": [group], "rows": [RowBatch(group.uid, 0, [row])]}
    upload = model.writer.make(**digested(stated), ended=[theirs.groups[0].uid])
    assert model.writer.refused(upload) == (409, "group_not_live")
    assert_is(theirs)

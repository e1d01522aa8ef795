"""Groups that a commit ends: others stand for them, row by row, or the API refuses the commit."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model.ciphertext_lengths import NUMBER_CLASS, LeastClass
from encrypted_records.model.records import KilledRows, RowBatch, RowRef, SealedRow, StoredRow
from tests.server.api import PERSON, Account, Api
from tests.server.staged import Job
from tests.server.standing_model import Model, New, digested
from tests.server.test_sweeping import literal
from tests.server.writer import FRAMES, Writer, body_of, pages_of, person, segment_over
from tests.support.eventually import eventually

replace = msgspec.structs.replace
WIDER = (LeastClass(48, 0), NUMBER_CLASS)


@pytest.fixture
def model(ada: Account) -> Model:
    """Three groups of three rows, of which two are dead, and one was changed."""
    model = Model(Writer(ada, ada.new_schema()))
    for _ in range(2):
        model.add([person(), person(), person()])
    ref, slot = model.groups[0].rows[1]
    assert slot.row is not None
    model.change(ref, slot.row)
    model.add([person(), person()])
    model.kill([model.groups[1].rows[0][0]])
    return model


def rows(model: Model, refs: list[RowRef]) -> tuple[int, list[StoredRow]]:
    path = f"{model.writer.schema['url']}rows/"
    answer = model.writer.account.call("POST", path, wire.encode(refs), **FRAMES)
    if answer.status != 200:
        assert answer.code == "row_gone"
        return answer.status, []
    return 200, wire.decode_all(answer.body, StoredRow)


def assert_is(model: Model) -> None:
    """What the API shows is what the model holds, in its order."""
    path = f"/api/records/?schema={model.writer.schema['id']}"
    shown = model.writer.account.call("GET", path).json()
    live = model.live()
    assert shown["count"] == len(live)
    places = [(result["group"], result["ordinal"]) for result in shown["results"]]
    assert places == [(ref.group.hex(), ref.ordinal) for ref, _ in live]
    assert [(result["id"], result["version"]) for result in shown["results"]] == [
        (ids.to_text(slot.row.record_id), slot.row.version) for _, slot in live if slot.row
    ]
    every = [(ref, slot) for group in model.groups for ref, slot in group.rows]
    status, found = rows(model, [ref for ref, slot in every if slot.row is not None])
    assert status == 200
    assert [(one.row.record_id, one.row.version) for one in found] == [
        (slot.row.record_id, slot.row.version) for _, slot in every if slot.row is not None
    ]
    for ref, slot in every:
        if slot.row is None:
            assert rows(model, [ref])[0] == 404
    stored = model.writer.account.call("GET", f"{path}&dead=true").json()
    assert stored["count"] == len(every)
    assert len(stored["results"]) == sum(slot.row is not None for _, slot in every)


@pytest.mark.both_databases
@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_added_killed_and_ended_the_api_shows_what_a_plain_model_holds(
    ada: Account, seed: int
) -> None:
    chance = random.Random(seed)
    model = Model(Writer(ada, ada.new_schema()), chance)
    for _ in range(14):
        step = chance.choice(["add", "kill", "change", "end", "end"])
        live = model.live()
        if step == "add" or not live:
            model.add([person() for _ in range(chance.randint(1, 5))])
        elif step == "kill":
            model.kill([ref for ref, _ in chance.sample(live, chance.randint(1, len(live)))])
        elif step == "change":
            ref, slot = chance.choice(live)
            assert slot.row is not None
            model.change(ref, slot.row)
        else:
            _end_some(model, chance)
        assert_is(model)


def _end_some(model: Model, chance: random.Random) -> None:
    edges = sorted(chance.sample(range(len(model.groups) + 1), k=min(4, len(model.groups) + 1)))
    runs = list(zip(edges[::2], edges[1::2], strict=False))
    total = sum(len(model.groups[at].slots) for first, end in runs for at in range(first, end))
    cuts = chance.sample(range(1, total), k=min(2, total - 1)) if total > 1 else []
    late: list[RowRef] = []
    live = [ref for ref, _ in model.live()]
    ending = {model.groups[at].uid for first, end in runs for at in range(first, end)}
    if live and chance.random() < 0.5:
        doomed = chance.sample(live, 1)
        model.kill(doomed)
        late = [ref for ref in doomed if ref.group in ending]
    new = model.stand(runs, cuts, late=late)
    model.writer.send(model.writer.make(**new.members()))
    model.take(new)


def test_rows_keep_their_ids_versions_and_places_and_lie_elsewhere(model: Model) -> None:
    before = [slot.row for _, slot in model.live()]
    new = model.stand([(0, 4)], cuts=[2, 5])
    model.writer.send(model.writer.make(**new.members()))
    model.take(new)
    assert_is(model)
    assert [slot.row for _, slot in model.live()] == before
    ref, slot = model.live()[0]
    assert slot.row is not None
    url = f"/api/records/{ids.to_text(slot.row.record_id)}/"
    shown = model.writer.account.call("GET", url)
    assert (shown.json()["group"], shown.json()["ordinal"]) == (ref.group.hex(), ref.ordinal)
    assert shown.headers["ETag"] == f'"{slot.row.version}"'


Wrong = Callable[[Model, New], dict[str, Any]]


def _with(new: New, at: int, row: SealedRow | None) -> list[RowBatch]:
    """The rows of the first group, with another one."""
    batch, *others = new.batches
    return [replace(batch, rows=[*batch.rows[:at], row, *batch.rows[at + 1 :]]), *others]


def _first_row(new: New, **changes: Any) -> dict[str, Any]:
    return {"rows": _with(new, 0, replace(new.batches[0].present[0], **changes))}


def _swapped(new: New) -> dict[str, Any]:
    batch, *others = new.batches
    one, two, three, *left = batch.rows
    return {"rows": [replace(batch, rows=[three, two, one, *left]), *others]}


def _without_a_live_row(new: New) -> dict[str, Any]:
    return {"rows": _with(new, 0, None), "holes": [RowRef(new.held[0].uid, 0), *new.holes]}


def _with_a_dead_row(new: New) -> dict[str, Any]:
    hole, *others = new.holes
    return {"rows": _with(new, hole.ordinal, person()), "holes": others}


def _with_a_row_in_a_hole(new: New) -> dict[str, Any]:
    return {"rows": _with(new, new.holes[0].ordinal, person())}


WRONG: list[tuple[str, str, Wrong]] = [
    ("another id", "invalid_commit", lambda m, n: _first_row(n, record_id=ids.new_id())),
    ("another version", "invalid_commit", lambda m, n: _first_row(n, version=7)),
    ("rows exchanged", "invalid_commit", lambda m, n: _swapped(n)),
    ("a live row left out", "group_not_live", lambda m, n: _without_a_live_row(n)),
    ("a dead row brought back", "group_not_live", lambda m, n: _with_a_dead_row(n)),
    ("a row in a hole", "invalid_commit", lambda m, n: _with_a_row_in_a_hole(n)),
    ("a row killed beside", "invalid_commit", lambda m, n: {"killed": [m.groups[3].rows[0][0]]}),
    ("a live row killed", "group_not_live", lambda m, n: {"killed": [RowRef(n.held[0].uid, 0)]}),
    ("a group that is not there", "group_not_live", lambda m, n: {"ended": [*n.ended, bytes(16)]}),
    ("a group left out", "invalid_commit", lambda m, n: {"ended": n.ended[1:]}),
    ("a group twice", "invalid_commit", lambda m, n: {"ended": [*n.ended, n.ended[0]]}),
    ("another order", "invalid_commit", lambda m, n: {"ended": n.ended[::-1]}),
    ("no groups that end", "invalid_commit", lambda m, n: {"ended": []}),
    ("a segment that stays", "group_not_live", lambda m, n: {"replaced": n.replaced[1:]}),
    ("a request", "invalid_commit", lambda m, n: {"requests": [bytes(16)]}),
]


@pytest.mark.parametrize(("code", "wrong"), [one[1:] for one in WRONG], ids=[w[0] for w in WRONG])
def test_groups_that_do_not_stand_for_those_that_end_are_refused(
    model: Model, code: str, wrong: Wrong
) -> None:
    new = model.stand([(0, 2)])
    upload = model.writer.make(**digested(new.members() | wrong(model, new)))
    assert model.writer.refused(upload)[1] == code
    assert_is(model)
    model.writer.send(model.writer.make(**new.members()))
    model.take(new)
    assert_is(model)


def test_a_group_never_reaches_over_one_that_stays(model: Model) -> None:
    new = model.stand([(0, 1), (2, 4)])
    joined = model.stand([(0, 1)])
    every = [row for batch in new.batches for row in batch.rows]
    group = replace(joined.groups[0], count=len(every))
    batches = [RowBatch(group.uid, 0, every)]
    holes = [RowRef(group.uid, at) for at, row in enumerate(every) if row is None]
    segment = replace(new.segment, groups=[(group.uid, 0)])
    changes = {"groups": [group], "segments": [segment], "rows": batches, "holes": holes}
    upload = model.writer.make(**digested(new.members() | changes))
    assert model.writer.refused(upload) == (400, "invalid_commit")
    assert_is(model)


def test_what_is_sealed_again_has_no_lower_class_than_before(ada: Account) -> None:
    model = Model(Writer(ada, ada.new_schema()))
    model.add([_wide() for _ in range(2)], classes=WIDER)
    lower = model.stand([(0, 1)])
    assert model.writer.refused(model.writer.make(**lower.members())) == (400, "invalid_commit")
    kept = model.stand([(0, 1)], classes=WIDER)
    wide = [
        replace(batch, rows=[replace(row, fields=_wide().fields) for row in batch.present])
        for batch in kept.batches
    ]
    model.writer.send(model.writer.make(**digested(kept.members() | {"rows": wide})))


def _wide() -> Any:
    row = person()
    return replace(row, fields=[row.fields[0] + bytes(16), row.fields[1]])


def test_a_row_that_died_meanwhile_must_be_named(model: Model) -> None:
    new = model.stand([(0, 2)])
    doomed = model.groups[1].rows[2][0]
    model.kill([doomed])
    late = model.writer.make(**new.members())
    assert model.writer.refused(late) == (409, "group_not_live")
    killed = [RowRef(new.held[0].uid, 5)]
    segment = replace(new.segment, purged=new.segment.purged, count=new.segment.count)
    model.writer.send(
        model.writer.make(**(new.members() | {"killed": killed, "segments": [segment]}))
    )
    model.take(new)
    model.die(killed)
    assert_is(model)


def test_an_ended_group_is_gone_for_commits_at_once_and_for_readers_a_little_later(
    model: Model, api: Api
) -> None:
    old, gone = [ref for ref, _ in model.groups[0].rows], model.groups[0].uid
    _, before = rows(model, old)
    new = model.stand([(0, 2)])
    model.writer.send(model.writer.make(**new.members()))
    model.take(new)
    assert model.writer.refused(model.writer.make(killed=old[:1])) == (409, "row_not_live")
    again = model.stand([(0, 1)])
    ended = model.writer.make(**(again.members() | {"ended": [gone]}))
    assert model.writer.refused(ended) == (409, "group_not_live")
    assert rows(model, old) == (200, before)
    named = f"uid = {literal(api, gone)}"
    api.execute(f"UPDATE record_group SET ended_at = '2020-01-01 00:00:00+00:00' WHERE {named}")
    eventually(lambda: rows(model, old)[0] == 404)
    assert_is(model)
    # Its uid stays taken.
    other = model.stand([(0, 1)])
    group = replace(other.groups[0], uid=gone)
    taken = model.writer.make(
        **digested(
            other.members()
            | {
                "groups": [group],
                "rows": [replace(batch, group=gone) for batch in other.batches],
                "holes": [RowRef(gone, ref.ordinal) for ref in other.holes],
                "segments": [
                    replace(
                        other.segment,
                        groups=[
                            (gone if uid == other.groups[0].uid else uid, base)
                            for uid, base in other.segment.groups
                        ],
                    )
                ],
            }
        )
    )
    assert model.writer.refused(taken) == (409, "uid_taken")


def _another_definition(writer: Writer) -> dict[str, Any]:
    wider: dict[str, Any] = copy.deepcopy(PERSON)
    wider["properties"]["more"] = {"type": "string"}
    brought = body_of(writer.changing(wider))
    return {"definition": brought.definition, "definition_text": brought.definition_text}


def test_a_reseal_behind_a_compaction_has_lost_a_race_whatever_definition_it_brings(
    model: Model,
) -> None:
    """Of two proxies: nothing is wrong with the commit of either."""
    every_group = [(group.uid, len(group.slots)) for group in model.groups]
    merged = segment_over(every_group, purged=sum(group.dead for group in model.groups))
    model.writer.send(
        model.writer.make(
            segments=[merged],
            pages=pages_of(merged),
            replaced=[segment.uid for segment in model.segments],
        )
    )
    model.segments = [merged]
    whole = model.stand([(0, 4)]).members()
    text = _another_definition(model.writer)
    compaction = model.stand([(0, 2)]).members()
    model.writer.send(
        model.writer.make(**(compaction | {"segments": [], "pages": [], "replaced": []}))
    )
    every: list[dict[str, Any]] = [{"exact": 1}, {"exact": 1, **text}, text]
    for more in every:
        assert model.writer.refused(model.writer.make(**whole, **more)) == (409, "group_not_live")


def test_a_commit_that_brings_a_definition_ends_all_groups_or_none(model: Model) -> None:
    text = _another_definition(model.writer)
    some = model.writer.make(**model.stand([(0, 2)]).members(), **text)
    assert model.writer.refused(some) == (400, "invalid_commit")
    model.writer.send(model.writer.make(**model.stand([(0, 4)]).members(), **text, exact=1))


def test_holes_are_of_groups_that_stand_for_others_alone(ada: Account) -> None:
    writer = Writer(ada, ada.new_schema())
    upload = writer.adding([person(), person()])
    holes = [KilledRows(body_of(upload).groups[0].uid, [(1, 1)])]
    changed = wire.encode_commit_body(replace(body_of(upload), holes=holes))
    upload = replace_body(upload, changed)
    assert writer.refused(upload) == (400, "invalid_commit")


def replace_body(upload: Any, body: bytes) -> Any:
    return dataclasses.replace(upload, commit=replace(upload.commit, body=body))


# --- staged ---------------------------------------------------------------------------------


def _staged(model: Model, new: New, stands: Any = 1) -> Job:
    job = Job(model.writer)
    members = digested(new.members())
    half = len(new.batches) // 2
    for at, batches in enumerate((new.batches[:half], new.batches[half:])):
        groups = [group for group in members["groups"] if group.uid in {b.group for b in batches}]
        job.stage(job.part(at, groups, [], batches, stands=stands))
    job.stage(job.part(2, [], [new.segment], [], new.pages, stands=stands))
    return job


def _members(new: New) -> dict[str, Any]:
    return {
        "groups": digested(new.members())["groups"],
        "killed": new.killed,
        "replaced": new.replaced,
        "ended": new.ended,
        "holes": new.holes,
    }


def test_groups_that_stand_for_others_may_be_staged(model: Model) -> None:
    new = model.stand([(0, 3)], cuts=[4])
    job = _staged(model, new)
    commit = job.commit(**_members(new))
    assert job.publish(commit).status == 201
    model.writer.follow(commit)
    model.take(new)
    assert_is(model)


def test_staged_rows_that_stand_for_no_others_or_for_other_ones_are_refused(model: Model) -> None:
    whole, new = model.stand([(2, 4)]), model.stand([(0, 2)])
    other = Job(model.writer)
    assert other.post(other.part(0, whole.groups, [], whole.batches)).code == "record_exists"
    assert other.post(other.part(0, new.groups, [], new.batches)).code == "invalid_commit"
    strange = _of(new, _with(new, 0, person()))
    job = _staged(model, strange)
    assert job.publish(job.commit(**_members(strange))).code == "invalid_commit"
    assert job.drop().status == 204
    kept = _staged(model, new)
    bare: dict[str, Any] = {"ended": [], "holes": [], "killed": []}
    assert kept.publish(kept.commit(**(_members(new) | bare))).code == "invalid_commit"
    assert_is(model)


def _of(new: New, batches: list[RowBatch]) -> New:
    return New(**(vars(new) | {"batches": batches}))


def test_a_job_changes_records_whose_rows_its_commit_kills(model: Model) -> None:
    (ref, slot), (other, _), *_ = model.live()
    assert slot.row is not None
    changed = person(slot.row.record_id, slot.row.version + 1)
    job = Job(model.writer)
    job.stage(job.adding(0, [person(), changed]))
    assert job.publish(job.commit()).code == "record_version"
    assert job.publish(job.commit(killed=[other])).code == "record_version"
    commit = job.commit(killed=[ref])
    assert job.publish(commit).status == 201
    model.writer.follow(commit)
    url = f"/api/records/{ids.to_text(slot.row.record_id)}/"
    assert model.writer.account.call("GET", url).json()["version"] == changed.version
    twice = Job(model.writer)
    row = person(changed.record_id, changed.version + 1)
    twice.stage(twice.adding(0, [row, row]))
    killed = [RowRef(next(iter(job.groups)), 1)]
    assert twice.publish(twice.commit(killed=killed)).code == "record_version"


def test_a_strangers_row_of_the_same_id_hides_no_record(
    model: Model, bob: Account, api: Api
) -> None:
    theirs = Model(Writer(bob, bob.new_schema()))
    theirs.add([person()])
    ref, slot = model.live()[0]
    assert slot.row is not None
    number = f"(SELECT id FROM record_group WHERE uid = {literal(api, theirs.groups[0].uid)})"
    wanted = literal(api, slot.row.record_id)
    api.execute(
        f"UPDATE record_row SET record_id = {wanted}, version = 9 WHERE group_id = {number}"
    )
    url = f"/api/records/{ids.to_text(slot.row.record_id)}/"
    assert model.writer.account.call("GET", url).json()["group"] == ref.group.hex()
    assert bob.call("GET", url).json()["group"] == theirs.groups[0].uid.hex()

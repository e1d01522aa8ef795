"""Commits: what is applied, what conflicts, and that nothing is applied by half."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from encrypted_records.model import ids, wire
from encrypted_records.model.digests import digest_rows
from encrypted_records.model.records import (
    Commit,
    CommitUpload,
    KilledRows,
    Receipt,
    RowBatch,
    RowRef,
)
from tests.server.api import Account, Api
from tests.server.test_sweeping import literal
from tests.server.writer import (
    FRAMES,
    Writer,
    body_of,
    first_row,
    only_segment,
    pages_of,
    person,
    salt_of,
    segment_over,
)

pytestmark = pytest.mark.both_databases


@pytest.fixture
def writer(ada: Account) -> Writer:
    return Writer(ada, ada.new_schema())


def test_a_commit_takes_the_schema_to_its_next_version(writer: Writer) -> None:
    assert writer.send(writer.adding([person(), person()])).version == 1
    assert writer.send(writer.adding([person()])).version == 2
    [delta] = writer.manifest()
    assert delta.version == 2
    assert delta.key_id == writer.key_id
    assert delta.definition == writer.definition
    assert [entry.version for entry in delta.entries] == [1, 2]
    shown = writer.account.call("GET", writer.schema["url"]).json()
    assert shown["key_id"] == writer.key_id.hex()


def test_a_retry_gets_the_same_receipt_and_stores_nothing_twice(writer: Writer) -> None:
    upload = writer.adding([person()])
    first = writer.post(upload)
    again = writer.post(upload)
    assert (first.status, again.status) == (201, 200)
    assert first.body == again.body
    writer.follow(upload)
    writer.send(writer.adding([person()]))
    late = writer.post(upload)
    assert (late.status, late.body) == (200, first.body)
    assert writer.manifest()[0].version == 2


def test_a_retry_gets_its_receipt_after_the_definition_changed(writer: Writer) -> None:
    upload = writer.adding([person()])
    first = writer.post(upload)
    wider = dict(writer.schema["schema"])
    wider["properties"] = wider["properties"] | {"note": {"type": "string"}}
    writer.account.call("PATCH", writer.schema["url"], {"schema": wider})
    assert writer.post(upload).body == first.body


def test_an_id_is_not_used_for_two_commits(writer: Writer) -> None:
    upload = writer.adding([person()])
    writer.send(upload)
    other = writer.adding([person()], id=body_of(upload).id)
    assert writer.refused(other) == (409, "commit_reused")


def test_a_commit_for_an_older_definition_is_refused(writer: Writer) -> None:
    writer.send(writer.adding([person()]))
    writer.definition = os.urandom(32)
    assert writer.refused(writer.adding([person()])) == (409, "stale_definition")


def test_a_schema_has_one_key(writer: Writer) -> None:
    writer.send(writer.adding([person()]))
    assert writer.refused(writer.adding([person()], key_id=os.urandom(8))) == (
        409,
        "key_mismatch",
    )


def test_a_writer_must_continue_its_own_chain(writer: Writer) -> None:
    assert writer.refused(writer.adding([person()], counter=2)) == (409, "writer_conflict")
    assert writer.refused(writer.adding([person()], previous=os.urandom(32)))[0] == 409
    writer.send(writer.adding([person()]))
    for changes in ({"counter": 1}, {"counter": 3}, {"previous": bytes(32)}):
        assert writer.refused(writer.adding([person()], **changes)) == (409, "writer_conflict")


def test_a_writer_must_have_seen_this_log(writer: Writer) -> None:
    assert writer.refused(writer.adding([person()], seen=1)) == (409, "log_conflict")
    writer.send(writer.adding([person()]))
    writer.send(writer.adding([person()]))
    for changes in ({"seen": 3}, {"seen_digest": os.urandom(32)}, {"seen": 1}, {"seen": 0}):
        assert writer.refused(writer.adding([person()], **changes)) == (409, "log_conflict")


def test_a_writer_may_be_behind_the_log(writer: Writer) -> None:
    other = Writer(writer.account, writer.schema, key_id=writer.key_id)
    other.send(other.adding([person()]))
    writer.send(writer.adding([person()]))
    assert writer.seen == 2


def test_uids_are_not_used_twice(writer: Writer) -> None:
    upload = writer.adding([person()])
    writer.send(upload)
    old = body_of(upload)
    rows = [person()]
    group = old.groups[0]
    segment = segment_over([(group.uid, 1)])
    batch = RowBatch(group.uid, 0, rows)
    group = msgspec.structs.replace(group, rows=digest_rows(salt_of(group.uid).salt, rows))
    again = writer.make(groups=[group], segments=[segment], rows=[batch], pages=pages_of(segment))
    assert writer.refused(again) == (409, "uid_taken")
    fresh = writer.adding(rows)
    new_group = body_of(fresh).groups[0]
    taken = msgspec.structs.replace(segment_over([(new_group.uid, 1)]), uid=old.segments[0].uid)
    reused = writer.make(
        groups=[new_group], segments=[taken], rows=fresh.rows, pages=pages_of(taken)
    )
    assert writer.refused(reused) == (409, "uid_taken")


def test_a_record_is_not_created_twice(writer: Writer) -> None:
    row = person()
    writer.send(writer.adding([row]))
    assert writer.refused(writer.adding([row])) == (409, "record_exists")
    twins = [person(), person()]
    twins[1] = person(twins[0].record_id)
    assert writer.refused(writer.adding(twins)) == (409, "record_exists")
    assert writer.manifest()[0].version == 1


def test_an_update_ends_the_version_before(writer: Writer) -> None:
    row = person()
    created = writer.adding([row, person()])
    writer.send(created)
    newer = person(row.record_id, 2)
    assert writer.refused(writer.adding([newer])) == (409, "record_version")
    wrong = RowRef(first_row(created).group, 1)
    assert writer.refused(writer.adding([newer], killed=[wrong])) == (409, "record_version")
    writer.send(writer.adding([newer], killed=[first_row(created)]))
    again = writer.adding([person(row.record_id, 2)], killed=[first_row(created)])
    assert writer.refused(again) == (409, "row_not_live")


def test_only_live_rows_can_be_ended(writer: Writer) -> None:
    created = writer.adding([person()])
    writer.send(created)
    unknown = [RowRef(os.urandom(16), 0), RowRef(first_row(created).group, 1)]
    for ref in unknown:
        assert writer.refused(writer.make(killed=[ref])) == (409, "row_not_live")
    writer.send(writer.make(killed=[first_row(created)]))
    assert writer.refused(writer.make(killed=[first_row(created)])) == (409, "row_not_live")


def test_a_merge_replaces_live_segments(writer: Writer) -> None:
    one, two = writer.adding([person()]), None
    writer.send(one)
    two = writer.adding([person(), person()])
    writer.send(two)
    old = [only_segment(one), only_segment(two)]
    merge = writer.merging(old, [1, 2])
    writer.send(merge)
    assert writer.refused(writer.merging(old, [1, 2])) == (409, "segment_not_live")
    writer.send(writer.merging([only_segment(merge)], [1, 2]))


def test_a_merge_covers_exactly_what_it_replaces(writer: Writer) -> None:
    uploads = []
    for _ in range(2):
        uploads.append(writer.adding([person()]))
        writer.send(uploads[-1])
    one, two = (only_segment(upload) for upload in uploads)
    both = segment_over([(one.groups[0][0], 1), (two.groups[0][0], 1)])
    wrong = [
        writer.merging([one], [1], merged=both),  # covers more
        writer.merging([one, two], [1, 1], merged=segment_over([(one.groups[0][0], 1)])),
        writer.merging([one], [2]),  # counts wrong
        writer.merging([one], [1], groups=body_of(writer.adding([person()])).groups),
        writer.make(replaced=[one.uid]),
    ]
    for upload in wrong:
        assert writer.refused(upload) == (400, "invalid_commit")
    assert writer.manifest()[0].version == 2


def test_a_merge_leaves_out_dead_rows_and_no_others(writer: Writer) -> None:
    created = writer.adding([person(), person()])
    writer.send(created)
    old = only_segment(created)
    purged = segment_over([(old.groups[0][0], 2)], purged=1)
    assert writer.refused(writer.merging([old], [2], merged=purged)) == (400, "invalid_commit")
    ending = writer.merging([old], [2], merged=purged, killed=[first_row(created)])
    assert writer.refused(ending) == (400, "invalid_commit"), "it was live until now"
    writer.send(writer.make(killed=[first_row(created)]))
    writer.send(writer.merging([old], [2], merged=purged))
    empty = segment_over([(old.groups[0][0], 2)], purged=2)
    writer.send(writer.make(killed=[RowRef(old.groups[0][0], 1)]))
    writer.send(writer.merging([purged], [2], merged=empty))


def test_a_commit_may_add_and_merge_at_once(writer: Writer) -> None:
    created = writer.adding([person()])
    writer.send(created)
    old = only_segment(created)
    fresh = writer.adding([person(), person()])
    [group] = body_of(fresh).groups
    both = segment_over([(old.groups[0][0], 1), (group.uid, 2)])
    writer.send(
        writer.make(
            groups=[group],
            rows=fresh.rows,
            segments=[both],
            pages=pages_of(both),
            replaced=[old.uid],
        )
    )
    writer.send(writer.merging([both], [1, 2]))


def test_commits_to_several_schemas_are_applied_together_or_not_at_all(ada: Account) -> None:
    writers = [Writer(ada, ada.new_schema()) for _ in range(3)]
    good = [writer.adding([person()]) for writer in writers]
    bad = writers[2].adding([person()], counter=9)
    refused = writers[0].post(good[0], good[1], bad)
    assert (refused.status, refused.code) == (409, "writer_conflict")
    assert [writer.manifest()[0].version for writer in writers] == [0, 0, 0]
    applied = writers[0].post(*good)
    assert applied.status == 201
    receipts = wire.decode_all(applied.body, Receipt)
    assert [receipt.schema for receipt in receipts] == [body_of(one).schema for one in good]
    assert [receipt.version for receipt in receipts] == [1, 1, 1]
    again = writers[0].post(*good)
    assert (again.status, again.body) == (200, applied.body)


def test_two_commits_of_one_request_are_not_for_one_schema(writer: Writer) -> None:
    answer = writer.post(writer.adding([person()]), writer.adding([person()]))
    assert (answer.status, answer.code) == (400, "invalid_commit")


def test_of_two_racing_updates_one_wins(writer: Writer) -> None:
    row = person()
    created = writer.adding([row])
    writer.send(created)
    rivals = [Writer(writer.account, writer.schema, key_id=writer.key_id) for _ in range(8)]
    for rival in rivals:
        rival.catch_up()
    uploads = [
        rival.adding([person(row.record_id, 2)], killed=[first_row(created)]) for rival in rivals
    ]
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda pair: pair[0].post(pair[1]), zip(rivals, uploads, strict=True))
        )
    assert sorted(answer.status for answer in answers) == [201] + [409] * 7
    assert {answer.code for answer in answers if answer.status == 409} == {"row_not_live"}
    assert writer.manifest()[0].version == 2


def test_racing_ingests_all_get_in(writer: Writer) -> None:
    writer.send(writer.adding([person()]))
    rivals = [Writer(writer.account, writer.schema, key_id=writer.key_id) for _ in range(8)]
    for rival in rivals:
        rival.catch_up()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda one: one.post(one.adding([person()])), rivals))
    assert [answer.status for answer in answers] == [201] * 8
    versions = {wire.decode_single(answer.body, Receipt).version for answer in answers}
    assert versions == set(range(2, 10))
    writer.catch_up()  # which verifies the running digest


def test_too_many_small_segments_ask_for_a_merge(ada: Account, api: Api) -> None:
    writer = Writer(ada, ada.new_schema())
    rows = [person() for _ in range(256)]
    parts = [writer.adding([row]) for row in rows]
    bodies = [body_of(part) for part in parts]
    writer.send(
        writer.make(
            groups=[body.groups[0] for body in bodies],
            segments=[body.segments[0] for body in bodies],
            rows=[part.rows[0] for part in parts],
            pages=[part.pages[0] for part in parts],
        )
    )
    full = writer.post(writer.adding([person()]))
    assert (full.status, full.code) == (429, "merge_first")
    assert int(full.headers["Retry-After"]) >= 1
    writer.send(writer.merging([body.segments[0] for body in bodies[:2]], [1, 1]))
    writer.send(writer.adding([person()]))
    assert writer.refused(writer.adding([person()])) == (429, "merge_first")
    # Those that merging leaves alone are as many as the records need.
    large = body_of(parts[-1]).segments[0].uid
    api.execute(f"UPDATE index_segment SET count = 524289 WHERE uid = {literal(api, large)}")
    writer.send(writer.adding([person()]))
    assert writer.refused(writer.adding([person()])) == (429, "merge_first")


def test_commits_belong_to_those_who_reach_the_schema(ada: Account, bob: Account) -> None:
    stranger = Writer(bob, ada.new_schema())
    assert stranger.refused(stranger.adding([person()])) == (404, "not_found")
    mine = Writer(bob, bob.new_schema())
    both = stranger.post(mine.adding([person()]), stranger.adding([person()]))
    assert both.status == 404
    assert mine.manifest()[0].version == 0
    unknown = mine.adding([person()], schema=os.urandom(16))
    assert mine.refused(unknown) == (404, "not_found")


def test_a_large_commit_fits_and_a_larger_one_is_refused(writer: Writer) -> None:
    rows = [person() for _ in range(20_000)]
    group_rows = writer.adding(rows)
    group = body_of(group_rows).groups[0]
    segment = segment_over([(group.uid, len(rows))], "paged", pages=300)
    upload = writer.make(
        groups=[group], segments=[segment], rows=group_rows.rows, pages=pages_of(segment)
    )
    writer.send(upload)
    size = (64 << 20) + 1
    refused = writer.account.call(
        "POST", "/api/commits/", b"", **FRAMES, **{"Content-Length": str(size)}
    )
    assert (refused.status, refused.code) == (413, "too_large")


def test_a_request_is_stored_once_whatever_commit_brings_it(writer: Writer) -> None:
    request, other = ids.new_id(), ids.new_id()
    writer.send(writer.adding([person()], requests=[request]))
    again = writer.adding([person()], requests=[other, request])
    assert writer.refused(again) == (409, "commit_reused")
    assert writer.refused(writer.adding([person()], requests=[other, other])) == (
        400,
        "invalid_commit",
    )
    writer.send(writer.adding([person()], requests=[other]))


def test_an_exact_commit_comes_before_any_records_that_it_has_not_seen(
    ada: Account, writer: Writer
) -> None:
    writer.send(writer.adding([person()]))
    late = Writer(ada, writer.schema, key_id=writer.key_id)
    late.catch_up()
    created = writer.adding([person()])
    writer.send(created)
    assert writer.refused(late.adding([person()], exact=1)) == (409, "log_moved")
    late.catch_up()
    writer.send(writer.make(killed=[first_row(created)]))
    late.send(late.adding([person()], exact=1))


def test_rows_that_end_are_named_in_order_and_within_bounds(writer: Writer) -> None:
    created = writer.adding([person(), person(), person()])
    writer.send(created)
    uid = body_of(created).groups[0].uid
    for runs, expected in (
        ([(1, 1), (0, 1)], (400, "invalid_commit")),
        ([(0, 1), (1, 1)], (400, "invalid_commit")),
        ([(0, 2**20 + 1)], (400, "invalid_commit")),
        ([(0, 4)], (409, "row_not_live")),
        ([], (400, "malformed_frame")),
        ([(0, 0)], (400, "malformed_frame")),
    ):
        upload = writer.make()
        body = msgspec.structs.replace(body_of(upload), killed=[KilledRows(uid, list(runs))])
        commit = Commit(wire.encode_commit_body(body), bytes(32), b"")
        assert writer.refused(CommitUpload(commit)) == expected, runs

"""Reading back: the log, pages, rows, and sealed records as JSON."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence

import pytest

from encrypted_records.errors import Malformed
from encrypted_records.model import ids, wire
from encrypted_records.model.records import (
    BlockRef,
    CommitUpload,
    ManifestDelta,
    Page,
    PageRef,
    RowBatch,
    RowRef,
    SealedRow,
    StoredRow,
)
from tests.server.api import Account, Answer, Api
from tests.server.writer import (
    FRAMES,
    Writer,
    body_of,
    group_of,
    pages_of,
    person,
    sealed_number,
    sealed_string,
    segment_over,
)
from tests.support.eventually import eventually


@pytest.fixture
def writer(ada: Account) -> Writer:
    return Writer(ada, ada.new_schema())


def ask(
    account: Account, schema_url: str, what: str, refs: Sequence[PageRef | RowRef | BlockRef]
) -> Answer:
    return account.call("POST", _path(schema_url, what), wire.encode(refs), **FRAMES)


def _path(schema_url: str, what: str) -> str:
    name, mark, query = what.partition("?")
    return f"{schema_url}{name}/{mark}{query}"


#: More rows than the API reads at a time.
MANY = 300


def lose(api: Api, table: str, numbered: str, number: int) -> None:
    """Have the database lose a row of the newest group, or a page of the newest segment."""
    owner, owners = {
        "record_row": ("group_id", "record_group"),
        "index_page": ("segment_id", "index_segment"),
    }[table]
    newest = f"{owner} = (SELECT max(id) FROM {owners})"
    api.execute(f"DELETE FROM {table} WHERE {newest} AND {numbered} = {number}")


def group_uid(upload: CommitUpload) -> bytes:
    return body_of(upload).groups[0].uid


@pytest.mark.both_databases
def test_the_manifest_begins_after_the_version_named(writer: Writer) -> None:
    [empty] = writer.manifest()
    assert (empty.version, empty.key_id, empty.entries) == (0, None, [])
    uploads = [writer.adding([person()]) for _ in range(1)]
    writer.send(uploads[0])
    uploads.append(writer.adding([person()]))
    writer.send(uploads[1])
    [delta] = writer.manifest(1)
    assert [entry.commit for entry in delta.entries] == [uploads[1].commit]
    assert [delta.entries for delta in writer.manifest(2)] == [[]]


def test_a_log_that_ends_before_what_was_seen_is_a_conflict(writer: Writer) -> None:
    path = f"{writer.schema['url']}manifest/"
    ahead = writer.account.call("GET", f"{path}?since=1")
    assert (ahead.status, ahead.code) == (409, "log_conflict")
    for since in ("x", "-1", "1.0", "9" * 30):
        assert writer.account.call("GET", f"{path}?since={since}").status == 400


@pytest.mark.both_databases
def test_pages_come_back_in_the_order_asked(writer: Writer) -> None:
    rows = [person()]
    group = group_of(rows)
    segment = segment_over([(group.uid, 1)], "paged", pages=150)
    pages = pages_of(segment)
    writer.send(
        writer.make(
            groups=[group], segments=[segment], rows=[RowBatch(group.uid, 0, rows)], pages=pages
        )
    )
    wanted = [*range(149, -1, -1), 7, 7]
    refs = [PageRef(segment.uid, number) for number in wanted]
    answer = ask(writer.account, writer.schema["url"], "pages", refs)
    assert answer.status == 200
    assert wire.decode_all(answer.body, Page) == [pages[number] for number in wanted]


def test_rows_and_pages_come_behind_the_log_for_whoever_names_a_version(writer: Writer) -> None:
    upload = writer.adding([person()])
    writer.send(upload)
    uid, segment = group_uid(upload), body_of(upload).segments[0].uid
    for what, ref in (("rows?since=1", RowRef(uid, 0)), ("pages?since=1", PageRef(segment, 0))):
        answer = ask(writer.account, writer.schema["url"], what, [ref])
        log, item = wire.decode(answer.body)
        assert isinstance(log, ManifestDelta)
        assert (log.version, log.entries) == (1, [])
        assert isinstance(item, StoredRow | Page)


def test_whoever_names_an_old_version_gets_the_log_and_nothing_else(writer: Writer) -> None:
    uploads = []
    for _ in range(2):
        uploads.append(writer.adding([person()]))
        writer.send(uploads[-1])
    known, unknown = RowRef(group_uid(uploads[0]), 0), RowRef(os.urandom(16), 0)
    for ref in (known, unknown):
        answer = ask(writer.account, writer.schema["url"], "rows?since=1", [ref])
        (log,) = wire.decode(answer.body)
        assert isinstance(log, ManifestDelta)
        assert [entry.commit for entry in log.entries] == [uploads[1].commit]
    ahead = ask(writer.account, writer.schema["url"], "rows?since=3", [known])
    assert (ahead.status, ahead.code) == (409, "log_conflict")


def test_an_unknown_page_is_gone(writer: Writer) -> None:
    upload = writer.adding([person()])
    writer.send(upload)
    known = body_of(upload).segments[0].uid
    for ref in (PageRef(os.urandom(16), 0), PageRef(known, 1)):
        answer = ask(writer.account, writer.schema["url"], "pages", [PageRef(known, 0), ref])
        assert (answer.status, answer.code) == (404, "segment_gone")


def test_pages_of_a_replaced_segment_stay_readable_for_a_while(writer: Writer) -> None:
    upload = writer.adding([person()])
    writer.send(upload)
    [old] = body_of(upload).segments
    writer.send(writer.merging([old], [1]))
    answer = ask(writer.account, writer.schema["url"], "pages", [PageRef(old.uid, 0)])
    assert wire.decode_all(answer.body, Page) == list(upload.pages)


@pytest.mark.both_databases
def test_pages_of_a_replaced_segment_go_in_the_end_and_its_uid_stays_taken(
    writer: Writer, api: Api
) -> None:
    upload = writer.adding([person()])
    writer.send(upload)
    [old] = body_of(upload).segments
    merge = writer.merging([old], [1])
    writer.send(merge)
    api.execute(
        "UPDATE index_segment SET superseded_at = '2020-01-01 00:00:00+00:00'"
        " WHERE superseded_at IS NOT NULL"
    )
    [new] = body_of(merge).segments
    again = writer.merging([new], [1], merged=old, pages=upload.pages)
    assert writer.refused(again) == (409, "uid_taken")

    def ask_for_old() -> Answer:
        return ask(writer.account, writer.schema["url"], "pages", [PageRef(old.uid, 0)])

    eventually(lambda: ask_for_old().status != 200, "pages of the replaced segment are gone")
    answer = ask_for_old()
    assert (answer.status, answer.code) == (404, "segment_gone")
    assert writer.refused(writer.merging([new], [1], merged=old, pages=upload.pages)) == (
        409,
        "uid_taken",
    )


def test_an_answer_that_breaks_off_cannot_be_taken_for_a_whole_one(
    writer: Writer, api: Api
) -> None:
    # The API holds the first two MiB back, to report an error in them by its status.
    fields = [sealed_string(1 << 14), sealed_number()]
    upload = writer.adding([SealedRow(ids.new_id(), 1, fields) for _ in range(MANY)])
    writer.send(upload)
    lose(api, "record_row", "ordinal", MANY - 1)
    refs = [RowRef(group_uid(upload), at) for at in range(MANY)]
    answer = ask(writer.account, writer.schema["url"], "rows", refs)
    assert answer.status == 200
    with pytest.raises(Malformed):
        wire.decode_all(answer.body, StoredRow)


@pytest.mark.both_databases
def test_a_row_or_page_that_the_database_has_lost_is_named(writer: Writer, api: Api) -> None:
    rows = [person() for _ in range(3)]
    group = group_of(rows)
    segment = segment_over([(group.uid, len(rows))], "paged", pages=3)
    pages = pages_of(segment)
    upload = writer.make(
        groups=[group], segments=[segment], rows=[RowBatch(group.uid, 0, rows)], pages=pages
    )
    writer.send(upload)
    url = writer.schema["url"]
    lose(api, "record_row", "ordinal", 1)
    lose(api, "index_page", "number", 1)
    row, page = f"row 1 of group {group.uid.hex()}", f"page 1 of segment {segment.uid.hex()}"
    some_page = f"a page of segment {segment.uid.hex()}"
    every_row = [RowRef(group.uid, at) for at in range(3)]
    every_page = [PageRef(segment.uid, number) for number in range(3)]
    asked: list[tuple[str, Sequence[PageRef | RowRef | BlockRef], str]] = [
        ("rows", every_row, row),
        ("pages", every_page, page),
        ("digests", every_row[:1], row),
        ("digests", every_page[:1], some_page),
        ("names", [BlockRef(group.uid, 0, group.fields[0])], row),
    ]
    for what, refs, lost in asked:
        answer = ask(writer.account, url, what, refs)
        assert (answer.status, answer.code) == (500, "object_lost"), (what, answer.body)
        assert answer.json()["detail"].startswith(f"{lost} is missing"), answer.body
        assert "restore the database" in answer.json()["hint"]
    # The others are still there.
    assert ask(writer.account, url, "rows", [every_row[0], every_row[2]]).status == 200
    assert ask(writer.account, url, "pages", [every_page[0], every_page[2]]).status == 200


@pytest.mark.both_databases
def test_rows_come_back_in_the_order_asked_dead_ones_too(writer: Writer) -> None:
    rows = [person() for _ in range(600)]
    upload = writer.adding(rows)
    writer.send(upload)
    uid = group_uid(upload)
    writer.send(writer.make(killed=[RowRef(uid, 5)]))
    wanted = [599, 5, *range(0, 500, 3), 5]
    answer = ask(writer.account, writer.schema["url"], "rows", [RowRef(uid, at) for at in wanted])
    found = wire.decode_all(answer.body, StoredRow)
    assert found == [StoredRow(uid, at, rows[at]) for at in wanted]


def test_an_unknown_row_is_gone(writer: Writer) -> None:
    upload = writer.adding([person()])
    writer.send(upload)
    for ref in (RowRef(os.urandom(16), 0), RowRef(group_uid(upload), 1)):
        answer = ask(writer.account, writer.schema["url"], "rows", [ref])
        assert (answer.status, answer.code) == (404, "row_gone")


def test_one_request_asks_for_a_bounded_number(writer: Writer) -> None:
    upload = writer.adding([person()])
    writer.send(upload)
    url = writer.schema["url"]
    refs = [RowRef(group_uid(upload), 0)]
    assert ask(writer.account, url, "rows", refs * 1000).status == 200
    assert ask(writer.account, url, "rows", refs * 1001).code == "too_large"
    pages = [PageRef(body_of(upload).segments[0].uid, 0)]
    assert ask(writer.account, url, "pages", pages * 4096).status == 200
    assert ask(writer.account, url, "pages", pages * 4097).code == "too_large"
    assert ask(writer.account, url, "rows", []).code == "malformed_frame"
    assert ask(writer.account, url, "rows", pages).code == "malformed_frame"


def test_a_record_is_returned_sealed(writer: Writer) -> None:
    row = person()
    upload = writer.adding([person(), row])
    writer.send(upload)
    identifier = ids.to_text(row.record_id)
    assert writer.account.call("GET", f"/api/records/{identifier}/").json() == {
        "id": identifier,
        "url": f"/api/records/{identifier}/",
        "schema": writer.schema["url"],
        "version": 1,
        "group": group_uid(upload).hex(),
        "ordinal": 1,
        "key_id": writer.key_id.hex(),
        "key_version": 1,
        "fields": {
            "name": base64.b64encode(row.fields[0]).decode(),
            "age": base64.b64encode(row.fields[1]).decode(),
        },
    }


@pytest.mark.both_databases
def test_records_are_listed_live_and_in_the_order_stored(writer: Writer) -> None:
    batches = [[person() for _ in range(size)] for size in (3, 1, 4)]
    uploads = []
    for rows in batches:
        uploads.append(writer.adding(rows))
        writer.send(uploads[-1])
    changed = person(batches[0][1].record_id, 2)
    dead = [RowRef(group_uid(uploads[0]), 1), RowRef(group_uid(uploads[1]), 0)]
    writer.send(writer.adding([changed], killed=dead))
    expected = [
        *(ids.to_text(batches[0][at].record_id) for at in (0, 2)),
        *(ids.to_text(row.record_id) for row in batches[2]),
        ids.to_text(changed.record_id),
    ]
    for reference in (writer.schema["id"], writer.schema["url"]):
        whole = writer.account.call("GET", f"/api/records/?schema={reference}").json()
        assert whole["count"] == 7
        assert [record["id"] for record in whole["results"]] == expected
    seen: list[str] = []
    following = f"/api/records/?schema={writer.schema['id']}&limit=3"
    while following:
        page = writer.account.call("GET", following).json()
        seen += [record["id"] for record in page["results"]]
        following = page["next"]
    assert seen == expected
    gone = ids.to_text(batches[1][0].record_id)
    assert writer.account.call("GET", f"/api/records/{gone}/").status == 404
    now = writer.account.call("GET", f"/api/records/{ids.to_text(changed.record_id)}/").json()
    assert now["version"] == 2


@pytest.mark.both_databases
def test_a_listing_with_dead_rows_has_every_place_and_says_which_are_dead(
    writer: Writer, api: Api
) -> None:
    first, second, third = person(), person(), person()
    stored = writer.adding([first, second, third])
    writer.send(stored)
    changed = person(second.record_id, 2)
    writer.send(writer.adding([changed], killed=[RowRef(group_uid(stored), 1)]))
    path = f"/api/records/?schema={writer.schema['id']}"

    def listed(query: str) -> list[tuple[str, int, bool | None]]:
        found = writer.account.call("GET", f"{path}{query}")
        assert found.status == 200, found.body
        return [
            (result["id"], result["version"], result.get("dead"))
            for result in found.json()["results"]
        ]

    rows = [(first, 1, False), (second, 1, True), (third, 1, False), (changed, 2, False)]
    every = [(ids.to_text(row.record_id), version, dead) for row, version, dead in rows]
    assert listed("&dead=true") == every
    pages = [listed(f"&dead=true&limit=1&offset={at}") for at in range(5)]
    assert pages == [[one] for one in every] + [[]]
    assert listed("&dead=true&limit=2&offset=2") == every[2:]
    assert writer.account.call("GET", f"{path}&dead=true").json()["count"] == 4
    assert len(listed("")) == len(listed("&dead=false")) == 3
    assert writer.account.call("GET", f"{path}&dead=1").status == 400


@pytest.mark.both_databases
def test_records_of_several_schemas_are_read_by_their_ids_all_or_none(
    writer: Writer, bob: Account
) -> None:
    other = Writer(writer.account, writer.account.new_schema())
    mine, theirs = ([person() for _ in range(50)] for _ in range(2))
    stored = writer.adding(mine)
    writer.send(stored)
    other.send(other.adding(theirs))
    changed = person(mine[3].record_id, 2)
    writer.send(writer.adding([changed], killed=[RowRef(group_uid(stored), at) for at in (3, 4)]))
    rows = [row for pair in zip(mine, theirs, strict=True) for row in pair if row is not mine[4]]
    wanted = [ids.to_text(row.record_id) for row in rows] + [ids.to_text(mine[0].record_id)]

    def read(account: Account, named: Sequence[str]) -> Answer:
        return account.call("GET", "/api/records/?" + "&".join(f"id={one}" for one in named))

    found = read(writer.account, wanted)
    assert found.status == 200, found.body
    assert [result["id"] for result in found.json()["results"]] == wanted
    versions = {result["id"]: result["version"] for result in found.json()["results"]}
    assert {version for name, version in versions.items() if name != wanted[6]} == {1}
    assert versions[ids.to_text(changed.record_id)] == 2
    ended = ids.to_text(mine[4].record_id)
    missing = read(writer.account, [wanted[0], ended, "nothing", wanted[1]])
    assert (missing.status, missing.code) == (404, "not_found")
    assert [error["detail"] for error in missing.json()["errors"]] == [
        f"id number {number} does not exist" for number in (2, 3)
    ]
    assert read(bob, wanted[:2]).status == 404
    assert read(writer.account, [*wanted, ended]).code == "too_large"


@pytest.mark.both_databases
def test_rows_that_a_disk_has_lost_or_spoilt_do_not_hide_the_others(
    writer: Writer, api: Api
) -> None:
    rows = [person() for _ in range(4)]
    writer.send(writer.adding(rows))
    wanted = "group_id = (SELECT id FROM record_group ORDER BY id DESC LIMIT 1)"
    api.execute(f"DELETE FROM record_row WHERE {wanted} AND ordinal = 0")
    zero = "'\\x00'" if api.database_url else "x'00'"
    api.execute(f"UPDATE record_row SET sealed = {zero} WHERE {wanted} AND ordinal = 2")
    path = f"/api/records/?schema={writer.schema['id']}&dead=true"
    found = writer.account.call("GET", path).json()
    assert found["count"] == 4
    assert [result["ordinal"] for result in found["results"]] == [1, 2, 3]
    assert [len(result["fields"]) for result in found["results"]] == [2, 0, 2]
    pages = [writer.account.call("GET", f"{path}&limit=2&offset={at}").json() for at in (0, 2)]
    assert [[result["ordinal"] for result in page["results"]] for page in pages] == [[1], [2, 3]]


def test_a_listing_names_its_schema(ada: Account) -> None:
    refused = ada.call("GET", "/api/records/")
    assert (refused.status, refused.flaws()) == (400, {"schema": "required"})
    assert ada.call("GET", "/api/records/?schema=x").status == 400


def test_records_of_another_organization_do_not_exist(writer: Writer, bob: Account) -> None:
    row = person()
    upload = writer.adding([row])
    writer.send(upload)
    url = writer.schema["url"]
    record = f"/api/records/{ids.to_text(row.record_id)}/"
    page = [PageRef(body_of(upload).segments[0].uid, 0)]
    answers = [
        bob.call("GET", f"{url}manifest/"),
        ask(bob, url, "pages", page),
        ask(bob, url, "rows", [RowRef(group_uid(upload), 0)]),
        bob.call("GET", f"/api/records/?schema={writer.schema['id']}"),
        bob.call("GET", record),
    ]
    assert [(answer.status, answer.code) for answer in answers] == [(404, "not_found")] * 5
    mine = bob.new_schema()["url"]
    assert ask(bob, mine, "pages", page).code == "segment_gone"
    assert ask(bob, mine, "rows", [RowRef(group_uid(upload), 0)]).code == "row_gone"
    assert writer.account.call("GET", record).status == 200


def test_unknown_and_impossible_ids_are_not_found(ada: Account) -> None:
    for identifier in ("2" * 22, "z" * 22, "x", "%00", "2" * 21 + "l"):
        for path in ("records", "schemas", "datasets", "organizations", "users"):
            answer = ada.call("GET", f"/api/{path}/{identifier}/")
            assert (answer.status, answer.code) == (404, "not_found"), (path, identifier)

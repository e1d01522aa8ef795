"""What a commit says of its rows and pages is what the API stores, and the API can prove it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec
import pytest

from encrypted_records.errors import Altered
from encrypted_records.model import digests, wire
from encrypted_records.model.records import (
    BlockNames,
    BlockRef,
    CommitUpload,
    PageDigests,
    PageRef,
    RowBatch,
    RowDigests,
    RowRef,
    SegmentHeader,
)
from tests.server.api import Account
from tests.server.staged import Job
from tests.server.writer import (
    FRAMES,
    Writer,
    body_of,
    bound,
    first_row,
    group_of,
    header_of,
    only_segment,
    pages_of,
    person,
    salt_of,
    segment_over,
)

T = TypeVar("T", bound=msgspec.Struct)
struct = msgspec.structs.replace


@pytest.fixture
def writer(ada: Account) -> Writer:
    return Writer(ada, ada.new_schema())


def digests_of(writer: Writer, wanted: Sequence[msgspec.Struct], kind: type[T]) -> list[T]:
    answer = asked(writer, wanted)
    assert answer[0] == 200, answer
    return wire.decode_all(answer[1], kind)


def asked(writer: Writer, wanted: Sequence[msgspec.Struct]) -> tuple[int, bytes]:
    path = f"{writer.schema['url']}digests/"
    answer = writer.account.call("POST", path, wire.encode(wanted), **FRAMES)
    return answer.status, answer.body


def two_rows(writer: Writer) -> CommitUpload:
    return writer.adding([person(), person()])


def with_rows(upload: CommitUpload, change: Callable[[RowBatch], RowBatch]) -> CommitUpload:
    (batch,) = upload.rows
    assert isinstance(batch, RowBatch)
    return replace(upload, rows=(change(batch),))


def with_header(
    upload: CommitUpload, change: Callable[[SegmentHeader], SegmentHeader]
) -> CommitUpload:
    (header,) = upload.headers
    return replace(upload, headers=(change(header),))


#: What is another than the commit says.
CHANGES: dict[str, Callable[[CommitUpload], CommitUpload]] = {
    "another row": lambda u: with_rows(u, lambda b: struct(b, rows=[b.present[0], person()])),
    "rows that changed places": lambda u: with_rows(u, lambda b: struct(b, rows=b.rows[::-1])),
    "another record id": lambda u: with_rows(
        u, lambda b: struct(b, rows=[struct(b.present[0], record_id=os.urandom(16)), b.present[1]])
    ),
    "another version": lambda u: with_rows(
        u, lambda b: struct(b, rows=[b.present[0], struct(b.present[1], version=2)])
    ),
    "another page": lambda u: replace(u, pages=tuple(pages_of(only_segment(u)))),
    "another header": lambda u: with_header(u, lambda h: struct(h, data=h.data + b"\0")),
    "another salt of the pages": lambda u: with_header(u, lambda h: struct(h, salt=bytes(32))),
    "another salt of the rows": lambda u: replace(u, salts=(struct(u.salts[0], salt=bytes(32)),)),
    "no salt": lambda u: replace(u, salts=()),
    "two salts": lambda u: replace(u, salts=u.salts * 2),
    "a salt of no group": lambda u: replace(u, salts=(*u.salts, salt_of(bytes(16)))),
    "no header": lambda u: replace(u, headers=()),
    "a header of another segment": lambda u: replace(u, headers=(header_of(bytes(16)),)),
    "nothing": lambda u: CommitUpload(u.commit),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_commit_that_states_other_digests_is_refused(writer: Writer, what: str) -> None:
    upload = two_rows(writer)
    assert writer.refused(CHANGES[what](upload)) == (400, "invalid_commit")
    writer.send(upload)


def test_what_is_staged_must_have_the_digests_that_the_commit_states(writer: Writer) -> None:
    job = Job(writer)
    upload = job.adding(0, [person(), person()])
    job.stage(upload)
    [group], [segment] = job.groups.values(), job.segments.values()
    for members in (
        {"groups": [struct(group, rows=bytes(32))]},
        {"segments": [struct(bound(segment, upload.pages), digest=bytes(32))]},
    ):
        refused = job.publish(job.commit(**members))
        assert (refused.status, refused.code) == (400, "invalid_commit")
    assert job.publish(job.commit()).status == 201


def test_parts_bring_salts_and_headers_and_whole_runs_of_rows(writer: Writer) -> None:
    job = Job(writer)
    rows = [person() for _ in range(70)]
    group = group_of(rows)
    for first, end in ((0, 63), (63, 70), (64, 69)):
        part = job.part(0, [group], [], [RowBatch(group.uid, first, rows[first:end])])
        assert job.post(part).code == "invalid_commit"
    whole = job.adding(0, rows)
    assert job.post(replace(whole, salts=())).code == "invalid_commit"
    assert job.post(replace(whole, headers=())).code == "invalid_commit"
    job.stage(whole)
    other = struct(whole.headers[0], salt=bytes(32))
    beside = struct(whole.part, sequence=1)
    assert job.post(replace(whole, part=beside, headers=(other,))).code == "uid_taken"


@pytest.mark.both_databases
def test_every_row_is_proven_by_its_group_and_no_other_row_is(writer: Writer) -> None:
    rows = [person() for _ in range(130)]
    upload = writer.adding(rows)
    writer.send(upload)
    [group] = body_of(upload).groups
    refs = [RowRef(group.uid, ordinal) for ordinal in (0, 63, 64, 127, 128, 129)]
    found = digests_of(writer, refs, RowDigests)
    for ref, told in zip(refs, found, strict=True):
        digests.check_row(ref, rows[ref.ordinal], group.rows, told)
        for other in (rows[(ref.ordinal + 1) % 130], struct(rows[ref.ordinal], version=2)):
            with pytest.raises(Altered, match=f"row {ref.ordinal}"):
                digests.check_row(ref, other, group.rows, told)
    elsewhere = RowRef(group.uid, 1)
    with pytest.raises(Altered):
        digests.check_row(elsewhere, rows[0], group.rows, found[0])
    with pytest.raises(Altered):
        digests.check_row(refs[0], rows[0], bytes(32), found[0])


def test_rows_that_were_staged_in_parts_are_proven_as_well(writer: Writer) -> None:
    job = Job(writer)
    rows = [person() for _ in range(70)]
    group = group_of(rows)
    segment = segment_over([(group.uid, 70)])
    pages = pages_of(segment)
    job.stage(job.part(4, [group], [], [RowBatch(group.uid, 0, rows[:64])]))
    job.stage(job.part(2, [group], [segment], [RowBatch(group.uid, 64, rows[64:])], pages))
    assert job.publish(job.commit()).status == 201
    refs = [RowRef(group.uid, ordinal) for ordinal in (5, 69)]
    for ref, told in zip(refs, digests_of(writer, refs, RowDigests), strict=True):
        digests.check_row(ref, rows[ref.ordinal], group.rows, told)


@pytest.mark.both_databases
def test_the_pages_of_a_segment_are_proven_by_its_header_and_their_digests(writer: Writer) -> None:
    rows = [person()]
    group = group_of(rows)
    segment = segment_over([(group.uid, 1)], "paged", pages=3)
    pages = pages_of(segment)
    batch = RowBatch(group.uid, 0, rows)
    upload = writer.make(groups=[group], segments=[segment], rows=[batch], pages=pages)
    writer.send(upload)
    stored = only_segment(upload)
    (told,) = digests_of(writer, [PageRef(segment.uid, 0)], PageDigests)
    digests.check_pages(stored, header_of(segment.uid), told.pages)
    for page in pages:
        digests.check_page(segment.uid, page.number, page.data, told.pages)
        with pytest.raises(Altered, match=f"page {page.number}"):
            digests.check_page(segment.uid, page.number, page.data + b"\0", told.pages)
    with pytest.raises(Altered):
        digests.check_pages(stored, header_of(segment.uid), told.pages[:-32])


def test_the_log_comes_with_the_headers_of_the_segments_that_live_and_no_others(
    writer: Writer,
) -> None:
    first, second = two_rows(writer), None
    writer.send(first)
    second = two_rows(writer)
    writer.send(second)
    assert headers(writer, 0) == [only_segment(first).uid, only_segment(second).uid]
    assert headers(writer, 1) == [only_segment(second).uid]
    assert headers(writer, 2) == []
    merge = writer.merging([only_segment(first), only_segment(second)], [2, 2])
    writer.send(merge)
    assert headers(writer, 0) == headers(writer, 2) == [only_segment(merge).uid]
    (delta,) = writer.manifest(0)
    (header,) = delta.headers
    assert header == header_of(only_segment(merge).uid)
    log = b"".join(entry.commit.body for entry in delta.entries)
    for upload in (first, second, merge):
        assert upload.headers[0].data not in log
        assert upload.headers[0].salt not in log


def headers(writer: Writer, since: int) -> list[bytes]:
    return [header.segment for delta in writer.manifest(since) for header in delta.headers]


def test_nothing_is_proven_of_what_is_not_there(writer: Writer, bob: Account) -> None:
    upload = two_rows(writer)
    writer.send(upload)
    row, page = first_row(upload), PageRef(only_segment(upload).uid, 0)
    for gone, code in (
        (struct(row, ordinal=2), b"row_gone"),
        (struct(row, group=bytes(16)), b"row_gone"),
        (struct(page, segment=bytes(16)), b"segment_gone"),
    ):
        status, body = asked(writer, [gone])
        assert status == 404
        assert code in body
    assert asked(writer, [])[0] == 400
    assert asked(writer, [row] * 101)[0] == 413
    assert asked(writer, [upload.commit])[0] == 400
    assert asked(writer, [row, page])[0] == 200
    path = f"{writer.schema['url']}digests/"
    assert bob.call("POST", path, wire.encode([row]), **FRAMES).status == 404


def test_the_rows_of_blocks_are_named_with_one_sealed_field(writer: Writer) -> None:
    rows = [person() for _ in range(130)]
    upload = writer.adding(rows)
    writer.send(upload)
    [group] = body_of(upload).groups
    field = group.fields[1]
    path = f"{writer.schema['url']}names/"

    def names(*wanted: BlockRef) -> tuple[int, bytes]:
        answer = writer.account.call("POST", path, wire.encode(wanted), **FRAMES)
        return answer.status, answer.body

    asked_for = [BlockRef(group.uid, first, field) for first in (128, 0)]
    status, body = names(*asked_for)
    assert status == 200, body
    told = wire.decode_all(body, BlockNames)
    assert [(one.group, one.first, one.field, len(one.rows)) for one in told] == [
        (group.uid, 128, field, 2),
        (group.uid, 0, field, 64),
    ]
    for block in told:
        for named, row in zip(block.rows, rows[block.first :], strict=False):
            assert named is not None
            assert (named.record_id, named.version) == (row.record_id, row.version)
            assert named.sealed == row.fields[1]
    for wrong, expected in (
        (BlockRef(group.uid, 1, field), 400),
        (BlockRef(group.uid, 192, field), 404),
        (BlockRef(group.uid, 0, 99), 404),
        (BlockRef(bytes(16), 0, field), 404),
    ):
        assert names(wrong)[0] == expected
    assert names()[0] == 400
    assert names(*[asked_for[0]] * 65)[0] == 413

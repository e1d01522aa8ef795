"""What is not sealed, complete and consistent is refused, whoever sends it."""

from __future__ import annotations

import os

import msgspec
import pytest

from encrypted_records.model import wire
from encrypted_records.model.records import (
    CommitUpload,
    Page,
    RowBatch,
    RowRef,
    SealedRow,
    Segment,
)
from encrypted_records.model.shapes import padded_length
from tests.server.api import Account
from tests.server.writer import (
    FRAMES,
    Writer,
    body_of,
    group_of,
    pages_of,
    person,
    sealed_number,
    sealed_page,
    sealed_string,
    segment_over,
)


@pytest.fixture(scope="module")
def writer(ada: Account) -> Writer:
    return Writer(ada, ada.new_schema())


def with_row(writer: Writer, row: SealedRow) -> CommitUpload:
    return writer.adding([person(), row])


def sealed_as(name: bytes, age: bytes) -> SealedRow:
    return msgspec.structs.replace(person(), fields=[name, age])


@pytest.mark.parametrize(
    ("name", "age"),
    [
        (b"Ada Lovelace", sealed_number()),
        (b"", sealed_number()),
        (sealed_string()[1:], sealed_number()),
        (b"\x02" + sealed_string()[1:], sealed_number()),
        (sealed_string(17), sealed_number()),
        (sealed_string(0), sealed_number()),
        (sealed_string(65), sealed_number()),
        (sealed_string(), sealed_number() + b"x"),
        (sealed_string(), sealed_string()),
        (sealed_string(), b"42"),
        (sealed_number(), sealed_number()),
    ],
    ids=[
        *("plaintext", "nothing", "cut", "other version", "odd length", "no padding"),
        *("no Padmé length", "long number", "string for a number", "digits", "number for a string"),
    ],
)
def test_what_cannot_be_ciphertext_is_refused(writer: Writer, name: bytes, age: bytes) -> None:
    assert writer.refused(with_row(writer, sealed_as(name, age))) == (400, "not_sealed")


def test_every_length_class_of_strings_is_taken(ada: Account) -> None:
    writer = Writer(ada, ada.new_schema())
    lengths = [16, 32, 48, 64, padded_length(65), padded_length(1000), padded_length((1 << 20) + 1)]
    rows = [sealed_as(sealed_string(length), sealed_number()) for length in lengths]
    writer.send(writer.adding(rows))


def test_rows_must_have_one_value_per_field_and_a_version(writer: Writer) -> None:
    short = msgspec.structs.replace(person(), fields=[sealed_string()])
    assert writer.refused(with_row(writer, short)) == (400, "invalid_commit")
    assert writer.refused(with_row(writer, person(version=0))) == (400, "invalid_commit")


@pytest.mark.parametrize("fields", [["name", "name"], ["name", "other"], ["age"], ["age", "x"]])
def test_a_group_names_fields_of_the_schema(writer: Writer, fields: list[str]) -> None:
    rows = [msgspec.structs.replace(person(), fields=[sealed_number()] * len(fields))]
    group = group_of(rows, fields)
    segment = segment_over([(group.uid, 1)])
    batch = RowBatch(group.uid, 0, rows)
    upload = writer.make(groups=[group], segments=[segment], rows=[batch], pages=pages_of(segment))
    assert writer.refused(upload) == (400, "invalid_commit")


def test_the_content_must_be_what_the_commit_was_made_for(writer: Writer) -> None:
    upload = writer.adding([person()])
    other = writer.adding([person()])
    swapped = CommitUpload(upload.commit, other.rows, upload.pages)
    assert writer.refused(swapped) == (400, "invalid_commit")
    assert writer.refused(CommitUpload(upload.commit)) == (400, "invalid_commit")


def test_rows_and_pages_must_be_complete_and_in_order(writer: Writer) -> None:
    rows = [person(), person()]
    group = group_of(rows)
    mini = segment_over([(group.uid, 2)])
    paged = segment_over([(group.uid, 2)], "paged", pages=2)
    whole = [RowBatch(group.uid, 0, rows)]
    pages = pages_of(mini)
    two = pages_of(paged)
    wrong: list[tuple[list[RowBatch], Segment, list[Page]]] = [
        ([RowBatch(group.uid, 0, rows[:1])], mini, pages),
        ([RowBatch(group.uid, 1, rows[1:]), RowBatch(group.uid, 0, rows[:1])], mini, pages),
        ([*whole, *whole], mini, pages),
        ([*whole, RowBatch(os.urandom(16), 0, rows)], mini, pages),
        ([], mini, pages),
        (whole, mini, []),
        (whole, mini, [*pages, *pages]),
        (whole, mini, [*pages, Page(os.urandom(16), 0, sealed_page())]),
        (whole, paged, two[:1]),
        (whole, paged, two[::-1]),
        (whole, paged, [two[0], Page(paged.uid, 1, sealed_page("mini"))]),
        (whole, mini, [Page(mini.uid, 0, b"plain text of a page, not sealed")]),
        (whole, mini, [Page(mini.uid, 0, b"\x01")]),
    ]
    for batches, segment, sent in wrong:
        upload = writer.make(groups=[group], segments=[segment], rows=batches, pages=sent)
        assert writer.refused(upload) == (400, "invalid_commit")


def test_segments_must_cover_the_new_groups_each_once(writer: Writer) -> None:
    rows = [person(), person()]
    group = group_of(rows)
    batch = [RowBatch(group.uid, 0, rows)]
    uid = group.uid
    wrong = [
        [],
        [segment_over([(uid, 1)])],
        [segment_over([(uid, 2), (os.urandom(16), 1)])],
        [segment_over([(uid, 2)]), segment_over([(uid, 2)])],
        [msgspec.structs.replace(segment_over([(uid, 2)]), groups=[(uid, 1)])],
        [segment_over([(uid, 2)], pages=2)],
        [segment_over([(uid, 2)], purged=1)],
    ]
    for segments in wrong:
        pages = [page for segment in segments for page in pages_of(segment)]
        upload = writer.make(groups=[group], segments=segments, rows=batch, pages=pages)
        assert writer.refused(upload) == (400, "invalid_commit")


def test_a_mini_segment_is_mini(writer: Writer) -> None:
    assert writer.refused(writer.adding([person() for _ in range(4097)])) == (
        400,
        "invalid_commit",
    )


def test_a_commit_does_something_and_names_things_once(writer: Writer) -> None:
    assert writer.refused(writer.make()) == (400, "invalid_commit")
    ref = RowRef(os.urandom(16), 0)
    assert writer.refused(writer.make(killed=[ref, ref])) == (400, "invalid_commit")
    upload = writer.adding([person()])
    body = body_of(upload)
    doubled = writer.make(
        groups=[*body.groups, *body.groups],
        segments=body.segments,
        rows=upload.rows,
        pages=upload.pages,
    )
    assert writer.refused(doubled) == (400, "invalid_commit")


def test_bodies_that_are_no_frames_are_refused(writer: Writer) -> None:
    upload = b"".join(wire.encode_uploads([writer.adding([person()])]))
    row = wire.encode([RowBatch(os.urandom(16), 0, [person()])])
    wrong = {
        b"": (400, "malformed_frame"),
        b"{}": (415, "unsupported"),
        b"ERS1": (400, "malformed_frame"),
        upload[:-1]: (400, "malformed_frame"),
        upload[:30]: (400, "malformed_frame"),
        upload + b"\xff": (400, "malformed_frame"),
        row: (400, "malformed_frame"),
    }
    for body, expected in wrong.items():
        answer = writer.account.call("POST", "/api/commits/", body, **FRAMES)
        assert (answer.status, answer.code) == expected, body[:40]
    as_json = writer.account.call("POST", "/api/commits/", upload)
    assert (as_json.status, as_json.code) == (415, "unsupported_media_type")
    assert writer.manifest()[0].version == 0

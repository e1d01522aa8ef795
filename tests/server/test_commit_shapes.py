"""What is not sealed, complete and consistent is refused, whoever sends it."""

from __future__ import annotations

import os

import msgspec
import pytest

from encrypted_records.model import wire
from encrypted_records.model.ciphertext_lengths import NUMBER_CLASS, LeastClass, padded_length
from encrypted_records.model.records import CommitUpload, Page, RowBatch, RowRef, SealedRow, Segment
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
        (sealed_string(16), sealed_number()),
        (sealed_string(65), sealed_number()),
        (sealed_string(), sealed_number() + b"x"),
        (sealed_string(), sealed_string()),
        (sealed_string(), b"42"),
        (sealed_number(), sealed_number()),
    ],
    ids=[
        *(
            "plaintext",
            "nothing",
            "cut",
            "other version",
            "odd length",
            "no padding",
            "a length class below",
        ),
        *("no Padmé length", "long number", "string for a number", "digits", "number for a string"),
    ],
)
def test_what_cannot_be_ciphertext_is_refused(writer: Writer, name: bytes, age: bytes) -> None:
    assert writer.refused(with_row(writer, sealed_as(name, age))) == (400, "not_sealed")


def test_every_length_class_of_strings_is_taken(ada: Account) -> None:
    writer = Writer(ada, ada.new_schema())
    lengths = [32, 48, 64, padded_length(65), padded_length(1000), padded_length((1 << 20) + 1)]
    rows = [sealed_as(sealed_string(length), sealed_number()) for length in lengths]
    writer.send(writer.adding(rows))


CHOICE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "padTo": 40},
        "kind": {"type": "string", "enum": ["a", "x" * 50]},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
    },
}
CLASSES = {"name": LeastClass(48, 0), "kind": LeastClass(64, 1), "age": NUMBER_CLASS}


def a_choice(name: int = 48, kind: int = 64) -> SealedRow:
    fields = [sealed_string(name), sealed_string(kind), sealed_number()]
    return msgspec.structs.replace(person(), fields=fields)


def as_list(changed: dict[str, LeastClass]) -> list[LeastClass]:
    """The classes of the fields, some of them changed."""
    return list((CLASSES | changed).values())


@pytest.fixture(scope="module")
def chooser(ada: Account) -> Writer:
    return Writer(ada, ada.new_schema(CHOICE))


def test_a_field_has_the_lengths_that_its_group_states_and_no_others(chooser: Writer) -> None:
    def of(row: SealedRow, **classes: LeastClass) -> CommitUpload:
        return chooser.adding([a_choice(), row], classes=as_list(classes))

    for short in (a_choice(name=32), a_choice(kind=32), a_choice(kind=72), a_choice(name=65)):
        assert chooser.refused(of(short)) == (400, "not_sealed")
    # Nor the definition's, where the group states more.
    assert chooser.refused(of(a_choice(), name=LeastClass(64, 0))) == (400, "not_sealed")
    chooser.send(of(a_choice()))
    chooser.send(of(a_choice(name=72)))


@pytest.mark.parametrize(
    "stated",
    [
        {"name": LeastClass(32, 0)},
        {"name": LeastClass(49, 0)},
        {"kind": LeastClass(64, 0)},
        {"kind": LeastClass(48, 1)},
        {"age": LeastClass(32, 0)},
        {"age": LeastClass(16, 1)},
        {"age": LeastClass(8, 0)},
        {"kind": NUMBER_CLASS},
    ],
    ids=str,
)
def test_a_group_states_no_less_than_its_definition_asks_for(
    chooser: Writer, stated: dict[str, LeastClass]
) -> None:
    row = a_choice(*(stated.get(name, CLASSES[name]).length for name in ("name", "kind")))
    upload = chooser.adding([row], classes=as_list(stated))
    assert chooser.refused(upload) == (400, "invalid_commit")


def test_a_group_may_state_more_than_its_definition_asks_for(chooser: Writer) -> None:
    """As of records that are sealed again after a rule was loosened."""
    more = {"name": LeastClass(64, 0), "kind": LeastClass(88, 1)}
    rows = [a_choice(64, 88), a_choice(72, 88)]
    chooser.send(chooser.adding(rows, classes=as_list(more)))


def test_a_group_states_a_class_for_each_field(chooser: Writer) -> None:
    rows = [a_choice()]
    for classes in ([*CLASSES.values()][:2], [*CLASSES.values(), NUMBER_CLASS]):
        group = group_of(rows, chooser.fields, 1, as_list({}), chooser.definition)
        segment = segment_over([(group.uid, 1)], definition=chooser.definition)
        upload = chooser.make(
            groups=[msgspec.structs.replace(group, classes=classes)],
            segments=[segment],
            rows=[RowBatch(group.uid, 0, rows)],
            pages=pages_of(segment),
        )
        assert chooser.refused(upload) == (400, "invalid_commit")


def test_rows_must_have_one_value_per_field_and_a_version(writer: Writer) -> None:
    short = msgspec.structs.replace(person(), fields=[sealed_string()])
    assert writer.refused(with_row(writer, short)) == (400, "invalid_commit")
    assert writer.refused(with_row(writer, person(version=0))) == (400, "invalid_commit")


@pytest.mark.parametrize("fields", [[2, 2], [2, 3], [1], [1, 2]])
def test_a_group_has_the_fields_of_its_definition(writer: Writer, fields: list[int]) -> None:
    rows = [msgspec.structs.replace(person(), fields=[sealed_number()] * len(fields))]
    group = group_of(rows, fields)
    segment = segment_over([(group.uid, 1)])
    batch = RowBatch(group.uid, 0, rows)
    upload = writer.make(groups=[group], segments=[segment], rows=[batch], pages=pages_of(segment))
    assert writer.refused(upload) == (400, "invalid_commit")


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
    assert writer.refused(writer.make(definition_text=b"")) == (400, "invalid_commit")
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

"""A body is an array of 1 to 100 record objects, or refused with the rows that are none."""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import BadInput, InvalidRecords, Malformed, TooLarge
from encrypted_records.ingest.blocks import RawRecord, RecordStart, UnreadRow
from encrypted_records.ingest.parsing import ArrayParser, parse_records

PATH = "/api/schemas/x/"


def body(*records: Any) -> bytes:
    return json.dumps(records).encode()


def record(**data: Any) -> dict[str, Any]:
    return {"schema": PATH, "data": data}


def test_records_come_in_order_with_their_rows_and_exact_numbers() -> None:
    text = f'[{{"data": {{"n": 0.10}}, "schema": "{PATH}"}}, {{"schema": null, "data": {{}}}}]'
    assert parse_records(text.encode()) == [
        RawRecord(1, PATH, {"n": Decimal("0.10")}),
        RawRecord(2, None, {}),
    ]


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert len(parse_records(b"\xef\xbb\xbf" + body(record()))) == 1


def test_100_records_are_taken_and_101_are_not() -> None:
    assert [parse_record.row for parse_record in parse_records(body(*[record()] * 100))] == list(
        range(1, 101)
    )
    with pytest.raises(TooLarge) as caught:
        parse_records(body(*[record()] * 101))
    assert caught.value.reason == "too_many_records"
    assert len(parse_records(body(*[record()] * 5), limit=5)) == 5


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b"null", b"1", b'"[]"', body(record())[1:-1]], ids=repr
)
def test_what_is_no_array_of_records_is_refused(text: bytes) -> None:
    with pytest.raises((InvalidRecords, Malformed)):
        parse_records(text)


def test_every_row_of_a_wrong_shape_is_named() -> None:
    wrong: list[Any] = [
        1,
        None,
        [],
        {},
        {"schema": PATH},
        {"data": {}},
        {"schema": PATH, "data": []},
        {"schema": PATH, "data": None},
    ]
    with pytest.raises(InvalidRecords) as caught:
        parse_records(body(record(), *wrong))
    flaws = caught.value.flaws
    assert [(flaw.row, flaw.pointer) for flaw in flaws] == [
        (row, f"/{row - 1}") for row in range(2, 2 + len(wrong))
    ]
    assert {flaw.code for flaw in flaws} == {"record"}


@pytest.mark.parametrize(
    "data",
    [
        '{"a": 1, "a": 1}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"\\udc00": 1}',
        '{"a": 1e9999999999999999999}',
    ],
)
def test_data_that_two_readers_would_read_differently_is_malformed(data: str) -> None:
    with pytest.raises(Malformed):
        parse_records(f'[{{"schema": "{PATH}", "data": {data}}}]'.encode())


@given(st.binary(max_size=50))
def test_any_body_is_records_or_refused(text: bytes) -> None:
    with suppress(BadInput):
        parse_records(text)


def test_a_member_that_a_record_does_not_have_is_named_with_row_and_pointer() -> None:
    with pytest.raises(InvalidRecords) as caught:
        parse_records(body(record(), {"schema": PATH, "data": {}, "a/b": 1, "id": 2}))
    found = [(flaw.code, flaw.row, flaw.pointer) for flaw in caught.value.flaws]
    assert found == [("unknown_member", 2, "/1/a~1b"), ("read_only", 2, "/1/id")]


ID = "2JaAHbUFRrDR2CfzCdVaQL"
OTHER = "2JaAHbVvbCkSDcfCkoKpxP"


@pytest.mark.parametrize(
    ("shown", "wrong"),
    [
        ({"id": ID, "url": f"/api/records/{ID}/"}, []),
        ({"url": f"/api/records/{ID}/", "version": 3, "proven": False}, []),
        ({"id": 7}, ["id"]),
        ({"id": "7"}, ["id"]),
        ({"id": ID, "url": f"/api/records/{OTHER}/"}, ["url"]),
        ({"id": ID, "url": f"/api/schemas/{ID}/"}, ["url"]),
        ({"url": "https://example.org/"}, ["url"]),
        ({"url": None}, ["url"]),
        ({"version": "2.0", "proven": 1}, ["version", "proven"]),
        ({"version": True}, ["version"]),
        ({"rounded": ["a"]}, []),
        ({"rounded": ["b"]}, ["rounded"]),
        ({"rounded": 1.5}, ["rounded"]),
    ],
    ids=str,
)
def test_a_record_is_taken_as_it_was_shown_and_what_no_answer_had_is_named(
    shown: dict[str, Any], wrong: list[str]
) -> None:
    sent = {**record(a=1), **shown}
    lines = ArrayParser(RecordStart(0, 1), schema_named=False)
    blocks = [*lines.feed(f"{json.dumps(sent)}]".encode()), *lines.finish()]
    [of_job] = [one for block in blocks for one in block.records]
    if not wrong:
        assert parse_records(body(sent)) == [RawRecord(1, PATH, {"a": 1})] == [of_job]
        return
    with pytest.raises(InvalidRecords) as caught:
        parse_records(body(sent))
    assert [(flaw.code, flaw.pointer) for flaw in caught.value.flaws] == [
        ("read_only", f"/0/{name}") for name in wrong
    ]
    assert isinstance(of_job, UnreadRow)
    assert of_job.error.code == "read_only"
    assert of_job.error.detail.startswith(wrong[0])

"""Rows that stay packed are judged as their fields are, one by one."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import Malformed
from encrypted_records.model import digests, wire
from encrypted_records.model.ciphertext_lengths import (
    BESIDE_CLASS,
    NUMBER_CLASS,
    LeastClass,
    are_sealed_fields,
)
from encrypted_records.model.records import (
    PackedRow,
    PackedRowBatch,
    Part,
    PartUpload,
    RowBatch,
    SealedRow,
    are_packed_fields,
    pack_bodies,
    sealed_rows,
)

UID = bytes(range(16))
PART = Part(UID, 0, bytes(32), [], [], 0)
CLASSES = [
    NUMBER_CLASS,
    LeastClass(10, 1),
    LeastClass(16, 1),
    LeastClass(16, 0),
    LeastClass(32, 1),
    LeastClass(224, 0),
    LeastClass(240, 0),
    LeastClass(69632, 0),
]
#: On both sides of where MessagePack writes a length in more bytes.
LENGTHS = [0, 8, 10, 16, 32, 48, 64, 72, 224, 236, 237, 238, 240, 256, 65516, 65536, 69632]


def of_length(length: int, version: int = 1) -> bytes:
    return bytes([version]) + os.urandom(length + BESIDE_CLASS - 1)


@st.composite
def fields(draw: st.DrawFn, stated: LeastClass) -> bytes:
    """Mostly as the class has it, sometimes not."""
    own = (
        [stated.length]
        if stated.only
        else [length for length in LENGTHS if length >= stated.length]
    )
    odd = draw(st.integers(0, 40)) == 0
    length = draw(st.sampled_from(LENGTHS if odd else [stated.length, *own]))
    return of_length(length, draw(st.sampled_from([1] * 40 + [0, 2])))


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[LeastClass], list[list[bytes]]]:
    classes = draw(st.lists(st.sampled_from(CLASSES), min_size=1, max_size=20))
    rows = draw(st.lists(st.tuples(*map(fields, classes)).map(list), max_size=4))
    # Rows of one length are looked at together.
    rows += [list(row) for row in rows[:1] * draw(st.integers(0, 2))]
    if rows and draw(st.integers(0, 9)) == 0:
        rows[-1] = rows[-1][: draw(st.integers(0, len(classes)))]
    return classes, rows


def packed(rows: Sequence[Sequence[bytes]]) -> list[msgspec.Raw]:
    return [msgspec.Raw(digests.pack_fields(row)) for row in rows]


@given(groups())
def test_packed_rows_are_taken_where_their_fields_would_be(
    drawn: tuple[list[LeastClass], list[list[bytes]]],
) -> None:
    classes, rows = drawn
    whole = all(len(row) == len(classes) for row in rows)
    sound = whole and all(map(are_sealed_fields, zip(*rows, strict=True), classes))
    assert are_packed_fields(packed(rows), classes) == (sound or not rows)


@given(groups(), st.data())
def test_rows_that_were_packed_otherwise_are_refused(
    drawn: tuple[list[LeastClass], list[list[bytes]]], data: st.DataObject
) -> None:
    classes, rows = drawn
    every = packed(rows)
    if not every:
        return
    at = data.draw(st.integers(0, len(every) - 1))
    whole = bytes(every[at])
    cut = data.draw(st.integers(0, min(len(whole) - 1, 60)))
    other = data.draw(
        st.sampled_from(
            [
                whole[:cut] + data.draw(st.binary(min_size=1, max_size=3)) + whole[cut:],
                whole[:cut] + whole[cut + 1 :],
                whole[:cut]
                + bytes([whole[cut] ^ 1 << data.draw(st.integers(0, 7))])
                + whole[cut + 1 :],
            ]
        )
    )
    every[at] = msgspec.Raw(other)
    try:
        own = msgspec.msgpack.decode(other, type=list[bytes])
        fits = len(own) == len(classes) and digests.pack_fields(own) == other
        fits = fits and all(map(are_sealed_fields, [[one] for one in own], classes))
    except msgspec.DecodeError:
        fits = False
    rest = [row for number, row in enumerate(rows) if number != at]
    sound = all(len(row) == len(classes) for row in rest) and all(
        map(are_sealed_fields, zip(*rest, strict=True), classes)
    )
    assert are_packed_fields(every, classes) == (fits and (sound or not rest))


@given(
    st.lists(
        st.tuples(st.sampled_from(LENGTHS), st.sampled_from(LENGTHS)), min_size=1, max_size=17
    ),
    st.integers(1, 3),
)
def test_columns_of_ciphertexts_are_packed_as_the_fields_of_each_row_are(
    lengths: list[tuple[int, int]], rows: int
) -> None:
    columns = [[of_length(length[at % 2]) for at in range(rows)] for length in lengths]
    bodies = [[one[1:] for one in column] for column in columns]
    assert pack_bodies(bodies) == [digests.pack_fields(row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize(
    "longer",
    [
        b"\x91\xc5\x00\x1a",
        b"\x91\xc6\x00\x00\x00\x1a",
        b"\xdc\x00\x01\xc4\x1a",
        b"\xdd\x00\x00\x00\x01\xc4\x1a",
    ],
)
def test_a_row_has_one_packed_form(longer: bytes) -> None:
    field = of_length(8)
    assert digests.pack_fields([field]) == b"\x91\xc4\x1a" + field
    assert are_packed_fields(packed([[field]]), [NUMBER_CLASS])
    # A reader of MessagePack takes it for the same; its digest would be another.
    assert msgspec.msgpack.decode(longer + field) == [field]
    assert not are_packed_fields([msgspec.Raw(longer + field)], [NUMBER_CLASS])


def test_a_part_is_read_packed_and_has_the_bytes_of_its_rows() -> None:
    rows = [SealedRow(UID, 1, [of_length(8), of_length(300)]), None]
    body = b"".join(wire.encode_parts([PART, RowBatch(UID, 64, rows)]))
    upload = wire.decode_part(body)
    [batch] = upload.rows
    assert (batch.group, batch.first, sealed_rows(batch)) == (UID, 64, rows)
    assert batch.present == rows[:1]
    assert b"".join(wire.encode_part(upload)) == body
    again = PartUpload(PART, (PackedRowBatch(UID, 64, list(batch.rows)),))
    assert b"".join(wire.encode_part(again)) == body


@pytest.mark.parametrize(
    "row", [[UID, 1], [UID[1:], 1, []], [UID, -1, []], [UID, 1, [], 0], {"record_id": UID}]
)
def test_what_is_no_row_is_no_packed_row(row: object) -> None:
    body = b"".join(wire.encode_parts([PART, RowBatch(UID, 0, [])]))
    payload = msgspec.msgpack.encode([UID, 0, [row]])
    head = body.rindex(b"\x02" + len(msgspec.msgpack.encode([UID, 0, []])).to_bytes(4, "big"))
    body = body[:head] + b"\x02" + len(payload).to_bytes(4, "big") + payload
    with pytest.raises(Malformed):
        wire.decode_part(body)


def test_a_packed_row_gives_its_fields() -> None:
    own = [of_length(8), of_length(16)]
    row = PackedRow(UID, 1, msgspec.Raw(digests.pack_fields(own)))
    assert row.fields == own

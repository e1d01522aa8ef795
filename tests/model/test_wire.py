"""Bodies survive the wire, and whatever is no body is refused as a whole, by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.errors import Malformed, Unsupported
from encrypted_records.model import wire
from encrypted_records.model.ciphertext_lengths import NUMBER_CLASS, LeastClass
from encrypted_records.model.records import (
    BlockNames,
    BlockRef,
    Commit,
    CommitBody,
    CommitUpload,
    Group,
    GroupSalt,
    KilledRows,
    LogEntry,
    ManifestDelta,
    Page,
    PageDigests,
    PageRef,
    Receipt,
    RowBatch,
    RowDigests,
    RowName,
    RowRef,
    SealedRow,
    Segment,
    SegmentHeader,
    StoredRow,
)
from tests.reference.msgpack import pack

UID, DIGEST, KEY_ID = bytes(range(16)), bytes(range(32)), bytes(range(8))
uids = st.binary(min_size=16, max_size=16)
u32 = st.integers(0, 2**32 - 1)
rows = st.builds(SealedRow, uids, u32, st.lists(st.binary(max_size=20), max_size=3))
commits = st.builds(Commit, st.binary(max_size=40), st.binary(min_size=32, max_size=32))
batches = st.builds(RowBatch, uids, u32, st.lists(rows, max_size=3))
pages = st.builds(Page, uids, u32, st.binary(max_size=300))
digests = st.binary(min_size=32, max_size=32)
headers = st.builds(SegmentHeader, uids, digests, st.binary(min_size=1, max_size=60))
deltas = st.builds(
    ManifestDelta,
    uids,
    st.integers(0, 2**63 - 1),
    st.none() | st.binary(min_size=8, max_size=8),
    st.binary(min_size=32, max_size=32),
    st.lists(st.builds(LogEntry, st.integers(1, 2**63 - 1), commits), max_size=2),
    st.lists(headers, max_size=2),
)
structs = st.one_of(
    commits,
    batches,
    pages,
    deltas,
    headers,
    st.builds(GroupSalt, uids, digests),
    st.builds(RowDigests, uids, digests, u32, st.binary(max_size=64), st.binary(max_size=64)),
    st.builds(PageDigests, uids, st.binary(max_size=64)),
    st.builds(RowRef, uids, u32),
    st.builds(BlockRef, uids, u32, st.integers(1, 2**32 - 1)),
    st.builds(
        BlockNames,
        uids,
        u32,
        st.integers(1, 2**32 - 1),
        st.lists(st.none() | st.builds(RowName, uids, u32, st.binary(max_size=20)), max_size=3),
    ),
    st.builds(PageRef, uids, u32),
    st.builds(StoredRow, uids, u32, rows),
    st.builds(Receipt, uids, uids, st.integers(1, 2**63 - 1)),
)

ANY_TEXT = LeastClass(32, 0)
GROUP = Group(UID, 1, 3, [1, 2], [NUMBER_CLASS, ANY_TEXT], DIGEST, DIGEST)
SEGMENT = Segment(UID, "mini", 1, 3, 0, [(UID, 0)], 1, DIGEST, DIGEST)
BODY = CommitBody(
    *(1, UID, UID, KEY_ID, 1, 2, DIGEST, UID, DIGEST, b"", UID, 1, DIGEST, 0, DIGEST),
    *([GROUP], [SEGMENT], [KilledRows(UID, [(0, 2)])], [UID], [UID], 1),
    *([UID], [KilledRows(UID, [(0, 1)])]),
)


def refusal(body: bytes) -> str:
    with pytest.raises((Malformed, Unsupported)) as caught:
        list(wire.decode(body))
    return caught.value.reason


def frame(kind: int, payload: bytes) -> bytes:
    return wire.MAGIC + bytes((kind,)) + len(payload).to_bytes(4, "big") + payload


@given(st.lists(structs, max_size=5))
def test_a_body_survives_the_wire(items: list[msgspec.Struct]) -> None:
    body = wire.encode(items)
    assert list(wire.decode(body)) == items
    assert b"".join(wire.encode_parts(items)) == body


@given(st.lists(structs, max_size=3), st.data())
def test_a_mutated_body_is_another_body_or_refused_by_name(
    items: list[msgspec.Struct], data: st.DataObject
) -> None:
    body = bytearray(wire.encode(items))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    assert_closed(bytes(body))
    assert_closed(bytes(body[: data.draw(st.integers(0, len(body)))]))


@given(st.integers(0, 17), st.binary(max_size=60))
def test_any_payload_is_a_struct_or_refused_by_name(kind: int, payload: bytes) -> None:
    assert_closed(frame(kind, payload))


def assert_closed(body: bytes) -> None:
    """Read as every kind of body that there is: nothing but our own refusals comes out."""
    for read in (
        lambda: list(wire.decode(body)),
        lambda: wire.decode_uploads(body),
        lambda: wire.decode_single(body, Commit),
        lambda: wire.decode_all(body, RowRef),
        lambda: wire.decode_commit_body(Commit(body, DIGEST, b"")),
    ):
        try:
            found: Any = read()
        except (Malformed, Unsupported):
            continue
        if isinstance(found, list) and all(isinstance(item, msgspec.Struct) for item in found):
            assert list(wire.decode(wire.encode(found))) == found


@given(st.lists(structs, min_size=1, max_size=3), st.data())
def test_a_body_cut_within_a_frame_is_refused(
    items: list[msgspec.Struct], data: st.DataObject
) -> None:
    body = wire.encode(items)
    ends = {len(wire.encode(items[:count])) for count in range(len(items) + 1)}
    at = data.draw(st.integers(4, len(body) - 1).filter(lambda at: at not in ends))
    assert refusal(body[:at]) == "malformed_frame"


@pytest.mark.parametrize("body", [b"", b"ERS", b"ERS2", b"ers1", b"\x00ERS1"], ids=repr)
def test_another_format_is_unsupported(body: bytes) -> None:
    assert refusal(body) == "unsupported"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        pack([UID]),
        pack([UID, 0, 0]),
        pack([UID[:15], 0]),
        pack([UID + b"\0", 0]),
        pack([UID, 2**32]),
        pack([str(UID, "ascii"), 0]),
        b"\x92" + pack(UID) + b"\xff",
        b"\x92" + pack(UID) + b"\xcb" + bytes(8),
        b"\x92" + pack(UID) + b"\xc3",
        b"\x82" + pack("group") + pack(UID) + pack("ordinal") + pack(0),
        pack([UID, 0]) + b"\x00",
        b"\xdd\xff\xff\xff\xff",
        b"\x91" * 100_000,
    ],
    ids=lambda payload: payload[:40].hex(),
)
def test_a_frame_that_is_not_exactly_its_struct_is_refused(payload: bytes) -> None:
    assert list(wire.decode(frame(5, pack([UID, 0])))) == [RowRef(UID, 0)]
    assert refusal(frame(5, payload)) == "malformed_frame"


@pytest.mark.parametrize("kind", [0, 9, 255])
def test_a_frame_of_an_unknown_kind_is_refused(kind: int) -> None:
    assert refusal(frame(kind, pack([UID, 0]))) == "malformed_frame"


def test_a_whole_struct_in_a_frame_that_announces_more_is_refused() -> None:
    payload = pack([UID, 0])
    body = wire.MAGIC + b"\x05" + (len(payload) + 1).to_bytes(4, "big") + payload
    assert refusal(body) == "malformed_frame"


def test_a_length_beyond_the_limit_is_refused_before_anything_is_read() -> None:
    body = wire.MAGIC + b"\x03" + (wire.MAX_FRAME_BYTES + 1).to_bytes(4, "big")
    assert refusal(body + bytes(100)) == "malformed_frame"


def test_huge_arrays_that_are_only_announced_take_no_memory() -> None:
    assert refusal(frame(2, b"\x93" + pack(UID) + b"\x00\xdd\xff\xff\xff\xff")) == "malformed_frame"


def test_the_refusal_never_repeats_the_input() -> None:
    with pytest.raises(Malformed) as caught:
        list(wire.decode(frame(2, pack([UID, 0, ["secret", "secret"]]))))
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_bodies_of_one_kind_hold_nothing_else() -> None:
    refs: list[msgspec.Struct] = [RowRef(UID, 0), RowRef(UID, 1)]
    assert wire.decode_all(wire.encode(refs), RowRef) == refs
    assert wire.decode_all(wire.encode([]), RowRef) == []
    assert wire.decode_single(wire.encode(refs[:1]), RowRef) == refs[0]
    for items in ([], refs, [PageRef(UID, 0)]):
        with pytest.raises(Malformed):
            wire.decode_single(wire.encode(items), RowRef)
    with pytest.raises(Malformed):
        wire.decode_all(wire.encode([*refs, PageRef(UID, 0)]), RowRef)


uploads = st.builds(
    CommitUpload,
    commits,
    st.lists(batches, max_size=2).map(tuple),
    st.lists(pages, max_size=2).map(tuple),
)


@given(st.lists(uploads, min_size=1, max_size=3))
def test_uploads_survive_the_wire(items: list[CommitUpload]) -> None:
    assert wire.decode_uploads(b"".join(wire.encode_uploads(items))) == items


@pytest.mark.parametrize(
    "items",
    [
        [],
        [RowBatch(UID, 0, [])],
        [Page(UID, 0, b""), Commit(b"", DIGEST, b"")],
        [Commit(b"", DIGEST, b""), RowRef(UID, 0)],
    ],
    ids=["nothing", "rows first", "pages first", "a foreign frame"],
)
def test_uploads_begin_with_a_commit_and_hold_rows_and_pages_only(
    items: list[msgspec.Struct],
) -> None:
    with pytest.raises(Malformed):
        wire.decode_uploads(wire.encode(items))


def test_a_commit_body_survives_and_its_encoding_is_the_specified_one() -> None:
    body = wire.encode_commit_body(BODY)
    assert wire.decode_commit_body(Commit(body, DIGEST, b"")) == BODY
    expected = [
        *(1, UID, UID, KEY_ID, 1, 2, DIGEST, UID, DIGEST, b"", UID, 1, DIGEST, 0, DIGEST),
        [[UID, 1, 3, [1, 2], [[8, 1], [32, 0]], DIGEST, DIGEST]],
        [[UID, "mini", 1, 3, 0, [[UID, 0]], 1, DIGEST, DIGEST]],
        *([[UID, [[0, 2]]]], [UID], [UID], 1, [UID], [[UID, [[0, 1]]]]),
    ]
    assert body == pack(expected)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"id": UID[1:]},
        {"key_id": bytes(9)},
        {"key_version": 0},
        {"counter": 0},
        {"counter": 2**63},
        {"seen": -1},
        {"previous": bytes(31)},
        {"groups": [Group(UID, 1, 0, [1], [ANY_TEXT], DIGEST, DIGEST)]},
        {"groups": [Group(UID, 1, 2**20 + 1, [1], [ANY_TEXT], DIGEST, DIGEST)]},
        {"groups": [Group(UID, 1, 1, [], [ANY_TEXT], DIGEST, DIGEST)]},
        {"groups": [Group(UID, 1, 1, [1], [], DIGEST, DIGEST)]},
        {"groups": [Group(UID, 1, 1, [1], [LeastClass(7, 0)], DIGEST, DIGEST)]},
        {"groups": [Group(UID, 1, 1, [1], [LeastClass(32, 2)], DIGEST, DIGEST)]},  # type: ignore[arg-type]
        {"groups": [Group(UID, 1, 1, [1] * 513, [ANY_TEXT] * 512, DIGEST, DIGEST)]},
        {"segments": [msgspec.structs.replace(SEGMENT, form="tree")]},
        {"segments": [msgspec.structs.replace(SEGMENT, groups=[])]},
        {"segments": [msgspec.structs.replace(SEGMENT, pages=0)]},
        {"segments": [msgspec.structs.replace(SEGMENT, digest=b"")]},
        {"replaced": [b""]},
        {"groups": [Group(UID, 1, 1, [0], [ANY_TEXT], DIGEST, DIGEST)]},
        {"groups": [Group(UID, 1, 1, [1], [ANY_TEXT], b"", DIGEST)]},
        {"groups": [Group(UID, 1, 1, [1], [ANY_TEXT], DIGEST, b"")]},
        {"segments": [msgspec.structs.replace(SEGMENT, definition=b"")]},
    ],
    ids=str,
)
def test_a_commit_body_outside_its_limits_is_refused(change: dict[str, Any]) -> None:
    body = wire.encode_commit_body(msgspec.structs.replace(BODY, **change))
    with pytest.raises(Malformed):
        wire.decode_commit_body(Commit(body, DIGEST, b""))


def test_every_kind_byte_names_one_struct_as_specified() -> None:
    names = {number: kind.__name__ for number, kind in wire.KINDS.items()}
    specified = (
        "Commit RowBatch Page ManifestDelta RowRef PageRef StoredRow Receipt Part RosterEntry"
        " Grant Answer SegmentHeader GroupSalt RowDigests PageDigests BlockRef BlockNames"
        " Checkpoint AccessRequest"
    )
    assert names == dict(enumerate(specified.split(), start=1))

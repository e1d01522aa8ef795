"""A ciphertext opens where it was sealed and nowhere else, and its error tells nothing of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto import sealing
from encrypted_records.crypto.keys import IndexKey, Keyring, MetaKey, RootKey, SchemaKey, SealKey
from encrypted_records.errors import DoesNotOpen

uids = st.binary(min_size=16, max_size=16)
u32 = st.integers(0, 2**32 - 1)
fields = st.binary(max_size=8)
PLACES = st.fixed_dictionaries(
    {
        "key": st.binary(min_size=32, max_size=32),
        "organization": uids,
        "schema": uids,
        "record": uids,
        "version": u32,
        "ordinal": u32,
        "field": fields,
    }
)
SECRET = b"a diagnosis, say"


def schema(place: dict[str, Any]) -> SchemaKey:
    root = Keyring({1: RootKey(bytes(32))})
    return root.schema(place["organization"], place["schema"]).newest


def context(place: dict[str, Any]) -> bytes:
    where = sealing.context_of(schema(place))
    return sealing.record_context(where, place["record"], place["version"])


def seal(place: dict[str, Any]) -> bytes:
    key = SealKey(place["key"])
    return sealing.seal_field(key, place["ordinal"], context(place), place["field"], SECRET)


def open_at(place: dict[str, Any], sealed: bytes) -> bytes:
    key = SealKey(place["key"])
    return sealing.open_field(key, place["ordinal"], context(place), place["field"], sealed)


@given(PLACES)
def test_a_field_opens_where_it_was_sealed(place: dict[str, Any]) -> None:
    assert open_at(place, seal(place)) == SECRET


@given(PLACES, PLACES, st.data())
def test_a_field_opens_at_no_place_that_differs_in_anything(
    place: dict[str, Any], other: dict[str, Any], data: st.DataObject
) -> None:
    """The key is the same, so that only the context stands between the two."""
    moved = data.draw(st.lists(st.sampled_from(sorted(place)), min_size=1, unique=True))
    elsewhere = place | {part: other[part] for part in moved}
    if elsewhere == place:
        return
    with pytest.raises(DoesNotOpen):
        open_at(elsewhere, seal(place))


def test_no_part_of_the_context_can_pass_for_another() -> None:
    """Everything before the field has a fixed length, so bytes cannot wander between the parts."""
    one = sealing.record_context(bytes(33), bytes(16), 1) + b"ab"
    other = sealing.record_context(bytes(33), bytes(16), 1) + b"a"
    assert len(one) == 33 + 16 + 4 + 2
    assert one != other


@given(PLACES, st.data())
def test_no_byte_of_a_sealed_field_can_be_altered(
    place: dict[str, Any], data: st.DataObject
) -> None:
    sealed = bytearray(seal(place))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DoesNotOpen) as caught:
        open_at(place, bytes(sealed))
    assert SECRET.decode() not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@given(PLACES, st.binary(max_size=60))
def test_no_bytes_of_ones_own_making_open(place: dict[str, Any], forged: bytes) -> None:
    with pytest.raises(DoesNotOpen):
        open_at(place, forged)


def test_another_format_version_is_refused_by_name() -> None:
    place = {
        "key": bytes(32),
        "organization": bytes(16),
        "schema": bytes(16),
        "record": bytes(16),
        "version": 1,
        "ordinal": 0,
        "field": b"f",
    }
    with pytest.raises(DoesNotOpen, match="format"):
        open_at(place, b"\x02" + seal(place)[1:])


PAGE: dict[str, Any] = {
    "kind": 1,
    "number": 0,
    "schema_context": bytes(33),
    "segment": bytes(16),
    "field": b"f",
}


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("kind", 2),
        ("number", 1),
        ("schema_context", bytes(32) + b"\x01"),
        ("segment", bytes(15) + b"\x01"),
        ("field", b"g"),
        ("field", b""),
    ],
)
def test_a_page_opens_in_its_place_and_in_no_other(part: str, other: object) -> None:
    key = IndexKey(bytes(32))
    sealed = sealing.seal_page(key, plain=SECRET, **PAGE)
    assert sealing.open_page(key, sealed=sealed, **PAGE) == SECRET
    with pytest.raises(DoesNotOpen):
        sealing.open_page(key, sealed=sealed, **PAGE | {part: other})
    with pytest.raises(DoesNotOpen):
        sealing.open_page(IndexKey(bytes([1] * 32)), sealed=sealed, **PAGE)


def test_a_header_opens_for_its_segment_and_no_other() -> None:
    key, place, segment = MetaKey(bytes(32)), bytes(33), bytes(16)
    sealed = sealing.seal_header(key, SECRET, schema_context=place, segment=segment)
    assert sealing.open_header(key, sealed, schema_context=place, segment=segment) == SECRET
    for other in (
        {"schema_context": place, "segment": bytes([1] * 16)},
        {"schema_context": bytes([1] * 33), "segment": segment},
    ):
        with pytest.raises(DoesNotOpen):
            sealing.open_header(key, sealed, **other)


def test_a_field_a_page_and_a_header_are_never_taken_for_each_other() -> None:
    """Even under one key and with empty field ids, which the tree never gives them."""
    secret, place, uid = bytes(32), bytes(33), bytes(16)
    header = sealing.seal_header(MetaKey(secret), SECRET, schema_context=place, segment=uid)
    page = sealing.seal_page(IndexKey(secret), plain=SECRET, **PAGE | {"field": b""})
    record = sealing.record_context(place, uid, 0)
    for sealed in (header, page):
        with pytest.raises(DoesNotOpen):
            sealing.open_field(SealKey(secret), 0, record, b"", sealed)
    with pytest.raises(DoesNotOpen):
        sealing.open_page(IndexKey(secret), sealed=header, **PAGE | {"field": b""})

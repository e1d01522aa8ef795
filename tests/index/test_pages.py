"""Data pages hold a column whole and in order, packed or not, and take nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import block_streams, packing, pages
from encrypted_records.index.columns.column import Column, Edge, EntryBlock, key_type, search
from encrypted_records.index.columns.pages import CAPACITY, PageCut
from encrypted_records.model.field_types.base import KeyKind
from tests.reference.paged import raw_frame

BOTH = pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])


@st.composite
def columns(draw: st.DrawFn) -> tuple[KeyKind, Column]:
    kind: KeyKind = draw(st.sampled_from([KeyKind.TEXT, KeyKind.POINT]))
    texts = st.one_of(
        st.binary(max_size=64), st.builds(bytes.__add__, st.just(b"p" * 47), st.binary(max_size=17))
    )
    key = texts if kind is KeyKind.TEXT else st.integers(0, 2**64 - 1)
    few = draw(st.lists(key, min_size=1, max_size=5))
    drawn = draw(st.lists(st.one_of(st.sampled_from(few), key), max_size=30))
    keys = np.array(drawn, key_type(kind))
    absent = draw(st.integers(0, 9))
    ordinals = np.array(
        draw(
            st.lists(
                st.integers(0, 2**32 - 1),
                min_size=len(keys) + absent,
                max_size=len(keys) + absent,
                unique=True,
            )
        ),
        np.uint32,
    )
    order = np.lexsort((ordinals[absent:], keys))
    held = np.concatenate((np.sort(ordinals[:absent]), ordinals[absent:][order]))
    return kind, Column(held, keys[order])


def opened(kind: KeyKind, column: Column, cuts: list[PageCut], *, packed: bool) -> list[EntryBlock]:
    begins = [0, *(cut.end for cut in cuts)]
    return [
        pages.open_block(
            one.content, kind, one.end - begin, present=one.end > column.absent, packed=packed
        )
        for begin, one in zip(begins, cuts, strict=False)
    ]


@BOTH
@given(columns(), st.integers(1, 7))
def test_a_column_survives_its_pages(
    packed: bool, drawn: tuple[KeyKind, Column], most: int
) -> None:
    kind, column = drawn
    cuts = list(pages.cut(column, kind, packed=packed, most=most))
    blocks = opened(kind, column, cuts, packed=packed)
    assert all(1 <= len(block.ordinals) <= most for block in blocks)
    none = np.zeros(0, np.uint32)
    assert np.array_equal(
        np.concatenate([none, *(block.ordinals for block in blocks)]), column.ordinals
    )
    keys = [np.zeros(0, key_type(kind)), *(block.expand() for block in blocks)]
    assert np.array_equal(np.concatenate(keys), column.keys)
    for block in blocks:
        assert np.all(block.keys[:-1] < block.keys[1:])


def many(kind: KeyKind, count: int, distinct: int) -> Column:
    rng = np.random.default_rng(7)
    numbers = np.sort(rng.integers(0, distinct, count)).astype(np.uint64)
    keys = (
        numbers
        if kind is KeyKind.POINT
        else np.array([b"%x" % number for number in numbers], "S64")
    )
    if kind is KeyKind.TEXT:
        keys = np.sort(keys)
    ordinals = rng.permutation(count).astype(np.uint32)
    ordinals = ordinals[np.lexsort((ordinals, keys))]
    return Column(ordinals, keys)


@pytest.mark.parametrize("kind", [KeyKind.TEXT, KeyKind.POINT])
@pytest.mark.parametrize("distinct", [1, 300, 2**40])
def test_packed_pages_are_full_and_never_too_full(kind: KeyKind, distinct: int) -> None:
    """What does not fill a page is the last one, or has all the entries that a page may have."""
    column = many(kind, 100_000, distinct)
    cuts = list(pages.cut(column, kind, packed=True, most=30_000))
    sizes = [len(cut.content) for cut in cuts]
    begins = [0, *(cut.end for cut in cuts)]
    assert max(sizes) <= CAPACITY
    for size, begin, one in zip(sizes[:-1], begins, cuts, strict=False):
        assert size > 0.85 * CAPACITY or one.end - begin == 30_000
    blocks = opened(kind, column, cuts, packed=True)
    assert np.array_equal(np.concatenate([block.expand() for block in blocks]), column.keys)


def test_plain_pages_hold_what_their_bytes_take() -> None:
    for kind, width in ((KeyKind.TEXT, 64), (KeyKind.POINT, 8)):
        column = many(kind, 5000, 100)
        (first, *_) = pages.cut(column, kind, packed=False, most=10**6)
        assert CAPACITY - (4 + width) < len(first.content) <= CAPACITY


def test_a_page_is_its_content_and_zeros() -> None:
    for content in (b"", b"\0", b"x" * CAPACITY):
        assert pages.unframe(pages.frame(content)) == content
    good = pages.frame(b"ab")
    for bad in (good[:-1], good + b"\0", good[:-1] + b"\1", b"\0\1" + good[2:], b"\xff\xff" * 8183):
        with pytest.raises(DoesNotOpen):
            pages.unframe(bad)


def refused(content: bytes, kind: Any, count: int, *, present: bool, packed: bool) -> None:
    with pytest.raises(DoesNotOpen):
        pages.open_block(content, kind, count, present=present, packed=packed)


def u32s(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in numbers)


def u64s(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "big") for number in numbers)


def test_plain_pages_that_are_out_of_order_or_of_another_size_are_refused() -> None:
    good = u32s(1, 2) + u64s(5, 5)
    assert pages.open_block(good, KeyKind.POINT, 2, present=True, packed=False).keys.tolist() == [5]
    for bad in (good[:-1], good + b"\0", u32s(2, 1) + u64s(5, 5), u32s(1, 2) + u64s(6, 5)):
        refused(bad, KeyKind.POINT, 2, present=True, packed=False)
    refused(u32s(1, 1) + u64s(5, 5), KeyKind.POINT, 2, present=True, packed=False)
    for bad in (u32s(2, 1), u32s(1, 1), u32s(1), u32s(1, 2, 3)):
        refused(bad, KeyKind.POINT, 2, present=False, packed=False)


def packed_numbers(steps: list[int], counts: list[int], keys: list[int]) -> bytes:
    def planes(numbers: list[int], width: int) -> bytes:
        whole = b"".join(number.to_bytes(width, "little") for number in numbers)
        return bytes(
            whole[width * at + place] for place in range(width) for at in range(len(numbers))
        )

    head = len(counts).to_bytes(4, "big")
    return head + planes(steps, 4) + planes(counts, 2) + planes(keys, 8)


def test_packed_pages_that_contradict_themselves_are_refused() -> None:
    """Ordinals 1 and 3 of the value 5, ordinal 2 of 9."""
    good = packed_numbers([2, 4, 1], [1, 0], [5, 4])
    block = pages.open_block(raw_frame(good), KeyKind.POINT, 3, present=True, packed=True)
    assert (block.ordinals.tolist(), block.keys.tolist()) == ([1, 3, 2], [5, 9])
    for bad in (
        packed_numbers([2, 1, 4], [1, 0], [5, 4]),  # ordinals fall within a value
        packed_numbers([2, 0, 4], [1, 0], [5, 4]),  # an ordinal twice
        packed_numbers([2, 4, 1], [1, 1], [5, 4]),  # more entries than there are
        packed_numbers([2, 4, 1], [0, 0], [5, 4]),  # fewer
        packed_numbers([2, 4, 1], [1, 0], [5, 0]),  # a value twice
        packed_numbers([2, 4, 1], [1, 0], [5, 2**64 - 1]),  # values fall
        packed_numbers([2, 4, 1], [], []),
        good[:-1],
        good + b"\0",
        good[:3],
        b"\0\0\0\4" + good[4:],
        b"",
    ):
        refused(raw_frame(bad), KeyKind.POINT, 3, present=True, packed=True)
    for count in (0, 2, 4, 2**31):
        refused(raw_frame(good), KeyKind.POINT, count, present=True, packed=True)


@pytest.mark.parametrize(
    "keys",
    [
        b"\1\0" + b"\1\1" + b"ab",  # the first shares
        b"\0\2" + b"\1\1" + b"ab",  # shares more than there is
        b"\0\1" + b"\1\x40" + b"a" * 65,  # longer than a key
        b"\0\0" + b"\1\2" + b"ab",  # cut short
        b"\0\0" + b"\1\1" + b"abc",
        b"\0\0" + b"\1\1" + b"ba",  # values fall
        b"\0\1" + b"\1\0" + b"a",  # a value twice
        b"\0",
    ],
)
def test_packed_strings_that_cannot_be_are_refused(keys: bytes) -> None:
    head = (2).to_bytes(4, "big") + packing.pack_ordinals(np.array([1, 2], np.uint32)) + bytes(4)
    good = b"\0\1" + b"\1\1" + b"ab"
    block = pages.open_block(raw_frame(head + good), KeyKind.TEXT, 2, present=True, packed=True)
    assert block.keys.tolist() == [b"a", b"ab"]
    refused(raw_frame(head + keys), KeyKind.TEXT, 2, present=True, packed=True)


@pytest.mark.parametrize("texts", [2, packing._FEW_TEXTS + 1])
def test_empty_texts_alone_are_refused(texts: int) -> None:
    ordinals = packing.pack_ordinals(np.arange(texts, dtype=np.uint32))
    content = texts.to_bytes(4, "big") + ordinals + bytes(2 * texts) + bytes(2 * texts)
    refused(raw_frame(content), KeyKind.TEXT, texts, present=True, packed=True)


def test_a_packed_key_shares_no_padding_with_the_one_before() -> None:
    """A long string's tail may begin with the zeros that a shorter key is filled up with."""
    keys = np.array(
        [b"p" * 48, b"p" * 48 + b"\0\0tail", b"p" * 48 + b"\0x"], key_type(KeyKind.TEXT)
    )
    ordinals = np.arange(3, dtype=np.uint32)
    packed = packing.Packer(EntryBlock(ordinals, keys, ordinals)).pack(0, 3)
    found = packing.unpack(packed, KeyKind.TEXT, 3)
    assert [part.tolist() for part in found] == [ordinals.tolist(), keys.tolist(), [0, 1, 2]]


def test_nothing_larger_than_a_page_can_be_is_unpacked() -> None:
    bomb = packing.compress(bytes(1 << 28))
    assert len(bomb) <= CAPACITY
    refused(bomb, KeyKind.POINT, 3, present=True, packed=True)
    refused(bomb, KeyKind.POINT, 3, present=False, packed=True)
    sized = zstandard.ZstdCompressor().compress(bytes(1 << 28))
    refused(sized, KeyKind.POINT, 3, present=True, packed=True)
    refused(b"no frame", KeyKind.POINT, 3, present=True, packed=True)


def packed_page(keys: Any, ordinals: Any) -> EntryBlock:
    column = Column(np.asarray(ordinals, np.uint32), np.asarray(keys, key_type(KeyKind.TEXT)))
    cuts = list(pages.cut(column, KeyKind.TEXT, packed=True, most=pages.FIRST_GUESS))
    (block,) = opened(KeyKind.TEXT, column, cuts, packed=True)
    return block


WORDS = st.text("ab", max_size=12).map(str.encode)


@given(st.sets(WORDS, min_size=packing._FEW_TEXTS + 1, max_size=3 * packing._FEW_TEXTS))
def test_many_texts_of_a_page_are_as_they_were(words: set[bytes]) -> None:
    block = packed_page(sorted(words), range(len(words)))
    assert block.keys.tolist() == sorted(words)


@pytest.mark.parametrize("side", ["left", "right"])
@given(words=st.sets(WORDS, min_size=1), wanted=st.text("ab", max_size=20).map(str.encode))
def test_a_text_longer_than_all_of_a_page_has_its_place_there(
    side: Any, words: set[bytes], wanted: bytes
) -> None:
    block = packed_page(sorted(words), range(len(words)))
    before = [word for word in words if word < wanted or (word == wanted and side == "right")]
    assert search(block.keys, Edge(wanted, side)) == len(before)


@given(st.lists(st.sets(WORDS, min_size=1), min_size=2, max_size=3))
@example([{b"aaaa"}, {b"a", b"b"}])
def test_pages_of_texts_of_different_lengths_merge_in_order(inputs: list[set[bytes]]) -> None:
    streams = [
        iter([packed_page(sorted(words), range(20_000 * at, 20_000 * at + len(words)))])
        for at, words in enumerate(inputs)
    ]
    merged = block_streams.gather(block_streams.merge(streams), KeyKind.TEXT)
    assert merged.keys.tolist() == sorted(word for words in inputs for word in words)

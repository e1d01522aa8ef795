"""What is held of a directory leads to the same entries as the directory, in little memory."""

from __future__ import annotations

import tracemalloc
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from encrypted_records.index.columns import directory
from encrypted_records.index.columns.column import (
    Column,
    Edge,
    EntryBlock,
    KeyRange,
    Keys,
    key_type,
    run_starts,
)
from encrypted_records.index.columns.directory import Outline, Separators
from encrypted_records.index.query.key_sets import classes_of
from encrypted_records.model.field_types.base import KeyKind

SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")
#: Few letters, so that keys share prefixes, equal one another and are one another's prefixes.
TEXTS = st.binary(max_size=5).map(lambda text: bytes(b"\x00\x01az\xff"[byte % 5] for byte in text))
LONG = st.tuples(TEXTS, TEXTS).map(lambda parts: (b"k" * 46 + parts[0])[:48] + parts[1])
KINDS: dict[KeyKind, st.SearchStrategy[Any]] = {
    KeyKind.TEXT: TEXTS | LONG,
    KeyKind.UUID: TEXTS,
    KeyKind.POINT: st.integers(0, 40) | st.integers(2**64 - 9, 2**64 - 1),
}


@st.composite
def columns(draw: st.DrawFn) -> tuple[KeyKind, Column, list[int]]:
    """A kind, a column of it, and where its pages end."""
    kind = draw(st.sampled_from(list(KINDS)))
    keys = np.sort(np.array(draw(st.lists(KINDS[kind], max_size=40)), key_type(kind)))
    absent = draw(st.integers(0, 3))
    column = Column(np.arange(absent + len(keys), dtype=np.uint32), keys)
    cuts = draw(st.sets(st.integers(1, max(1, len(keys) - 1)))) if len(keys) > 1 else set()
    ends = {absent + cut for cut in cuts} | {absent, absent + len(keys)}
    return kind, column, sorted(ends - {0})


def before(column: Column, edge: Edge) -> int:
    """How many keys lie before the edge, each looked at."""
    keys: list[Any] = [
        key.rstrip(b"\0") if isinstance(key, bytes) else key for key in column.keys.tolist()
    ]
    at: Any = edge.key.rstrip(b"\0") if isinstance(edge.key, bytes) else edge.key
    return sum(key < at or (key == at and edge.side == "right") for key in keys)


@given(columns(), st.data(), st.booleans())
def test_an_edge_is_where_its_outline_says(
    made: tuple[KeyKind, Column, list[int]], data: st.DataObject, lists: bool
) -> None:
    kind, column, ends = made
    # A directory lists its values up to a sixteenth of the rows.
    built = directory.build(column, ends, 1000 if lists else 0)
    assert built.listed == (lists or not len(column.keys))
    outline = Outline.of(built)
    assert (outline.absent, outline.present) == (column.absent, column.present)

    def draw() -> Edge:
        known = st.sampled_from(column.keys.tolist()) if len(column.keys) else st.nothing()
        return Edge(data.draw(known | KINDS[kind]), data.draw(st.sampled_from(SIDES)))

    first, last = draw(), draw()
    for edge in (first, last):
        wanted, exact = before(column, edge), outline.exact(edge)
        page, inside = outline.locate(edge)
        low = outline.start(page) - column.absent
        assert exact is None or exact == wanted
        assert lists or inside == (exact is None)
        if not inside:
            assert low == wanted
        else:
            assert low <= wanted <= outline.start(page + 1) - column.absent
    pages = outline.pages(KeyRange(first, last))
    low, high = before(column, first), before(column, last)
    holding = outline.holding(low, high)
    assert set(holding) <= set(pages)
    # Both ends may lie between two pages.
    assert len(pages) <= len(holding) + 2


@given(columns(), st.data())
def test_a_page_agrees_with_what_its_directory_says_and_with_nothing_else(
    made: tuple[KeyKind, Column, list[int]], data: st.DataObject
) -> None:
    kind, column, ends = made
    outline = Outline.of(directory.build(column, ends, 0))
    if outline.bounds is None:
        return
    for page in range(outline.leading, len(outline.ends)):
        first, last = (outline.start(at) - column.absent for at in (page, page + 1))
        keys = column.keys[first:last]
        assert outline.bounds.agree(page - outline.leading, block(keys))
        other = np.array([data.draw(KINDS[kind])], keys.dtype)
        for changed in (np.concatenate((other, keys[1:])), np.concatenate((keys[:-1], other))):
            same = changed[0] == keys[0] and changed[-1] == keys[-1]
            assert outline.bounds.agree(page - outline.leading, block(changed)) == same


@given(columns(), st.booleans())
def test_pages_are_linked_where_one_value_goes_on(
    made: tuple[KeyKind, Column, list[int]], lists: bool
) -> None:
    _, column, ends = made
    built = directory.build(column, ends, 1000 if lists else 0)
    outline = Outline.of(built)
    assert outline.present_pages == len(built.firsts)
    assert outline.key_bytes == built.firsts.dtype.itemsize
    edges = [*built.firsts[:1].tolist(), *built.lasts[-1:].tolist()]
    assert outline.outermost.tolist() == edges
    assert outline.outermost.dtype == built.firsts.dtype
    same = built.lasts[:-1] == built.firsts[1:]
    assert np.array_equal(outline.links(alike=False), same)
    by_class = classes_of(built.lasts)[:-1] == classes_of(built.firsts)[1:]
    assert np.array_equal(outline.links(alike=True), by_class)


@given(columns())
def test_a_page_is_found_by_its_number(made: tuple[KeyKind, Column, list[int]]) -> None:
    _, column, ends = made
    built = directory.build(column, ends, 0)
    built.numbers[:] = np.random.default_rng(len(ends)).permutation(len(ends)) * 2
    outline = Outline.of(built)
    found = [outline.index_of(number) for number in range(2 * len(ends) + 1)]
    held = built.numbers.tolist()
    assert found == [
        held.index(number) if number in held else None for number in range(2 * len(ends) + 1)
    ]


def block(keys: NDArray[Any]) -> EntryBlock:
    every = np.arange(len(keys), dtype=np.uint32)
    return EntryBlock(every, keys, every)


def spread(kind: KeyKind, pages: int) -> Keys:
    """Two keys a page, all different, as values of this kind may be."""
    drawn = np.random.default_rng(3).integers(0, 2**63, 4 * pages).tolist()
    texts = (f"{one:016x}-{one * 7 % 2**64:016x}".encode() for one in drawn)
    values = drawn if kind is KeyKind.POINT else [*texts]
    return np.unique(np.array(values, key_type(kind)))[: 2 * pages]


@pytest.mark.parametrize(
    ("kind", "most"), [(KeyKind.TEXT, 40), (KeyKind.UUID, 40), (KeyKind.POINT, 32)]
)
def test_a_page_of_a_large_column_takes_few_bytes(kind: KeyKind, most: int) -> None:
    """Of strings it were 136 with both of its keys, and an object for what the page is."""
    pages = 5000
    keys = spread(kind, pages)
    column = Column(np.arange(len(keys), dtype=np.uint32), keys)
    outline = Outline.of(directory.build(column, list(range(2, len(keys) + 1, 2)), 0))
    assert len(outline.ends) == pages
    assert outline.size <= most * pages


@pytest.mark.parametrize("kind", [KeyKind.TEXT, KeyKind.POINT])
@pytest.mark.parametrize("lists", [True, False])
def test_an_outline_is_as_large_as_it_says(kind: KeyKind, lists: bool) -> None:
    keys = spread(kind, 2000)
    column = Column(np.arange(len(keys), dtype=np.uint32), keys)
    ends = list(range(2, len(keys) + 1, 2))
    built = directory.build(column, ends, 1 << 24 if lists else 0)
    assert built.listed == (lists and len(run_starts(keys)) <= directory.MAX_RUNS)
    # Once before: what the first call imports and keeps is not the outline's.
    Outline.of(built)
    tracemalloc.start()
    try:
        outline = Outline.of(built)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    shared = built.numbers.nbytes + built.ends.nbytes + built.starts.nbytes
    shared += built.firsts.nbytes + built.lasts.nbytes if kind is KeyKind.POINT and not lists else 0
    shared += built.runs.nbytes if kind is KeyKind.POINT and lists else 0
    assert taken <= outline.size - shared + 4096
    assert outline.size - shared <= 1.2 * taken + 4096


def test_separators_are_no_longer_than_they_must_be() -> None:
    keys = np.array([b"aa", b"ab", b"ba", b"ba", b"ba", b"c"], "S48")
    held = Separators.between(keys[::2], keys[1::2])
    texts = [held.text[held.cuts[at] : held.cuts[at + 1]] for at in range(held.count - 1)]
    assert texts == [b"b", b"ba"]
    assert list(held.marks) == [0, 2]

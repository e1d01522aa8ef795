"""Columns of words: their size follows from lengths, merges keep them, and nothing else opens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto.format import UNDECIDED_FROM, WORDS_FROM
from encrypted_records.crypto.keys import FieldKey
from encrypted_records.errors import DoesNotOpen, InvalidDefinition
from encrypted_records.index.columns import block_streams, words
from encrypted_records.index.columns.column import Column, EntryBlock
from encrypted_records.index.segments.builder import STANDARD, SegmentLimits
from encrypted_records.index.segments.merge_policy import TIERS
from encrypted_records.model.ciphertext_lengths import LeastClass
from encrypted_records.model.definition_changes import Cost, list_changes
from encrypted_records.model.definition_parser import parse_definition
from encrypted_records.model.field_types.base import KeyKind
from tests.index.world import Row, World

NOTE: dict[str, Any] = {"note": {"type": "string", "x-index": ["words"]}}
KEY = FieldKey(bytes(32))
LEAST = LeastClass(32, 0)
FORMS = [
    STANDARD,
    SegmentLimits(mini=0, entries=3),
    SegmentLimits(mini=0, plain=0, entries=4),
    SegmentLimits(words=40),
]


def text_of(properties: dict[str, Any]) -> str:
    return json.dumps({"type": "object", "properties": properties})


def rows_with(world: World, op: str, value: str) -> tuple[set[Row], set[Row]]:
    certain, possible = world.ask({"field": "note", "op": op, "value": value})
    return set(certain), set(possible)


def built(*texts: str | None) -> Column:
    return words.build(KEY, texts, LEAST)


def changed(column: Column, at: int, key: int) -> Column:
    keys = column.keys.copy()
    keys[at] = key
    return Column(column.ordinals, keys)


@pytest.mark.parametrize("limits", FORMS)
def test_how_large_a_segment_is_follows_from_the_lengths_of_its_texts(
    limits: SegmentLimits,
) -> None:
    sizes = []
    for texts in (
        ["a b c d e f g h", "one two", "x" * 100, None],
        ["x" * 15, "same", "five words and no more" + "." * 78, ""],
    ):
        world = World(text_of(NOTE), limits=limits)
        world.ingest([{"note": text} for text in texts * 3])
        (segment,) = world.ledger.snapshot().segments
        sizes.append([len(world.pages[segment.uid, at].data) for at in range(segment.pages)])
    if limits.plain:
        assert sizes[0] == sizes[1]


@pytest.mark.parametrize("limits", FORMS)
def test_a_row_with_more_words_than_room_is_possible_in_every_question(
    limits: SegmentLimits,
) -> None:
    world = World(text_of(NOTE), limits=limits)
    many = " ".join("abcdefghijklmn")
    world.ingest([{"note": "fever and cough"}, {"note": many}, {"note": None}, {"note": "a\uffff"}])
    world.ingest([{"note": "Cough, and FEVER"}])
    for _ in range(2):
        assert rows_with(world, "has_words", "fever COUGH") == (
            {(0, 0), (1, 0)},
            {(0, 0), (0, 1), (0, 3), (1, 0)},
        )
        assert rows_with(world, "has_phrase", "cough and") == (
            set(),
            {(0, 0), (0, 1), (0, 3), (1, 0)},
        )
        assert rows_with(world, "has_words", "nothing") == (set(), {(0, 1), (0, 3)})
        world.merge()


@pytest.mark.parametrize("limits", FORMS)
def test_a_merge_brings_no_room_of_rows_that_died(limits: SegmentLimits) -> None:
    world = World(text_of(NOTE), limits=limits)
    world.ingest([{"note": "w1 w2 " * 2000}, {"note": "short"}])
    world.ingest([{"note": "short"}])
    world.kill([(0, 0)])
    world.merge()
    other = World(text_of(NOTE), limits=limits)
    other.ingest([{"note": "other"}, {"note": "words"}])
    sizes = []
    for one in (world, other):
        (segment,) = one.ledger.snapshot().segments
        sizes.append(sum(len(one.pages[segment.uid, at].data) for at in range(segment.pages)))
    if limits.plain:
        assert sizes[0] == sizes[1]
    assert rows_with(world, "has_words", "short") == ({(0, 1), (1, 0)}, {(0, 1), (1, 0)})


@pytest.mark.parametrize("limits", FORMS)
def test_rows_from_before_the_index_are_possible_also_after_a_merge(limits: SegmentLimits) -> None:
    world = World(text_of({"note": {"type": "string"}}), limits=limits)
    world.ingest([{"note": "fever"}, {"note": "cough"}])
    world.change(text_of(NOTE))
    world.ingest([{"note": "fever"}, {"note": "cough"}])
    for _ in range(2):
        certain, possible = rows_with(world, "has_words", "fever")
        assert certain == {(1, 0)}
        assert possible == {(0, 0), (0, 1), (1, 0)}
        world.merge()
    world.change(text_of({"note": {"type": "string"}}))
    world.ingest([{"note": "no fever"}])
    for _ in range(2):
        certain, possible = rows_with(world, "has_words", "fever")
        assert certain == possible == {(0, 0), (1, 0), (2, 0)}
        world.merge()


def test_beyond_a_limit_the_rows_with_the_most_words_are_undecided() -> None:
    column = built("a b c", "a", "b c", None, "d e f g")
    limited = words.limit(column, 4)
    words.check(limited, words.count_entries(column))
    rows = limited.ordinals[np.searchsorted(limited.keys, words.UNDECIDED.first.key) :]
    undecided = limited.at_all(list(words.UNDECIDED))
    assert limited.rows(*undecided).tolist() == [0, 4]
    assert sorted(rows.tolist()) == [0, 1, 2, 2, 4]
    assert words.rows_of(limited).tolist() == [0, 1, 2, 3, 4]


def test_a_segment_of_many_rows_may_list_more_words() -> None:
    assert words.most_listed(1) == words.most_listed(1 << 20) == 1 << 25
    assert words.most_listed(1 << 24) == 1 << 29
    # Positions in a column are 32 bits wide.
    rows = TIERS[-1].capacity
    assert words.most_listed(rows) + rows < 1 << 32


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 3)), min_size=1),
    st.integers(0, 60),
    st.integers(1, 7),
)
def test_a_stream_leaves_out_the_words_that_a_limit_leaves_out_in_memory(
    rows: list[tuple[int, bool, int]], most: int, size: int
) -> None:
    """Of rows with so many words, undecided or not, and so much room beyond; in blocks of any
    size."""
    pairs: list[tuple[int, int]] = []
    for row, (listed, undecided, more) in enumerate(rows):
        own = 0 if undecided else listed
        pairs.append((own + more + (UNDECIDED_FROM if undecided else 0), row))
        pairs += [(WORDS_FROM + (row * 7 + 3 * word) % 40, row) for word in range(own)]
    keys, ordinals = zip(*sorted(set(pairs)), strict=True)
    column = Column(np.array(ordinals, np.uint32), np.array(keys, np.uint64))

    def blocks() -> Iterator[EntryBlock]:
        (whole,) = block_streams.stream(column, KeyKind.WORDS)
        for first in range(0, len(whole.ordinals), size):
            yield whole.part(first, min(first + size, len(whole.ordinals)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "_PIECE", 3)
        counts = words.WordCounts(len(rows))
        for block in blocks():
            counts.add(block)
        beyond = counts.find_beyond(most)
        limited = words.limit(column, most)
        assert (beyond is None) == (limited is column)
        if beyond is None:
            return
        left = block_streams.gather(words.leave_out(blocks(), beyond), KeyKind.WORDS)
    assert left.ordinals.tolist() == limited.ordinals.tolist()
    assert left.keys.tolist() == limited.keys.tolist()
    assert np.count_nonzero(left.keys >= WORDS_FROM) <= most


def test_a_column_that_no_writer_makes_does_not_open() -> None:
    column = built("a b", "c", "d")
    rows, room = words.rows_of(column), words.count_entries(column)
    good = words.encode(column)
    back = words.decode(good, rows, room)
    assert back.keys.tolist() == column.keys.tolist()
    swapped = Column(column.ordinals[::-1].copy(), column.keys)
    bad = [
        (good[:-1], room),
        (good[:-1] + b"\1", room),
        (good, room + 1),
        (good + bytes(12), room + 1),
        (b"\xff" * 4 + good[4:], room),
        ((room + 1).to_bytes(4, "big") + good[4:], room),
        (words.encode(swapped), room),
        (words.encode(changed(column, 0, 3)).ljust(len(good), b"\0")[: len(good)], room),
        (words.encode(Column(column.ordinals[1:], column.keys[1:])).ljust(len(good), b"\0"), room),
        (words.encode(Column(column.ordinals + np.uint32(1), column.keys)), room),
    ]
    for data, listed in bad:
        with pytest.raises(DoesNotOpen):
            words.decode(data, rows, listed)


def test_an_index_that_a_field_cannot_have_is_refused_by_name() -> None:
    for body, code in [
        ('{"type": "string", "x-index": ["letters"]}', "keyword"),
        ('{"type": "string", "x-index": []}', "keyword"),
        ('{"type": "string", "x-index": "words"}', "keyword"),
        ('{"type": "string", "x_index": ["words"]}', "unsupported_keyword"),
        (
            '{"type": "integer", "minimum": 0, "maximum": 1, "x-index": ["words"]}',
            "unsupported_keyword",
        ),
    ]:
        with pytest.raises(InvalidDefinition) as refused:
            parse_definition(f'{{"type": "object", "properties": {{"f": {body}}}}}')
        assert [flaw.code for flaw in refused.value.flaws] == [code]
        assert str(refused.value.flaws[0].pointer).startswith("/schema/properties/f/x")
    date = '{"type": "string", "format": "date", "x-index": ["words"]}'
    for text in (
        f'{{"type": "object", "formats": "enforced", "properties": {{"f": {date}}}}}',
        '{"type": "object", "x-index": ["words"], "properties": {"f": {"type": "string"}}}',
    ):
        with pytest.raises(InvalidDefinition) as refused:
            parse_definition(text)
        assert [flaw.code for flaw in refused.value.flaws] == ["unsupported_keyword"]


def test_to_index_words_or_not_is_a_change_that_a_commit_brings() -> None:
    plain = parse_definition(text_of({"note": {"type": "string"}}))
    indexed = parse_definition(text_of(NOTE))
    for old, new in ((plain, indexed), (indexed, plain)):
        (change,) = list_changes(old, new.following(old))
        assert (change.code, change.cost, change.field) == ("index_changed", Cost.COMMIT, "note")
        assert change.pointer == "/schema/properties/note/x-index"


def test_a_small_segment_whose_texts_are_long_is_no_single_page() -> None:
    world = World(text_of(NOTE), limits=SegmentLimits(words=40))
    world.ingest([{"note": "fever"}])
    world.ingest([{"note": "a cough"}])
    assert [segment.form for segment in world.ledger.snapshot().segments] == ["mini", "mini"]
    world.ingest([{"note": "fever " * 60}])
    assert world.ledger.snapshot().segments[-1].form == "paged"
    world.merge()
    (merged,) = world.ledger.snapshot().segments
    assert merged.form == "paged"
    assert rows_with(world, "has_words", "fever") == ({(0, 0), (2, 0)}, {(0, 0), (2, 0)})

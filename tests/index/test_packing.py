"""A segment that is packed from sorted columns of groups answers as segments of the groups do."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encrypted_records.crypto import sealing
from encrypted_records.index.columns import words
from encrypted_records.index.segments import sorted_runs
from encrypted_records.index.segments.builder import SegmentLimits
from encrypted_records.index.segments.cuts import Contents, ContentsInMemory
from encrypted_records.index.segments.sorted_runs import RunMerger, cut_columns
from encrypted_records.ingest.seal import build_columns
from encrypted_records.model.definition import columns_of
from encrypted_records.model.records import Group, GroupSalt, PackedRowBatch
from encrypted_records.proxy.workers.segments import SpooledContents
from tests.index.strategies import Case, cases
from tests.index.test_answers_equal_the_oracle import world_of
from tests.index.test_stream_merge import FORMS, NOTES
from tests.index.world import World

ORIGIN = bytes(20)
Sealed = tuple[Group, PackedRowBatch, GroupSalt]


@contextmanager
def blocks_of(entries: int) -> Iterator[None]:
    """Runs lie in blocks of so few entries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_runs, "BLOCK_ENTRIES", entries)
        yield


def pack(
    world: World,
    groups: Iterable[Sequence[Mapping[str, Any]]],
    contents: Contents,
    limits: SegmentLimits,
    most_words: int | None = None,
) -> None:
    """Commit groups that have one segment together."""
    definition = world.definition
    merger = RunMerger(world.key, definition, ORIGIN, contents, limits, most_words)
    sealed: list[Sealed] = []
    for group in groups:
        plain = world.plain(group)
        values = {name: [one.data.get(name) for one in plain] for name in definition.fields}
        identities = [(one.record_id, one.version) for one in plain]
        sealed.append(sealing.seal_group(world.key, definition, identities, values))
        own = sealed[-1][0]
        columns = build_columns(world.ledger.tails, definition, own, values)
        merger.add(own, cut_columns(definition, columns))
    built = merger.seal()
    world.apply(
        world.ledger.draft(
            definition,
            groups=[one[0] for one in sealed],
            rows=[one[1] for one in sealed],
            salts=[one[2] for one in sealed],
            segments=[built.segment],
            pages=tuple(built.pages),
            headers=[built.header],
        )
    )


@given(cases(), st.integers(1, 5), st.sampled_from(FORMS))
def test_its_columns_are_those_that_a_merge_makes(
    case: Case, entries: int, limits: SegmentLimits
) -> None:
    apart = world_of(case)
    packed, apart.limits = World(case.text, apart.keys), limits
    with blocks_of(entries), tempfile.TemporaryDirectory() as folder:
        pack(packed, case.groups, SpooledContents(Path(folder), 0), limits)
    apart.merge()
    (one,), (other,) = apart.opened(), packed.opened()
    assert (one.segment.form, one.segment.count) == (other.segment.form, other.segment.count)
    for spec in columns_of(packed.definition):
        merged, own = one.column(spec.name), other.column(spec.name)
        np.testing.assert_array_equal(merged.ordinals, own.ordinals)
        np.testing.assert_array_equal(merged.keys, own.keys)


def build_again(world: World, most: int) -> None:
    """Replace the one segment by one of the rows that live, so many of them at a time."""
    snapshot = world.ledger.snapshot()
    (lost,) = snapshot.segments
    merger = RunMerger(
        world.key, world.definition, b"", ContentsInMemory(), world.limits, inputs=[lost.uid]
    )
    for sequence, group in enumerate(snapshot.in_order):
        merger.begin(group)
        dead = snapshot.dead.get(group.uid, ())
        living = [at for at in range(group.count) if at not in dead]
        for begin in range(0, len(living), most):
            some = living[begin : begin + most]
            every = [world.open((sequence, at)).data for at in some]
            values = {name: [one.get(name) for one in every] for name in world.definition.fields}
            columns = build_columns(world.ledger.tails, world.definition, group, values)
            merger.add_rows(np.array(some, np.uint32), columns)
    built = merger.seal()
    world.apply(
        world.ledger.draft(
            world.definition,
            segments=[built.segment],
            replaced=[lost.uid],
            pages=tuple(built.pages),
            headers=[built.header],
        )
    )


@given(cases(), st.data(), st.integers(1, 7), st.integers(1, 5), st.sampled_from(FORMS))
def test_a_segment_built_again_from_rows_is_the_one_that_a_merge_makes(
    case: Case, data: st.DataObject, most: int, entries: int, limits: SegmentLimits
) -> None:
    world = world_of(case)
    world.limits = limits
    every = [(group, at) for group, own in enumerate(case.groups) for at in range(len(own))]
    if dead := data.draw(st.sets(st.sampled_from(every))):
        world.kill(dead)
    world.merge()
    before = [world.ask(where) for where in case.asked]
    (merged,) = world.opened()
    with blocks_of(entries):
        build_again(world, most)
    (own,) = world.opened()
    names = ("form", "count", "purged", "groups")
    assert [getattr(own.segment, name) for name in names] == [
        getattr(merged.segment, name) for name in names
    ]
    for spec in columns_of(world.definition):
        np.testing.assert_array_equal(
            merged.column(spec.name).ordinals, own.column(spec.name).ordinals
        )
        np.testing.assert_array_equal(merged.column(spec.name).keys, own.column(spec.name).keys)
    assert [world.ask(where) for where in case.asked] == before


@given(
    st.lists(st.lists(st.sampled_from(NOTES), min_size=1, max_size=6), min_size=1, max_size=4),
    st.integers(0, 12),
    st.sampled_from(FORMS),
)
def test_more_words_than_a_segment_may_list_leave_the_same_rows_undecided(
    notes: list[list[str | None]], most: int, limits: SegmentLimits
) -> None:
    text = '{"type": "object", "properties": {"note": {"type": "string", "x-index": ["words"]}}}'
    groups = [[{"note": note} for note in own] for own in notes]
    apart, packed = World(text, limits=limits), World(text)
    for group in groups:
        apart.ingest(group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words.limit, "__defaults__", (most,))
        apart.merge()
    pack(packed, groups, ContentsInMemory(), limits, most)
    for word in ("one", "three", "n", "nothing"):
        where = {"field": "note", "op": "has_words", "value": word}
        assert packed.ask(where) == apart.ask(where)


def test_dummies_are_drawn_by_what_is_packed_and_not_anew() -> None:
    """So that an API which refuses a segment does not get another draw."""
    text = (
        '{"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}}'
    )
    world = World(text)
    plain = world.plain([{"n": at % 10} for at in range(40)])
    values = {"n": [one.data["n"] for one in plain]}
    identities = [(one.record_id, one.version) for one in plain]

    def pages(origin: bytes) -> int:
        group, _, _ = sealing.seal_group(world.key, world.definition, identities, values)
        limits = SegmentLimits(mini=0, plain=0, entries=2)
        merger = RunMerger(world.key, world.definition, origin, ContentsInMemory(), limits)
        columns = build_columns(world.key, world.definition, group, values)
        merger.add(group, cut_columns(world.definition, columns))
        return merger.seal().segment.pages

    # Four of five draws leave it as it is.
    drawn = [{pages(bytes([at])) for _ in range(3)} for at in range(100)]
    assert all(len(own) == 1 for own in drawn)
    assert len(set.union(*drawn)) > 1

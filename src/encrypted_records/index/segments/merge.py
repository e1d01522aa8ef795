"""Merge segments without their dead rows (docs/SPEC.md, section 6.4), in bounded memory.
:mod:`.merge_policy` decides which segments are merged.

A merge rewrites the index only. Rows stay where they are; each group keeps its order, and its rows
keep their ordinals, so that a local ordinal is always base + ordinal.

Columns are merged one after another, with only a few pages of each input open at a time: entries
come in order, dead rows are dropped, and merged entries are cut into pages at once. A word column
that would exceed its maximum is read twice (:mod:`..columns.words`). If all pages are in memory, as
for minis, whole columns are sorted, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.crypto.format import UNDECIDED_FROM
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index import ordinals as bitmaps
from encrypted_records.index.columns import block_streams, words
from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns.block_streams import absent_block
from encrypted_records.index.columns.rebase import Rebase
from encrypted_records.index.log.snapshot import Laid, Snapshot
from encrypted_records.index.segments.builder import (
    STANDARD,
    Builder,
    SealedSegment,
    SegmentLimits,
    Shell,
)
from encrypted_records.index.segments.cuts import Contents
from encrypted_records.index.segments.headers import mask_digest
from encrypted_records.index.segments.loaded import LoadedSegment, check_order
from encrypted_records.index.segments.mini import Built, MiniSegment
from encrypted_records.index.segments.paged import MergeInput, PagedSegment
from encrypted_records.model.definition import FieldSpec, SchemaDefinition, column_spec, columns_of
from encrypted_records.model.field_types.base import KeyKind

#: Returns a sealed data page of an input, by the segment's uid and the page's number.
ReadPage = Callable[[bytes, int], bytes]

#: Number of absent rows that are generated at a time for a column that an input lacks.
_PIECE = 1 << 16


class SegmentMerger:
    """A merge of segments: :meth:`take` each of :attr:`fields`, then :meth:`seal` or
    :meth:`finish`.
    """

    def __init__(
        self,
        key: SchemaKey,
        definition: SchemaDefinition,
        inputs: Sequence[MergeInput],
        groups: Sequence[Laid],
        dead: Sequence[BitMap],
        contents: Contents | None = None,
        limits: SegmentLimits = STANDARD,
        compared: SchemaDefinition | None = None,
        most_words: int | None = None,
    ) -> None:
        """
        Args:
            groups: the current groups of each input (:meth:`Snapshot.groups_of`).
            dead: local ordinals of each input's rows that are left out.
            contents: stores the contents of pages; in memory if None.
            compared: the definition that gives the inputs' names and grids, if it is another.
            most_words: maximum words in a word column, if other than ``words.most_listed``.
        """
        self._definition = definition
        self._compared = compared or definition
        self._parts, shell = lay_out(inputs, groups, dead)
        self._covered = len(shell.rows)
        self._most_words = words.most_listed(shell.count) if most_words is None else most_words
        self._builder = Builder(key, definition, shell, limits, contents)

    @property
    def fields(self) -> list[str]:
        """The columns of the new segment."""
        return [spec.name for spec in columns_of(self._definition)]

    def take(self, name: str, read: ReadPage | None = None) -> None:
        """Merge a column. The inputs must have its directories.

        Args:
            read: returns the data pages of inputs; None if all are loaded.

        Raises:
            DoesNotOpen: a column of an input does not open, lacks a live row, or has a value that
                the definition does not allow.
        """
        spec = column_spec(self._definition, name)
        if read is None:
            self._builder.add(name, self._join(spec))
            return
        blocks = block_streams.merge([self._stream(part, spec, read) for part in self._parts])
        if spec.kind is KeyKind.WORDS:
            beyond = self._find_beyond(spec, read)
            if beyond is not None:
                blocks = words.leave_out(blocks, beyond)
        elif rebase := Rebase.between(self._compared.fields[name], spec):
            blocks = map(rebase.block, blocks)
        if self._builder.streams:
            self._builder.add_stream(name, blocks)
        else:
            self._builder.add(name, block_streams.gather(blocks, spec.kind))

    def _join(self, spec: FieldSpec) -> columns.Column:
        """A column of the new segment, from whole columns."""
        renumbered = [
            renumber(part, _whole_column(part, spec.name), spec.kind) for part in self._parts
        ]
        joined = columns.join(renumbered, spec.kind)
        if spec.kind is KeyKind.WORDS:
            return words.limit(joined)
        rebase = Rebase.between(self._compared.fields[spec.name], spec)
        return rebase.column(joined) if rebase else joined

    def _stream(
        self, part: LivingRows, spec: FieldSpec, read: ReadPage
    ) -> Iterator[columns.EntryBlock]:
        """The live rows of an input's column, with the new segment's ordinals."""
        segment = part.segment
        if not isinstance(segment, PagedSegment):
            renumbered = renumber(part, segment.column(spec.name), spec.kind)
            yield from block_streams.stream(renumbered, spec.kind)
            return
        if segment.has_column(spec.name):
            blocks = _read_column(part, segment, spec, read)
        else:
            blocks = _missing(segment.covered, spec.kind)
        for block in blocks:
            living = part.of(block)
            if living is not None:
                yield living

    def _find_beyond(self, spec: FieldSpec, read: ReadPage) -> NDArray[np.bool_] | None:
        """A mask of the local ordinals with more words than a column may list; None if all may be
        listed.

        Raises:
            DoesNotOpen: as :meth:`take`.
        """
        if self._may_list(spec.name) <= self._most_words:
            return None
        counts = words.WordCounts(self._covered)
        for part in self._parts:
            for block in self._stream(part, spec, read):
                counts.add(block)
        return counts.find_beyond(self._most_words)

    def _may_list(self, name: str) -> int:
        """The maximum number of words that the inputs list in a column, without the entry of each
        row."""
        listed = 0
        for segment in (part.segment for part in self._parts):
            if not isinstance(segment, PagedSegment):
                listed += segment.column(name).present - segment.count
            elif segment.has_column(name):
                listed += segment.directories[name].present - segment.count
        return listed

    def seal(self) -> SealedSegment:
        """The new segment; its pages are sealed as they are consumed."""
        return self._builder.seal()

    def finish(self) -> Built:
        """The new segment with all of its pages."""
        return self._builder.finish()


def merge(
    key: SchemaKey,
    definition: SchemaDefinition,
    inputs: Sequence[MergeInput],
    snapshot: Snapshot,
    limits: SegmentLimits = STANDARD,
) -> Built:
    """Merge the live rows of ``inputs`` into one segment; the inputs must be completely loaded.

    Args:
        key: seals the mini; the inputs may be of older versions.
        inputs: the segments, with the names and grids by which the snapshot's history compares.

    Raises:
        DoesNotOpen: a column of an input does not open.
    """
    groups = [snapshot.groups_of(source.segment) for source in inputs]
    dead = [snapshot.dead_rows(source.segment) for source in inputs]
    history = snapshot.history
    compared = history.compared if history else None
    merging = SegmentMerger(key, definition, inputs, groups, dead, None, limits, compared)
    for name in merging.fields:
        merging.take(name)
    return merging.finish()


def _whole_column(part: LivingRows, name: str) -> columns.Column:
    segment = part.segment
    assert isinstance(segment, MiniSegment | LoadedSegment), "it is here as a whole"
    return segment.column(name)


def _missing(covered: int, kind: KeyKind) -> Iterator[columns.EntryBlock]:
    """The blocks of a field that is younger than its segment."""
    for first in range(0, covered, _PIECE):
        rows = np.arange(first, min(first + _PIECE, covered), dtype=np.uint32)
        if kind is KeyKind.WORDS:
            yield columns.EntryBlock(
                rows, np.array([UNDECIDED_FROM], np.uint64), np.zeros(1, np.uint32)
            )
        else:
            yield absent_block(rows, kind)


def _read_column(
    part: LivingRows, segment: PagedSegment, spec: FieldSpec, read: ReadPage
) -> Iterator[columns.EntryBlock]:
    """The blocks of an input's column, checked as :meth:`LoadedSegment.column` checks all of it.

    Raises:
        DoesNotOpen: it does not open; after the last block also if it lists other rows than the
            segment has, or lacks a live row.
    """
    name, uid = spec.name, segment.segment.uid
    room = segment.directories.rooms.get(name)
    rows = _ListedRows(segment.covered, is_words=room is not None)
    before: columns.EntryBlock | None = None
    for number in segment.directories[name].numbers.tolist():
        block = segment.open_block(number, read(uid, number))
        if before is not None:
            check_order(before, block)
        rows.add(block)
        yield block
        before = block
    rows.check(segment, room)
    part.require_all(rows.listed)


class _ListedRows:
    """The rows that a column lists, and for a word column the number of entries it has room for."""

    def __init__(self, covered: int, *, is_words: bool) -> None:
        self.listed: NDArray[np.bool_] = np.zeros(covered, np.bool_)
        self._is_words = is_words
        self._rows = self._entries = self._room = self._absent = 0

    def add(self, block: columns.EntryBlock) -> None:
        rows = len(block.ordinals)
        self._entries += rows
        if not len(block.keys):
            self._absent += rows
        if self._is_words and len(block.keys):
            rows = words.count_rows(block)
            self._room += words.count_room(block)
        self.listed[block.ordinals[:rows]] = True
        self._rows += rows

    def check(self, segment: PagedSegment, room: int | None) -> None:
        """
        Raises:
            DoesNotOpen: they are not the segment's rows, each once.
        """
        if room is not None and (self._absent or self._room != room or self._entries > room):
            raise words.other_room()
        # There are as many as the segment has, so equal sets list each row once.
        if self._rows != segment.count or mask_digest(self.listed) != segment.stated_rows:
            raise DoesNotOpen("a column lists other rows than its segment has")


@dataclass(frozen=True, slots=True)
class LivingRows:
    """An input, its first local ordinal in the new segment, and its live rows."""

    segment: MergeInput
    base: int
    living: NDArray[np.bool_]

    def require_all(self, listed: NDArray[np.bool_]) -> None:
        """
        Args:
            listed: a mask of the rows that a column lists.

        Raises:
            DoesNotOpen: a live row is not listed.
        """
        if np.any(self.living & ~listed):
            raise DoesNotOpen("a column lacks rows that are alive")

    def of(self, block: columns.EntryBlock) -> columns.EntryBlock | None:
        """The block without dead rows, with the new segment's ordinals; None if nothing is left."""
        living = block.select(self.living[block.ordinals])
        return living and replace(living, ordinals=living.ordinals + np.uint32(self.base))


def lay_out(
    inputs: Sequence[MergeInput], groups: Sequence[Laid], dead: Sequence[BitMap]
) -> tuple[list[LivingRows], Shell]:
    """The inputs side by side, and the new segment's shell.

    Args:
        groups: the current groups of each input.
        dead: local ordinals of each input's rows that are left out.
    """
    covered = [source.segment.count + source.segment.purged for source in inputs]
    # One byte per row, for all inputs together.
    living = np.ones(sum(covered), np.bool_)
    parts: list[LivingRows] = []
    all_groups: list[tuple[bytes, int]] = []
    base = 0
    for segment, groups_of_segment, gone, count in zip(inputs, groups, dead, covered, strict=True):
        living_of_segment = living[base : base + count]
        living_of_segment[bitmaps.ordinals(gone)] = False
        parts.append(LivingRows(segment, base, living_of_segment))
        all_groups += [(uid, base + at) for uid, at in groups_of_segment]
        base += count
    uids = [segment.segment.uid for segment in inputs]
    return parts, Shell(all_groups, living, purged=sum(map(len, dead)), inputs=uids)


def renumber(part: LivingRows, column: columns.Column, kind: KeyKind) -> columns.Column:
    """A whole column without dead rows, with the new segment's ordinals.

    Raises:
        DoesNotOpen: it lacks live rows.
    """
    alive = part.living[column.ordinals]
    listed = part.living[words.rows_of(column)] if kind is KeyKind.WORDS else alive
    if np.count_nonzero(listed) != np.count_nonzero(part.living):
        raise DoesNotOpen("a column lacks rows that are alive")
    moved = column.ordinals + np.uint32(part.base)
    if alive.all():
        return columns.Column(moved, column.keys)
    return columns.Column(moved[alive], column.keys[alive[column.absent :]])

"""Build a segment from columns that come group by group, in bounded memory.

The sorted column of one group is a *run*. Runs are stored as blocks of entries, in memory or
elsewhere (:class:`.cuts.Contents`). After the last group, the runs of each column are merged as a
stream, which is cut into pages at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.columns import block_streams, words
from encrypted_records.index.columns.block_streams import absent_block
from encrypted_records.index.columns.column import Column, EntryBlock, Keys, key_type
from encrypted_records.index.ordinals import Ordinals
from encrypted_records.index.segments.builder import (
    STANDARD,
    Builder,
    SealedSegment,
    SegmentLimits,
    Shell,
)
from encrypted_records.index.segments.cuts import Contents
from encrypted_records.model.definition import SchemaDefinition, column_spec, columns_of
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.records import Group

#: A run: the number of rows with a value, and its blocks as bytes.
Blocks = tuple[int, list[bytes]]

#: Entries of a block; a merge holds one block of each run.
BLOCK_ENTRIES = 1 << 12
#: A block's header: its entries, distinct keys, and bytes per key.
_HEAD = struct.Struct("<IIH")


@dataclass(frozen=True, slots=True)
class _RunBlocks:
    """The location of a run's blocks, its number of entries besides one for each row, and the
    length of its longest key in bytes.
    """

    base: int
    blocks: range
    listed: int
    width: int


class RunMerger:
    """Merges sorted runs into one segment: :meth:`add` its groups in their order, then
    :meth:`seal`.
    """

    def __init__(
        self,
        key: SchemaKey,
        definition: SchemaDefinition,
        origin: bytes,
        contents: Contents,
        limits: SegmentLimits = STANDARD,
        most_words: int | None = None,
        inputs: Sequence[bytes] = (),
    ) -> None:
        """
        Args:
            origin, inputs: as of :class:`Shell`.
            contents: stores runs, and then the contents of pages; it may be shared.
            most_words: maximum words in a word column, if other than ``words.most_listed``.
        """
        self._key = key
        self._definition = definition
        self._origin = origin
        self._inputs = inputs
        self._contents = contents
        self._limits = limits
        self._most_words = most_words
        self._groups: list[tuple[bytes, int]] = []
        self._count = 0
        #: the added rows of each group
        self._living: list[NDArray[np.bool_]] = []
        self._runs: dict[str, list[_RunBlocks]] = {
            column.name: [] for column in columns_of(definition)
        }

    def add(self, group: Group, runs: Iterable[Blocks]) -> None:
        """Add the next group, all of whose rows are live.

        Args:
            runs: the result of :func:`cut_columns` for its columns.
        """
        self.begin(group)
        self._add_runs(runs, group.count)
        self._living[-1][:] = True

    def begin(self, group: Group) -> None:
        """Begin the next group, whose live rows :meth:`add_rows` adds."""
        base = self._groups[-1][1] + len(self._living[-1]) if self._groups else 0
        self._groups.append((group.uid, base))
        self._living.append(np.zeros(group.count, np.bool_))
        self._count += group.count

    def add_rows(self, ordinals: Ordinals, columns: Iterable[tuple[str, Column]]) -> None:
        """Add rows of the group that was begun last.

        Args:
            ordinals: their ordinals in the group, ascending.
            columns: each column of the definition by name, over indexes of ``ordinals``.
        """
        moved = ((name, Column(ordinals[column.ordinals], column.keys)) for name, column in columns)
        self._add_runs(cut_columns(self._definition, moved), len(ordinals))
        self._living[-1][ordinals] = True

    def _add_runs(self, runs: Iterable[Blocks], rows: int) -> None:
        base = self._groups[-1][1]
        for runs_of_field, (present, contents) in zip(self._runs.values(), runs, strict=True):
            first, width = len(self._contents), 1
            for content in contents:
                self._contents.add(content)
                width = max(width, _width(content))
            blocks = range(first, len(self._contents))
            runs_of_field.append(_RunBlocks(base, blocks, present - rows, width))

    def seal(self) -> SealedSegment:
        """The segment; its pages are sealed as they are consumed."""
        living = np.concatenate(self._living)
        purged = self._count - int(np.count_nonzero(living))
        shell = Shell(self._groups, living, purged, inputs=self._inputs, origin=self._origin)
        builder = Builder(self._key, self._definition, shell, self._limits, self._contents)
        for name, runs in self._runs.items():
            kind = self._kind(name)
            keys = _keys_of(runs, kind)
            blocks = block_streams.merge([self._stream(run, keys) for run in runs])
            beyond = self._find_beyond(runs) if kind is KeyKind.WORDS else None
            if beyond is not None:
                blocks = words.leave_out(blocks, beyond)
            if builder.streams:
                builder.add_stream(name, blocks)
            else:
                builder.add(name, block_streams.gather(blocks, kind))
        return builder.seal()

    def _find_beyond(self, runs: Sequence[_RunBlocks]) -> NDArray[np.bool_] | None:
        """A mask of the local ordinals with more words than a column may list; None if all may be
        listed.
        """
        most = words.most_listed(self._count) if self._most_words is None else self._most_words
        if sum(run.listed for run in runs) <= most:
            return None
        counts = words.WordCounts(self._count)
        for run in runs:
            for block in self._stream(run, key_type(KeyKind.WORDS)):
                counts.add(block)
        return counts.find_beyond(most)

    def _kind(self, name: str) -> KeyKind:
        return column_spec(self._definition, name).kind

    def _stream(self, run: _RunBlocks, keys: np.dtype[Any]) -> Iterator[EntryBlock]:
        for number in run.blocks:
            yield _decode(self._contents.read(number), keys, run.base)


def _keys_of(runs: Sequence[_RunBlocks], kind: KeyKind) -> np.dtype[Any]:
    """The type of a column's keys during a merge. Texts are as wide as the longest of them, and
    mostly half as wide as the maximum, so that half as much memory is moved and compared.
    """
    dtype = key_type(kind)
    return np.dtype(f"S{max(run.width for run in runs)}") if dtype.kind == "S" and runs else dtype


def cut_columns(
    definition: SchemaDefinition, columns: Iterable[tuple[str, Column]]
) -> Iterator[Blocks]:
    """The runs of one group, for :meth:`RunMerger.add` in this or another process of this machine.

    Args:
        columns: each column of the definition by name, over ordinals from 0 on.
    """
    for name, column in columns:
        kind = column_spec(definition, name).kind
        yield column.present, [_encode(block) for block in _cut(column, kind)]


def _cut(column: Column, kind: KeyKind) -> Iterator[EntryBlock]:
    for first in range(0, column.absent, BLOCK_ENTRIES):
        rows = column.absent_rows()[first : first + BLOCK_ENTRIES]
        yield absent_block(rows, kind)
    for first in range(0, column.present, BLOCK_ENTRIES):
        yield from column.entries(first, min(first + BLOCK_ENTRIES, column.present))


def _encode(block: EntryBlock) -> bytes:
    """Encode in this machine's byte order, because no other machine reads it; without the zero
    bytes that end all keys."""
    keys, width = block.keys, block.keys.dtype.itemsize
    if keys.dtype.kind == "S" and len(keys):
        width = max(1, np.char.str_len(keys).max())
        keys = keys.astype(f"S{width}")
    head = _HEAD.pack(len(block.ordinals), len(keys), width)
    return head + block.ordinals.tobytes() + block.starts.tobytes() + keys.tobytes()


def _width(data: bytes) -> int:
    """The bytes of each key in a block."""
    _, distinct, width = _HEAD.unpack_from(data)
    return width if distinct else 0


def _decode(data: bytes, dtype: np.dtype[Any], base: int) -> EntryBlock:
    """
    Args:
        dtype: the type of the keys.
    """
    entries, distinct, width = _HEAD.unpack_from(data)
    at = _HEAD.size
    ordinals = np.frombuffer(data, np.uint32, entries, at)
    at += ordinals.nbytes
    starts = np.frombuffer(data, np.uint32, distinct, at)
    stored = np.dtype(f"S{width}") if dtype.kind == "S" else dtype
    keys: Keys = np.frombuffer(data, stored, distinct, at + starts.nbytes).astype(dtype)
    return EntryBlock(ordinals + np.uint32(base), keys, starts)

"""The first rows of an answer in the order of one or more fields, from columns alone.

Each segment contributes the rows that can be among the first of all (:func:`_narrow`); these few
are sorted together. Long strings whose order the index does not know are first treated as equal; if
that leaves the answer open, their texts are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto import values
from encrypted_records.crypto.format import INDEX_KEY_BYTES
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.log.snapshot import Positions
from encrypted_records.index.query.candidates import Candidates
from encrypted_records.index.query.key_sets import Texts, classes_of, inner_ranks
from encrypted_records.model.definition import SchemaDefinition
from encrypted_records.model.field_types.base import KeyKind
from encrypted_records.model.queries import SortKey
from encrypted_records.model.records import PlainRecord

Ranks = NDArray[np.int64]
_TYPES: dict[type, Any] = {bytes: f"S{INDEX_KEY_BYTES}", int: np.uint64}


@dataclass(frozen=True, slots=True)
class SortPosition:
    """The position of a row in the sort order: its index key of each field, None if absent, and its
    row position.
    """

    keys: tuple[int | bytes | None, ...]
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class SortedRows:
    """Rows of the answer in order, and whether each certainly matches."""

    positions: Positions
    certain: NDArray[np.bool_]
    _keys: Sequence[tuple[NDArray[np.bool_], NDArray[Any]]]

    def __len__(self) -> int:
        return len(self.positions)

    def sort_position(self, at: int) -> SortPosition:
        keys = (keys[at].item() if present[at] else None for present, keys in self._keys)
        return SortPosition(tuple(keys), int(self.positions[at]))


def locate_record(
    record: PlainRecord,
    position: int,
    order: Sequence[SortKey],
    tails: SchemaKey,
    definition: SchemaDefinition,
    texts: Texts,
) -> SortPosition:
    """The position of a decrypted record in the sort order."""
    keys: list[int | bytes | None] = []
    for level in order:
        spec, value = definition.fields[level.field], record.data.get(level.field)
        if spec.kind is KeyKind.UUID and value is not None:
            keys.append(values.uuid_key(value).rstrip(b"\x00"))
        elif spec.kind is KeyKind.TEXT and isinstance(value, str):
            keys.append(texts.learn(level.field, value, tails.field(spec).tail))
        else:
            keys.append(None if value is None else values.to_offset(spec, value))
    return SortPosition(tuple(keys), position)


def first(
    parts: Sequence[Candidates],
    order: Sequence[SortKey],
    texts: Texts,
    *,
    want: int,
    after: SortPosition | None = None,
) -> SortedRows | None:
    """The first ``want`` rows after ``after``; None if ``texts`` now wants some.

    Args:
        after: ``texts`` must know its long texts.

    Raises:
        DoesNotOpen: a column that is needed does not open.
        InvalidQuery: too many long strings would have to be opened.
    """
    kept = [part.only(_narrow(part, order, want, after)) for part in parts]
    entries = _RowsSideBySide(kept, order, after)
    return entries.first(texts, want)


def _narrow(
    part: Candidates, order: Sequence[SortKey], want: int, after: SortPosition | None
) -> NDArray[np.intp]:
    """The rows of a segment that can be among the first ``want`` rows after ``after``."""
    levels = [
        _EvenRanks(part, term, after.keys[at] if after else None) for at, term in enumerate(order)
    ]
    unsure = np.zeros(len(part), np.bool_)
    remaining = np.arange(len(part))
    if after is not None:
        later = np.zeros(len(part), np.bool_)
        equal = np.ones(len(part), np.bool_)
        for level in levels:
            later |= equal & (level.ranks > level.after)
            equal &= level.ranks == level.after
            unsure |= equal & level.unlike
            equal &= ~level.unlike
        later |= equal & (part.positions > after.position)
        remaining = np.flatnonzero(later)
    chosen = [np.flatnonzero(unsure)]
    for level in levels:
        if len(remaining) <= want:
            break
        ranks = level.ranks[remaining]
        last = np.partition(ranks, want - 1)[want - 1]
        chosen.append(remaining[ranks < last])
        want -= len(chosen[-1])
        remaining = remaining[ranks == last]
        if int(last) in level.mixed:
            break
    else:
        if len(remaining) > want:
            remaining = remaining[np.argpartition(part.positions[remaining], want - 1)[:want]]
    return np.concatenate((*chosen, remaining))


class _EvenRanks:
    """Even ranks of a segment's rows by a field. ``after`` also has a rank, which is odd if it
    differs from all theirs. Rows of the same class share a rank."""

    def __init__(self, part: Candidates, order: SortKey, after: int | bytes | None) -> None:
        dictionary = part.dictionary(order.field)
        keys, codes = dictionary.keys, part.codes(order.field)
        #: ranks of several different keys
        self.mixed: set[int] = set()
        by_class = keys
        # A key's rank is twice its code, found without a table of keys, which may be millions.
        self.ranks: Ranks = 2 * codes.astype(np.int64)
        if dictionary.long:
            by_class = classes_of(keys)
            new = np.ones(len(keys), np.bool_)
            new[1:] = by_class[1:] != by_class[:-1]
            of_key = 2 * np.cumsum(new)
            self.mixed = set(of_key[~new].tolist())
            by_class = by_class[new]
            self.ranks = np.concatenate((np.zeros(1, np.int64), of_key))[codes]
        #: rows in the class of ``after`` with another key
        self.unlike = np.zeros(len(part), np.bool_)
        self.after = 0
        if after is not None and len(keys):
            wanted: NDArray[Any] = np.array([after], keys.dtype)
            name = classes_of(wanted) if dictionary.long else wanted
            below = int(np.searchsorted(by_class, name[0]))
            is_there = below < len(by_class) and by_class[below] == name[0]
            self.after = 2 * below + (2 if is_there else 1)
            alike = np.flatnonzero(self.ranks == self.after)
            self.unlike[alike] = keys[codes[alike] - 1] != wanted[0]
        elif after is not None:
            self.after = 1
        if order.descending:
            self.ranks, self.after = -self.ranks, -self.after
            self.mixed = {-rank for rank in self.mixed}


class _RowsSideBySide:
    """Rows of several segments, side by side; the last row is ``after``, if given."""

    def __init__(
        self, parts: Sequence[Candidates], order: Sequence[SortKey], after: SortPosition | None
    ) -> None:
        self.order = order
        self.after = after
        positions = [] if after is None else [after.position]
        self.positions = np.concatenate(
            [*(part.positions for part in parts), np.array(positions, np.int64)]
        )
        self.certain = np.concatenate(
            [*(part.certain for part in parts), np.ones(len(positions), bool)]
        )
        #: for each field: a mask of the rows that have it, and their keys, zero for the others
        self.columns: list[tuple[NDArray[np.bool_], NDArray[Any]]] = [
            _gather(parts, term.field, [] if after is None else [after.keys[level]])
            for level, term in enumerate(order)
        ]

    def first(self, texts: Texts, want: int) -> SortedRows | None:
        ranks: list[Ranks] = []
        for level in range(len(self.order)):
            ranks += self._ranks(level, texts)
        sequence = np.lexsort((self.positions, *reversed(ranks)))
        begin = 0
        if self.after is not None:
            begin = int(np.flatnonzero(sequence == len(sequence) - 1)[0]) + 1
        self._want_undecided(texts, sequence, ranks, begin + want)
        if texts.wanted:
            return None
        chosen = sequence[begin : begin + want]
        columns = [(present[chosen], keys[chosen]) for present, keys in self.columns]
        return SortedRows(self.positions[chosen], self.certain[chosen], columns)

    def _ranks(self, level: int, texts: Texts) -> tuple[Ranks, Ranks]:
        """Ranks by class, and within classes by the known texts."""
        present, keys = self.columns[level]
        inner: Ranks = np.zeros(len(keys), np.int64)
        _, outer = np.unique(classes_of(keys), return_inverse=True)
        if keys.dtype.kind == "S":
            inner = inner_ranks(self.order[level].field, keys, texts)
        outer, inner = np.where(present, outer + 1, 0), np.where(present, inner, 0)
        return (-outer, -inner) if self.order[level].descending else (outer, inner)

    def _want_undecided(
        self, texts: Texts, sequence: NDArray[np.intp], ranks: Sequence[Ranks], end: int
    ) -> None:
        """Request the texts of rows before ``end`` that share their class with other keys."""
        changed = np.zeros(len(sequence), np.bool_)
        for level, sort_key in enumerate(self.order):
            outer, inner = (rank[sequence] for rank in ranks[2 * level : 2 * level + 2])
            changed[1:] |= outer[1:] != outer[:-1]
            keys = self.columns[level][1][sequence]
            if keys.dtype.kind != "S":
                continue
            unlike = np.flatnonzero((keys[1:] != keys[:-1]) & ~changed[1:]) + 1
            runs = np.cumsum(changed)
            undecided = np.isin(runs, np.intersect1d(runs[unlike], runs[:end]))
            for at in np.flatnonzero(undecided):
                if texts.get(sort_key.field, bytes(keys[at])) is None:
                    texts.want(sort_key.field, bytes(keys[at]), int(self.positions[sequence[at]]))
            changed[1:] |= inner[1:] != inner[:-1]


def _gather(
    parts: Sequence[Candidates], field: str, last: Sequence[int | bytes | None]
) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """A mask of the rows that have the field, and their keys, zero for the others."""
    present: list[NDArray[np.bool_]] = []
    keys: list[NDArray[Any]] = []
    for part in parts:
        codes = part.codes(field)
        present.append(codes > 0)
        keys.append(part.dictionary(field).keys[codes[present[-1]] - 1])
    present.append(np.array([key is not None for key in last], np.bool_))
    keys += [np.array([key], _TYPES[type(key)]) for key in last if key is not None]
    # A column with only absent rows does not determine the type of keys.
    non_empty = [column for column in keys if len(column)]
    mask = np.concatenate(present)
    padded = np.zeros(len(mask), non_empty[0].dtype if non_empty else np.uint64)
    if non_empty:
        padded[mask] = np.concatenate(non_empty)
    return mask, padded

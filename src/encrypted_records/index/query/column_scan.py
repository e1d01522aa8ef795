"""Rows of a segment whose value passes a test: a column's distinct keys, looked at one by one.

Where the directory lists the keys, they are tested there, and data pages are needed only of those
that pass. Else the whole column is. Long strings possibly pass until their text is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.index.columns.column import Keys
from encrypted_records.index.columns.texts import ColumnTexts, Mask
from encrypted_records.index.ordinals import Ordinals, bitmap, of_masks, ordinals, take_masks
from encrypted_records.index.query.long_strings import Texts
from encrypted_records.index.query.members import held_in
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment
from encrypted_records.index.segments.paged_column import PagedColumn
from encrypted_records.model.text_tests import TextTest


@dataclass(frozen=True, eq=False, slots=True)
class Scan:
    """One test of one segment's column: which of its distinct keys pass.

    ``certain`` and ``possible`` are over the column's distinct keys in order.
    """

    certain: Mask
    possible: Mask

    @classmethod
    def of_texts(
        cls,
        test: TextTest,
        segment: OpenedSegment,
        known: Texts,
        go_on: Callable[[], None] = lambda: None,
    ) -> Scan:
        """
        Args:
            segment: its directory of the field must be here, and the whole column where
                :func:`needs_whole` says so.
            known: long strings whose texts are known.
            go_on: as for :meth:`ColumnTexts.test`.

        Raises:
            DoesNotOpen: the column does not open.
        """
        keys, texts = _keys_of(segment, test.field)
        certain, possible = texts.test(test, go_on)
        for at in np.flatnonzero(possible & ~certain).tolist():
            text = known.get(test.field, bytes(keys[at]))
            if text is not None:
                certain[at] = possible[at] = test.fits(text)
        return cls(certain, possible)

    @classmethod
    def of_keys(cls, field: str, segment: OpenedSegment, wanted: Keys) -> Scan:
        """Which of the segment's keys are among ``wanted``, which are sorted.

        Raises:
            DoesNotOpen: the column does not open.
        """
        column = _listed(segment, field)
        keys = segment.dictionary(field).keys if column is None else column.directory.runs
        held = held_in(keys, wanted)
        return cls(held, held)

    @property
    def exact(self) -> bool:
        return np.array_equal(self.certain, self.possible)

    @property
    def undecided(self) -> Mask:
        """The long strings of which only their text says whether they pass."""
        return self.possible & ~self.certain

    def missing(self, segment: PagedSegment, field: str) -> set[int]:
        """The pages without which :func:`rows_of` cannot give the rows of the keys that pass."""
        return _missing(segment, field, self.possible)

    def missing_undecided(self, segment: PagedSegment, field: str) -> set[int]:
        """The pages without which :func:`want_undecided` cannot say whose texts it wants."""
        return _missing(segment, field, self.undecided)


def needs_whole(segment: OpenedSegment, field: str) -> bool:
    """Whether a column must be brought into memory as a whole before it is scanned; its directory
    must be here."""
    if is_whole(segment, field):
        return False
    assert isinstance(segment, PagedSegment)
    return not segment.directories[field].listed


def is_whole(segment: OpenedSegment, field: str) -> bool:
    """Whether a column is in memory as a whole, or has nothing in it."""
    return not isinstance(segment, PagedSegment) or segment.has_keys(field)


def rows_of(segment: OpenedSegment, field: str, mask: Mask) -> BitMap:
    """The rows of the keys in ``mask``."""
    if not mask.any():
        return BitMap()
    column = _listed(segment, field)
    if column is not None:
        pieces: list[Ordinals] = []
        for first, last in _spans(column, mask):
            pieces += column.pieces(first, last)
        return bitmap(*pieces)
    whole = segment.dictionary(field)
    return of_masks(take_masks(np.concatenate(([False], mask)), whole.codes))


def count_of(segment: OpenedSegment, field: str, mask: Mask) -> int:
    """How many rows the keys in ``mask`` have, dead ones included."""
    column = _listed(segment, field)
    if column is not None:
        return sum(last - first for first, last in _spans(column, mask))
    if not mask.any():
        return 0
    return int(segment.dictionary(field).counts[1:][mask].sum())


def want_undecided(
    segment: OpenedSegment,
    field: str,
    scan: Scan,
    rows: BitMap,
    texts: Texts,
    position: Callable[[int], int],
) -> None:
    """Want the texts of the keys that possibly pass and that some of ``rows`` have.

    Args:
        segment: has all that :meth:`Scan.missing_undecided` names.
        position: the position of a row.

    Raises:
        InvalidQuery: as :meth:`Texts.want`.
    """
    undecided = scan.undecided
    if not undecided.any():
        return
    keys, _ = _keys_of(segment, field)
    for at, row in _holders(segment, field, undecided, rows):
        texts.want(field, bytes(keys[at]), position(row))


def _missing(segment: PagedSegment, field: str, mask: Mask) -> set[int]:
    """The pages that hold the rows of the keys in ``mask`` and are not here."""
    column = _listed(segment, field)
    if column is None:
        return set()
    spans = _spans(column, mask)
    return set().union(*(column.missing_entries(first, last) for first, last in spans))


def _holders(
    segment: OpenedSegment, field: str, undecided: Mask, rows: BitMap
) -> Iterable[tuple[int, int]]:
    """The undecided keys that some of ``rows`` have, each with one such row."""
    column = _listed(segment, field)
    if column is not None:
        for at in np.flatnonzero(undecided).tolist():
            alone = np.zeros(len(undecided), np.bool_)
            alone[at] = True
            held = rows_of(segment, field, alone) & rows
            if held:
                yield at, held[0]
        return
    wanted = ordinals(rows)
    codes = segment.dictionary(field).codes_of(wanted)
    distinct, places = np.unique(codes, return_index=True)
    for code, place in zip(distinct.tolist(), places.tolist(), strict=True):
        if code and undecided[code - 1]:
            yield code - 1, int(wanted[place])


def _keys_of(segment: OpenedSegment, field: str) -> tuple[Keys, ColumnTexts]:
    column = _listed(segment, field)
    if column is not None:
        keys = column.directory.runs
        return keys, ColumnTexts(keys)
    whole = segment.dictionary(field)
    return whole.keys, whole.texts


def _listed(segment: OpenedSegment, field: str) -> PagedColumn | None:
    """The column, where it is not in memory as a whole and its directory lists its keys."""
    if needs_whole(segment, field) or is_whole(segment, field):
        return None
    column = segment.lookup(field)
    assert isinstance(column, PagedColumn)
    return column


def _spans(column: PagedColumn, mask: Mask) -> list[tuple[int, int]]:
    """Where the entries of listed keys begin and end; neighbours together."""
    starts = column.directory.starts.astype(np.int64)
    edges: NDArray[np.int64] = np.append(starts, column.present)
    steps = np.diff(np.concatenate(([False], mask, [False])).astype(np.int8))
    firsts, lasts = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
    return list(zip(edges[firsts].tolist(), edges[lasts].tolist(), strict=True))

"""Rows of a segment that a question is about, and what of a segment answering it takes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.index.bitmaps import ordinals
from encrypted_records.index.coded import Coded, Codes, Coding
from encrypted_records.index.columns import Ordinals
from encrypted_records.index.resolve import Matches
from encrypted_records.index.view import Places, Sequences, View
from encrypted_records.model.records import Segment


class Indexed(Protocol):
    """All that ordering and aggregating need of a segment, whatever its form."""

    @property
    def segment(self) -> Segment: ...

    def coded(self, name: str, /) -> Coded:
        """The field of every row of the segment."""


class Candidates:
    """Rows of one segment by local ordinal, each with its place and whether it surely matches."""

    def __init__(
        self,
        segment: Indexed,
        rows: Ordinals,
        certain: NDArray[np.bool_],
        sequences: Sequences,
        codings: Mapping[str, Coding] | None = None,
    ) -> None:
        """
        Args:
            codings: of fields whose whole columns need not be asked for.
        """
        self.segment = segment
        self.rows = rows
        self.certain = certain
        self._sequences = sequences
        self._codings = codings or {}

    @classmethod
    def of(
        cls,
        segment: Indexed,
        answer: Matches,
        view: View,
        codings: Mapping[str, Coding] | None = None,
    ) -> Candidates:
        """The live rows of an answer."""
        dead = view.dead_rows(segment.segment)
        possible = answer.possible - dead
        rows = ordinals(possible)
        certain = _within(rows, possible, answer.certain - dead)
        return cls(segment, rows, certain, view.sequences(segment.segment), codings)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def places(self) -> Places:
        return self._sequences.places(self.rows)

    def only(self, kept: NDArray[np.bool_] | NDArray[np.intp]) -> Candidates:
        return Candidates(
            self.segment, self.rows[kept], self.certain[kept], self._sequences, self._codings
        )

    def coding(self, field: str) -> Coding:
        """
        Raises:
            DoesNotOpen: a column that is needed does not open.
        """
        return self._codings.get(field) or self.segment.coded(field)

    def codes(self, field: str) -> NDArray[np.integer]:
        """:meth:`Coding.of` for each of the rows."""
        return self.coding(field).of(self.rows)

    def counts(self, field: str) -> Codes:
        """How many of the rows have each code of their segment's column."""
        found = self.segment.coded(field)
        # Rows that live are indexed: as many as there are indexed are all of these.
        if len(self) == self.segment.segment.count:
            return found.counts
        return np.bincount(found.of(self.rows), minlength=len(found.keys) + 1)


def within(answer: Matches, segment: Segment, view: View, *, groups: int) -> Matches:
    """What of an answer lies in the first ``groups`` groups of the schema."""
    if groups >= len(view.groups):
        return answer
    later = view.sequences(segment).later(groups)
    return Matches(answer.certain - later, answer.possible - later)


def _within(rows: Ordinals, possible: BitMap, certain: BitMap) -> NDArray[np.bool_]:
    if len(certain) == len(possible):
        return np.ones(len(rows), np.bool_)
    return np.isin(rows, ordinals(certain), assume_unique=True)

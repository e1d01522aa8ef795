"""Rows of a segment that a query may select, and what a query needs of a segment."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.index.columns.dictionary import Codes, ColumnDictionary, Dictionary
from encrypted_records.index.log.snapshot import Places, Positions, Snapshot
from encrypted_records.index.ordinals import Ordinals, ordinals
from encrypted_records.index.query.matches import Matches
from encrypted_records.model.records import Segment


class Indexed(Protocol):
    """All that ordering and aggregating need of a segment, whatever its form."""

    @property
    def segment(self) -> Segment: ...

    def dictionary(self, name: str, /) -> ColumnDictionary:
        """The field of every row of the segment."""


class Candidates:
    """Rows of one segment by local ordinal, with positions and whether each surely matches."""

    def __init__(
        self,
        segment: Indexed,
        rows: Ordinals,
        certain: NDArray[np.bool_],
        places: Places,
        dictionaries: Mapping[str, Dictionary] | None = None,
    ) -> None:
        """
        Args:
            dictionaries: of fields whose whole columns are not needed.
        """
        self.segment = segment
        self.rows = rows
        self.certain = certain
        self._places = places
        self._dictionaries = dictionaries or {}

    @classmethod
    def of(
        cls,
        segment: Indexed,
        answer: Matches,
        snapshot: Snapshot,
        dictionaries: Mapping[str, Dictionary] | None = None,
    ) -> Candidates:
        """The live rows of an answer."""
        dead = snapshot.dead_rows(segment.segment)
        possible = answer.possible - dead
        rows = ordinals(possible)
        certain = _within(rows, possible, answer.certain - dead)
        return cls(segment, rows, certain, snapshot.places(segment.segment), dictionaries)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def positions(self) -> Positions:
        return self._places.positions(self.rows)

    def only(self, kept: NDArray[np.bool_] | NDArray[np.intp]) -> Candidates:
        return Candidates(
            self.segment, self.rows[kept], self.certain[kept], self._places, self._dictionaries
        )

    def dictionary(self, field: str) -> Dictionary:
        """
        Raises:
            DoesNotOpen: a column that is needed does not open.
        """
        return self._dictionaries.get(field) or self.segment.dictionary(field)

    def codes(self, field: str) -> NDArray[np.integer]:
        """:meth:`Dictionary.codes_of` for each of the rows."""
        return self.dictionary(field).codes_of(self.rows)

    def counts(self, field: str) -> Codes:
        """How many of the rows have each code of their segment's column."""
        whole = self.segment.dictionary(field)
        # Rows that live are indexed: as many as there are indexed are all of these.
        if len(self) == self.segment.segment.count:
            return whole.counts
        return np.bincount(whole.codes_of(self.rows), minlength=len(whole.keys) + 1)


def within(answer: Matches, segment: Segment, snapshot: Snapshot, *, stored: int) -> Matches:
    """The part of an answer in the first ``stored`` rows of the schema."""
    if stored >= snapshot.stored:
        return answer
    later = snapshot.places(segment).later(stored)
    return Matches(answer.certain - later, answer.possible - later)


def _within(rows: Ordinals, possible: BitMap, certain: BitMap) -> NDArray[np.bool_]:
    if len(certain) == len(possible):
        return np.ones(len(rows), np.bool_)
    return np.isin(rows, ordinals(certain), assume_unique=True)

"""Rows of a segment that a query may select, and what a query needs of a segment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.index.columns.dictionary import Codes, ColumnDictionary, Dictionary
from encrypted_records.index.log.snapshot import GroupPlaces, Positions, Snapshot
from encrypted_records.index.ordinals import Ordinals, bitmap, in_pieces, ordinals
from encrypted_records.index.query.matches import Matches
from encrypted_records.model.records import Segment


class Indexed(Protocol):
    """All that ordering and aggregating need of a segment, whatever its form."""

    @property
    def segment(self) -> Segment: ...

    def dictionary(self, name: str, /) -> ColumnDictionary:
        """The field of every row of the segment."""


class Candidates:
    """Rows of one segment by local ordinal, with positions and whether each surely matches.

    What has one value a row is computed on first use.
    """

    def __init__(
        self,
        segment: Indexed,
        matches: Matches,
        places: GroupPlaces,
        dictionaries: Mapping[str, Dictionary] | None = None,
    ) -> None:
        """
        Args:
            matches: live rows.
            dictionaries: of fields whose whole columns are not needed.
        """
        self.segment = segment
        self.matches = matches
        self.places = places
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
        return cls(segment, answer.without(dead), snapshot.places(segment.segment), dictionaries)

    def __len__(self) -> int:
        return len(self.matches.possible)

    @cached_property
    def rows(self) -> Ordinals:
        """Ascending."""
        return ordinals(self.matches.possible)

    @cached_property
    def certain(self) -> NDArray[np.bool_]:
        if self.matches.exact:
            return np.ones(len(self), np.bool_)
        return np.isin(self.rows, ordinals(self.matches.certain), assume_unique=True)

    @cached_property
    def positions(self) -> Positions:
        return self.places.positions(self.rows)

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows that the segment indexes."""
        # Rows that live are indexed: as many as there are indexed are all of these.
        return len(self) == self.segment.segment.count

    def only(self, kept: NDArray[np.bool_] | NDArray[np.intp]) -> Candidates:
        rows, certain = self.rows[kept], self.certain[kept]
        possible = bitmap(rows)
        matches = Matches(possible if certain.all() else bitmap(rows[certain]), possible)
        return Candidates(self.segment, matches, self.places, self._dictionaries)

    def decided(self, kept: BitMap) -> Candidates:
        """The certain matches, together with the rows ``kept`` of the others, which were
        checked.
        """
        matches = Matches.exactly(self.matches.certain | kept)
        return Candidates(self.segment, matches, self.places, self._dictionaries)

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
        """The number of rows with each code of their segment's column."""
        whole = self.segment.dictionary(field)
        if self.is_whole:
            return whole.counts
        counts: Codes = np.zeros(len(whole.counts), np.int64)
        for rows in self.in_pieces():
            counts += np.bincount(whole.codes_of(rows), minlength=len(counts))
        return counts

    def in_pieces(self) -> Iterator[Ordinals]:
        """The rows, some at a time."""
        return in_pieces(self.matches.possible)


def within(answer: Matches, segment: Segment, snapshot: Snapshot, *, stored: int) -> Matches:
    """The part of an answer in the first ``stored`` rows of the schema."""
    if stored >= snapshot.stored:
        return answer
    return answer.without(snapshot.places(segment).later(stored))

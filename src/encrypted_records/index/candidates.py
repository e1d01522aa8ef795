"""Rows of a segment that a question is about, and what of a segment answering it takes.

A row's *place* is one number that orders rows as they were stored: its group's sequence, then its
ordinal there. It survives merges, in which local ordinals change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.index.columns import Column, Ordinals
from encrypted_records.index.ledger import View
from encrypted_records.index.resolve import Matches
from encrypted_records.model.records import MAX_GROUP_RECORDS, RowRef, Segment

Places = NDArray[np.int64]


class Indexed(Protocol):
    """All that ordering and aggregating need of a segment, whatever its form."""

    @property
    def segment(self) -> Segment: ...

    def column(self, name: str, /) -> Column:
        """Every row of the segment, sorted by the field."""


def place_of(sequence: int, ordinal: int) -> int:
    return sequence * MAX_GROUP_RECORDS + ordinal


def place_parts(place: int) -> tuple[int, int]:
    """Sequence of the group, and ordinal there."""
    return divmod(place, MAX_GROUP_RECORDS)


class Groups:
    """The groups of a view by their sequence."""

    def __init__(self, view: View) -> None:
        self._uids = {state.sequence: uid for uid, state in view.groups.items()}
        self._counts = {state.sequence: state.group.count for state in view.groups.values()}

    def __len__(self) -> int:
        return len(self._uids)

    def ref(self, place: int) -> RowRef:
        sequence, ordinal = place_parts(place)
        return RowRef(self._uids[sequence], ordinal)

    def has(self, place: int) -> bool:
        sequence, ordinal = place_parts(place)
        return ordinal < self._counts.get(sequence, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Rows of one segment by local ordinal, each with its place and whether it surely matches."""

    segment: Indexed
    rows: Ordinals
    places: Places
    certain: NDArray[np.bool_]

    @classmethod
    def of(cls, segment: Indexed, answer: Matches, view: View, *, groups: int) -> Candidates:
        """The live rows of an answer that lie in the first ``groups`` groups of the schema."""
        dead = view.dead_rows(segment.segment)
        possible = answer.possible - dead
        rows = np.array(possible, np.uint32)
        bases = np.array([base for _, base in segment.segment.groups], np.int64)
        sequences = np.array(
            [view.groups[uid].sequence for uid, _ in segment.segment.groups], np.int64
        )
        at = np.searchsorted(bases, rows, "right") - 1
        places = sequences[at] * MAX_GROUP_RECORDS + (rows - bases[at])
        certain = _within(rows, possible, answer.certain - dead)
        kept = sequences[at] < groups
        return cls(segment, rows[kept], places[kept], certain[kept])

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, kept: NDArray[np.bool_] | NDArray[np.intp]) -> Candidates:
        return Candidates(self.segment, self.rows[kept], self.places[kept], self.certain[kept])


def _within(rows: Ordinals, possible: BitMap, certain: BitMap) -> NDArray[np.bool_]:
    if len(certain) == len(possible):
        return np.ones(len(rows), np.bool_)
    return np.isin(rows, np.array(certain, np.uint32), assume_unique=True)


def positions(column: Column, rows: Ordinals) -> NDArray[np.int64]:
    """Where in the column each of these rows stands."""
    if not len(rows):
        return np.zeros(0, np.int64)
    where = np.zeros(int(column.ordinals.max()) + 1, np.int64)
    where[column.ordinals] = np.arange(len(column.ordinals))
    return where[rows]

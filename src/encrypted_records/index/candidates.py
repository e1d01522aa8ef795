"""Rows of a segment that a question is about, and what of a segment answering it takes.

A row's *place* is one number that orders rows as they were stored: its group's sequence, then its
ordinal there. It survives merges, in which local ordinals change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.index.bitmaps import ordinals
from encrypted_records.index.coded import Coded, Codes, Coding
from encrypted_records.index.columns import Ordinals
from encrypted_records.index.ledger import View
from encrypted_records.index.resolve import Matches
from encrypted_records.model.records import MAX_GROUP_RECORDS, RowRef, Segment

Places = NDArray[np.int64]


class Indexed(Protocol):
    """All that ordering and aggregating need of a segment, whatever its form."""

    @property
    def segment(self) -> Segment: ...

    def coded(self, name: str, /) -> Coded:
        """The field of every row of the segment."""


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
class Sequences:
    """The groups of a segment: where each one's local ordinals begin, how many rows it has, and
    its sequence."""

    bases: NDArray[np.int64]
    counts: NDArray[np.int64]
    sequences: NDArray[np.int64]

    @classmethod
    def of(cls, segment: Segment, view: View) -> Sequences:
        states = [view.groups[uid] for uid, _ in segment.groups]
        return cls(
            np.array([base for _, base in segment.groups], np.int64),
            np.array([state.group.count for state in states], np.int64),
            np.array([state.sequence for state in states], np.int64),
        )

    def places(self, rows: Ordinals) -> Places:
        at = np.searchsorted(self.bases, rows, "right") - 1
        return self.sequences[at] * MAX_GROUP_RECORDS + (rows - self.bases[at])

    def first(self, rows: BitMap, want: int, *, behind: int | None) -> BitMap:
        """The rows with the lowest places behind ``behind``, ``want`` of them or few more."""
        least = -1 if behind is None else behind
        found = BitMap()
        for at in np.argsort(self.sequences):
            base, count = int(self.bases[at]), int(self.counts[at])
            begin = least + 1 - place_of(int(self.sequences[at]), 0)
            if begin < count:
                found |= rows & BitMap(range(base + max(0, begin), base + count))
            if len(found) >= want:
                break
        return found


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
        return cls(segment, rows, certain, Sequences.of(segment.segment, view), codings)

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


def by_age(view: View, *, behind: int, rows: int) -> tuple[list[Segment], list[Segment]]:
    """Live segments with groups from sequence ``behind`` on: those that hold the oldest ``rows`` of
    these rows or more, and the others, all of whose rows were stored later."""
    spans: list[tuple[int, int, Segment]] = []
    for segment in view.segments:
        own = [view.groups[uid].sequence for uid, _ in segment.groups]
        if max(own) >= behind:
            spans.append((min(own), max(own), segment))
    spans.sort(key=lambda span: span[:2])
    held, newest, count = 0, -1, 0
    for lowest, highest, segment in spans:
        if held >= rows and lowest > newest:
            break
        held, newest, count = held + segment.count, max(newest, highest), count + 1
    segments = [segment for _, _, segment in spans]
    return segments[:count], segments[count:]


def within(answer: Matches, segment: Segment, view: View, *, groups: int) -> Matches:
    """What of an answer lies in the first ``groups`` groups of the schema."""
    if groups >= len(view.groups):
        return answer
    later = BitMap()
    for uid, base in segment.groups:
        state = view.groups[uid]
        if state.sequence >= groups:
            later.add_range(base, base + state.group.count)
    return Matches(answer.certain - later, answer.possible - later)


def _within(rows: Ordinals, possible: BitMap, certain: BitMap) -> NDArray[np.bool_]:
    if len(certain) == len(possible):
        return np.ones(len(rows), np.bool_)
    return np.isin(rows, ordinals(certain), assume_unique=True)

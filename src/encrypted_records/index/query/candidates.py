"""The rows that match a condition according to the index, and records opened for the rest.

The index may leave open whether a row matches, and the order of long strings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from encrypted_records.index.columns.dictionary import Codes, ColumnDictionary, Dictionary
from encrypted_records.index.log.snapshot import GroupPlaces, Positions, Snapshot
from encrypted_records.index.ordinals import Ordinals, bitmap, in_pieces, ordinals
from encrypted_records.index.query.asking import Asking, Rows, Work, Workspace
from encrypted_records.index.query.key_sets import Texts
from encrypted_records.model.predicates import Predicate, fields_of, matches, values_of
from encrypted_records.model.records import PlainRecord, RowRef, Segment


@dataclass(frozen=True, slots=True)
class Matches:
    """``certain`` is a subset of ``possible``; the matching rows are between them."""

    certain: BitMap
    possible: BitMap

    @classmethod
    def exactly(cls, rows: BitMap) -> Matches:
        return cls(rows, rows)

    @property
    def exact(self) -> bool:
        """Whether the index decides every row."""
        return self.certain is self.possible or len(self.certain) == len(self.possible)

    def without(self, rows: BitMap) -> Matches:
        """The matches without ``rows``; the same sets if ``rows`` is empty, and a single set if the
        matches are exact.
        """
        if not rows:
            return self
        possible = self.possible - rows
        return Matches(possible if self.exact else self.certain - rows, possible)


class Indexed(Protocol):
    """The interface of a segment of either form for sorting and aggregation."""

    @property
    def segment(self) -> Segment: ...

    def dictionary(self, name: str, /) -> ColumnDictionary:
        """The row-major column of a field."""


class Candidates:
    """Rows of a segment by local ordinal, with their positions and whether each certainly matches.

    Arrays with a value per row are computed on first use.
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
            dictionaries: for fields whose whole columns are not needed.
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
        """Whether these are all indexed rows of the segment."""
        # Live rows are indexed, so equal counts mean that these are all indexed rows.
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
        dictionary = self.segment.dictionary(field)
        if self.is_whole:
            return dictionary.counts
        counts: Codes = np.zeros(len(dictionary.counts), np.int64)
        for rows in self.in_pieces():
            counts += np.bincount(dictionary.codes_of(rows), minlength=len(counts))
        return counts

    def in_pieces(self) -> Iterator[Ordinals]:
        """The rows, some at a time."""
        return in_pieces(self.matches.possible)


def within(answer: Matches, segment: Segment, snapshot: Snapshot, *, stored: int) -> Matches:
    """The part of an answer in the first ``stored`` rows of the schema."""
    if stored >= snapshot.stored:
        return answer
    return answer.without(snapshot.places(segment).later(stored))


#: Number of rows opened at once, with one request.
BATCH = 256
#: Records times values to check, and characters to normalize, in about ten milliseconds each.
CHECKS, LONG_TEXT = 5000, 10_000


def open_rows(
    refs: Sequence[RowRef], *, alone: bool = False, ranked: bool = False
) -> Asking[list[PlainRecord]]:
    """The records of some rows, in order; arguments as for :class:`Rows`."""
    if not refs:
        return []
    records: list[PlainRecord] = yield Rows(tuple(refs), alone, ranked)
    return records


def check_records(
    space: Workspace, where: Predicate, records: Sequence[PlainRecord]
) -> Asking[list[bool]]:
    """Whether each of these records matches."""
    names = fields_of(where)
    texts = (record.data.get(name) for record in records for name in names)
    yield Work(
        None,
        long=values_of(where) * len(records) > CHECKS
        or any(isinstance(text, str) and len(text) > LONG_TEXT for text in texts),
    )
    return [matches(where, record.data, space.definition) for record in records]


def learn_texts(space: Workspace, texts: Texts, *, ranked: bool = False) -> Asking[None]:
    """Open a record for each wanted long string, in storage order, because the order in which they
    are wanted may depend on their values.

    Args:
        ranked: as for :class:`Rows`.
    """
    yield Work(None)
    wanted = sorted(texts.wanted.items(), key=lambda item: item[1])
    alone = len(wanted) > space.most_kept
    for at in range(0, len(wanted), BATCH):
        batch = wanted[at : at + BATCH]
        refs = [space.snapshot.ref(position) for _, position in batch]
        records = yield from open_rows(refs, alone=alone, ranked=ranked)
        for ((field, key), _), record in zip(batch, records, strict=True):
            spec = space.definition.fields[field]
            texts.answer(field, key, record.data.get(field), space.tails.field(spec).tail)


def keep_matching(space: Workspace, where: Predicate, part: Candidates) -> Asking[Candidates]:
    """The matching rows among some candidates; rows that the index does not decide are opened."""
    if part.matches.exact:
        return part
    # Few rows of millions are unsure; positions are computed only for these.
    unsure = ordinals(part.matches.possible - part.matches.certain)
    kept = np.zeros(len(unsure), np.bool_)
    for at in range(0, len(unsure), BATCH):
        positions = part.places.positions(unsure[at : at + BATCH])
        refs = [space.snapshot.ref(position) for position in positions.tolist()]
        records = yield from open_rows(refs, alone=len(unsure) > space.most_kept)
        kept[at : at + BATCH] = yield from check_records(space, where, records)
    return part.decided(bitmap(unsure[kept]))

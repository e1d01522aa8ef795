"""The columns of words of several segments -> one, a stretch of keys at a time.

Such a column has many entries for each row: as a whole it would take memory by what texts say. Its
keys are hashes, so that stretches of one width have about as many entries, whatever the words are;
a word that every row has is the most that one may have beyond that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from encrypted_records.crypto.format import WORDS_FROM
from encrypted_records.errors import DoesNotOpen
from encrypted_records.index.columns import column as columns
from encrypted_records.index.columns import words
from encrypted_records.index.columns.column import Column
from encrypted_records.index.columns.key_range import Edge, KeyRange
from encrypted_records.index.segments.builder import Limits
from encrypted_records.index.segments.paged import OpenedSegment, PagedSegment

#: The entries that say of each row how many words it has room for.
_HEADS = KeyRange(Edge(0, "left"), Edge(WORDS_FROM, "left"))
_BEYOND = 1 << 64

#: The pages of a segment that are wanted next.
Wanted = Callable[[OpenedSegment], set[int]]
#: Brings these pages into all segments; of others it may take data pages out.
Bring = Callable[[Wanted], None]


@dataclass(frozen=True, slots=True)
class LivingRows:
    """An input, where its local ordinals begin in the new segment, and which of them live."""

    segment: OpenedSegment
    base: int
    living: NDArray[np.bool_]

    def renumber(self, column: Column) -> Column:
        """The column without dead rows, its ordinals as they are in the new segment."""
        alive = self.living[column.ordinals]
        moved = column.ordinals + np.uint32(self.base)
        if alive.all():
            return Column(moved, column.keys)
        return Column(moved[alive], column.keys[alive[column.absent :]])

    def require(self, rows: NDArray[np.uint32]) -> None:
        """
        Raises:
            DoesNotOpen: these rows, each of which is there once, are not all that live.
        """
        if np.count_nonzero(self.living[rows]) != np.count_nonzero(self.living):
            raise DoesNotOpen("a column lacks rows that are alive")


class WordMerger:
    """One column of words for the living rows of the inputs."""

    def __init__(
        self, name: str, parts: Sequence[LivingRows], bring: Bring, limits: Limits
    ) -> None:
        """
        Raises:
            DoesNotOpen: what an input says of its rows is not so of the rows that it has.
        """
        self._name = name
        self._parts = parts
        self._bring = bring
        bring(lambda one: one.missing_directories([name]))
        own = self._read(_HEADS)
        for part, heads in zip(parts, own, strict=True):
            part.require(_checked_rows(part.segment, name, heads))
        present = sum(part.segment.lookup(name).present for part in parts)
        listed = present - sum(len(heads.keys) for heads in own)
        self._count = max(1, -(-listed // limits.stretch))
        self._heads = _join([part.renumber(one) for part, one in zip(parts, own, strict=True)])
        self._dropped: NDArray[np.bool_] | None = None
        if listed > limits.listed:
            self._dropped = words.choose_undecided(self._count_words(), limits.listed)
            self._heads = words.leave_undecided(self._heads, self._dropped)

    @property
    def room(self) -> int:
        """For how many entries the new column has room."""
        return words.count_entries(self._heads)

    def pieces(self) -> Iterator[Column]:
        """The new column, one piece behind the other.

        Raises:
            DoesNotOpen: a column of an input does not open.
        """
        yield self._heads
        for stretch in self._stretches():
            whole = _join(list(self._living(stretch)))
            if self._dropped is not None:
                kept = ~self._dropped[whole.ordinals]
                whole = Column(whole.ordinals[kept], whole.keys[kept])
            if len(whole.keys):
                yield whole

    def _count_words(self) -> NDArray[np.int64]:
        """How many words each row of the new segment has."""
        counts = np.zeros(sum(len(part.living) for part in self._parts), np.int64)
        for stretch in self._stretches():
            for column in self._living(stretch):
                counts += np.bincount(column.ordinals, minlength=len(counts))
        return counts

    def _stretches(self) -> Iterator[KeyRange]:
        width = _BEYOND - WORDS_FROM
        edges = [WORDS_FROM + at * width // self._count for at in range(self._count)]
        for first, behind in zip(edges, [*edges[1:], _BEYOND], strict=True):
            yield KeyRange(Edge(first, "left"), Edge(behind - 1, "right"))

    def _living(self, stretch: KeyRange) -> Iterator[Column]:
        for part, column in zip(self._parts, self._read(stretch), strict=True):
            yield part.renumber(column)

    def _read(self, stretch: KeyRange) -> list[Column]:
        """The entries of a stretch in each input."""
        self._bring(lambda one: one.lookup(self._name).missing_for(stretch))
        return [_read(part.segment, self._name, stretch) for part in self._parts]


def _read(segment: OpenedSegment, name: str, stretch: KeyRange) -> Column:
    column = segment.lookup(name)
    first, last = column.at_all(list(stretch))
    if first >= last:
        return Column(np.zeros(0, np.uint32), np.zeros(0, np.uint64))
    blocks = column.entries(first, last)
    ordinals = np.concatenate([block.ordinals for block in blocks])
    keys = np.concatenate([block.expand() for block in blocks])
    if not columns.in_order(ordinals, keys):
        raise DoesNotOpen("a column's pages are not in order")
    return Column(ordinals, keys)


def _checked_rows(segment: OpenedSegment, name: str, heads: Column) -> NDArray[np.uint32]:
    if isinstance(segment, PagedSegment) and segment.has_column(name):
        segment.check_words(name, heads)
    return heads.ordinals


def _join(parts: list[Column]) -> Column:
    return columns.join(parts, "words")

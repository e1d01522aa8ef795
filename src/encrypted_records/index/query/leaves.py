"""Leaf operators of a condition, with a class for each kind of comparison.

For one segment, each operator gives the cost of the comparison (``cost``), the pages that it lacks
(``missing``), the rows that it selects (``rows``) and their number (``count``), and can read them a
window of pages at a time (``read``). Operators do not fetch. :mod:`.choices` selects the way.

A match is two sets of local ordinals: rows that *certainly* match and rows that *possibly* match.
They differ only if strings longer than an index key are compared by order, by prefix or as texts;
opened records decide the rows in the difference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import ClassVar

import numpy as np
from pyroaring import BitMap

from encrypted_records.crypto import values
from encrypted_records.crypto.keys import SchemaKey
from encrypted_records.index.columns.column import KeyRange, Keys, alike
from encrypted_records.index.columns.dictionary import ColumnTexts, GoOn, Mask, go_on_always
from encrypted_records.index.columns.words import UNDECIDED
from encrypted_records.index.log.snapshot import GroupPlaces
from encrypted_records.index.ordinals import Ordinals, bitmap, mask_of, of_mask
from encrypted_records.index.query.candidates import Matches
from encrypted_records.index.query.key_sets import (
    KeyRanges,
    ListedKeys,
    Texts,
    WholeKeys,
    distinct_keys,
    find_positions,
    held_in,
    holds_all,
    is_whole,
    needs_whole,
    span_of,
)
from encrypted_records.index.query.row_lookups import ColumnFilter, entries_between, filter_column
from encrypted_records.index.segments.cuts import Zone
from encrypted_records.index.segments.loaded import LoadedSegment, OpenedSegment
from encrypted_records.index.segments.reading import (
    STANDARD,
    Reading,
    ReadingLimits,
    Window,
    WindowEntries,
    fill_up,
    read_column,
    read_pages,
)
from encrypted_records.model.definition import FieldSpec, words_spec
from encrypted_records.model.texts import TextTest


@dataclass(frozen=True, slots=True)
class ReadCost:
    """The pages of a column that a comparison needs, and their entries."""

    pages: int
    entries: int


@dataclass(frozen=True, eq=False, slots=True)
class Scan:
    """Masks of a column's distinct keys, in order: keys that certainly pass a test, and keys that
    possibly pass.
    """

    certain: Mask
    possible: Mask

    @property
    def is_exact(self) -> bool:
        return np.array_equal(self.certain, self.possible)

    @property
    def undecided(self) -> Mask:
        """The long strings whose texts must decide whether they pass."""
        return self.possible & ~self.certain


@dataclass(eq=False, slots=True)
class SegmentMemo:
    """The findings of a query in a segment, by leaf number: keys that pass a test, matching rows,
    and the positions of key ranges."""

    scans: dict[int, Scan] = field(default_factory=dict)
    found: dict[int, Matches] = field(default_factory=dict)
    positions: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def forget(self, leaf: LeafOperator) -> None:
        """Discard the rows and keys of a leaf; they can be computed again."""
        self.scans.pop(leaf.number, None)
        self.found.pop(leaf.number, None)


@dataclass(frozen=True, eq=False)
class LeafOperator(ABC):
    """``number`` is its index among the leaves of its condition; ``values`` is the number of values
    of the comparison."""

    number: int
    field: str
    values: int

    #: whether :meth:`read` can read it a window of pages at a time
    in_windows: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose directories it needs."""
        return (self.field,)

    @property
    def is_exact(self) -> bool:
        """Whether key ranges alone decide it."""
        return False

    @property
    def test(self) -> TestLeaf | None:
        """The test of each distinct key of the field, if the operator makes such a test."""
        return None

    def excludes(self, zones: Mapping[str, Zone]) -> bool:
        """Whether the zones of a segment's fields show that no row matches."""
        return False

    def decided(self, segment: OpenedSegment) -> bool | None:
        """Whether all rows of a segment match (True) or no row (False), if its loaded directory
        shows that; else None."""
        return None

    def cost(self, segment: LoadedSegment) -> ReadCost:
        """The cost of its rows, including loaded pages; the directory must be loaded."""
        return ReadCost(0, 0)

    @abstractmethod
    def missing(self, segment: LoadedSegment, memo: SegmentMemo) -> set[int]:
        """The pages that :meth:`rows` lacks; directories must be loaded."""

    @abstractmethod
    def rows(self, segment: OpenedSegment, memo: SegmentMemo) -> Matches:
        """The matching rows, including dead rows.

        Raises:
            DoesNotOpen: a column that is needed does not open.
        """

    def missing_to_count(self, segment: LoadedSegment) -> set[int]:
        """The pages that :meth:`count` lacks; directories must be loaded."""
        return set()

    def count(self, segment: OpenedSegment, memo: SegmentMemo) -> int | None:
        """The number of matching rows, including dead rows, if it is known without a set of rows;
        otherwise None.
        """
        return None

    def read(self, segment: LoadedSegment, limits: ReadingLimits = STANDARD) -> Reading[Matches]:
        """The rows like :meth:`rows`, for a comparison that reads many pages.

        Raises:
            DoesNotOpen: a page does not open.
        """
        raise TypeError(f"{type(self).__name__} is not read in windows")  # see in_windows


@dataclass(frozen=True, eq=False)
class RangeLeaf(LeafOperator):
    """A comparison whose matching rows have keys in some ranges."""

    ranges: KeyRanges
    in_windows: ClassVar[bool] = True

    @property
    def is_exact(self) -> bool:
        return self.ranges.certain == self.ranges.possible

    def excludes(self, zones: Mapping[str, Zone]) -> bool:
        zone = zones.get(self.field)
        return zone is not None and not any(map(zone.meets, self.ranges.possible))

    def holds_all(self, segment: OpenedSegment) -> bool:
        """Whether every row of a segment possibly matches, as far as its directory shows."""
        return holds_all(segment.lookup(self.field), self.ranges.possible)

    def decided(self, segment: OpenedSegment) -> bool | None:
        if _is_older(segment, self.field):
            return False
        if self.is_exact and self.holds_all(segment):
            return True
        if isinstance(segment, LoadedSegment) and not self.cost(segment).pages:
            return False
        return None

    def cost(self, segment: LoadedSegment) -> ReadCost:
        if not segment.has_column(self.field) or (self.is_exact and self.holds_all(segment)):
            return ReadCost(0, 0)
        directory = segment.directories[self.field]
        page_ranges = [
            pages_of_range
            for pages_of_range in map(directory.pages, self.ranges.possible)
            if pages_of_range
        ]
        if len(page_ranges) > 1:
            pages = np.unique(
                np.concatenate([np.arange(stretch.start, stretch.stop) for stretch in page_ranges])
            )
            return ReadCost(len(pages), int(directory.page_entries[pages].sum()))
        entries = (
            directory.start(stretch.stop) - directory.start(stretch.start)
            for stretch in page_ranges
        )
        return ReadCost(sum(map(len, page_ranges)), sum(entries))

    def missing(self, segment: LoadedSegment, memo: SegmentMemo) -> set[int]:
        if self.number in memo.found:
            return set()
        column = segment.lookup(self.field)
        # If the two differ, the certain range is inside the possible range, within some page.
        return set().union(
            *(
                column.missing_for(key_range)
                for key_range in self.ranges.possible
                if not (self.is_exact and column.all_within(key_range))
            )
        )

    def rows(self, segment: OpenedSegment, memo: SegmentMemo) -> Matches:
        found = memo.found.get(self.number)
        if found is not None:
            return found
        if self.holds_all(segment):
            possible = segment.everything
        else:
            possible = bitmap(*self._pieces(segment, self._positions(segment, memo)))
        if self.is_exact:
            return Matches.exactly(possible)
        column, certain = segment.lookup(self.field), self.ranges.certain
        if holds_all(column, certain):
            return Matches.exactly(segment.everything)
        places = find_positions(column, certain)
        return Matches(bitmap(*self._pieces(segment, places)), possible)

    def count_entries(self, segment: OpenedSegment, memo: SegmentMemo) -> int:
        """The number of column entries that :meth:`rows` reads."""
        if self.holds_all(segment):
            return 0
        return sum(last - first for first, last in self._positions(segment, memo))

    def entries(self, segment: OpenedSegment, memo: SegmentMemo) -> list[Ordinals] | None:
        """The rows of a comparison that keys alone decide, split by page; None if all rows match.

        Raises:
            DoesNotOpen: as for :meth:`rows`.
        """
        if self.holds_all(segment):
            return None
        pieces = self._pieces(segment, self._positions(segment, memo))
        return [piece for piece in pieces if len(piece)]

    def missing_to_count(self, segment: LoadedSegment) -> set[int]:
        column = segment.lookup(self.field)
        return set().union(*map(column.missing_to_count, self.ranges.certain))

    def count(self, segment: OpenedSegment, memo: SegmentMemo) -> int | None:
        if not self.is_exact:
            return None
        return sum(last - first for first, last in self._positions(segment, memo))

    def read(self, segment: LoadedSegment, limits: ReadingLimits = STANDARD) -> Reading[Matches]:
        ranges = self.ranges
        range_lists = [ranges.possible] if self.is_exact else [ranges.certain, ranges.possible]
        found = yield from _read_between(segment, self.field, range_lists, limits)
        return Matches(found[0], found[-1])

    def filter(
        self, segment: LoadedSegment, limits: ReadingLimits = STANDARD
    ) -> Reading[ColumnFilter]:
        """A filter of rows by the row-major column, which must be loaded.

        Raises:
            DoesNotOpen: a page does not open.
        """
        (found,) = yield from filter_column(segment, self.field, [self.ranges.possible], limits)
        return found

    def _positions(self, segment: OpenedSegment, memo: SegmentMemo) -> list[tuple[int, int]]:
        found = memo.positions.get(self.number)
        if found is None:
            found = find_positions(segment.lookup(self.field), self.ranges.possible)
            memo.positions[self.number] = found
        return found

    def _pieces(self, segment: OpenedSegment, places: Sequence[tuple[int, int]]) -> chain[Ordinals]:
        column = segment.lookup(self.field)
        return chain.from_iterable(column.pieces(*place) for place in places)


@dataclass(frozen=True, eq=False)
class AbsentLeaf(LeafOperator):
    """The field has no value."""

    in_windows: ClassVar[bool] = True

    def decided(self, segment: OpenedSegment) -> bool | None:
        if _is_older(segment, self.field):
            return True
        column = segment.lookup(self.field)
        if not column.present:
            return True
        return None if column.absent else False

    def cost(self, segment: LoadedSegment) -> ReadCost:
        if not segment.has_column(self.field):
            return ReadCost(0, 0)
        directory = segment.directories[self.field]
        return ReadCost(directory.leading, directory.absent)

    def missing(self, segment: LoadedSegment, memo: SegmentMemo) -> set[int]:
        known = self.number in memo.found
        return set() if known else segment.lookup(self.field).missing_absent()

    def rows(self, segment: OpenedSegment, memo: SegmentMemo) -> Matches:
        found = memo.found.get(self.number)
        return found or Matches.exactly(bitmap(segment.lookup(self.field).absent_rows()))

    def count(self, segment: OpenedSegment, memo: SegmentMemo) -> int | None:
        return segment.count - segment.lookup(self.field).present

    def read(self, segment: LoadedSegment, limits: ReadingLimits = STANDARD) -> Reading[Matches]:
        directory = segment.directories[self.field]
        rows = _no_rows(segment)

        def take(window: Window) -> None:
            for page, block in window:
                if page < directory.leading:
                    rows[block.ordinals.astype(np.intp)] = True

        pages = fill_up(segment, self.field, range(directory.leading))
        yield from read_pages(segment, self.field, pages, take, limits)
        return Matches.exactly(of_mask(rows))


@dataclass(frozen=True, eq=False)
class TestLeaf(LeafOperator):
    """A comparison that the order of keys cannot decide: each distinct key is tested."""

    __test__ = False  # not one of pytest's

    @property
    def test(self) -> TestLeaf:
        return self

    @abstractmethod
    def passing(
        self, keys: Keys, texts: Callable[[], ColumnTexts], go_on: GoOn
    ) -> tuple[Mask, Mask]:
        """Masks of the keys that certainly pass, and of those that possibly pass.

        Args:
            texts: of the keys, created on demand.
        """

    def scan(self, segment: OpenedSegment, memo: SegmentMemo, go_on: GoOn = go_on_always) -> Scan:
        """The keys of a segment that pass; computed once.

        Args:
            segment: the field's directory must be loaded, and the whole column if
                :func:`needs_whole`.

        Raises:
            DoesNotOpen: the column does not open.
        """
        found = memo.scans.get(self.number)
        if found is None:
            keys = distinct_keys(segment, self.field)
            found = Scan(*self.passing(keys.keys, lambda: keys.texts, go_on))
            memo.scans[self.number] = found
        return found

    def missing(self, segment: LoadedSegment, memo: SegmentMemo) -> set[int]:
        if self.number in memo.found:
            return set()
        if self.number not in memo.scans and needs_whole(segment, self.field):
            pages = segment.missing_columns([self.field])
            if pages:
                return pages
        found = self.scan(segment, memo)
        return self._keys(segment).missing(found.possible)

    def rows(self, segment: OpenedSegment, memo: SegmentMemo) -> Matches:
        found = memo.found.get(self.number)
        if found is None:
            scan, keys = self.scan(segment, memo), self._keys(segment)
            certain = keys.rows_of(scan.certain)
            possible = certain if scan.is_exact else keys.rows_of(scan.possible)
            found = memo.found[self.number] = Matches(certain, possible)
        return found

    def missing_to_count(self, segment: LoadedSegment) -> set[int]:
        is_needed = needs_whole(segment, self.field)
        return segment.missing_columns([self.field]) if is_needed else set()

    def count(self, segment: OpenedSegment, memo: SegmentMemo) -> int | None:
        found = memo.found.get(self.number)
        if found is not None:
            return len(found.certain) if found.exact else None
        scan = self.scan(segment, memo)
        return self._keys(segment).count_of(scan.certain) if scan.is_exact else None

    def _keys(self, segment: OpenedSegment) -> ListedKeys | WholeKeys:
        return distinct_keys(segment, self.field)


@dataclass(frozen=True, eq=False)
class MembersLeaf(TestLeaf):
    """The field's value is among the values of another schema's field: ``keys``, sorted."""

    keys: Keys

    def excludes(self, zones: Mapping[str, Zone]) -> bool:
        zone = zones.get(self.field)
        return zone is not None and not zone.meets(span_of(self.keys))

    def passing(
        self, keys: Keys, texts: Callable[[], ColumnTexts], go_on: GoOn
    ) -> tuple[Mask, Mask]:
        mask = held_in(keys, self.keys)
        return mask, mask


@dataclass(frozen=True, eq=False)
class TextLeaf(TestLeaf):
    """A test of texts. Long strings that are not ``known`` are undecided until their records are
    opened."""

    of_text: TextTest
    known: Texts

    def passing(
        self, keys: Keys, texts: Callable[[], ColumnTexts], go_on: GoOn
    ) -> tuple[Mask, Mask]:
        certain, possible = texts().test(self.of_text, go_on)
        for at in np.flatnonzero(possible & ~certain).tolist():
            text = self.known.get(self.field, bytes(keys[at]))
            if text is not None:
                certain[at] = possible[at] = self.of_text.fits(text)
        return certain, possible

    def missing_to_want(self, segment: OpenedSegment, memo: SegmentMemo) -> set[int]:
        """The pages that :meth:`want` lacks. An earlier test needs no pages, so they may never have
        been loaded, or have been removed since."""
        if not isinstance(segment, LoadedSegment) or is_whole(segment, self.field):
            return set()
        return self._keys(segment).missing(self.scan(segment, memo).undecided)

    def want(
        self,
        segment: OpenedSegment,
        memo: SegmentMemo,
        rows: BitMap,
        places: GroupPlaces,
    ) -> None:
        """Request the texts of the keys of ``rows`` that only possibly pass.

        Raises:
            InvalidQuery: as :meth:`Texts.want`.
        """
        undecided = self.scan(segment, memo).undecided
        if not undecided.any():
            return
        held_keys = self._keys(segment)
        keys = held_keys.keys
        for at, row in held_keys.holders(undecided, rows):
            self.known.want(self.field, bytes(keys[at]), places.position(row))


@dataclass(frozen=True, eq=False)
class WordsLeaf(LeafOperator):
    """A test of words by a field's word index, in ``column``. Rows whose words the column does not
    list match possibly, and so do rows that have all words of a phrase: records decide these, or
    the field's column by ``text``.

    ``words`` are the keys of each word; a row with all of them passes if ``is_enough``.
    """

    column: str
    words: tuple[KeyRange, ...]
    is_enough: bool
    of_text: TextTest
    text: TextLeaf | None = None

    @classmethod
    def of(cls, number: int, test: TextTest, spec: FieldSpec, tails: SchemaKey) -> WordsLeaf:
        """
        Args:
            spec: the field, whose words are indexed.
            tails: as for :meth:`.condition.Condition.of`.
        """
        words_field = words_spec(spec)
        tail = tails.field(words_field).tail
        keys = [values.word_key(word, tail) for word in dict.fromkeys(test.texts)]
        words, is_enough = tuple(map(alike, keys)), test.how == "has_words"
        return cls(number, test.field, len(test.texts), words_field.name, words, is_enough, test)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,) if self.text is None else (self.column, self.field)

    @property
    def test(self) -> TestLeaf | None:
        return self.text

    def cost(self, segment: LoadedSegment) -> ReadCost:
        if not segment.has_column(self.column):
            return ReadCost(0, 0)
        directory = segment.directories[self.column]
        pages = set().union(*(directory.pages(word) for word in (*self.words, UNDECIDED)))
        # Entries are packed, so they count for less.
        return ReadCost(len(pages), 0)

    def missing(self, segment: LoadedSegment, memo: SegmentMemo) -> set[int]:
        pages = set() if self.text is None else self.text.missing(segment, memo)
        if not segment.has_column(self.column):
            return pages
        column = segment.lookup(self.column)
        return pages.union(*(column.missing_for(word) for word in (*self.words, UNDECIDED)))

    def rows(self, segment: OpenedSegment, memo: SegmentMemo) -> Matches:
        having = self._having(segment)
        if self.text is None:
            return having
        passing = self.text.rows(segment, memo)
        return Matches(
            having.certain | (having.possible & passing.certain),
            having.certain | (having.possible & passing.possible),
        )

    def _having(self, segment: OpenedSegment) -> Matches:
        if not segment.has_column(self.column):
            return Matches(BitMap(), segment.everything)
        having: BitMap = BitMap.intersection(*(self._find(segment, word) for word in self.words))
        possible = having | self._find(segment, UNDECIDED)
        return Matches(having if self.is_enough else BitMap(), possible)

    def _find(self, segment: OpenedSegment, keys: KeyRange) -> BitMap:
        column = segment.lookup(self.column)
        if not column.present:
            return BitMap()
        first, last = column.at_all(list(keys))
        return bitmap(*column.pieces(first, last)) if first < last else BitMap()


# --- tests of one field together ----------------------------------------------------------------


def missing_to_want(
    tests: Sequence[TextLeaf], memo: SegmentMemo, segment: OpenedSegment
) -> set[int]:
    """:meth:`TextLeaf.missing_to_want` of some tests."""
    return set().union(*(test.missing_to_want(segment, memo) for test in tests))


def read_tests(
    segment: LoadedSegment,
    tests: Sequence[TestLeaf],
    go_on: GoOn = go_on_always,
    limits: ReadingLimits = STANDARD,
) -> Reading[list[Matches]]:
    """The rows that pass several tests of one field, from the whole column.

    Raises:
        DoesNotOpen: as :func:`read_column`, or a key is not a text.
    """
    name = tests[0].field
    masks = [(_no_rows(segment), _no_rows(segment)) for _ in tests]

    def take(window: Window) -> None:
        entries = WindowEntries(segment, name, window)
        texts = cache(lambda: ColumnTexts(entries.keys))
        for test, (certain, possible) in zip(tests, masks, strict=True):
            sure, maybe = test.passing(entries.keys, texts, go_on)
            certain[entries.rows_of(sure)] = True
            possible[entries.rows_of(maybe)] = True
        go_on()

    yield from read_column(segment, name, take, limits)
    return [Matches(of_mask(certain), of_mask(possible)) for certain, possible in masks]


def read_undecided(
    segment: LoadedSegment,
    tests: Sequence[TextLeaf],
    rows: BitMap,
    places: GroupPlaces,
    limits: ReadingLimits = STANDARD,
) -> Reading[None]:
    """Run :meth:`TextLeaf.want` for several tests of one field on the whole column.

    Raises:
        DoesNotOpen: as for :func:`read_column`.
        InvalidQuery: as for :meth:`Texts.want`.
    """
    name = tests[0].field
    wanted = mask_of(rows, segment.covered)

    def take(window: Window) -> None:
        entries = WindowEntries(segment, name, window)
        texts = cache(lambda: ColumnTexts(entries.keys))
        undecided = np.zeros(len(entries.keys), np.bool_)
        for test in tests:
            sure, maybe = test.passing(entries.keys, texts, go_on_always)
            undecided |= maybe & ~sure
        for at in np.flatnonzero(undecided).tolist():
            key_rows = entries.rows(at)
            wanted_rows = key_rows[wanted[key_rows]]
            if len(wanted_rows):
                tests[0].known.want(
                    name, bytes(entries.keys[at]), places.position(int(wanted_rows[0]))
                )

    yield from read_column(segment, name, take, limits)


# --- what windows leave -------------------------------------------------------------------------


def _read_between(
    segment: LoadedSegment,
    field: str,
    range_lists: Sequence[Sequence[KeyRange]],
    limits: ReadingLimits,
) -> Reading[list[BitMap]]:
    """The rows of two lists of key ranges; each page is read once for both."""
    if field in segment.columns:
        filters = yield from filter_column(segment, field, range_lists, limits)
        return [matches_of.all_rows() for matches_of in filters]
    directory = segment.directories[field]
    masks = [_no_rows(segment) for _ in range_lists]
    wanted: dict[int, list[tuple[Mask, KeyRange]]] = {}
    for mask, ranges in zip(masks, range_lists, strict=True):
        for key_range in ranges:
            for page in directory.pages(key_range):
                wanted.setdefault(page, []).append((mask, key_range))

    def take(window: Window) -> None:
        for page, block in window:
            for mask, key_range in wanted.get(page, ()):
                # As in ``by_row``: numpy takes twice as long with indexes of another type.
                mask[entries_between(block, key_range).astype(np.intp)] = True

    yield from read_pages(segment, field, fill_up(segment, field, wanted), take, limits)
    return [of_mask(mask) for mask in masks]


def _is_older(segment: OpenedSegment, field: str) -> bool:
    """Whether a large segment is older than a field, so that it has no values. Looking up the
    missing column would create a column of all rows."""
    return isinstance(segment, LoadedSegment) and not segment.has_column(field)


def _no_rows(segment: LoadedSegment) -> Mask:
    return np.zeros(segment.covered, np.bool_)
